"""What is stored comes back: every record, every field, whatever stands in it."""

from dataclasses import MISSING, fields
from typing import Any

import pytest

from engine.core.model import Snapshot
from engine.core.plan import Approval, Category, Clause, Plan, TaskPlan
from engine.core.records import (
    Attempt,
    Breaker,
    Circuit,
    Ending,
    Hold,
    Origin,
    Pardon,
    Purpose,
    Run,
    Stop,
    Task,
    Token,
    Worker,
    evolve,
)
from engine.store.gate import Request
from tests.simulator.telling import plan_id
from tests.store.conformance.drivers import Driver
from tests.store.conformance.stage import (
    CONTROL,
    HEALTH,
    Stage,
    created,
    decision,
    fact,
    new_breaker,
    new_run,
    new_task,
    new_worker,
)

HOLD = Hold(Approval((Clause(frozenset({"ann", "bob"}), frozenset({"ops"}), 2), Clause()), 77))

FULL_RUN: dict[str, Any] = {
    "started": 3, "ending": Ending.FAILURE, "ending_reason": "its tests failed", "hold": HOLD,
    "resumed_by": 9, "checking": True, "attempt": 4, "live": Token(1, 0, 4, Purpose.CHECK, 2), "losses": 5,
}  # fmt: skip
FULL_TASK: dict[str, Any] = {
    "started": 2, "ended": 3, "attempt": 4, "retries": 5, "failures": 6, "losses": 7, "check_losses": 8,
    "probes": 9, "health_checks": 10, "probing": True, "live": Token(1, 1, 4),
    "fenced": Token(1, 1, 3, Purpose.HOOK, 1), "checking": True, "asking": True, "final": True,
    "circuit": Circuit.BREAKER, "hold": HOLD, "pardon": Pardon.LEFT_OUT, "blocked": "a need has failed",
    "category": Category.TRANSIENT, "fingerprint": "abc", "repeats": 11, "error": "it broke", "exit_code": -9,
    "lost": (Token(1, 1, 1), Token(1, 1, 2, Purpose.HEALTH, 13)),
}  # fmt: skip
FULL_WORKER: dict[str, Any] = {"draining": True, "frozen": True, "reason": "it is late"}
BORN_WORKER: dict[str, Any] = {
    "slots": 7, "capabilities": frozenset({"gpu", "net"}), "workspace": "north", "metadata": {"os": "linux"},
}  # fmt: skip
FULL_BREAKER: dict[str, Any] = {
    "failures": 2, "successes": 3, "probe": Token(4, 5, 6), "ramp": 8, "error": "refused",
}  # fmt: skip
FULL_ATTEMPT = Attempt(
    Token(1, 1, 4, Purpose.CHECK, 3), "w", 10, "make", 12, 13, 14, Stop.KILLED, fenced=True, doubt=True
)


HOSTILE = {
    "a NUL": "before\0after",
    "emoji": "🧨👩‍👩‍👧 done",
    "right to left": "\u202e\u05e9\u05dc\u05d5\u05dd\u202c \u0646\u062a\u064a\u062c\u0629",
    "quotes and backslashes": """'"`\\'; DROP TABLE runs; --\\u0041 %s {} ?""",
    "line ends": "one\rtwo\r\nthree\u2028four\x1b[31m",
    "nothing": "",
    "only blanks": "  \t ",
    "a megabyte": "x" * 1_000_000,
    "decomposed": "e\u0301 is not \u00e9",
    "a lone surrogate": "name-\udcff-\ud800",
}
hostile = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())


def store_new(driver: Driver, *records: Run | Task | Worker | Breaker) -> Snapshot:
    changes = []
    for record in records:
        machines = (HEALTH, CONTROL) if isinstance(record, Worker) else (None,)
        changes += [created(record, machine) for machine in machines]
    driver.gate.apply([decision(*changes)])
    driver.reopen()
    return driver.gate.load()


def test_an_empty_store_loads_nothing(driver: Driver) -> None:
    assert driver.gate.load() == Snapshot()
    assert list(driver.gate.outbox()) == []
    driver.reopen()
    assert driver.gate.load() == Snapshot()


