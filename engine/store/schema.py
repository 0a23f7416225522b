"""The version of a database's tables, and how an older one is brought up to date.

Tables and indexes come from the migrations; triggers, views and the rows of `arrows` from the code, and
are made anew whenever they are not what the code says. Both happen in one transaction, so a database has
all of a version or none of it.
"""

import logging
import sqlite3
import uuid
from datetime import UTC, datetime
from pathlib import Path

from engine.store import interlock, statements
from engine.store.errors import StoreDamaged, StoreError, StoreNewer
from engine.store.tables import metadata
from engine.store.views import views

VERSIONS = ("0001",)
"""Every version there ever was, oldest first; one step of `migrations/versions` leads to each."""

ALTERED = "altered "
"""Begins the keys under which a store remembers that somebody had altered its triggers."""

log = logging.getLogger(__name__)


def version_of(db: sqlite3.Connection) -> str | None:
    """The version of its tables; None for a database that is empty."""
    names = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not names:
        return None
    if "alembic_version" not in names or "audit" not in names:
        raise StoreDamaged("this is a database, but not one of Interlock's: give another --store")
    lacking = sorted(set(metadata.tables) - names)
    found = db.execute("SELECT version_num FROM alembic_version").fetchone()
    if found is not None and found[0] == VERSIONS[-1] and lacking:
        raise StoreDamaged(
            f"this store lacks a part of itself ({', '.join(lacking)}): copy it as it is, and take a backup"
        )
    if found is None:
        raise StoreDamaged("this store does not say which version its tables have: take the last backup")
    return str(found[0])


def refuse_newer(version: str | None) -> None:
    if version is not None and version not in VERSIONS:
        raise StoreNewer(
            f"this store has version {version} of its tables, and this Interlock knows {VERSIONS[-1]} and"
            " older ones: use the newer Interlock that wrote it"
        )


def prepare(db: sqlite3.Connection, archive: Path) -> None:
    """Make the database one of this version, whatever it was before."""
    version = version_of(db)
    refuse_newer(version)
    if version == VERSIONS[-1]:
        if not intact(db):
            altered = _installed(db) == interlock.digest()
            copy = back_up(db, archive, "altered") if altered else None
            _install_alone(db, copy)
            if copy is not None:
                log.warning("the triggers of this store were altered and are made anew; as it was: %s", copy)
        return
    if version is not None:
        back_up(db, archive, f"version-{version}")
    _migrate(db)


def back_up(db: sqlite3.Connection, archive: Path, why: str) -> Path:
    """A copy of the database as it is, before anything is changed."""
    archive.mkdir(mode=0o700, parents=True, exist_ok=True)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    target = archive / f"{why}-{stamp}.db"
    copy = sqlite3.connect(target)
    try:
        db.backup(copy)
        check = copy.execute("PRAGMA quick_check").fetchone()[0]
    finally:
        copy.close()
    target.chmod(0o600)
    if check != "ok":
        raise StoreError(f"the backup {target} is not sound ({check}): the store was left as it is")
    return target


def _migrate(db: sqlite3.Connection) -> None:
    # alembic takes a quarter of a second to import, and is needed once in the life of a version.
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import StaticPool, create_engine

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    engine = create_engine("sqlite://", creator=lambda: db, poolclass=StaticPool)
    with engine.connect() as connection, connection.begin():
        db.execute("BEGIN IMMEDIATE")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        install(db)


# ---- the interlock


def intact(db: sqlite3.Connection) -> bool:
    """Whether triggers, views and arrows are those of the code."""
    known = {**interlock.triggers(), **views()}
    found = dict(db.execute("SELECT name, sql FROM sqlite_schema WHERE type IN ('trigger', 'view')"))
    if found != known:
        return False
    return _installed(db) == interlock.digest() and _arrows(db) == _documented()


def _installed(db: sqlite3.Connection) -> str | None:
    """The digest of the interlock that was put in place last, by this Interlock or an older one."""
    found = db.execute("SELECT value FROM store_info WHERE key = 'interlock'").fetchone()
    return found[0] if found else None


def _arrows(db: sqlite3.Connection) -> set[tuple[object, ...]]:
    return set(
        db.execute(
            "SELECT machine, from_state, event, to_state, kind, to_phase FROM arrows"
            " WHERE kind NOT IN (?, ?)",
            (interlock.FACT, interlock.RETIRED),
        )
    )


def _documented() -> set[tuple[object, ...]]:
    return {
        (row.machine, row.from_state, row.event, row.to_state, row.kind, row.to_phase)
        for row in interlock.arrow_rows()
    }


def install(db: sqlite3.Connection) -> None:
    """Put the triggers, the views and the arrows in place, inside the transaction that is open.

    Arrows keep their numbers, and one that is no longer documented keeps its row: the trail speaks of it.
    """
    for kind, name in db.execute(
        "SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'view')"
    ).fetchall():
        db.execute(f'DROP {kind.upper()} "{name}"')
    old = _arrows(db) - _documented()
    new = _documented() - _arrows(db)
    for row in old:
        db.execute(
            "UPDATE arrows SET kind = 'retired' WHERE machine = ? AND from_state IS ? AND event = ?"
            " AND to_state IS ? AND kind = ? AND to_phase IS ?",
            row,
        )
    last = db.execute("SELECT coalesce(max(id), 0) FROM arrows").fetchone()[0]
    rows = [(last + place, *row) for place, row in enumerate(sorted(new, key=repr), 1)]
    db.executemany(statements.ADD_ARROW, rows)
    for sql in (*views().values(), *interlock.triggers().values()):
        db.execute(sql)
    note = "INSERT INTO store_info (key, value) VALUES (?, ?) ON CONFLICT (key) DO {}"
    db.execute(note.format("UPDATE SET value = excluded.value"), ("interlock", interlock.digest()))
    db.execute(note.format("NOTHING"), ("id", uuid.uuid4().hex))


def _install_alone(db: sqlite3.Connection, copy: Path | None) -> None:
    """Put the interlock back; where it had been altered, the store remembers that and its copy."""
    db.execute("BEGIN IMMEDIATE")
    try:
        install(db)
        if copy is not None:
            note = "INSERT INTO store_info (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING"
            db.execute(note, (f"{ALTERED}{copy.stem}", copy.name))
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
