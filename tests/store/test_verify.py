"""`verify` finds whatever somebody with the file and `sqlite3` does to the trail, at the row where he did it.

The attacker has dropped the triggers. What a chain cannot show by itself shows against an anchor.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.store.chain import Head
from engine.store.connections import connect_reader
from engine.store.files import Place
from engine.store.statements import AUDIT
from engine.store.verify import Break, verify
from tests.store.worlds import attacked, copied, lived, rechain

SEED = 13
ENDS_WITH_A_FACT = 42
NULLABLE = ("run", "task", "name", "since", "reason", "request_id")
TEXTS = ("name", "actor", "source", "reason", "request_id", "metadata")
NUMBERS = ("at", "run", "task", "version", "arrow", "since", "cause")
HASHES = ("row_hash", "hash")
EDITED = "the row was edited, or somebody else added it: its hash is not its own"
UNLINKED = "the row does not follow from the one before it"
MISSING = "the row is missing"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A store with all kinds of rows; a run in it is told of with texts that are there and are empty."""
    place = Place(tmp_path_factory.mktemp("pristine") / "store.db")
    lived(place.file, SEED)
    with attacked(place) as db:
        db.execute("UPDATE audit SET reason = '', request_id = '' WHERE seq IN (30, 31)")
        db.execute("UPDATE audit SET reason = 'why', request_id = 'asked' WHERE seq IN (40, 41)")
        rechain(db)
    return place


@pytest.fixture(scope="module")
def head(pristine: Place) -> Head:
    verdict = verify(pristine)
    assert verdict.broken is None
    assert verdict.rows == verdict.head.seq > 300
    return verdict.head


@pytest.fixture
def place(pristine: Place, tmp_path: Path) -> Place:
    return copied(pristine, tmp_path / "store.db")


def broken(place: Place, anchor: Head | None = None) -> Break:
    verdict = verify(place, anchor)
    assert verdict.broken is not None, "nobody noticed"
    assert verdict.broken.problem
    return verdict.broken


def edit(place: Place, sql: str, *values: object) -> None:
    with attacked(place) as db:
        assert db.execute(sql, values).rowcount > 0, sql


def test_a_trail_that_nobody_touched_is_sound(pristine: Place, head: Head) -> None:
    assert verify(pristine).sound
    assert verify(pristine, head).sound


# ---- one row is edited


def test_the_lists_above_name_every_column_of_the_trail() -> None:
    assert sorted(("seq", *TEXTS, *NUMBERS, *HASHES)) == sorted(AUDIT)


