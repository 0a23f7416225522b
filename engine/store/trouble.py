"""Errors of the driver and of the system, as sentences. No code of theirs reaches a person."""

import errno
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from sqlalchemy.exc import DBAPIError

from engine.store.errors import (
    RefusedByStore,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
)

_FULL = (
    "the disk is full: nothing of this was stored, and what was stored before is safe."
    " Make room and try again"
)
_DAMAGED = (
    "the store is damaged or is not a store: leave it as it is, and see `interlock doctor`."
    " Backups are in its `.d/archive` folder"
)
_READ_ONLY = "give the store's file and its folder back to their owner (`chmod u+w`), or give another --store"

_KINDS: tuple[tuple[frozenset[str], type[StoreError], str], ...] = (
    (frozenset({"SQLITE_FULL"}), StoreFull, _FULL),
    (
        frozenset({"SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE"}),
        StoreFull,
        "the store's files cannot grow: the disk is full, a quota or a limit is reached, or the disk fails"
        " (see the system's log). Nothing of this was stored, and what was stored before is safe",
    ),
    (
        frozenset({"SQLITE_READONLY_DBMOVED"}),
        StoreError,
        "the store's file was moved or removed while it was open: put it back and open it again",
    ),
    (frozenset({"SQLITE_READONLY"}), StoreReadOnly, f"the store cannot be written: {_READ_ONLY}"),
    (
        frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT", "SQLITE_IOERR_SHORT_READ"}),
        StoreDamaged,
        _DAMAGED,
    ),
    (
        frozenset({"SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH"}),
        StoreError,
        "the store cannot be opened: see that its folder exists and that you may read and write there",
    ),
    (
        frozenset({"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL"}),
        StoreError,
        "something else has kept the store for more than half a minute: is a backup or a shell open on it?"
        " Close it and try again",
    ),
    (
        frozenset({"SQLITE_IOERR"}),
        StoreError,
        "the disk does not answer as it should: look at the system's log. What was committed is safe",
    ),
)

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_WRITING = {errno.EACCES, errno.EPERM, errno.EROFS}


def sentence_of(error: sqlite3.Error) -> StoreError | RefusedByStore:
    """What a person is told, and what a program can tell apart."""
    name = getattr(error, "sqlite_errorname", None) or ""
    if name == "SQLITE_CONSTRAINT_TRIGGER":
        return RefusedByStore(str(error))
    if isinstance(error, sqlite3.IntegrityError):
        return RefusedByStore(f"a row does not keep the rules of the tables ({error}): nothing was stored")
    for names, kind, sentence in _KINDS:
        if any(name == known or name.startswith(f"{known}_") for known in names):
            return kind(sentence)
    if "closed" in str(error):
        return StoreError("the store is closed")
    if isinstance(error, sqlite3.DataError | sqlite3.InterfaceError | sqlite3.ProgrammingError):
        return RefusedByStore(f"a value that the store cannot hold ({error}): nothing was stored")
    if "malformed" in str(error) or "decode" in str(error):
        return StoreDamaged(_DAMAGED)
    return StoreError(f"the store could not do it: {error}")


def system_sentence_of(error: OSError, path: object = None) -> StoreError:
    """The same for a call of the system: no room, not allowed, or something else about a path."""
    path = path or error.filename or "the store"
    if error.errno in _NO_ROOM:
        return StoreFull(f"{path}: {_FULL}")
    if error.errno in _NO_WRITING:
        return StoreReadOnly(f"{path} cannot be written: {_READ_ONLY}")
    return StoreError(f"{path} cannot be used ({error.strerror}): give another --store")


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of the driver and of the system into errors of the store."""
    try:
        yield
    except sqlite3.Error as error:
        raise sentence_of(error) from error
    except DBAPIError as error:
        # The migrations run through SQLAlchemy, which wraps the driver's errors in its own.
        raise _unwrapped(error) from error
    except OSError as error:
        raise system_sentence_of(error) from error
    except UnicodeDecodeError as error:
        # Text that was written is UTF-8; what is not, nobody wrote.
        raise StoreDamaged(_DAMAGED) from error


def _unwrapped(error: DBAPIError) -> StoreError | RefusedByStore:
    if isinstance(error.orig, sqlite3.Error):
        return sentence_of(error.orig)
    return StoreError(f"the store could not do it: {error.orig}")


@asynccontextmanager
async def explained_async() -> AsyncIterator[None]:
    """The same for statements that SQLAlchemy runs."""
    try:
        yield
    except DBAPIError as error:
        raise _unwrapped(error) from error
