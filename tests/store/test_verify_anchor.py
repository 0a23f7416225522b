"""What only an anchor shows, and that neither parts nor processes nor a writer change a verdict."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.store import moves, populate
from engine.store import verify as proving
from engine.store.chain import Head
from engine.store.connections import connect_reader
from engine.store.errors import StoreError
from engine.store.files import Place
from engine.store.store import Store
from engine.store.verify import Break, verify
from tests.store.worlds import attacked, copied, lived, rechain

ROOT = Path(__file__).parents[2]
SEED = 13


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("pristine") / "store.db")
    lived(place.file, SEED)
    return place


@pytest.fixture(scope="module")
def head(pristine: Place) -> Head:
    return verify(pristine).head


@pytest.fixture
def place(pristine: Place, tmp_path: Path) -> Place:
    return copied(pristine, tmp_path / "store.db")


def broken(place: Place, anchor: Head | None = None) -> Break:
    verdict = verify(place, anchor)
    assert verdict.broken is not None, "nobody noticed"
    return verdict.broken


def test_a_chain_that_was_written_anew_is_found_by_an_anchor_alone(place: Place, head: Head) -> None:
    with attacked(place) as db:
        db.execute("UPDATE audit SET actor = 'somebody else' WHERE seq = 60")
        rechain(db)
    assert verify(place).sound
    found = broken(place, head)
    assert found.seq == head.seq
    assert "the trail was written anew" in found.problem


def _anchor_at(place: Place, seq: int) -> Head:
    with closing(connect_reader(place)) as db:
        (found,) = db.execute("SELECT hash FROM audit WHERE seq = ?", (seq,)).fetchone()
    return Head(seq, found)


def test_an_anchor_from_before_the_forgery_does_not_show_it_and_one_from_after_it_does(
    place: Place, pristine: Place
) -> None:
    with attacked(place) as db:
        db.execute("UPDATE audit SET actor = 'somebody else' WHERE seq = 60")
        rechain(db)
    assert verify(place, _anchor_at(pristine, 59)).sound
    assert broken(place, _anchor_at(pristine, 60)).seq == 60
    assert broken(place, _anchor_at(pristine, 61)).seq == 61


def test_a_trail_that_was_cut_off_and_written_on_is_found_by_an_anchor(place: Place, head: Head) -> None:
    with attacked(place) as db:
        db.execute("UPDATE audit SET reason = 'it was so' WHERE seq > ?", (head.seq - 5,))
        rechain(db, head.seq - 4)
    assert verify(place).sound
    assert broken(place, head).seq == head.seq


def test_an_anchor_ahead_of_the_trail_is_told_so_however_far_ahead_it_is(place: Place, head: Head) -> None:
    for seq in (head.seq + 1, 2**63 - 1, 2**63, 10**40):
        found = broken(place, Head(seq, head.hash))
        assert found.seq == head.seq + 1
        assert found.problem == f"the trail ends at row {head.seq}, and the anchor saw row {seq}"


def test_the_anchor_of_an_empty_trail_fits_every_trail_unless_it_is_forged(place: Place) -> None:
    assert verify(place, Head()).sound
    assert broken(place, Head(0, bytes(31) + b"\x01")).seq == 0


def test_an_anchor_is_read_as_it_is_written(head: Head) -> None:
    assert Head.parse(f" {head}\n") == Head(head.seq, head.hash)


# ---- parts, processes, an empty store, a writer

SPOTS = (1, 9, 10, 11, 19, 20, 21, 100, 101)


def _ruined(pristine: Place, folder: Path, last: int) -> Iterator[tuple[Place, int]]:
    """Copies that are broken at the borders of parts of ten rows, and where."""
    for number, seq in enumerate((*SPOTS, last - 1)):
        for turn, sql in enumerate(
            (
                "DELETE FROM audit WHERE seq = ?",
                "UPDATE audit SET cause = cause + 1 WHERE seq = ?",
                "UPDATE audit SET hash = row_hash WHERE seq = ?",
                "UPDATE audit SET actor = CAST(x'ff' AS TEXT) WHERE seq = ?",
            )
        ):
            place = copied(pristine, folder / f"{number}-{turn}.db")
            with attacked(place) as db:
                db.execute(sql, (seq,))
            yield place, seq


def test_borders_between_parts_and_processes_change_nothing(
    pristine: Place, head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = list(_ruined(pristine, tmp_path, head.seq))
    whole = [verify(place) for place, _ in cases]
    assert [verdict.broken and verdict.broken.seq for verdict in whole] == [seq for _, seq in cases]
    monkeypatch.setattr(proving, "PART", 10)
    assert [verify(place, processes=1) for place, _ in cases] == whole
    # In a process of its own, because one with threads is not forked.
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", IN_TWO_PROCESSES, *(str(place.file) for place, _ in cases)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(told.stdout) == [repr(verdict) for verdict in whole]


IN_TWO_PROCESSES = """
import json, sys
from pathlib import Path
from engine.store import verify
from engine.store.files import Place
verify.PART = 10
print(json.dumps([repr(verify.verify(Place(Path(file)), processes=2)) for file in sys.argv[1:]]))
"""


def test_progress_is_told_part_by_part(pristine: Place, head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proving, "PART", 100)
    told: list[tuple[int, int]] = []
    verify(pristine, processes=1, progress=lambda done, every: told.append((done, every)))
    assert told == [(done, head.seq) for done in (*range(100, head.seq, 100), head.seq)]


def test_an_empty_store_is_sound_and_not_what_an_anchor_saw(tmp_path: Path, head: Head) -> None:
    with Store(tmp_path / "store.db") as store:
        place = store.place
    verdict = verify(place)
    assert (verdict.sound, verdict.rows, verdict.head) == (True, 0, Head())
    assert verify(place, Head()).sound
    assert broken(place, head) == Break(1, f"the trail ends at row 0, and the anchor saw row {head.seq}")


def test_no_store_is_an_error_and_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        verify(Place(tmp_path / "store.db"))


def test_a_trail_that_grows_meanwhile_is_proved_as_far_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proving, "PART", 50)
    path = tmp_path / "store.db"
    populate(path, 20)
    work = moves(list(range(1, 21)))
    with Store(path, synchronous="OFF") as store:

        def write(done: int, every: int) -> None:
            store.call(lambda gate: gate.apply(list(islice(work, 20)))).result()

        write(0, 0)
        for _ in range(8):
            verdict = verify(store.place, progress=write)
            assert verdict.broken is None
            assert verdict.rows == verdict.head.seq, "what it tells is what it has proved"
            later = verify(store.place, verdict.head)
            assert later.sound
            assert later.rows > verdict.rows