def _with(place: Place, condition: str) -> list[int]:
    with closing(connect_reader(place)) as db:
        rows = [seq for (seq,) in db.execute(f"SELECT seq FROM audit WHERE {condition} ORDER BY seq")]
    assert rows, f"no row of this world has {condition}"
    return sorted({rows[0], rows[len(rows) // 2], rows[-1]})


WAYS = [
    *((f"{column} IS NOT NULL", f"{column} = {column} + 1") for column in NUMBERS),
    *((f"{column} IS NOT NULL AND {column} > 0", f"{column} = -{column}") for column in NUMBERS),
    *((f"{column} IS NULL", f"{column} = 0") for column in NUMBERS if column in NULLABLE),
    *((f"{column} IS NOT NULL", f"{column} = {column} || 'x'") for column in TEXTS),
    *((f"{column} <> ''", f"{column} = substr({column}, 2)") for column in TEXTS),
    *((f"{column} IS NOT NULL", f"{column} = char(0) || {column}") for column in TEXTS),
    *((f"{column} IS NULL", f"{column} = ''") for column in TEXTS if column in NULLABLE),
    *((f"{column} = ''", f"{column} = NULL") for column in ("reason", "request_id")),
    *((f"{column} IS NOT NULL", f"{column} = CAST(x'ff' AS TEXT)") for column in TEXTS),
    *((f"{column} IS NOT NULL", f"{column} = NULL") for column in NULLABLE),
]


@pytest.mark.parametrize(("rows", "way"), WAYS, ids=[f"{rows}: {way}" for rows, way in WAYS])
def test_an_edited_value_is_found_at_its_row(pristine: Place, tmp_path: Path, rows: str, way: str) -> None:
    for seq in _with(pristine, rows):
        place = copied(pristine, tmp_path / f"{seq}.db")
        edit(place, f"UPDATE audit SET {way} WHERE seq = ?", seq)
        found = broken(place)
        assert found.seq == seq
        assert found.problem in (EDITED, "the row tells of something that is not documented")


NEIGHBOURS = [("name", "actor"), ("actor", "source"), ("source", "reason"), ("reason", "request_id"),
              ("request_id", "metadata"), ("source", "metadata"), ("actor", "metadata")]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), NEIGHBOURS)
def test_a_character_that_moves_to_the_next_field_is_found(
    pristine: Place, tmp_path: Path, left: str, right: str
) -> None:
    move = f"{left} = substr({left}, 1, length({left}) - 1), {right} = substr({left}, -1) || {right}"
    back = f"{left} = {left} || substr({right}, 1, 1), {right} = substr({right}, 2)"
    for seq in _with(pristine, f"{left} <> '' AND {right} <> ''")[:2]:
        for way in (move, back):
            place = copied(pristine, tmp_path / "store.db")
            edit(place, f"UPDATE audit SET {way} WHERE seq = ?", seq)
            assert broken(place) == Break(seq, EDITED)


@pytest.mark.parametrize(("column", "problem"), [("row_hash", EDITED), ("hash", UNLINKED)])
def test_an_edited_hash_is_found(
    pristine: Place, head: Head, tmp_path: Path, column: str, problem: str
) -> None:
    for seq in (1, 2, 150, head.seq):
        for way in ("zeroblob(32)", f"substr({column}, 2) || x'00'", "x''", "row_hash || hash"):
            place = copied(pristine, tmp_path / "store.db")
            edit(place, f"UPDATE audit SET {column} = CAST({way} AS BLOB) WHERE seq = ?", seq)
            assert broken(place) == Break(seq, problem)


def test_a_row_that_got_its_own_hash_again_does_not_lead_to_the_next_one(place: Place) -> None:
    with attacked(place) as db:
        (after,) = db.execute("SELECT hash FROM audit WHERE seq = 100").fetchone()
        db.execute("UPDATE audit SET actor = 'nobody' WHERE seq = 100")
        rechain(db, 100)
        _restore(db, place, 101)
    assert broken(place) == Break(101, UNLINKED)
    edit(place, "UPDATE audit SET hash = ? WHERE seq = 100", after)
    assert broken(place) == Break(100, UNLINKED)


def _restore(db: sqlite3.Connection, place: Place, first: int) -> None:
    """Give the rows from this one on the hashes back that were stored before this transaction."""
    with closing(connect_reader(place)) as before:
        rows = before.execute("SELECT row_hash, hash, seq FROM audit WHERE seq >= ?", (first,)).fetchall()
    db.executemany("UPDATE audit SET row_hash = ?, hash = ? WHERE seq = ?", rows)


ARROWS = [
    "machine = 'execution'",
    "from_state = 'nowhere'",
    "from_state = NULL",
    "event = event || 'x'",
    "to_state = 'nowhere'",
    "to_state = ''",
    "machine = machine || substr(from_state, 1, 1), from_state = substr(from_state, 2)",
    "from_state = to_state, to_state = from_state",
    "id = id + 1000",
]


@pytest.mark.parametrize("way", ARROWS)
def test_an_edited_arrow_is_found_at_the_first_row_that_it_explains(place: Place, way: str) -> None:
    with closing(connect_reader(place)) as db:
        arrow, first = db.execute(
            "SELECT a.arrow, min(a.seq) FROM audit AS a JOIN arrows AS r ON r.id = a.arrow"
            " WHERE r.machine <> 'execution' AND r.from_state <> r.to_state GROUP BY a.arrow ORDER BY 2 DESC"
        ).fetchone()
    edit(place, f"UPDATE arrows SET {way} WHERE id = ?", arrow)
    assert broken(place).seq == first


def test_a_deleted_arrow_is_found(place: Place) -> None:
    edit(place, "DELETE FROM arrows WHERE id = (SELECT arrow FROM audit WHERE seq = 7)")
    assert broken(place).problem == "the row tells of something that is not documented"


# ---- rows go, come and change places


def _free(db: sqlite3.Connection, first: int, by: int) -> None:
    """Make room in front of this row."""
    db.execute("UPDATE audit SET seq = -seq WHERE seq >= ?", (first,))
    db.execute("UPDATE audit SET seq = ? - seq WHERE seq < 0", (by,))


def _swap(db: sqlite3.Connection, one: int, other: int) -> None:
    db.execute("UPDATE audit SET seq = -1 WHERE seq = ?", (one,))
    db.execute("UPDATE audit SET seq = ? WHERE seq = ?", (one, other))
    db.execute("UPDATE audit SET seq = ? WHERE seq = -1", (other,))


def _forge(db: sqlite3.Connection, seq: int, like: int) -> None:
    """One more row, like another."""
    columns = ", ".join(column for column in AUDIT if column != "seq")
    db.execute(
        f"INSERT INTO audit (seq, {columns}) SELECT ?, {columns} FROM audit WHERE seq = ?", (seq, like)
    )


@pytest.mark.parametrize("seq", [1, 2, 10, 150, 299])
def test_a_deleted_row_is_missed(place: Place, seq: int) -> None:
    edit(place, "DELETE FROM audit WHERE seq = ?", seq)
    assert broken(place) == Break(seq, MISSING)
    assert verify(place).rows == seq - 1


def test_a_deleted_stretch_is_missed_at_its_beginning(place: Place) -> None:
    edit(place, "DELETE FROM audit WHERE seq BETWEEN 50 AND 200")
    assert broken(place) == Break(50, MISSING)


def test_a_deleted_row_is_found_also_where_the_rest_moves_up(place: Place) -> None:
    with attacked(place) as db:
        db.execute("DELETE FROM audit WHERE seq = 120")
        db.execute("UPDATE audit SET seq = -seq WHERE seq > 120")
        db.execute("UPDATE audit SET seq = -seq - 1 WHERE seq < 0")
    assert broken(place) == Break(120, EDITED)


def test_a_trail_that_was_cut_off_is_found_by_what_the_entities_say(
    pristine: Place, head: Head, tmp_path: Path
) -> None:
    for lost in (*range(1, 60, 3), head.seq - 1, head.seq):
        place = copied(pristine, tmp_path / "store.db")
        edit(place, "DELETE FROM audit WHERE seq > ?", head.seq - lost)
        found = broken(place)
        assert found.seq == head.seq - lost + 1
        assert "rows are missing" in found.problem
        assert broken(place, head).problem == (
            f"the trail ends at row {head.seq - lost}, and the anchor saw row {head.seq}"
        )


def test_a_cut_off_fact_is_found_although_it_changed_no_version(tmp_path: Path) -> None:
    last = lived(tmp_path / "store.db", ENDS_WITH_A_FACT).trail[-1]
    assert last.to_state is None
    place = Place(tmp_path / "store.db")
    assert verify(place).sound
    edit(place, "DELETE FROM audit WHERE seq = ?", last.seq)
    assert broken(place).seq == last.seq


@pytest.mark.parametrize("seq", [1, 50, 200])
def test_a_row_that_was_put_between_two_others_is_found(place: Place, seq: int) -> None:
    with attacked(place) as db:
        _free(db, seq, 1)
        _forge(db, seq, seq + 1)
        db.execute("UPDATE audit SET actor = 'mallory' WHERE seq = ?", (seq,))
    assert broken(place) == Break(seq, EDITED)
    with attacked(place) as db:
        rechain(db, seq)
        _restore(db, place, seq + 1)
    assert broken(place) == Break(seq + 1, EDITED)


def test_an_appended_row_is_found(place: Place, head: Head) -> None:
    with attacked(place) as db:
        _forge(db, head.seq + 1, head.seq)
    assert broken(place) == Break(head.seq + 1, EDITED)
    with attacked(place) as db:
        db.execute("UPDATE audit SET version = version + 1 WHERE seq = ?", (head.seq + 1,))
        rechain(db)
    assert broken(place).seq == head.seq + 2, "its hashes are right, and the entity does not know of it"


@pytest.mark.parametrize("seq", [2**31, 2**63 - 1])
def test_a_row_far_behind_the_last_one_is_no_reason_to_look_for_ever(
    place: Place, head: Head, seq: int
) -> None:
    with attacked(place) as db:
        _forge(db, seq, 5)
    assert broken(place) == Break(head.seq + 1, MISSING)


@pytest.mark.parametrize("seq", [0, -1, -(2**63)])
def test_a_row_before_the_first_one_is_found(place: Place, seq: int) -> None:
    with attacked(place) as db:
        _forge(db, seq, 5)
    assert broken(place) == Break(seq, "the row stands before the first one")


@pytest.mark.parametrize(("one", "other"), [(1, 2), (17, 18), (30, 290)])
def test_two_rows_that_changed_places_are_found(place: Place, one: int, other: int) -> None:
    with attacked(place) as db:
        _swap(db, one, other)
    assert broken(place) == Break(one, EDITED)


def test_a_reversed_stretch_is_found(place: Place) -> None:
    with attacked(place) as db:
        for offset in range(10):
            _swap(db, 101 + offset, 120 - offset)
    assert broken(place) == Break(101, EDITED)


def test_a_row_that_is_older_than_the_one_before_it_is_found_even_with_good_hashes(place: Place) -> None:
    with attacked(place) as db:
        db.execute("UPDATE audit SET at = at - 86400000000 WHERE seq = 77")
        rechain(db)
    assert broken(place) == Break(77, "the row is older than the one before it")


# ---- any value at all


class Vandal:
    """Changes one value, looks, and puts it back."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.db = sqlite3.connect(place.file, isolation_level=None)
        self.db.execute("PRAGMA synchronous = OFF")
        for (name,) in self.db.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            self.db.execute(f"DROP TRIGGER {name}")
        self.last: int = self.db.execute("SELECT max(seq) FROM audit").fetchone()[0]

    def value(self, column: str, seq: int) -> object:
        return self.db.execute(f"SELECT {column} FROM audit WHERE seq = ?", (seq,)).fetchone()[0]

    def finds(self, column: str, seq: int, value: object) -> Break | None:
        old = self.value(column, seq)
        self.db.execute(f"UPDATE audit SET {column} = ? WHERE seq = ?", (value, seq))
        found = verify(self.place, processes=1).broken
        now = value if column == "seq" else seq
        self.db.execute(f"UPDATE audit SET {column} = ? WHERE seq = ?", (old, now))
        return found


@pytest.fixture(scope="module")
def vandal(pristine: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vandal]:
    found = Vandal(copied(pristine, tmp_path_factory.mktemp("vandal") / "store.db"))
    with closing(found.db):
        yield found
        assert verify(found.place).sound, "everything was put back"


integers = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, Callable[[], st.SearchStrategy[object]]] = {
    **dict.fromkeys(("seq", *NUMBERS), lambda: integers),
    **dict.fromkeys(TEXTS, lambda: st.text(st.characters(exclude_categories=["Cs"]))),
    **dict.fromkeys(HASHES, partial(st.binary, max_size=40)),
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_single_change_of_any_stored_value_is_found(vandal: Vandal, data: st.DataObject) -> None:
    column = data.draw(st.sampled_from(AUDIT), "column")
    seq = data.draw(st.integers(1, vandal.last), "row")
    old = vandal.value(column, seq)
    near = st.just(old + data.draw(st.sampled_from((-1, 1)))) if isinstance(old, int) else st.nothing()
    values = near | VALUES[column]() | (st.none() if column in NULLABLE else st.nothing())
    taken = range(1, vandal.last + 1) if column == "seq" else ()
    value = data.draw(values.filter(lambda value: value != old and value not in taken), "value")
    found = vandal.finds(column, seq, value)
    assert found is not None
    assert found.seq == seq
