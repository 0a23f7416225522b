"""The tables of a store: made by migrations, equal to the metadata, all of a version or none of it."""

import json
import logging
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import StaticPool, create_engine

from engine.core.records import Entity
from engine.machines import MACHINES, Arrow, Kind
from engine.store import interlock, schema
from engine.store.connections import connect_reader, connect_writer
from engine.store.errors import StoreDamaged, StoreError, StoreNewer
from engine.store.files import Place
from engine.store.sqlite_gate import SqliteGate
from engine.store.store import Store
from engine.store.tables import metadata
from engine.store.views import views
from tests.store.attack import Attacker, Fabricator, Subject

MIGRATIONS = Path(schema.__file__).parent / "migrations"
WARNING = "the triggers of this store were altered and are made anew"

NEXT = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = "0002", "0001"
def upgrade():
    op.add_column("runs", sa.Column("colour", sa.Text(), nullable=True))
    op.create_table("colours", sa.Column("name", sa.Text(), primary_key=True), sqlite_strict=True)
    {then}
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A new store with an entity in it, closed."""
    place = Place(tmp_path / "interlock.db")
    place.make()
    with closing(connect_writer(place, "OFF")) as db:
        Fabricator(SqliteGate(db)).rest(Subject(Entity.RUN, "pipeline.workstream"), "S_FAILED")
    return place


@contextmanager
def raw(place: Place) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(place.file, isolation_level=None)) as db:
        yield db


def made(db: sqlite3.Connection) -> dict[str, tuple[str, list[str], list[str]]]:
    """What each table and index was made with. The order of columns matters, that of constraints does not."""
    found = {}
    rows = db.execute("SELECT name, sql FROM sqlite_schema WHERE type IN ('table', 'index') AND sql NOT NULL")
    for name, sql in rows:
        body, _, tail = sql.partition("\n)")
        parts = [" ".join(part.split()) for part in re.split(r",\s*\n", body)]
        constraints = sorted(part for part in parts if part.startswith("CONSTRAINT"))
        columns = [part for part in parts if part not in constraints]
        found[name] = (" ".join(tail.split()), columns, constraints)
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ---- migrations and metadata


def test_migrations_from_scratch_equal_the_metadata(place: Place) -> None:
    with raw(place) as db:
        engine = create_engine("sqlite://", creator=lambda: db, poolclass=StaticPool)
        with engine.connect() as connection:
            options = {"compare_type": True, "compare_server_default": True}
            context = MigrationContext.configure(connection, opts=options)
            assert compare_metadata(context, metadata) == []


def test_migrations_make_the_very_text_that_the_metadata_make(place: Place) -> None:
    with raw(place) as migrated, closing(sqlite3.connect(":memory:")) as direct:
        metadata.create_all(create_engine("sqlite://", creator=lambda: direct, poolclass=StaticPool))
        ours, theirs = made(migrated), made(direct)
    assert ours.pop("alembic_version")
    assert len(theirs) > 30
    assert ours == theirs
    assert Counter(tail for tail, *_ in theirs.values())["WITHOUT ROWID, STRICT"] > 10


def test_every_table_is_strict_and_no_entity_has_a_rowid(place: Place) -> None:
    with raw(place) as db:
        listed = "SELECT name, wr, strict FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
        found = {name: (bool(rowless), bool(strict)) for name, rowless, strict in db.execute(listed)}
    del found["sqlite_schema"], found["alembic_version"]
    assert found.keys() == metadata.tables.keys()
    assert all(strict for _, strict in found.values())
    assert all(found[guarded.table][0] for guarded in interlock.GUARDED)


def test_the_versions_are_the_scripts_in_order() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(scripts)) == schema.VERSIONS


# ---- an older one


def be_newer(monkeypatch: pytest.MonkeyPatch, folder: Path, then: str = "pass") -> None:
    """From here on this is an Interlock with one more version."""
    shutil.copytree(MIGRATIONS, folder / "migrations", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "migrations" / "versions" / "next_0002.py").write_text(NEXT.format(then=then))
    monkeypatch.setattr(schema, "__file__", str(folder / "schema.py"))
    monkeypatch.setattr(schema, "VERSIONS", (*schema.VERSIONS, "0002"))


def test_an_older_store_is_backed_up_and_migrated_when_it_is_opened(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raw(place) as db:
        before = db.execute("SELECT * FROM audit").fetchall(), db.execute("SELECT * FROM runs").fetchall()
        arrows = db.execute("SELECT * FROM arrows").fetchall()
    be_newer(monkeypatch, tmp_path / "newer")
    with pytest.raises(StoreError, match=r"version 0001 of its tables.*engine --until-idle"):
        connect_reader(place)
    for _ in range(2):
        with closing(connect_writer(place)) as db:
            assert schema.version_of(db) == "0002"
            assert schema.intact(db)
            assert db.execute("SELECT * FROM audit").fetchall() == before[0]
            assert [row[:-1] for row in db.execute("SELECT * FROM runs")] == before[1]
            assert db.execute("SELECT * FROM arrows").fetchall() == arrows
            assert db.execute("SELECT count(*) FROM colours").fetchone() == (0,)
    (backup,) = place.archive.iterdir()
    assert (mode(backup), mode(place.archive)) == (0o600, 0o700)
    assert backup.name.startswith("version-0001-")
    with closing(sqlite3.connect(backup)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",)
        assert db.execute("SELECT * FROM audit").fetchall() == before[0]
        assert db.execute("SELECT * FROM runs").fetchall() == before[1]


def test_a_migration_that_fails_leaves_the_older_store_as_it_was(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raw(place) as db:
        before = list(db.iterdump())
    with monkeypatch.context() as patch:
        be_newer(patch, tmp_path / "newer", "raise ValueError('no')")
        with pytest.raises(ValueError, match="no"):
            connect_writer(place)
    with closing(connect_writer(place)) as db:
        assert list(db.iterdump()) == before
        assert schema.intact(db)


# ---- one that is not for us


def test_a_newer_store_is_refused_and_not_touched(place: Place) -> None:
    with raw(place) as db:
        db.execute("UPDATE alembic_version SET version_num = '0999'")
    before = place.file.read_bytes()
    with pytest.raises(StoreNewer, match=r"has version 0999 .* knows 0001 .* use the newer Interlock"):
        Store(place.file)
    with pytest.raises(StoreNewer, match="0999"):
        connect_reader(place)
    assert place.file.read_bytes() == before
    assert not place.archive.exists()


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path / "recipes.db")
    with raw(place) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")
        db.execute("INSERT INTO recipes VALUES ('soup')")
        before = list(db.iterdump())
    with pytest.raises(StoreDamaged, match="not one of Interlock's: give another --store"):
        Store(place.file)
    with pytest.raises(StoreDamaged, match="not one of Interlock's"):
        connect_reader(place)
    with raw(place) as db:
        assert list(db.iterdump()) == before


def test_a_text_file_is_refused_and_not_touched(tmp_path: Path) -> None:
    place = Place(tmp_path / "notes.txt")
    place.file.write_text("Remember the milk.\n" * 100)
    before = place.file.read_bytes()
    with pytest.raises(StoreDamaged, match="is not a store"):
        Store(place.file)
    with pytest.raises(StoreDamaged, match="is not a store"):
        connect_reader(place)
    assert place.file.read_bytes() == before


@pytest.mark.parametrize("whose", ["something else", "a newer Interlock"])
def test_a_refused_database_keeps_its_bytes(whose: str, place: Place, tmp_path: Path) -> None:
    with raw(place) as db:
        db.execute("UPDATE alembic_version SET version_num = '0999'")
        db.execute("PRAGMA journal_mode = DELETE").fetchone()
    if whose == "something else":
        place = Place(tmp_path / "recipes.db")
        with raw(place) as db:
            db.execute("CREATE TABLE recipes (name TEXT)")
    before = place.file.read_bytes()
    with pytest.raises(StoreError):
        connect_writer(place)
    assert place.file.read_bytes() == before


# ---- a kill in the middle

KILLED = """
import json, os, signal, sqlite3, sys
from pathlib import Path
from engine.store import connections, schema
from engine.store.files import Place
import alembic.command, sqlalchemy

