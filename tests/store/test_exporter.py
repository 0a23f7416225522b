"""`transitions.jsonl` beside a store: each transition once, whatever happens to whoever writes it."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.store import moves, populate
from engine.store import exporter as exporting
from engine.store.connections import connect_reader
from engine.store.events import line_of
from engine.store.exporter import Exporter, export, transitions
from engine.store.files import Place
from engine.store.log_problems import Summary
from engine.store.log_validator import lines_of, validate
from engine.store.store import Store
from engine.store.transition_log import TransitionLog
from tests.store.worlds import lived

TASKS = 20
KILLS = 10


@pytest.fixture
def place(tmp_path: Path) -> Place:
    path = tmp_path / "store.db"
    populate(path, TASKS)
    return Place.of(path)


class Work:
    """Transitions without end, over any number of openings of the store."""

    def __init__(self) -> None:
        self._moves = moves(list(range(1, TASKS + 1)))

    def do(self, store: Store, batches: int, size: int = 7) -> None:
        for _ in range(batches):
            store.call(lambda gate: gate.apply(list(islice(self._moves, size)))).result()


def expect_every_transition_once(place: Place) -> list[int]:
    """The file has what the trail has, and passes its own judge."""
    with closing(connect_reader(place)) as db:
        told = db.execute(
            "SELECT a.seq FROM audit AS a JOIN arrows AS r ON r.id = a.arrow"
            " WHERE r.from_state IS NOT NULL ORDER BY a.seq"
        )
        wanted = [seq for (seq,) in told]
    lines = place.transitions.read_bytes().splitlines(keepends=True)
    assert [json.loads(line)["metadata"]["seq"] for line in lines] == wanted
    with place.transitions.open("rb") as stream:
        assert list(validate(lines_of(stream), Summary())) == []
    return wanted


def test_the_file_grows_with_the_store_and_over_its_restarts(place: Place) -> None:
    work = Work()
    for _ in range(4):
        with Store(place.file, synchronous="OFF") as store, closing(Exporter(place)) as exporter:
            store.listen(exporter.notice)
            work.do(store, 20)
        expect_every_transition_once(place)


def test_a_commit_is_written_without_anybody_closing_anything(place: Place) -> None:
    with Store(place.file) as store, closing(Exporter(place)) as exporter:
        store.listen(exporter.notice)
        Work().do(store, 1)
        until = _until(lambda: place.transitions.exists() and place.transitions.stat().st_size > 0)
        assert until, "the exporter never wrote"


def _until(true: object, seconds: float = 10.0) -> bool:
    import time

    assert callable(true)
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        os.sched_yield()
    return True


def test_what_was_stored_without_an_exporter_is_written_by_the_next_one(place: Place) -> None:
    with Store(place.file) as store:
        Work().do(store, 5)
    assert not place.transitions.exists()
    Exporter(place).close()
    expect_every_transition_once(place)


def test_facts_and_creations_at_the_end_of_the_trail_are_no_lines(tmp_path: Path) -> None:
    ends_with_a_fact = 42
    trail = lived(tmp_path / "store.db", ends_with_a_fact).trail
    assert trail[-1].to_state is None
    place = Place(tmp_path / "store.db")
    for _ in range(3):
        Exporter(place).close()
        assert expect_every_transition_once(place)[-1] < trail[-1].seq


@pytest.mark.parametrize("seed", [10, 12, 13])
def test_a_whole_world_is_written_line_by_line_as_the_trail_tells_it(tmp_path: Path, seed: int) -> None:
    trail = lived(tmp_path / "store.db", seed).trail
    place = Place(tmp_path / "store.db")
    Exporter(place).close()
    expect_every_transition_once(place)
    lines = [line for row in trail if (line := line_of(row)) is not None]
    assert place.transitions.read_text().splitlines() == lines
    assert [line_of(row) for row in transitions(place, 0)] == lines
    assert [row.seq for row in transitions(place, trail[-1].seq)] == []


def test_more_rows_than_a_page_are_written_in_their_order(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "PAGE", 3)
    with Store(place.file, synchronous="OFF") as store:
        Work().do(store, 4)
    with TransitionLog(place.transitions) as file:
        written = export(place, file)
    assert written == len(expect_every_transition_once(place))


# ---- trouble


def test_a_torn_last_line_is_taken_back_and_written_whole(place: Place) -> None:
    with Store(place.file) as store:
        Work().do(store, 6)
    Exporter(place).close()
    whole = place.transitions.read_bytes()
    for size in (len(whole) - 1, len(whole) - 30, len(whole) - 500, 1):
        place.transitions.write_bytes(whole[:size])
        Exporter(place).close()
        assert place.transitions.read_bytes() == whole
    expect_every_transition_once(place)


def test_a_writer_that_is_killed_at_any_moment_leaves_no_gap_and_no_double(place: Place) -> None:
    chance = random.Random(7)
    for _ in range(KILLS):
        told, tell = os.pipe()
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(place.file)], stdout=tell)
        os.close(tell)
        try:
            assert os.read(told, 1) == b"o", "it did not open the store"
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(chance.uniform(0, 0.1))
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait(30)
            os.close(told)
    Exporter(place).close()
    assert len(expect_every_transition_once(place)) > 50


WRITER = """
import os, sys
from itertools import islice
from engine.store.exporter import Exporter
from engine.store.files import Place
from engine.store.store import Store
from benchmarks.store import CYCLE, move
place = Place.of(sys.argv[1])
with Store(place.file, synchronous="OFF") as store:
    exporter = Exporter(place)
    store.listen(exporter.notice)
    tasks = sorted(store.call(lambda gate: gate.load()).result().tasks, key=lambda task: task.number)
    at = store.call(lambda gate: gate.head.at).result()
    os.write(1, b"o")
    versions = {task.number: (task.version, task.state) for task in tasks}
    while True:
        for number, (version, state) in list(versions.items()):
            at += 1
            following = CYCLE[(CYCLE.index(state) + 1) % len(CYCLE)]
            store.call(lambda gate: gate.apply([move(number, version + 1, state, following, at)])).result()
            versions[number] = version + 1, following
