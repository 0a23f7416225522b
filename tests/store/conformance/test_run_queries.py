"""Pages of runs, and one run with its tasks."""

from random import Random
from typing import Any

import pytest

from engine.core import signals as s
from engine.core.plan import Plan, TaskPlan
from engine.machines import LIFECYCLES, MACHINES, Phase
from engine.store.queries import Page, RunFilter, RunRow, RunSort
from tests.store.conformance.drivers import Driver
from tests.store.conformance.stage import Stage, created, decision, fact, new_run, new_task
from tests.store.conformance.wishes import MANY, alone, every_field, in_pairs, leaf_runs, run_wishes

SORTS = [(sort, descending) for sort in RunSort for descending in (True, False)]
both_ways = pytest.mark.parametrize(
    ("sort", "descending"), SORTS, ids=[f"{sort}-{'down' if down else 'up'}" for sort, down in SORTS]
)
ALL = RunFilter()


def plan(name: str, lifecycle: str = "standard", **more: Any) -> Plan:
    return Plan(name, (TaskPlan("a", **more), TaskPlan("b", needs=(1,))), LIFECYCLES[lifecycle])


def furnish(driver: Driver) -> Stage:
    """Runs of every lifecycle, open and over, with ties in every sort value."""
    stage = Stage(driver, slots=50)
    for name in ("deploy", "build", "deploy", "Build", "ärger", "", "build"):
        for lifecycle in LIFECYCLES:
            stage.submit(plan(name, lifecycle), requester=["dev", "ann", None][stage.model.next_run % 3])
        stage.pass_time(1)
    stage.submit(plan("outer", uses=plan("inner")))
    runs = [run.number for run in stage.model.runs()]
    for number in runs[::3]:
        if stage.run(number).machine in ("execution", "supervision.job"):
            stage.finish(number, 0 if number % 2 else 127)
    for number in runs[1::5]:
        if not stage.run(number).terminal:
            stage.tell(s.Cancel, run=number, actor="ops")
            for token in [one.token for one in stage.model.attempts() if one.token.run == number]:
                stage.tell(s.AttemptEnded, token=token, exit_code=143)
    return stage


def rows(driver: Driver, wanted: RunFilter = ALL, **more: Any) -> tuple[RunRow, ...]:
    return driver.ask(lambda queries: queries.runs(wanted, **more, limit=MANY)).rows


def key(row: RunRow, sort: RunSort) -> tuple[bool, Any, int]:
    value = getattr(row, sort.value)
    return value is not None, 0 if value is None else value, row.number


def test_an_empty_store_has_no_runs(driver: Driver) -> None:
    for sort, descending in SORTS:
        page = driver.ask(lambda queries, s=sort, d=descending: queries.runs(ALL, s, descending=d))  # type: ignore[misc]
        assert page == Page(())
    assert driver.ask(lambda queries: queries.run(1)) is None


def test_a_run_that_is_not_there_is_nothing(driver: Driver) -> None:
    Stage(driver, slots=1).submit(plan("p"))
    for number in (0, 2, -1, 2**62):
        assert driver.ask(lambda queries, n=number: queries.run(n)) is None  # type: ignore[misc]


def test_a_row_tells_all_of_its_run(driver: Driver) -> None:
    run = new_run(
        1, Plan("p", (TaskPlan("a"),), description="what for", worker_count=3), params={"b": "é", "a": "1"}
    )
    driver.gate.apply([decision(created(run), at=1)])
    driver.gate.apply([decision(fact(run, started=4, resumed_by=5, ending_reason="x"), at=8)])
    driver.reopen()
    (row,) = rows(driver)
    assert len(row.workflow) == 64
    assert (row.number, row.name, row.task_description) == (1, "p", "what for")
    assert (row.machine, row.state, row.phase, row.version) == ("execution", "pending", run.phase, 1)
    assert (row.requester, row.params) == ("dev", '{"b":"é","a":"1"}')
    assert (row.created, row.entered, row.updated, row.started, row.ended) == (1, 1, 8, 4, None)
    assert (row.parent_run, row.parent_task, row.depth) == (None, None, 0)
    assert (row.worker_count, row.task_count, row.resumed_by, row.ending_reason) == (3, 1, 5, "x")


