"""Pages of the trail, by any filter, in both directions."""

from random import Random
from typing import Any

import pytest

from engine.core.records import Entity, Ref
from engine.machines import MACHINES
from engine.store.gate import AuditRow
from engine.store.queries import HistoryFilter, Page
from tests.store.conformance.drivers import Driver
from tests.store.conformance.stage import (
    CONTROL,
    HEALTH,
    created,
    decision,
    fact,
    new_breaker,
    new_run,
    new_task,
    new_worker,
)
from tests.store.conformance.wishes import MANY, alone, every_field, history_wishes, in_pairs, leaf_history
from tests.store.conformance.worlds import world

SEED = 14
"""A small world with runs, tasks, workers, breakers and people in it."""

ALL = HistoryFilter()
directions = pytest.mark.parametrize("descending", [True, False], ids=["down", "up"])
however_many = pytest.mark.parametrize("few", [0, 5, 40, 2000])
"""How many rows a store that looks for the best way calls few: whatever the way, the answer is the same."""


def rows(driver: Driver, wanted: HistoryFilter = ALL, **more: Any) -> tuple[AuditRow, ...]:
    return driver.ask(lambda queries: queries.history(wanted, **more, limit=MANY)).rows


def fits(row: AuditRow, name: str, value: Any) -> bool:
    key = row.ref.key
    match name:
        case "run":
            return bool((key[0] if isinstance(key, tuple) else key) == value)
        case "kind":
            return row.ref.kind is value
        case "since":
            return bool(row.at >= value)
        case "until":
            return bool(row.at < value)
        case "facts":
            return (row.to_state is None) is value
    return bool(getattr(row, name) == value)


def test_an_empty_store_has_no_history(driver: Driver) -> None:
    for wanted in (ALL, HistoryFilter(since=0), HistoryFilter(until=2**60), HistoryFilter(kind=Entity.RUN)):
        page = driver.ask(lambda queries, w=wanted: queries.history(w))  # type: ignore[misc]
        assert page == Page(())


def test_the_newest_rows_come_first_unless_told_otherwise(driver: Driver) -> None:
    world(SEED).replay(driver.gate)
    last = len(world(SEED).trail)
    page = driver.ask(lambda queries: queries.history(limit=2))
    assert ([row.seq for row in page.rows], page.next) == ([last, last - 1], (None, last - 1))
    page = driver.ask(lambda queries: queries.history(descending=False, limit=2))
    assert ([row.seq for row in page.rows], page.next) == ([1, 2], (None, 2))


