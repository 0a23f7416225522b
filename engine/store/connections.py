"""Connections to a store: one that writes, any number that read."""

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from engine.store import dialect, schema
from engine.store.errors import NoStore, StoreError
from engine.store.files import Place
from engine.store.trouble import explained

STATEMENTS = 512
"""Prepared statements kept by a connection: each set of columns that a change touches is one."""


def connect_writer(place: Place, synchronous: str = "FULL") -> sqlite3.Connection:
    """The one connection that writes; the caller holds the lock."""
    with explained():
        db = sqlite3.connect(
            place.file, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS
        )
        try:
            # Before anything else: a file that is refused keeps its bytes.
            schema.refuse_newer(schema.version_of(db))
            for pragma in (*dialect.WRITER_PRAGMAS, f"synchronous={synchronous}"):
                db.execute(f"PRAGMA {pragma}").fetchone()
            schema.prepare(db, place.archive)
        except BaseException:
            db.close()
            raise
    return db


def reader_uri(path: Path) -> str:
    """The name of a file to be read; a copy in a folder that cannot be written is read as it stands."""
    log = path.with_name(f"{path.name}-wal")
    settled = not os.access(path.parent, os.W_OK) and not (log.exists() and log.stat().st_size)
    return f"file:{quote(str(path))}?mode=ro{'&immutable=1' if settled else ''}"


def probe(place: Place) -> None:
    """Refuse a file that is no store, or a newer one, before anything is done to it."""
    try:
        found = place.file.stat()
    except OSError:
        return
    if not stat.S_ISREG(found.st_mode) or not found.st_size or not os.access(place.file, os.R_OK):
        return
    with explained(), closing(sqlite3.connect(reader_uri(place.file), uri=True)) as db:
        schema.refuse_newer(schema.version_of(db))


def connect_reader(place: Place) -> sqlite3.Connection:
    """A connection that can only read, for work that belongs into a process or thread of its own."""
    place.require()
    with explained():
        db = sqlite3.connect(reader_uri(place.file), uri=True, isolation_level=None, check_same_thread=False)
        try:
            for pragma in dialect.READER_PRAGMAS:
                db.execute(f"PRAGMA {pragma}").fetchone()
            require_version(db)
        except BaseException:
            db.close()
            raise
    return db


def require_version(db: sqlite3.Connection) -> None:
    """A reader changes nothing, so it takes the tables as they are or not at all."""
    version = schema.version_of(db)
    schema.refuse_newer(version)
    if version is None:
        raise NoStore("this store is empty: nothing was ever stored in it")
    if version != schema.VERSIONS[-1]:
        raise StoreError(
            f"this store has version {version} of its tables:"
            " `interlock engine --until-idle` brings it up to date"
        )
