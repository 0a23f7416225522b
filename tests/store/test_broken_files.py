"""Whatever is wrong with the files, a person is told what and what to do, and nothing stored is lost.

What could harm the test's own process (a limit, another user, a death) happens in one of its own.
"""

import asyncio
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from engine.store.connections import connect_reader
from engine.store.errors import (
    NoStore,
    StoreDamaged,
    StoreError,
    StoreForeign,
    StoreFull,
    StoreReadOnly,
)
from engine.store.files import Place
from engine.store.store import Store
from engine.store.verify import verify
from tests.store.orders import NEXT, Move, Order, submission
from tests.store.soundness import Trail, prove

TASKS = 20
NOBODY = 65534
FOREIGN_WORDS = ("sqlite", "traceback", "locked", "errno", "operationalerror", "\n")
ADVICE = ("give ", "make ", "see ", "`", "ask ", "look ", "close ", "stop ", "move ", "try again")

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may do this")


def orders(first: int, count: int) -> Iterator[Order]:
    """Orders in turn over all tasks, from the first one that a new store can take."""
    state = dict.fromkeys(range(1, TASKS + 1), "S_PENDING")
    for number in range(2, first + count):
        task = number % TASKS + 1
        if number >= first:
            yield Order(number, (Move(task, state[task], (number - 2) // TASKS + 2),), sends=1)
        state[task] = NEXT[state[task]]


def put(store: Store, *wanted: Order) -> None:
    async def apply() -> None:
        for order in wanted:
            await store.apply(order.decided())

    asyncio.run(apply())


def make(path: Path, count: int = 60) -> Place:
    """A store with some history, closed in good order."""
    with Store(path) as store:
        store.call(lambda gate: gate.apply([submission(TASKS)])).result()
        put(store, *orders(2, count))
    return store.place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make(tmp_path / "store.db")


def understandable(error: BaseException) -> None:
    told = str(error)
    assert not [word for word in FOREIGN_WORDS if word in told.lower()], told
    assert [word for word in ADVICE if word in told], f"it does not say what to do: {told}"


@contextmanager
def refused(kind: type[StoreError]) -> Iterator[None]:
    """Exactly this kind of refusal, in words for a person."""
    with pytest.raises(StoreError) as found:
        yield
    assert type(found.value) is kind, repr(found.value)
    understandable(found.value)


def goes_on(place: Place, first: int = 62) -> None:
    """Everything stored before is there, and more can be stored."""
    before = prove(place)
    assert before.orders >= set(range(2, first))
    with Store(place.file) as store:
        put(store, *orders(first, 5))
    assert prove(place).seq == before.seq + 5


def in_a_process(work: Callable[[Path], None], path: Path, user: int | None = None) -> str:
    """What the work prints, done by a process of its own, which may be another user's."""
    drop = f"os.setgroups([]); os.setgid({user}); os.setuid({user})" if user is not None else ""
    script = f"""
import os, sys, pathlib, alembic.command
from tests.store.test_broken_files import {work.__name__} as work
{drop}
work(pathlib.Path(sys.argv[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---- no room


def fill(store: Store, numbers: Iterator[Order]) -> Order:
    """Store orders until one finds no room; it must say so, and be the one to try again."""
    for order in numbers:
        try:
            put(store, order)
        except StoreFull as error:
            understandable(error)
            return order
    raise AssertionError("it never filled up")


def meet_a_limit(path: Path) -> None:
    largest = max(os.path.getsize(path), 64 * 1024)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    numbers = orders(62, 5000)
    with Store(path) as store:
        put(store, failed := next(numbers))
        for room in (0, 40_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest + room, hard))
            failed = fill(store, numbers)
            with closing(connect_reader(store.place)) as db:
                trail = Trail()
                trail.look(db)
            assert failed.number not in trail.orders
            assert failed.number - 1 in trail.orders
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            put(store, failed, next(numbers))
    print(failed.number + 2)


def test_writing_goes_on_with_the_same_store_after_a_limit_was_met(place: Place) -> None:
    goes_on(place, int(in_a_process(meet_a_limit, place.file)))


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own; skipped where nobody may mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "interlock-test", str(folder)]
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("only root may mount a file system")
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def take_all_room(folder: Path, leave: int = 0) -> Path:
    ballast = folder / "ballast"
    free = os.statvfs(folder)
    with ballast.open("wb") as file:
        file.write(bytes(free.f_bavail * free.f_bsize - leave))
    return ballast


def meet_a_full_disk(path: Path) -> None:
    numbers = orders(62, 5000)
    with Store(path) as store:
        put(store, failed := next(numbers))
        for leave in (0, 8192, 65536):
            ballast = take_all_room(path.parent, leave)
            failed = fill(store, numbers)
            ballast.unlink()
            put(store, failed, next(numbers))
    print(failed.number + 2)


def test_writing_goes_on_with_the_same_store_after_the_disk_was_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "8m") as folder:
        place = make(folder / "store.db")
        goes_on(place, int(in_a_process(meet_a_full_disk, place.file)))


def open_on_a_full_disk(path: Path) -> None:
    new = path.with_name("new.db")
    for leave in (0, 4096, 16384, 65536, 131072):
        ballast = take_all_room(path.parent, leave)
        for wanted in (path, new):
            try:
                Store(wanted).close()
            except StoreFull as error:
                understandable(error)
                print("full")
        ballast.unlink()
    make(new)
    print("made")


def test_a_store_that_cannot_be_opened_for_want_of_room_is_whole_afterwards(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "8m") as folder:
        place = make(folder / "store.db")
        told = in_a_process(open_on_a_full_disk, place.file).split()
        assert told.count("full") >= 3
        assert told[-1] == "made"
        goes_on(place)
        goes_on(Place.of(folder / "new.db"))


# ---- not to be written


def test_a_read_only_file_is_refused_and_taken_again_when_it_is_not(place: Place) -> None:
    place.file.chmod(0o400)
    with refused(StoreReadOnly):
        Store(place.file)
    assert verify(place).sound
    place.file.chmod(0o600)
    goes_on(place)


def open_in_a_read_only_folder(path: Path) -> None:
    place = make(path / "store.db")
    path.chmod(0o500)
    try:
        for wanted in (place.file, path / "new.db"):
            with refused(StoreReadOnly):
                Store(wanted)
    finally:
        path.chmod(0o700)
    goes_on(place)


def test_a_read_only_folder_is_refused_and_taken_again_when_it_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    if os.geteuid() != 0:
        open_in_a_read_only_folder(folder)
        return
    # Root may write anywhere: what everybody else meets is met by nobody.
    with _reachable(folder):
        os.chown(folder, NOBODY, NOBODY)
        in_a_process(open_in_a_read_only_folder, folder, NOBODY)


@contextmanager
def _reachable(folder: Path) -> Iterator[None]:
    """Other users may pass through the folders above; not one more than the test's own is opened."""
    closed = [parent for parent in folder.parents if not parent.stat().st_mode & 0o001]
    modes = [(parent, parent.stat().st_mode & 0o7777) for parent in closed]
    for parent, mode in modes:
        parent.chmod(mode | 0o001)
    try:
        yield
    finally:
        for parent, mode in modes:
            parent.chmod(mode)


def test_a_disk_that_is_mounted_read_only_is_refused(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "8m") as folder:
        place = make(folder / "store.db")
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        for wanted in (place.file, folder / "new.db"):
            with refused(StoreReadOnly):
                Store(wanted)
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
        goes_on(place)


@as_root
@pytest.mark.parametrize("whose", ["file", "folder"])
def test_a_store_of_someone_else_is_refused(place: Place, whose: str) -> None:
    path = getattr(place, whose)
    os.chown(path, NOBODY, NOBODY)
    with refused(StoreForeign):
        Store(place.file)
    os.chown(path, 0, 0)
    goes_on(place)


def test_what_others_could_read_is_tightened(place: Place) -> None:
    place.file.chmod(0o644)
    place.folder.chmod(0o755)
    log = place.file.with_name("store.db-wal")
    log.touch()
    log.chmod(0o644)
    with Store(place.file) as store:
        put(store, *orders(62, 1))
        found = {path.stat().st_mode & 0o777 for path in place.file.parent.iterdir() if path.is_file()}
        assert found == {0o600}
        assert place.folder.stat().st_mode & 0o777 == 0o700
    goes_on(place, 63)


# ---- not a store


def test_an_empty_file_becomes_a_store_and_readers_say_that_it_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch()
    with pytest.raises(NoStore, match="this store is empty"):
        connect_reader(Place.of(path))
    goes_on(make(path))


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir()
    with refused(StoreError):
        Store(tmp_path / "store.db")
    with refused(StoreError):
        connect_reader(Place.of(tmp_path / "store.db"))
    assert [path.name for path in tmp_path.iterdir()] == ["store.db"]


def test_a_file_in_the_place_of_the_folder_is_refused(place: Place) -> None:
    shutil.rmtree(place.folder)
    place.folder.touch()
    with refused(StoreError):
        Store(place.file)
    place.folder.unlink()
    goes_on(place)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    for attempt in (Store, lambda path: connect_reader(Place.of(path))):
        with refused(NoStore):
            attempt(tmp_path / "missing" / "store.db")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("case", ["text", "another database"])
def test_a_file_of_something_else_is_refused_and_keeps_its_bytes(tmp_path: Path, case: str) -> None:
    path = tmp_path / "notes.db"
    if case == "text":
        path.write_text("Dear diary, " * 1000)
    else:
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE notes (text TEXT)")
    before = path.read_bytes()
    with refused(StoreDamaged):
        Store(path)
    with refused(StoreDamaged):
        connect_reader(Place.of(path))
    assert path.read_bytes() == before