@however_many
def test_every_filter_alone_and_in_pairs_finds_what_fits_and_nothing_else(
    driver: Driver, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.store.history.FEW", few)
    world(SEED).replay(driver.gate)
    every = rows(driver)
    wishes = history_wishes(every)
    every_field(wishes, HistoryFilter)
    wished = [*alone(wishes), *in_pairs(wishes, Random(few), 2)]

    async def ask(queries: Any) -> list[tuple[AuditRow, ...]]:
        return [(await queries.history(HistoryFilter(**wish), limit=MANY)).rows for wish in wished]

    useful = set()
    for wish, found in zip(wished, driver.ask(ask), strict=True):
        expected = [row for row in every if all(fits(row, name, value) for name, value in wish.items())]
        assert list(found) == expected, wish
        if found and len(found) < len(every):
            useful |= set(wish)
    assert useful == set(wishes)


@directions
@pytest.mark.parametrize("few", [0, 2000])
def test_pages_of_every_size_visit_every_row_exactly_once(
    driver: Driver, descending: bool, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.store.history.FEW", few)
    world(SEED).replay(driver.gate)
    wishes: list[dict[str, Any]] = [
        {}, {"run": 1}, {"kind": Entity.TASK}, {"facts": False}, {"ref": Ref(Entity.RUN, 1)},
        {"source": "cli"}, {"actor": "engine"}, {"event": "created", "kind": Entity.TASK},
    ]  # fmt: skip
    for wish in wishes:
        wanted = HistoryFilter(**wish)
        expected = list(rows(driver, wanted, descending=descending))
        for limit in {1 if not wish else 3, 7, max(1, len(expected) - 1), len(expected)}:
            found = driver.ask(lambda q, w=wanted, n=limit: leaf_history(q, w, descending, n))  # type: ignore[misc]
            assert found == expected


@directions
def test_pages_visit_every_row_exactly_once_while_others_are_added(driver: Driver, descending: bool) -> None:
    recorded = world(SEED)
    half = len(recorded.batches) // 2
    for batch in recorded.batches[:half]:
        driver.gate.apply(batch)
    left = iter(recorded.batches[half:])
    before = [row.seq for row in rows(driver, descending=descending)]

    def more() -> None:
        batch = next(left, None)
        if batch is not None:
            driver.gate.apply(batch)

    found = [row.seq for row in driver.ask(lambda q: leaf_history(q, ALL, descending, 5, more))]
    if descending:
        assert found == before
    else:
        assert found[: len(before)] == before
        assert found == list(range(1, len(found) + 1))
        assert len(found) > len(before)


def test_the_rows_of_an_entity_are_its_history(driver: Driver) -> None:
    world(SEED).replay(driver.gate)
    for ref in world(SEED).trails:
        found = rows(driver, HistoryFilter(ref=ref), descending=False)
        assert list(found) == list(driver.gate.history(ref))


# ---- time


def test_bounds_hold_to_the_microsecond(driver: Driver) -> None:
    run = new_run()
    driver.gate.apply([decision(created(run), at=10)])
    for at in (10, 11, 11, 13):
        driver.gate.apply([decision(fact(run), at=at)])
    cases = [
        (None, None, [1, 2, 3, 4, 5]), (10, None, [1, 2, 3, 4, 5]), (11, None, [3, 4, 5]), (12, None, [5]),
        (13, None, [5]), (14, None, []), (None, 10, []), (None, 11, [1, 2]), (None, 12, [1, 2, 3, 4]),
        (None, 13, [1, 2, 3, 4]), (None, 14, [1, 2, 3, 4, 5]), (11, 12, [3, 4]), (11, 11, []), (13, 11, []),
        (0, 0, []), (-5, 2**62, [1, 2, 3, 4, 5]),
    ]  # fmt: skip
    for since, until, expected in cases:
        wanted = HistoryFilter(since=since, until=until)
        for descending in (True, False):
            found = [row.seq for row in rows(driver, wanted, descending=descending)]
            assert found == (expected[::-1] if descending else expected), (since, until)


# ---- who


@pytest.fixture
def namesakes(driver: Driver) -> dict[Entity, Ref]:
    """A run, a task, a worker and a tool that are all called the same."""
    run, worker, breaker = new_run(), new_worker("1"), new_breaker("1")
    task = new_task(run)
    born = [created(run), created(task), created(worker, HEALTH), created(worker, CONTROL), created(breaker)]
    facts = [fact(record, "same") for record in (run, task, worker, breaker)]
    driver.gate.apply([decision(*born, *facts)])
    return {record.ref.kind: record.ref for record in (run, task, worker, breaker)}


@pytest.mark.parametrize("kind", Entity)
@pytest.mark.parametrize("of", Entity)
@pytest.mark.parametrize("few", [0, 2000])
def test_a_reference_and_a_kind_must_both_fit(
    driver: Driver,
    namesakes: dict[Entity, Ref],
    kind: Entity,
    of: Entity,
    few: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.store.history.FEW", few)
    found = rows(driver, HistoryFilter(ref=namesakes[of], kind=kind))
    assert len(found) == (0 if kind is not of else 3 if kind is Entity.WORKER else 2)
    assert {row.ref for row in found} <= {namesakes[of]}
    assert len(rows(driver, HistoryFilter(kind=kind, event="same"))) == 1


def test_a_run_has_the_rows_of_its_tasks_and_of_nothing_else(
    driver: Driver, namesakes: dict[Entity, Ref]
) -> None:
    found = {row.ref for row in rows(driver, HistoryFilter(run=1))}
    assert found == {namesakes[Entity.RUN], namesakes[Entity.TASK]}
    assert rows(driver, HistoryFilter(run=1, kind=Entity.WORKER)) == ()
    assert rows(driver, HistoryFilter(run=2)) == ()


def test_facts_are_told_from_what_moved(driver: Driver, namesakes: dict[Entity, Ref]) -> None:
    assert namesakes
    assert {row.event for row in rows(driver, HistoryFilter(facts=True))} == {"same"}
    assert {row.event for row in rows(driver, HistoryFilter(facts=False))} == {"created"}
    assert rows(driver, HistoryFilter(facts=True, to_state=MACHINES[HEALTH].initial)) == ()


def test_a_fact_that_nobody_told_yet_is_no_row(driver: Driver, namesakes: dict[Entity, Ref]) -> None:
    assert namesakes
    assert rows(driver, HistoryFilter(event="unheard")) == ()
    assert rows(driver, HistoryFilter(event="unheard", run=1)) == ()


@pytest.mark.parametrize("name", ["'", "engine' OR '1'='1", "\0", "%", "\udcff", ""])
def test_any_text_may_be_asked_for(driver: Driver, name: str) -> None:
    run, worker = new_run(), new_worker(name)
    driver.gate.apply([decision(created(run), actor="engine")])
    made = [created(worker, HEALTH), created(worker, CONTROL)]
    driver.gate.apply([decision(*made, actor=name, source=name, request_id=name)])
    for wanted in (
        HistoryFilter(actor=name), HistoryFilter(source=name), HistoryFilter(request_id=name),
        HistoryFilter(ref=worker.ref), HistoryFilter(actor=name, source=name, ref=worker.ref),
    ):  # fmt: skip
        assert [row.seq for row in rows(driver, wanted)] == [3, 2]
    assert rows(driver, HistoryFilter(event=name)) == ()
