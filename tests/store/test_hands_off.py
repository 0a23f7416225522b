"""What the store leaves alone, and what it remembers of those who did not."""

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from engine.store.errors import StoreDamaged, StoreNewer
from engine.store.files import Place
from engine.store.health import examine
from engine.store.interlock import MADE_WITH
from engine.store.store import Store
from engine.store.verify import verify
from tests.store.orders import submission


@pytest.fixture
def place(tmp_path: Path) -> Place:
    path = tmp_path / "store.db"
    with Store(path) as store:
        store.call(lambda gate: gate.apply([submission(3)])).result()
    return Place.of(path)


@pytest.mark.parametrize("kind", ["text", "database", "newer"])
def test_a_file_that_is_refused_keeps_its_bytes_and_its_mode_and_gets_no_folder(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "theirs"
    if kind == "text":
        path.write_text("these are my notes\n" * 100)
    else:
        with closing(sqlite3.connect(path)) as db:
            if kind == "newer":
                db.executescript(
                    "CREATE TABLE audit (seq); CREATE TABLE alembic_version (version_num);"
                    "INSERT INTO alembic_version VALUES ('9999')"
                )
            else:
                db.execute("CREATE TABLE recipes (name)")
            db.commit()
    path.chmod(0o644)
    before = path.read_bytes()
    with pytest.raises(StoreNewer if kind == "newer" else StoreDamaged):
        Store(path)
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert sorted(os.listdir(tmp_path)) == ["theirs"]


def test_what_an_entity_was_made_with_cannot_be_changed_by_hand(place: Place) -> None:
    with closing(sqlite3.connect(place.file)) as db:
        for table, columns in MADE_WITH.items():
            for column in columns:
                with pytest.raises(sqlite3.IntegrityError, match="keeps what it was made with"):
                    db.execute(f"UPDATE {table} SET {column} = 7")


def test_altered_triggers_are_put_back_and_the_store_as_it_was_is_kept(place: Place) -> None:
    with closing(sqlite3.connect(place.file)) as db:
        db.execute("DROP TRIGGER audit_kept")
        db.execute("DELETE FROM audit WHERE seq = 2")
        db.commit()
    told = {symptom.what: symptom for symptom in examine(place)}
    assert told["triggers"].advice is not None
    with Store(place.file):
        pass
    (copy,) = place.archive.iterdir()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    told = {symptom.what: symptom for symptom in examine(place)}
    assert told["triggers"].advice is None
    assert copy.name in told["altered once"].found
    for kept in (place, Place.of(copy)):
        broken = verify(kept).broken
        assert broken is not None
        assert broken.seq == 2


def test_a_copy_in_a_folder_that_cannot_be_written_can_be_proved(place: Place, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    folder = tmp_path / "audit"
    folder.mkdir()
    copy = folder / "copy.db"
    copy.write_bytes(place.file.read_bytes())
    copy.chmod(0o400)
    folder.chmod(0o500)
    try:
        assert verify(Place.of(copy)).sound
        assert sorted(os.listdir(folder)) == ["copy.db"]
    finally:
        folder.chmod(0o700)