"""


def test_a_full_disk_holds_the_file_up_and_not_the_store(place: Place) -> None:
    with Store(place.file) as store:
        Work().do(store, 30)
    with closing(connect_reader(place)) as db:
        # As long as somebody reads, SQLite's own files need not grow.
        db.execute("SELECT count(*) FROM audit").fetchone()
        subprocess.run([sys.executable, "-c", ON_A_FULL_DISK, str(place.file)], check=True, timeout=60)
    left = place.transitions.read_bytes()
    assert 0 < len(left) <= 5000
    assert left.endswith(b"\n"), "half a line was left"
    Exporter(place).close()
    assert place.transitions.read_bytes().startswith(left)
    expect_every_transition_once(place)


ON_A_FULL_DISK = """
import logging, resource, signal, sys
from engine.store.exporter import Exporter
from engine.store.files import Place
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
logging.disable()
Exporter(Place.of(sys.argv[1])).close()
"""


def test_what_cannot_be_written_is_told_and_tried_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exporting, "PATIENCE", 0.01)
    with Store(place.file) as store:
        Work().do(store, 3)
    place.transitions.mkdir()
    with closing(Exporter(place)):
        assert _until(lambda: len(caplog.records) > 1), "it gave up"
        place.transitions.rmdir()
        assert _until(lambda: place.transitions.is_file())
    assert "transitions.jsonl could not be written, and will be later" in caplog.text
    expect_every_transition_once(place)


def test_a_file_of_somebody_else_is_left_as_it_is(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.transitions.write_text("my diary\nof two lines\n")
    Exporter(place).close()
    assert place.transitions.read_text() == "my diary\nof two lines\n"
    assert "it is not a transition log" in caplog.text


@pytest.fixture(autouse=True)
def _threads_end() -> Iterator[None]:
    import threading

    yield
    assert [thread.name for thread in threading.enumerate() if thread.name == "interlock-exporter"] == []
