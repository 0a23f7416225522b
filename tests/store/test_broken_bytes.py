"""Bytes that were changed on the disk: what is damaged is refused, and the log loses its end at the most."""

import asyncio
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from engine.store.connections import connect_reader
from engine.store.errors import StoreBusy, StoreDamaged, StoreError
from engine.store.files import Place
from engine.store.reader import Reader
from engine.store.store import Store
from engine.store.verify import verify
from tests.store.soundness import prove
from tests.store.test_broken_files import TASKS, goes_on, make, orders, put, refused, understandable

PAGE = 4096
FIRST_ROWS = TASKS + 2
"""Of the run, which is created and queued, and of its tasks."""


def die(path: Path) -> None:
    """Store something, be told so, and end without closing anything."""
    store = Store(path)
    put(store, *orders(62, 40))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make(tmp_path / "store.db")


@pytest.fixture
def left(place: Place) -> Place:
    """A store whose writer died: forty orders are in the log alone."""
    script = (
        "import pathlib, sys; from tests.store.test_broken_bytes import die; die(pathlib.Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(place.file)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert log_of(place).stat().st_size > 40 * PAGE
    return place


def log_of(place: Place) -> Path:
    return place.file.with_name(f"{place.file.name}-wal")


def hashes(place: Place) -> list[bytes]:
    with closing(connect_reader(place)) as db:
        return [hash for (hash,) in db.execute("SELECT hash FROM audit ORDER BY seq")]


def overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


# ---- the database


def test_a_header_that_was_overwritten_is_damage(place: Place) -> None:
    whole = place.file.read_bytes()
    overwrite(place.file, 0, b"\x00" * 100)
    damaged = place.file.read_bytes()
    with refused(StoreDamaged):
        Store(place.file)
    with refused(StoreDamaged):
        connect_reader(place)
    assert place.file.read_bytes() == damaged
    place.file.write_bytes(whole)
    goes_on(place)


def test_a_store_cut_in_half_is_damage(place: Place) -> None:
    whole = place.file.read_bytes()
    os.truncate(place.file, len(whole) // 2)
    with refused(StoreDamaged):
        Store(place.file)
    place.file.write_bytes(whole)
    goes_on(place)


def test_a_page_that_was_overwritten_is_found_after_an_unclean_end(place: Place) -> None:
    with closing(sqlite3.connect(place.file)) as db, db:
        db.execute("UPDATE engine_leases SET released = NULL")
    whole = place.file.read_bytes()
    noise = random.Random(1)
    for page in range(1, len(whole) // PAGE, 3):
        overwrite(place.file, page * PAGE, noise.randbytes(PAGE))
        with pytest.raises(StoreDamaged) as found:
            Store(place.file)
        understandable(found.value)
        log_of(place).unlink(missing_ok=True)
        place.file.write_bytes(whole)
    goes_on(place)


def test_a_row_that_was_changed_in_the_file_is_found_by_verify(place: Place) -> None:
    whole = place.file.read_bytes()
    where = whole.index(b"order 30: 1 of 1")
    overwrite(place.file, where, b"order 31")
    verdict = verify(place)
    assert verdict.broken is not None
    assert "edited" in verdict.broken.problem
    place.file.write_bytes(whole)
    goes_on(place)


# ---- the log


def test_the_log_of_a_writer_that_died_is_stored(left: Place) -> None:
    goes_on(left, 102)


@pytest.mark.parametrize("harm", ["a byte", "a page", "cut off", "zeroes to the end"])
def test_a_log_that_was_harmed_loses_its_end_and_nothing_else(left: Place, harm: str) -> None:
    database, log = left.file.read_bytes(), log_of(left).read_bytes()
    told = hashes(left)
    assert len(told) == len(prove(left).orders) + FIRST_ROWS
    noise = random.Random(harm)
    lengths = set[int]()
    for _ in range(12):
        offset = noise.randrange(0, len(log) - PAGE)
        left.file.write_bytes(database)
        log_of(left).write_bytes(log)
        left.file.with_name(f"{left.file.name}-shm").unlink(missing_ok=True)
        match harm:
            case "a byte":
                overwrite(log_of(left), offset, bytes([log[offset] ^ 0x55]))
            case "a page":
                overwrite(log_of(left), offset, noise.randbytes(PAGE))
            case "cut off":
                os.truncate(log_of(left), offset)
            case _:
                overwrite(log_of(left), offset, bytes(len(log) - offset))
        prove(left)
        kept = hashes(left)
        assert kept == told[: len(kept)], "a row that was never written"
        assert len(kept) >= len(told) - 40, "more than the log held is lost"
        with Store(left.file):
            assert hashes(left) == kept
        lengths.add(len(kept))
    assert len(lengths) > 1, "no harm was done"


def test_an_index_of_the_log_that_was_overwritten_is_made_anew(left: Place) -> None:
    overwrite(left.file.with_name(f"{left.file.name}-shm"), 0, random.Random(2).randbytes(8 * PAGE))
    goes_on(left, 102)


# ---- names and links


NAMES = (
    "two words.db",
    "what?.db",
    "a#b.db",
    "50%20.db",
    "zürich–東京.db",
    "a'b\"c.db",
    "mode=ro&x.db",
    "-x.db",
)


@pytest.mark.parametrize("name", NAMES)
def test_any_name_will_do(tmp_path: Path, name: str) -> None:
    folder = tmp_path / f"in {name}"
    folder.mkdir()
    place = make(folder / name)
    goes_on(place)

    async def runs() -> int:
        async with Reader(folder / name) as reader:
            return len((await reader.runs()).rows)

    assert asyncio.run(runs()) == 1
    known = {name, f"{name}.d", f"{name}-wal", f"{name}-shm"}
    assert {path.name for path in folder.iterdir()} <= known
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_a_link_to_a_store_is_the_same_store(place: Place, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(place.file)
    with Store(link) as store:
        assert store.place == place
        with refused(StoreBusy):
            Store(place.file)
        put(store, *orders(62, 3))
    assert not (tmp_path / "link.db.d").exists()
    goes_on(Place.of(link), 65)


def test_a_link_that_leads_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store.db").symlink_to(tmp_path / "store.db")
    with refused(StoreError):
        Store(tmp_path / "store.db")
    with refused(StoreError):
        connect_reader(Place.of(tmp_path / "store.db"))


# ---- locks


HOLD = """
import sys
from engine.store.store import Store
with Store(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_whoever_holds_the_store_is_named(place: Place) -> None:
    command = [sys.executable, "-c", HOLD, str(place.file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        for patience in (0.0, 0.05):
            with pytest.raises(StoreBusy, match=f"process {holder.pid} on") as found:
                Store(place.file, patience=patience)
            understandable(found.value)
        holder.communicate("\n", timeout=30)
    goes_on(place)


def test_who_has_patience_gets_the_store_when_it_is_free(place: Place) -> None:
    command = [sys.executable, "-c", HOLD, str(place.file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdin
        assert holder.stdout.readline() == "held\n"
        holder.stdin.write("\n")
        holder.stdin.flush()
        Store(place.file, patience=30).close()
        holder.communicate(timeout=30)


LOOK = """
import sqlite3, sys
store = sqlite3.connect(sys.argv[1])
store.execute("SELECT 1 FROM audit").fetchone()
store.close()
"""


def test_a_second_opening_in_the_same_process_does_not_loosen_the_locks_of_the_first(place: Place) -> None:
    """Closing any descriptor of a file ends the locks of its process on it: then the log would be deleted."""
    with Store(place.file) as store:
        put(store, *orders(62, 1))
        with refused(StoreBusy):
            Store(place.file)
        connect_reader(place).close()
        subprocess.run([sys.executable, "-c", LOOK, str(place.file)], check=True, timeout=30)
        assert log_of(place).exists()
        put(store, *orders(63, 1))
        shutil.copy(place.file, place.file.with_name("copy.db"))
        shutil.copy(log_of(place), place.file.with_name("copy.db-wal"))
    goes_on(place, 64)
    goes_on(Place.of(place.file.with_name("copy.db")), 64)
