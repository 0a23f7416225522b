"""Executions: opened, noted, closed, with all that was measured of them."""

from engine.core import signals as s
from engine.core.decision import AttemptNoted, Closing
from engine.core.plan import Plan, TaskPlan
from engine.core.records import Attempt, CheckResult, Purpose, Report, Stop, Token
from engine.store.queries import AttemptRow
from tests.core.scene import run_ref
from tests.store.conformance.drivers import Check, Driver
from tests.store.conformance.stage import Stage, created, decision, fact, new_run, new_task

RUN = new_run()
TASK = new_task(RUN)
WORK, CHECK = Token(1, 1, 1), Token(1, 1, 1, Purpose.CHECK, 0)
FULL = Report(
    2**40, 1_500_000, 2**33, ("dist/app.whl", "a b\0c"), "warm\nup",
    (CheckResult("lint", True, 5, 0, "fine"), CheckResult("unit", False, 7, None, None)),
)  # fmt: skip


def attempts(driver: Driver, run: int = 1, task: int | None = None) -> list[AttemptRow]:
    return list(driver.ask(lambda queries: queries.attempts(run, task)))


def open_task(driver: Driver, *attempts: Attempt) -> None:
    opened = [fact(TASK, opens=attempt) for attempt in attempts]
    driver.gate.apply([decision(created(RUN), created(TASK), created(new_task(RUN, 2)), *opened, at=5)])


def test_an_open_attempt_is_loaded_and_listed(driver: Driver) -> None:
    attempt = Attempt(WORK, "w", 5, "make")
    open_task(driver, attempt)
    driver.reopen()
    assert driver.gate.load().attempts == (attempt,)
    assert attempts(driver) == [
        AttemptRow(1, 1, 1, "work", 0, "w", "make", None, 5, None, None, None, *([None] * 6))
    ]


def test_a_note_changes_an_open_attempt_and_leaves_no_row(driver: Driver) -> None:
    open_task(driver, Attempt(WORK, "w", 5))
    noted = Attempt(WORK, "v", 6, "make", 3, 7, 8, Stop.CANCEL, fenced=True, doubt=True)
    before = driver.ask(lambda queries: queries.head())
    driver.gate.apply([decision(AttemptNoted(WORK, noted), at=9)])
    driver.reopen()
    assert driver.gate.load().attempts == (noted,)
    assert driver.ask(lambda queries: queries.head()) == before
    assert attempts(driver)[0].stopping == "cancel"


def test_a_closed_attempt_is_kept_with_its_report_and_not_loaded(driver: Driver) -> None:
    open_task(driver, Attempt(WORK, "w", 5, "make", None, 6, 77))
    driver.gate.apply([decision(fact(TASK, closes=Closing(WORK, "exited", -15, FULL)), at=9)])
    driver.reopen()
    assert driver.gate.load().attempts == ()
    assert attempts(driver) == [
        AttemptRow(
            1, 1, 1, "work", 0, "w", "make", None, 5, 6, 77, None, 9, "exited", -15, 2**40, 1_500_000, 2**33
        )
    ]
    assert driver.kept_of(WORK) == (("dist/app.whl", "a b\0c"), "warm\nup")


def test_an_attempt_without_a_report_has_nothing_measured(driver: Driver) -> None:
    open_task(driver, Attempt(WORK, "w", 5))
    driver.gate.apply([decision(fact(TASK, closes=Closing(WORK, "lost")), at=9)])
    (row,) = attempts(driver)
    assert (row.outcome, row.exit_code, row.output_size, row.cpu_time) == ("lost", None, None, None)
    assert driver.kept_of(WORK) == ((), None)
    assert driver.checks() == []


def test_an_attempt_opened_and_closed_in_one_transaction_is_kept(driver: Driver) -> None:
    attempt = Attempt(WORK, None, 5, sub_run=2)
    changes = [fact(TASK, opens=attempt), fact(TASK, closes=Closing(WORK, "sub-run 2 succeeded"))]
    driver.gate.apply([decision(created(RUN), created(TASK), *changes, at=5)])
    assert driver.gate.load().attempts == ()
    (row,) = attempts(driver)
    assert (row.sub_run, row.sent, row.ended, row.outcome) == (2, 5, 5, "sub-run 2 succeeded")


