"""The figures of `metrics` are what anybody counts who reads the trail."""

import sqlite3
from bisect import bisect_left
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from engine.core.plan import SECOND
from engine.core.records import Purpose, Worker
from engine.store.files import Place
from engine.store.gate import Request
from engine.store.metrics import BUCKETS, Metrics, PairCount, measure
from engine.store.store import Store
from tests.simulator.store import machines_of, region
from tests.store.doubled import DoubledStore
from tests.store.orders import submission
from tests.store.worlds import attacked, lived

SEEDS = (1, 10, 12, 13)


@pytest.fixture(scope="module", params=SEEDS)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[DoubledStore, Metrics]:
    path = tmp_path_factory.mktemp("world") / "store.db"
    return lived(path, request.param), measure(Place(path))


def test_transitions_are_counted_by_pair_and_event(world: tuple[DoubledStore, Metrics]) -> None:
    store, found = world
    counted = Counter(
        (row.machine, row.from_state, row.event, row.to_state)
        for row in store.trail
        if row.from_state is not None and row.to_state is not None
    )
    assert {
        (one.machine, one.from_state, one.event, one.to_state): one.count for one in found.pairs
    } == counted
    assert found.rows == len(store.trail)
    assert list(found.pairs) == sorted(found.pairs, key=_order)


def _order(pair: PairCount) -> tuple[str, str, str, str]:
    return pair.machine, pair.from_state, pair.event, pair.to_state


def test_time_in_state_is_what_lies_between_two_rows(world: tuple[DoubledStore, Metrics]) -> None:
    store, found = world
    entered: dict[tuple[object, str], int] = {}
    stays: dict[tuple[str, str], list[int]] = {}
    for row in store.trail:
        if row.to_state is None:
            continue
        if row.from_state is not None:
            stays.setdefault((row.machine, row.from_state), []).append(row.at - entered[row.ref, row.machine])
        entered[row.ref, row.machine] = row.at
    assert [(one.machine, one.state) for one in found.times] == sorted(stays)
    for one in found.times:
        spent = stays[one.machine, one.state]
        assert one.count == len(spent)
        assert one.seconds == pytest.approx(sum(spent) / SECOND)
        within = [0] * len(BUCKETS)
        for stay in spent:
            for place in range(bisect_left(BUCKETS, stay / SECOND), len(BUCKETS)):
                within[place] += 1
        assert list(one.buckets) == within


def test_entities_are_counted_where_they_stand(world: tuple[DoubledStore, Metrics]) -> None:
    store, found = world
    standing = Counter(
        (machine, region(record, machine)[0])
        for record in store.records.values()
        for machine in machines_of(record)
    )
    assert {(machine, state): count for machine, state, count in found.standing} == standing
    assert any(isinstance(record, Worker) for record in store.records.values())


def test_invocations_are_the_attempts_at_work_of_a_tool(world: tuple[DoubledStore, Metrics]) -> None:
    store, found = world
    attempts = [execution.attempt for execution in store.executions.values()]
    tools = Counter(
        one.tool for one in attempts if one.tool is not None and one.token.purpose is Purpose.WORK
    )
    assert dict(found.invocations) == tools
    assert list(found.invocations) == sorted(found.invocations)


def test_some_world_has_everything_that_is_counted(tmp_path: Path) -> None:
    lived(tmp_path / "store.db", SEEDS[1])
    found = measure(Place(tmp_path / "store.db"))
    assert found.pairs
    assert found.times
    assert found.standing
    assert found.invocations


def test_refusals_and_repeated_requests_are_counted(tmp_path: Path) -> None:
    request = Request("a", "submit", "same", 1)
    with Store(tmp_path / "store.db") as store:
        first = submission(3)
        store.call(lambda gate: gate.apply([first], request)).result()
        for _ in range(3):
            store.call(lambda gate: gate.apply([first], request)).result()
        for event in ("teleport", "teleport", "stop"):
            store.call(lambda gate, event=event: gate.refused("execution", "pending", event)).result()  # type: ignore[misc]
        place = store.place
    found = measure(place)
    assert (found.hits, found.misses, found.hit_rate) == (3, 1, 0.75)
    assert [(one.machine, one.state, one.event, one.count) for one in found.refused] == [
        ("execution", "pending", "stop", 1),
        ("execution", "pending", "teleport", 2),
    ]


def test_an_empty_store_has_no_figures_and_no_rate(tmp_path: Path) -> None:
    with Store(tmp_path / "store.db") as store:
        place = store.place
    assert measure(place) == Metrics((), (), (), (), 0, 0, (), 0)
    assert measure(place).hit_rate == 0.0


def test_a_counter_that_nobody_knows_is_left_out(tmp_path: Path) -> None:
    with Store(tmp_path / "store.db") as store:
        place = store.place
    with attacked(place) as db:
        db.execute("INSERT INTO counters VALUES ('of_tomorrow', 'm', 's', 'e', 7)")
    assert measure(place).refused == ()


def test_measuring_changes_nothing(tmp_path: Path) -> None:
    lived(tmp_path / "store.db", SEEDS[0])
    before = (tmp_path / "store.db").read_bytes()
    measure(Place(tmp_path / "store.db"))
    assert (tmp_path / "store.db").read_bytes() == before
    with closing(sqlite3.connect(tmp_path / "store.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