def test_new_records_come_back_as_they_were(driver: Driver) -> None:
    run, worker, breaker = new_run(), new_worker(), new_breaker()
    tasks = (new_task(run, 1), new_task(run, 2))
    loaded = store_new(driver, run, *tasks, worker, breaker)
    assert loaded == Snapshot((run,), tasks, (), (worker,), (breaker,), (), 2)


def test_a_record_with_every_field_set_comes_back_when_it_is_born_so(driver: Driver) -> None:
    parent = new_run(1)
    run = new_run(2, **FULL_RUN, parent=(1, 2), depth=3, origin=Origin(1, "resume"), params={"a": "b"})
    task = new_task(run, 1, **FULL_TASK)
    worker = new_worker("w", **BORN_WORKER, **FULL_WORKER)
    breaker = new_breaker("make", **FULL_BREAKER)
    loaded = store_new(driver, parent, run, task, worker, breaker)
    assert loaded.runs == (parent, run)
    assert loaded.tasks == (task,)
    assert loaded.workers == (worker,)
    assert loaded.breakers == (breaker,)


def test_a_record_with_every_field_set_comes_back_when_a_fact_sets_them(driver: Driver) -> None:
    run, worker, breaker = new_run(), new_worker(), new_breaker()
    task = new_task(run)
    store_new(driver, run, task, worker, breaker)
    changes = [
        fact(run, **FULL_RUN), fact(task, **FULL_TASK),
        fact(worker, **FULL_WORKER, **BORN_WORKER), fact(breaker, **FULL_BREAKER),
    ]  # fmt: skip
    driver.gate.apply([decision(*changes, at=5)])
    driver.reopen()
    loaded = driver.gate.load()
    assert loaded.runs == (evolve(run, FULL_RUN),)
    assert loaded.tasks == (evolve(task, FULL_TASK),)
    assert loaded.workers == (evolve(worker, FULL_WORKER | BORN_WORKER),)
    assert loaded.breakers == (evolve(breaker, FULL_BREAKER),)


def test_what_was_set_can_be_taken_back(driver: Driver) -> None:
    """Except a hold: what was asked once stays asked."""
    run = new_run(**FULL_RUN)
    task, worker = new_task(run, **FULL_TASK), new_worker(**BORN_WORKER, **FULL_WORKER)
    breaker = new_breaker(**FULL_BREAKER)
    store_new(driver, run, task, worker, breaker)
    usual: dict[type, dict[str, Any]] = {
        kind: {
            spec.name: spec.default
            for spec in fields(kind)
            if spec.default is not MISSING and spec.name not in ("hold", "parent", "depth", "origin")
        }
        for kind in (Run, Task, Worker, Breaker)
    }
    records: tuple[Any, ...] = (run, task, worker, breaker)
    driver.gate.apply([decision(*(fact(record, **usual[type(record)]) for record in records), at=2)])
    driver.reopen()
    loaded = driver.gate.load()
    stored: tuple[Any, ...] = (*loaded.runs, *loaded.tasks, *loaded.workers, *loaded.breakers)
    assert stored == tuple(evolve(record, usual[type(record)]) for record in records)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (Run, FULL_RUN | dict.fromkeys(("parent", "depth", "origin", "ended"))),
        (Task, FULL_TASK),
        (Worker, FULL_WORKER | BORN_WORKER),
        (Breaker, FULL_BREAKER),
        (Attempt, {spec.name: getattr(FULL_ATTEMPT, spec.name) for spec in fields(Attempt)}),
    ],
)
def test_these_records_leave_no_field_at_its_default(kind: Any, given: dict[str, object]) -> None:
    """`ended` alone is set nowhere here: a run that is over is not loaded."""
    optional = {spec.name: spec.default for spec in fields(kind) if spec.default is not MISSING}
    assert optional.keys() <= given.keys()
    assert [name for name, value in optional.items() if value is not None and given[name] == value] == []


def test_an_attempt_with_every_field_set_comes_back(driver: Driver) -> None:
    run = new_run()
    task = new_task(run)
    store_new(driver, run, task)
    opened = fact(task, opens=FULL_ATTEMPT, live=FULL_ATTEMPT.token)
    driver.gate.apply([decision(opened)])
    driver.reopen()
    assert driver.gate.load().attempts == (FULL_ATTEMPT,)


