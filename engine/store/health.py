"""What `interlock doctor` tells of a store: each line a fact, and whether it is as it should be."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from engine.store import dialect, schema
from engine.store.connections import connect_reader
from engine.store.errors import NoStore, StoreDamaged, StoreError
from engine.store.files import Place
from engine.store.lease import holder_of
from engine.store.trouble import explained

LITTLE_ROOM = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Symptom:
    """One thing that was looked at; `advice` when it is not as it should be."""

    what: str
    found: str
    advice: str | None = None


def examine(place: Place, *, named: bool = False) -> Iterator[Symptom]:
    """Everything about a store, from its file to its last row. One that was named must be there."""
    yield _sqlite()
    try:
        place.require()
    except NoStore as error:
        yield Symptom("store", str(error), "the name is wrong, or it was removed" if named else None)
        return
    except StoreError as error:
        yield Symptom("store", str(place.file), str(error))
        return
    yield Symptom("store", str(place.file))
    yield from _files(place)
    yield _lease(place)
    try:
        with closing(connect_reader(place)) as db, explained():
            yield from _database(db)
    except StoreDamaged:
        advice = f"copy it as it is; backups are in {place.archive}, if there are any"
        yield Symptom(
            "database", "it is damaged, lacks a part of itself, or is no store of Interlock's", advice
        )
    except StoreError as error:
        yield Symptom("database", "it cannot be read", str(error))


def _sqlite() -> Symptom:
    found = f"SQLite {dialect.linked_version()}"
    if dialect.has_wal_reset_bug():
        found += "; its WAL-reset bug (3.7.0 to 3.51.2) needs two writers, and a store has one"
    return Symptom("library", found)


def _files(place: Place) -> Iterator[Symptom]:
    for path, wanted in ((place.file, 0o600), (place.folder, 0o700)):
        if not path.exists():
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        loose = mode & ~wanted
        advice = f"others may reach it: `chmod {wanted:o} {path}`" if loose else None
        yield Symptom(f"mode of {path.name}", f"{mode:o}", advice)
        if path.stat().st_uid != os.geteuid():
            yield Symptom(f"owner of {path.name}", f"uid {path.stat().st_uid}", "it belongs to another user")
    room = shutil.disk_usage(place.file.parent).free
    advice = "there is little room on the disk" if room < LITTLE_ROOM else None
    yield Symptom("room on the disk", f"{room / 1e9:,.1f} GB", advice)


def _lease(place: Place) -> Symptom:
    holder = holder_of(place.lock)
    return Symptom("engine", f"{holder} holds the store" if holder else "none holds the store")


def _database(db: sqlite3.Connection) -> Iterator[Symptom]:
    version = schema.version_of(db)
    yield Symptom("version of the tables", str(version))
    sound = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
    advice = None if sound == "ok" else "the file is damaged: keep it; backups are in `.d/archive`"
    yield Symptom("integrity", sound, advice)
    lost = db.execute("SELECT count(*) FROM pragma_foreign_key_check").fetchone()[0]
    yield Symptom("foreign keys", f"{lost} broken", "see `interlock check`" if lost else None)
    intact = schema.intact(db)
    advice = "somebody altered them: copy the store, then see `interlock verify` and `interlock check`"
    yield Symptom("triggers", "in place" if intact else "not what they should be", None if intact else advice)
    like = f"{schema.ALTERED}%"
    for (copy,) in db.execute("SELECT value FROM store_info WHERE key LIKE ? ORDER BY key", (like,)):
        yield Symptom("altered once", f"the triggers had been altered; the store as it was then: {copy}")
    head = db.execute("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1").fetchone()
    yield Symptom("end of the trail", f"{head[0]}:{head[1].hex()}" if head else "empty")
    runs, open_runs = db.execute("SELECT count(*), count(*) - count(ended) FROM runs").fetchone()
    yield Symptom("runs", f"{runs:,}, {open_runs:,} not over")