def test_a_run_is_shown_with_its_tasks_in_their_order(driver: Driver) -> None:
    stage = Stage(driver, slots=1)
    number = stage.submit(Plan("p", tuple(TaskPlan(f"t{place}") for place in range(12, 0, -1))))
    stage.end(number, 1, 1)
    detail = driver.ask(lambda queries: queries.run(number))
    assert detail is not None
    assert detail.run == rows(driver)[0]
    assert [task.number for task in detail.tasks] == list(range(1, 13))
    assert detail.tasks[0].label == f"{number}/t12"
    first, model = detail.tasks[0], stage.task(number, 1)
    for name in (
        "state",
        "version",
        "created",
        "entered",
        "started",
        "ended",
        "attempt",
        "retries",
        "failures",
    ):
        assert getattr(first, name) == getattr(model, name)
    assert (first.category, first.exit_code, first.phase) == ("unknown", 1, model.phase)
    assert (first.asking, first.final) == (False, False)


def test_flags_of_a_task_are_true_or_false(driver: Driver) -> None:
    run = new_run()
    driver.gate.apply([decision(created(run), created(new_task(run, 1, asking=True, final=True)))])
    detail = driver.ask(lambda queries: queries.run(1))
    assert detail is not None
    assert (detail.tasks[0].asking, detail.tasks[0].final) == (True, True)


# ---- sorting and paging


@both_ways
def test_rows_come_in_their_order(driver: Driver, sort: RunSort, descending: bool) -> None:
    furnish(driver)
    found = rows(driver, ALL, sort=sort, descending=descending)
    assert len({getattr(row, sort.value) for row in found}) < len(found) or sort is RunSort.NUMBER
    assert list(found) == sorted(found, key=lambda row: key(row, sort), reverse=descending)


def test_the_newest_runs_come_first_unless_told_otherwise(driver: Driver) -> None:
    stage = furnish(driver)
    page = driver.ask(lambda queries: queries.runs(limit=3))
    last = stage.model.next_run - 1
    assert [row.number for row in page.rows] == [last, last - 1, last - 2]
    assert page.next == (last - 2, last - 2)


@both_ways
def test_pages_of_every_size_visit_every_run_exactly_once(
    driver: Driver, sort: RunSort, descending: bool
) -> None:
    furnish(driver)
    expected = list(rows(driver, ALL, sort=sort, descending=descending))
    for limit in (1, 2, 3, 5, len(expected) - 1, len(expected), len(expected) + 1):
        found = driver.ask(lambda q, n=limit: leaf_runs(q, ALL, sort, descending, n))  # type: ignore[misc]
        assert found == expected


@both_ways
def test_pages_visit_every_run_exactly_once_while_others_are_added(
    driver: Driver, sort: RunSort, descending: bool
) -> None:
    stage = furnish(driver)
    before = [row.number for row in rows(driver, ALL, sort=sort, descending=descending)]

    def another() -> None:
        # Alone on its clock, so that nothing of what is there already moves.
        number = stage.model.next_run
        name = ("build", "aaa", "zzz", "ärger")[number % 4]
        ended = (None, 0, 2_000_000, 10**12)[number % 4]
        made = new_run(number, plan(name), ended=ended)
        driver.gate.apply([decision(created(made), at=stage.now + number)])
        stage.model.next_run += 1

    found = driver.ask(lambda queries: leaf_runs(queries, ALL, sort, descending, 4, another))
    numbers = [row.number for row in found]
    assert len(numbers) == len(set(numbers))
    assert [number for number in numbers if number in before] == before