@pytest.mark.parametrize("purpose", Purpose)
def test_a_token_of_every_purpose_comes_back(driver: Driver, purpose: Purpose) -> None:
    token = Token(1, 1, 12, purpose, 0 if purpose is Purpose.WORK else 34)
    run = new_run()
    task = new_task(run, live=token)
    store_new(driver, run, task)
    driver.gate.apply([decision(fact(task, opens=Attempt(token, "w", 1)))])
    loaded = driver.gate.load()
    assert loaded.tasks[0].live == token
    assert loaded.attempts[0].token == token


@hostile
def test_any_text_comes_back(driver: Driver, text: str) -> None:
    plan = Plan("p", (TaskPlan("t1"),))
    kept = driver.kept(text)
    run = new_run(1, plan, requester=text, params={text: text}, ending_reason=text)
    task = new_task(run, error=text, fingerprint=text, blocked=text)
    worker = new_worker(workspace=text, metadata={text: text}, capabilities=frozenset({text}), reason=text)
    breaker = new_breaker(error=text)
    loaded = store_new(driver, run, task, worker, breaker)
    assert loaded.runs == (evolve(run, {"requester": kept, "ending_reason": kept}),)
    assert loaded.tasks == (evolve(task, {"error": kept, "fingerprint": kept, "blocked": kept}),)
    assert loaded.workers == (evolve(worker, {"workspace": kept, "reason": kept}),)
    assert loaded.breakers == (evolve(breaker, {"error": kept}),)


@hostile
def test_any_text_may_name_a_worker_or_a_tool(driver: Driver, text: str) -> None:
    kept = driver.kept(text)
    loaded = store_new(driver, new_worker(text), new_breaker(text))
    assert loaded.workers == (new_worker(kept),)
    assert loaded.breakers == (new_breaker(kept),)


@hostile
def test_any_text_of_a_row_comes_back_in_the_history(driver: Driver, text: str) -> None:
    run = new_run()
    made = decision(created(run), actor=text, source=text, request_id=text)
    driver.gate.apply([made])
    (row,) = driver.gate.history(run.ref)
    kept = driver.kept(text)
    assert (row.actor, row.source, row.request_id) == (kept, kept, kept)
    (found,) = driver.ask(lambda queries: queries.history()).rows
    assert found == row


@hostile
def test_any_text_of_a_reply_comes_back(driver: Driver, text: str) -> None:
    asked = Request(f"id {text[:99]}", text[:99], "f", 1, 0, text)
    driver.gate.apply([], asked)
    driver.reopen()
    again = driver.gate.recall(asked)
    assert again is not None
    assert again.body == driver.kept(text)


@hostile
def test_any_text_of_a_plan_comes_back(driver: Driver, text: str) -> None:
    plan = Plan(text, (TaskPlan(text, tool=text),), digest=text, description=text)
    run = new_run(1, plan)
    task = new_task(run)
    loaded = store_new(driver, run, task)
    assert (loaded.runs, loaded.tasks) == ((run,), (task,))
    (row,) = driver.ask(lambda queries: queries.runs()).rows
    assert (row.name, row.task_description) == (driver.kept(text), driver.kept(text) or row.name)
    assert row.workflow == plan_id(plan)


def test_a_plan_is_shared_by_the_runs_of_one_version_and_loaded_for_each(driver: Driver) -> None:
    stage = Stage(driver, slots=1)
    plan = Plan("p", (TaskPlan("a"),), description="one")
    same = Plan("p", (TaskPlan("a"),), description="one")
    other = Plan("p", (TaskPlan("a"),), description="two")
    for each in (plan, same, other):
        stage.submit(each)
    stage.reload()
    assert [run.plan for run in stage.model.runs()] == [plan, same, other]
    rows = driver.ask(lambda queries: queries.runs(descending=False)).rows
    assert rows[0].workflow == rows[1].workflow != rows[2].workflow
    assert [row.task_description for row in rows] == ["one", "one", "two"]
