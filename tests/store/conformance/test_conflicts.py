"""Losing a race is a normal answer, and stores nothing; so does a change that is wrong in itself."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.core.decision import AttemptNoted, Closing, Decision, Dismiss, TimerSet, Transition
from engine.core.plan import Plan, TaskPlan
from engine.core.records import Attempt, Entity, Ref, Run, Task, TimerKind, Token, evolve
from engine.store.gate import Conflict, Request
from tests.store.conformance.drivers import Driver
from tests.store.conformance.stage import (
    CONTROL,
    HEALTH,
    Stage,
    created,
    decision,
    fact,
    moved,
    new_breaker,
    new_run,
    new_task,
    new_worker,
)

RUN = new_run(1)
TASK = new_task(RUN, 1)
START = ("executor_starts", "IN_PROGRESS")


def everything(driver: Driver) -> tuple[object, ...]:
    """All that a failed change must leave as it is."""
    return (
        driver.gate.load(),
        list(driver.gate.outbox()),
        driver.ask(lambda queries: queries.history(limit=500)).rows,
        driver.ask(lambda queries: queries.runs(limit=500)).rows,
        driver.ask(lambda queries: queries.attempts(1)),
        dict(driver.counters()),
        driver.recoveries(),
    )


@pytest.fixture(autouse=True)
def before(driver: Driver) -> None:
    driver.gate.apply([decision(created(RUN), created(TASK), created(new_task(RUN, 2)))])


def conflict(driver: Driver, *decisions: Decision, request: Request | None = None) -> Conflict:
    stored = everything(driver)
    with pytest.raises(Conflict) as lost:
        driver.gate.apply(decisions, request)
    assert everything(driver) == stored
    driver.reopen()
    assert everything(driver) == stored
    return lost.value


def test_a_move_from_another_version_is_a_conflict(driver: Driver) -> None:
    late = moved(evolve(TASK, {"version": 4}), *START)
    lost = conflict(driver, decision(late))
    assert (lost.ref, lost.machine) == (TASK.ref, "toolchain.task")
    assert (lost.expected, lost.found) == (("PENDING", 4), ("PENDING", 1))


def test_a_move_from_another_state_is_a_conflict(driver: Driver) -> None:
    late = moved(evolve(TASK, {"state": "RETRYING"}), "backoff_complete", "IN_PROGRESS")
    lost = conflict(driver, decision(late))
    assert (lost.expected, lost.found) == (("RETRYING", 1), ("PENDING", 1))


@pytest.mark.parametrize("ref", [Ref(Entity.RUN, 9), Ref(Entity.TASK, (1, 9)), Ref(Entity.TASK, (9, 1))])
def test_a_move_of_something_that_is_not_there_is_a_conflict(driver: Driver, ref: Ref) -> None:
    record: Run | Task = evolve(RUN, {"number": 9})
    if isinstance(ref.key, tuple):
        record = evolve(TASK, {"run": ref.key[0], "number": ref.key[1]})
    step = ("ENQUEUE", "queued") if ref.kind is Entity.RUN else START
    lost = conflict(driver, decision(moved(record, *step)))
    assert (lost.ref, lost.found) == (ref, None)


def test_a_worker_and_a_breaker_that_are_not_there_are_a_conflict(driver: Driver) -> None:
    stage = Stage(driver)
    stage.worker("w")
    moves = [change for change in stage.decisions[0].changes if isinstance(change, Transition)]
    elsewhere = [replace(move, ref=Ref(Entity.WORKER, "v")) for move in moves]
    assert conflict(driver, decision(*elsewhere)).found is None
    assert conflict(driver, decision(fact(new_breaker("make")))).found is None


@pytest.mark.parametrize("kind", ["run", "task", "breaker"])
def test_a_fact_on_another_version_is_a_conflict(driver: Driver, kind: str) -> None:
    breaker = new_breaker()
    driver.gate.apply([decision(created(breaker))])
    records: dict[str, Any] = {"run": RUN, "task": TASK, "breaker": breaker}
    record = records[kind]
    lost = conflict(driver, decision(fact(evolve(record, {"version": 3}))))
    assert lost.ref == record.ref
    assert lost.expected[1] == 3
    assert lost.found is not None
    assert lost.found[1] == 1


def test_a_fact_on_another_version_of_a_worker_is_a_conflict(driver: Driver) -> None:
    worker = new_worker()
    driver.gate.apply([decision(created(worker, HEALTH), created(worker, CONTROL))])
    conflict(driver, decision(fact(evolve(worker, {"health_version": 3}), draining=True)))


@pytest.mark.parametrize("place", range(4))
def test_one_late_decision_of_several_stores_none_of_them(driver: Driver, place: int) -> None:
    """With its timers, its instructions and the reply, too."""
    more: dict[str, Any] = {
        "timers": (TimerSet(RUN.ref, TimerKind.TIMEOUT, 5),),
        "instructions": (Dismiss("w"),),
    }
    good = [
        decision(moved(TASK, *START), **more),
        decision(fact(RUN, losses=3), created(new_worker(), HEALTH), created(new_worker(), CONTROL)),
        decision(created(new_run(2, Plan("other", (TaskPlan("x"),))))),
    ]
    late = decision(moved(evolve(new_task(RUN, 2), {"version": 2}), *START))
    lost = conflict(driver, *good[:place], late, *good[place:], request=Request("r", "op", "f", 1))
    assert lost.ref == Ref(Entity.TASK, (1, 2))
    driver.gate.apply(good)
    assert driver.gate.recall(Request("r", "op", "f", 1)) is None


def test_a_second_move_of_the_same_entity_is_seen_against_the_first(driver: Driver) -> None:
    lost = conflict(driver, decision(moved(TASK, *START), moved(TASK, *START)))
    assert lost.found == ("IN_PROGRESS", 2)


def test_what_lost_a_race_can_be_decided_again(driver: Driver) -> None:
    conflict(driver, decision(moved(evolve(TASK, {"version": 2}), *START)))
    driver.gate.apply([decision(moved(TASK, *START))])
    assert [task.state for task in driver.gate.load().tasks] == ["IN_PROGRESS", "PENDING"]
    assert [row.seq for row in driver.gate.history(TASK.ref)] == [2, 4]


def test_several_moves_of_one_entity_in_one_transaction_are_rows_in_their_order(driver: Driver) -> None:
    first = moved(TASK, *START, at=5, attempt=1)
    second = moved(first.after, "tool_execution_error", "FAILED", at=5, error="x")  # type: ignore[arg-type]
    third = moved(second.after, "retry_available", "RETRYING", at=6, retries=1)  # type: ignore[arg-type]
    driver.gate.apply([decision(first, fact(first.after, "noted", losses=2), at=5), decision(at=5)])
    second = replace(second, after=evolve(second.after, {"losses": 2}))
    third = replace(third, after=evolve(third.after, {"losses": 2}))
    driver.gate.apply([decision(second, at=5), decision(third, at=6)])
    stored = driver.gate.load().tasks[0]
    assert stored == third.after
    rows = driver.gate.history(TASK.ref)
    assert [(row.version, row.event, row.to_state) for row in rows] == [
        (1, "created", "PENDING"), (2, "executor_starts", "IN_PROGRESS"), (2, "noted", None),
        (3, "tool_execution_error", "FAILED"), (4, "retry_available", "RETRYING"),
    ]  # fmt: skip


# ---- wrong in itself


def never(record: Task) -> Decision:
    return decision(moved(record, "tests_pass", "COMPLETED"))


WRONG: dict[str, Callable[[], Decision]] = {
    "an arrow that is not documented": lambda: never(TASK),
    "an event that is not documented": lambda: decision(moved(TASK, "teleport", "IN_PROGRESS")),
    "a state that is not documented": lambda: decision(
        replace(moved(TASK, *START), target="NIRVANA"),
    ),
    "a second birth of a run": lambda: decision(created(RUN)),
    "a second birth of a task": lambda: decision(created(TASK)),
    "a birth in another state": lambda: decision(
        replace(created(new_task(RUN, 2)), ref=Ref(Entity.TASK, (1, 3)), state="FAILED")
    ),
    "a note on an attempt that is not there": lambda: decision(
        AttemptNoted(Token(1, 1, 1), Attempt(Token(1, 1, 1), "w", 1))
    ),
    "the end of an attempt that is not there": lambda: decision(
        fact(TASK, closes=Closing(Token(1, 1, 1), "exited", 0))
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_in_itself_is_refused_and_nothing_is_stored(
    driver: Driver, wrong: Callable[[], Decision]
) -> None:
    stored = everything(driver)
    first = decision(fact(RUN, losses=3), instructions=(Dismiss("w"),))
    with pytest.raises(driver.refusals):
        driver.gate.apply([first, wrong()])
    assert everything(driver) == stored
    driver.gate.apply([first])
    assert driver.gate.load().runs[0].losses == 3


def test_an_attempt_has_its_name_once_and_for_ever(driver: Driver) -> None:
    attempt = Attempt(Token(1, 1, 1), "w", 1)
    driver.gate.apply([decision(fact(TASK, opens=attempt))])
    with pytest.raises(driver.refusals):
        driver.gate.apply([decision(fact(TASK, opens=attempt))])
    driver.gate.apply([decision(fact(TASK, closes=Closing(attempt.token, "exited", 0)))])
    wrong: list[Any] = [
        fact(TASK, opens=attempt),
        fact(TASK, closes=Closing(attempt.token, "exited", 0)),
        AttemptNoted(attempt.token, attempt),
    ]
    for change in wrong:
        with pytest.raises(driver.refusals):
            driver.gate.apply([decision(change)])