folder, step = Path(sys.argv[1]), int(sys.argv[2])
real, statements = sqlite3.connect, []

def watched(limit):
    def connect(*args, **kwargs):
        db = real(*args, **kwargs)
        def see(statement):
            statements.append(statement)
            if len(statements) == limit:
                os.kill(os.getpid(), signal.SIGKILL)
        db.set_trace_callback(see)
        return db
    return connect

def open_it(name, limit=0):
    statements.clear()
    place = Place(folder / name)
    place.make()
    connections.sqlite3.connect = watched(limit)
    try:
        return connections.connect_writer(place)
    finally:
        connections.sqlite3.connect = real

open_it("whole.db").close()
every, found = list(statements), []
for limit in range(1, len(every) + 1, step):
    name = f"killed-{limit}.db"
    if not (child := os.fork()):
        open_it(name, limit)
        os._exit(3)
    how = os.WTERMSIG(os.waitpid(child, 0)[1])
    db = real(folder / name)
    tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    whole = tables > 0 and schema.version_of(db) == schema.VERSIONS[-1] and schema.intact(db)
    db.close()
    db = open_it(name)
    ok = schema.intact(db) and db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    db.close()
    found.append([how, tables, whole, ok, every[limit - 1].split()[0]])
print(json.dumps(found))
"""


def test_a_kill_in_the_middle_of_a_migration_leaves_nothing_or_everything(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), "9"], capture_output=True, text=True, check=True
    )
    found = json.loads(told.stdout)
    assert len(found) > 20
    assert {how for how, *_ in found} == {9}
    assert all(tables == 0 or whole for _, tables, whole, *_ in found)
    assert all(ok for *_, ok, _ in found)
    assert Counter(word for *_, word in found)["CREATE"] > 5, (
        "the kills did not fall between two DDL statements"
    )


# ---- opening again


def test_opening_a_store_again_changes_nothing(place: Place) -> None:
    before = place.file.read_bytes()
    with closing(connect_writer(place)) as db:
        assert db.total_changes == 0
    assert place.file.read_bytes() == before
    assert not place.archive.exists()


GUARDS = {name: sql for name, sql in interlock.triggers().items() if name.startswith("arrows_")}
BEHIND_THE_TRIGGERS = {
    "an arrow more": (
        "INSERT INTO arrows VALUES (900, 'execution', 'success', 'REOPEN', 'running', 'normal', 'active')"
    ),
    "the same arrow of another kind": (
        "INSERT INTO arrows SELECT 900, machine, from_state, event, to_state, 'normal', to_phase FROM arrows"
        " WHERE machine = 'pipeline.step' AND kind = 'recovery' LIMIT 1"
    ),
    "an arrow less": "DELETE FROM arrows WHERE machine = 'execution' AND event = 'START'",
    "a recovery made ordinary": "UPDATE arrows SET kind = 'normal' WHERE kind = 'recovery'",
    "an arrow retired": "UPDATE arrows SET kind = 'retired' WHERE machine = 'pipeline.breaker'",
    "an arrow to elsewhere": "UPDATE arrows SET to_state = 'success' WHERE to_state = 'failed'",
}
EDITS = {
    **{f"without {name}": f"DROP TRIGGER {name}" for name in interlock.triggers()},
    **{f"without {name}": f"DROP VIEW {name}" for name in views()},
    "another trigger": "CREATE TRIGGER mine AFTER INSERT ON runs BEGIN SELECT 1; END",
    "another view": "CREATE VIEW mine AS SELECT 1",
    "a weaker trigger": (
        "DROP TRIGGER audit_kept; CREATE TRIGGER audit_kept BEFORE DELETE ON audit BEGIN SELECT 1; END"
    ),
    **{
        edit: ";".join((*(f"DROP TRIGGER {name}" for name in GUARDS), sql, *GUARDS.values()))
        for edit, sql in BEHIND_THE_TRIGGERS.items()
    },
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_interlock_is_noticed_and_made_anew_with_a_warning(
    edit: str, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with raw(place) as db:
        assert schema.intact(db)
        rows = db.execute("SELECT * FROM runs").fetchall(), db.execute("SELECT * FROM audit").fetchall()
        db.executescript(EDITS[edit])
        assert not schema.intact(db)
    with caplog.at_level(logging.WARNING), closing(connect_writer(place)) as db:
        assert schema.intact(db)
        assert db.execute("SELECT * FROM runs").fetchall() == rows[0]
        assert db.execute("SELECT * FROM audit").fetchall() == rows[1]
    assert [WARNING in record.message for record in caplog.records] == [True]
    caplog.clear()
    with closing(connect_writer(place)):
        assert caplog.records == []


def test_the_interlock_of_an_older_version_is_made_anew_without_a_warning(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with raw(place) as db:
        db.executescript("DROP VIEW history; UPDATE store_info SET value = 'older' WHERE key = 'interlock'")
    with caplog.at_level(logging.WARNING), closing(connect_writer(place)) as db:
        assert schema.intact(db)
    assert caplog.records == []


def test_a_retired_double_of_an_arrow_does_not_stand_in_its_way(place: Place) -> None:
    double = "INSERT INTO arrows SELECT 900, machine, from_state, event, to_state, kind, 'failed' FROM arrows"
    with raw(place) as db:
        db.execute("DROP TRIGGER arrows_appended")
        db.execute(f"{double} WHERE machine = 'pipeline.step' AND event = 'success'")
    with closing(connect_writer(place)) as db:
        assert schema.intact(db)
        Fabricator(SqliteGate(db)).rest(Subject(Entity.TASK, "pipeline.step"), "S_SUCCESS")


# ---- who may touch it


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], ids=oct)
def test_a_store_belongs_to_its_owner_alone_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with Store(tmp_path / "interlock.db") as store:
            place = store.place
            found = {path.name: mode(path) for path in (*tmp_path.iterdir(), place.lock)}
    finally:
        os.umask(before)
    files = dict.fromkeys(("interlock.db", "interlock.db-wal", "interlock.db-shm", "lock"), 0o600)
    assert found == files | {"interlock.db.d": 0o700}


def test_a_store_that_others_could_read_is_closed_to_them_when_it_is_opened(place: Place) -> None:
    place.file.chmod(0o666)
    place.folder.chmod(0o777)
    with Store(place.file):
        found = {path.name: mode(path) for path in place.file.parent.iterdir()}
    assert found.pop("interlock.db.d") == 0o700
    assert set(found.values()) == {0o600}
    assert len(found) == 3


# ---- arrows


def test_the_arrows_are_those_of_the_machines(place: Place) -> None:
    with raw(place) as db:
        found = dict(db.execute("SELECT machine, count(*) FROM arrows GROUP BY machine"))
        kinds = dict(db.execute("SELECT kind, count(*) FROM arrows GROUP BY kind"))
    assert found == {name: len(machine.arrows) + 1 for name, machine in MACHINES.items()}
    arrows = Counter(arrow.kind.value for machine in MACHINES.values() for arrow in machine.arrows)
    assert kinds == {**arrows, "created": 10}


def test_arrows_keep_their_numbers_when_a_machine_gets_one_more_and_loses_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raw(place) as db:
        before = db.execute("SELECT * FROM arrows ORDER BY id").fetchall()
    last = before[-1][0]
    extra = Arrow("S_ABANDONED", "revive", "S_PENDING", "Nobody documented it.", kind=Kind.RECOVERY)
    machine = MACHINES["pipeline.workstream"]
    row = (last + 1, machine.name, "S_ABANDONED", "revive", "S_PENDING")
    with monkeypatch.context() as patch:
        patch.setitem(MACHINES, machine.name, replace(machine, arrows=(extra, *machine.arrows)))
        with closing(connect_writer(place)) as db:
            assert db.execute("SELECT * FROM arrows WHERE id <= ? ORDER BY id", (last,)).fetchall() == before
            (added,) = db.execute("SELECT * FROM arrows WHERE id > ?", (last,)).fetchall()
            assert added[:6] == (*row, "recovery")
            Fabricator(SqliteGate(db)).rest(Subject(Entity.RUN, machine.name), "S_ABANDONED")
    with closing(connect_writer(place)) as db:
        assert db.execute("SELECT * FROM arrows WHERE id <= ? ORDER BY id", (last,)).fetchall() == before
        assert db.execute("SELECT * FROM arrows WHERE id > ?", (last,)).fetchone()[:6] == (*row, "retired")
        assert schema.intact(db)
    subject = Subject(Entity.RUN, machine.name)
    with closing(Attacker(place.file, pragmas=False)) as attacker:
        found = attacker.row(subject, "S_ABANDONED")
        attacker.forge(subject.ref("S_ABANDONED"), found["version"] + 1, last + 1)
        told = attacker.refused(
            "UPDATE runs SET state = 'S_PENDING', version = version + 1 WHERE number = ?", (found["number"],)
        )
    assert told is not None
    assert "no such transition is documented" in told