def test_a_full_last_page_is_the_last(driver: Driver) -> None:
    stage = Stage(driver)
    for _ in range(4):
        stage.submit(plan("p"))
    page = driver.ask(lambda queries: queries.runs(limit=4))
    assert (len(page.rows), page.next) == (4, None)
    page = driver.ask(lambda queries: queries.runs(limit=3))
    assert (len(page.rows), page.next) == (3, (2, 2))


@both_ways
def test_a_cursor_need_not_be_a_row(driver: Driver, sort: RunSort, descending: bool) -> None:
    """The row of a cursor may have moved; what lies beyond the cursor does not depend on it."""
    furnish(driver)
    every = rows(driver, ALL, sort=sort, descending=descending)
    values: list[int | str | None] = [0, 3, 1_500_000, 2**60]
    if sort is RunSort.NAME:
        values = ["", "build", "m", "zzz"]
    if sort is RunSort.ENDED:
        values.append(None)
    for value in values:
        for number in (0, 7, 2**60):
            cursor = (number if sort is RunSort.NUMBER else value, number)
            last = (cursor[0] is not None, 0 if cursor[0] is None else cursor[0], number)
            page = driver.ask(
                lambda q, c=cursor: q.runs(ALL, sort, descending=descending, after=c, limit=MANY)  # type: ignore[misc]
            )
            expected = [
                row for row in every if (key(row, sort) < last) == descending and key(row, sort) != last
            ]
            assert list(page.rows) == expected


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_without_rows_is_refused(driver: Driver, limit: int) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        driver.ask(lambda queries: queries.runs(limit=limit))
    with pytest.raises(ValueError, match="at least one row"):
        driver.ask(lambda queries: queries.history(limit=limit))


# ---- filters


def fits(row: RunRow, name: str, value: Any) -> bool:
    match name:
        case "phases":
            return MACHINES[row.machine].phase[row.state] in value
        case "states":
            return row.state in value
        case "parent":
            return bool(row.parent_run == value)
        case "open":
            return (row.ended is None) is value
    return bool(getattr(row, name) == value)


def test_every_filter_alone_and_in_pairs_finds_what_fits_and_nothing_else(driver: Driver) -> None:
    furnish(driver)
    every = rows(driver)
    wishes = run_wishes(every)
    every_field(wishes, RunFilter)
    asked = [*alone(wishes), *in_pairs(wishes, Random(1), 12)]

    async def ask(queries: Any) -> list[tuple[RunRow, ...]]:
        return [(await queries.runs(RunFilter(**wish), limit=MANY)).rows for wish in asked]

    useful = set()
    for wish, found in zip(asked, driver.ask(ask), strict=True):
        expected = [row for row in every if all(fits(row, name, value) for name, value in wish.items())]
        assert list(found) == expected, wish
        if found and len(found) < len(every):
            useful.add(tuple(wish))
    assert {name for names in useful for name in names} == set(wishes)


def test_a_run_is_open_until_it_has_ended(driver: Driver) -> None:
    stage = Stage(driver, slots=2)
    first, second = stage.submit(plan("p")), stage.submit(plan("p"))
    stage.finish(first)
    assert [row.number for row in rows(driver, RunFilter(open=True))] == [second]
    assert [row.number for row in rows(driver, RunFilter(open=False))] == [first]
    assert [row.number for row in rows(driver, RunFilter(phases=frozenset({Phase.SUCCEEDED})))] == [first]


def test_names_are_the_same_only_to_the_letter(driver: Driver) -> None:
    furnish(driver)
    assert {row.name for row in rows(driver, RunFilter(name="build"))} == {"build"}
    assert {row.name for row in rows(driver, RunFilter(name=""))} == {""}
    assert rows(driver, RunFilter(name="BUILD")) == ()
    assert rows(driver, RunFilter(name="b%")) == ()


def test_a_name_that_no_text_can_have_finds_what_was_stored_under_it(driver: Driver) -> None:
    run = new_run(requester="name-\udcff")
    driver.gate.apply([decision(created(run))])
    assert [row.number for row in rows(driver, RunFilter(requester="name-\udcff"))] == [1]
    assert rows(driver, RunFilter(name="\ud800")) == ()