def test_one_change_may_close_an_attempt_and_open_the_next(driver: Driver) -> None:
    open_task(driver, Attempt(WORK, "w", 5))
    change = fact(TASK, closes=Closing(WORK, "exited", 0), opens=Attempt(CHECK, "w", 9), live=CHECK)
    driver.gate.apply([decision(change, at=9)])
    assert [one.token for one in driver.gate.load().attempts] == [CHECK]
    row = driver.gate.history(TASK.ref)[-1]
    assert row.metadata == {
        "live": "1.1.1+check0",
        "opens": {"token": "1.1.1+check0", "worker": "w"},
        "closes": {"token": "1.1.1", "outcome": "exited", "exit_code": 0},
    }


def test_the_results_of_checks_are_kept_in_their_order(driver: Driver) -> None:
    open_task(driver, Attempt(CHECK, "w", 5))
    driver.gate.apply([decision(fact(TASK, closes=Closing(CHECK, "exited", 1, FULL)), at=9)])
    assert driver.checks() == [
        Check(CHECK, 1, "lint", True, 5, 0, "fine"),
        Check(CHECK, 2, "unit", False, 7, None, None),
    ]


def test_results_told_by_executions_of_other_purposes_do_not_get_in_each_others_way(driver: Driver) -> None:
    """A worker may tell results with any report, and no report may keep a decision from being stored."""
    open_task(driver, Attempt(WORK, "w", 5), Attempt(CHECK, "w", 5))
    for token in (WORK, CHECK):
        driver.gate.apply([decision(fact(TASK, closes=Closing(token, "exited", 0, FULL)), at=9)])
    assert driver.gate.load().attempts == ()


def test_attempts_are_listed_by_task_and_the_oldest_first(driver: Driver) -> None:
    later = [
        Attempt(Token(1, 1, 2), "w", 5),
        Attempt(Token(1, 1, 1, Purpose.CHECK, 1), "w", 4),
        Attempt(Token(1, 1, 1, Purpose.CHECK, 0), "w", 3),
        Attempt(Token(1, 1, 1), "w", 3),
        Attempt(Token(1, 1, 10), "w", 6),
        Attempt(Token(1, 2, 1), "w", 2),
        Attempt(Token(1, 0, 1, Purpose.CHECK, 0), "w", 9),
    ]
    run, second = RUN, new_task(RUN, 2)
    owners = {0: run, 1: TASK, 2: second}
    # They are opened in their order, as the core would.
    later.sort(key=lambda attempt: (attempt.sent, attempt.token.purpose is not Purpose.WORK))
    changes = [fact(owners[attempt.token.task], opens=attempt) for attempt in later]
    driver.gate.apply([decision(created(run), created(TASK), created(second), *changes)])
    told = [
        Token(row.run, row.task, row.attempt, Purpose(row.purpose), row.round) for row in attempts(driver)
    ]
    assert [str(token) for token in told] == [
        "1.0.1+check0", "1.1.1", "1.1.1+check0", "1.1.1+check1", "1.1.2", "1.1.10", "1.2.1",
    ]  # fmt: skip
    assert [row.attempt for row in attempts(driver, 1, 1)] == [1, 1, 1, 2, 10]
    assert [row.purpose for row in attempts(driver, 1, 0)] == ["check"]
    assert attempts(driver, 1, 9) == []
    assert attempts(driver, 9) == []


def test_attempts_of_a_task_with_retries_and_checks_tell_its_whole_story(driver: Driver) -> None:
    stage = Stage(driver, slots=2)
    run = stage.submit(Plan("p", (TaskPlan("a", checks=1),)))
    stage.end(run, 1, 1)
    stage.finish(run)
    rows = attempts(driver, run)
    told = [(row.attempt, row.purpose, row.outcome, row.exit_code) for row in rows]
    assert told == [
        (1, "work", "exited", 1), (2, "work", "exited", 0), (2, "check", "exited", 0),
    ]  # fmt: skip
    assert all(row.ended is not None for row in rows)


def test_a_late_report_of_an_attempt_is_kept_as_evidence(driver: Driver) -> None:
    stage = Stage(driver, slots=1)
    run = stage.submit(Plan("p", (TaskPlan("a"),)))
    token = stage.live(run, 1)
    stage.tell(s.AttemptLost, token=token, evidence="gone")
    stage.tell(s.AttemptEnded, token=token, exit_code=0)
    names = [row.event for row in driver.gate.history(stage.task(run, 1).ref) if row.to_state is None]
    assert "late_result" in names
    assert driver.gate.load() == stage.model.snapshot()
    assert driver.gate.history(run_ref(run))[0].event == "created"
