"""SQLite's errors, as sentences. No code of the driver's reaches a person."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from engine.store.errors import (
    RefusedByStore,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
)

_KINDS: tuple[tuple[frozenset[str], type[StoreError], str], ...] = (
    (
        frozenset({"SQLITE_FULL"}),
        StoreFull,
        "the disk is full: nothing of this was stored, and what was stored before is safe."
        " Make room and try again",
    ),
    (
        frozenset({"SQLITE_READONLY"}),
        StoreReadOnly,
        "the store cannot be written: give its file and its folder back to their owner (`chmod u+w`)",
    ),
    (
        frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT"}),
        StoreDamaged,
        "the store is damaged or is not a store: leave it as it is, and see `interlock doctor`."
        " Backups are in its `.d/archive` folder",
    ),
    (
        frozenset({"SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH"}),
        StoreError,
        "the store cannot be opened: see that its folder exists and that you may read it",
    ),
    (
        frozenset({"SQLITE_BUSY", "SQLITE_LOCKED"}),
        StoreError,
        "something else has kept the store for more than half a minute: is a backup or a shell open on it?",
    ),
    (
        frozenset({"SQLITE_IOERR"}),
        StoreError,
        "the disk does not answer as it should: look at the system's log. What was committed is safe",
    ),
)


def sentence_of(error: sqlite3.Error) -> StoreError | RefusedByStore:
    """What a person is told, and what a program can tell apart."""
    name = getattr(error, "sqlite_errorname", None) or ""
    if isinstance(error, sqlite3.IntegrityError):
        return RefusedByStore(str(error))
    for names, kind, sentence in _KINDS:
        if any(name == known or name.startswith(f"{known}_") for known in names):
            return kind(f"{sentence} ({error})")
    if isinstance(error, sqlite3.DatabaseError) and "malformed" in str(error):
        return StoreDamaged(f"the store is damaged: {error}")
    return StoreError(f"the store could not do it: {error}")


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of the driver into errors of the store."""
    try:
        yield
    except sqlite3.Error as error:
        raise sentence_of(error) from error
