"""READING.md, "Figures": the defaults that the core decides with.

Decided elsewhere: stuck after 1 h (recovery); heartbeats every 2 s and unresponsive after 3 missed, worker
network errors (workers, runtime); idempotency keys (store).
"""

from typing import Any

import pytest

from engine.core import signals
from engine.core.decision import Halt
from engine.core.errors import Refused
from engine.core.plan import (
    SECOND,
    Approval,
    Category,
    Clause,
    ErrorRule,
    Plan,
    Retry,
    Settings,
    TaskPlan,
    Tool,
)
from engine.core.records import Entity, Ref, Stop, TimerKind
from engine.core.retry import backoff
from engine.machines import Lifecycle, Phase

from .driver import HOUR, Driver, every_pair, every_task_machine, task, tasks_follow, workflow

AIDER = Ref(Entity.BREAKER, "aider")
WORKER = Ref(Entity.WORKER, "w")
PERMANENT, TRANSIENT, UNKNOWN = Category.PERMANENT, Category.TRANSIENT, Category.UNKNOWN


def driven(settings: Settings | None = None, machine: str = "toolchain.task", **wishes: Any) -> Driver:
    drive = Driver(settings)
    drive.submit(workflow(task("a", **wishes), lifecycle=tasks_follow(machine)))
    return drive


# ---- timeouts


@every_pair
def test_a_task_times_out_after_300_s(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=pair))
    assert drive.due(TimerKind.DEADLINE, "a") == 300
    drive.advance(299)
    assert drive.told(Halt) == []
    drive.advance(1)
    assert [halt.why for halt in drive.told(Halt)] == [Stop.TIMEOUT]


def test_a_tool_or_a_task_may_have_another_timeout() -> None:
    settings = Settings(tools={"aider": Tool("aider", timeout=40 * SECOND)})
    assert driven(settings, tool="aider").due(TimerKind.DEADLINE, "a") == 40
    assert driven(settings, tool="aider", timeout=7 * SECOND).due(TimerKind.DEADLINE, "a") == 7


@every_task_machine
def test_a_check_times_out_after_30_s_each(machine: str) -> None:
    drive = driven(machine=machine, checks=3)
    drive.exits("a")
    assert drive.due(TimerKind.DEADLINE, "a") == 90


@every_task_machine
@pytest.mark.parametrize("code", [0, 143])
def test_checks_that_time_out_have_failed_whatever_they_exit_with(machine: str, code: int) -> None:
    drive = driven(machine=machine, checks=1, retry=Retry(max_attempts=1))
    drive.exits("a")
    drive.advance(30)
    drive.exits("a", code)
    assert drive.phase() is Phase.FAILED


def test_final_checks_time_out_after_30_s_each() -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), checks=2))
    drive.exits("a")
    assert drive.due(TimerKind.DEADLINE) == 60


# ---- attempts and backoff


def test_there_are_5_attempts() -> None:
    assert Retry().max_attempts == 5
    drive = driven()
    drive.play({"a": [1] * 9})
    assert drive.started() == ["a"] * 5


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 60), (7, 60), (1000, 60)]
)
def test_the_backoff_before_attempt_n_plus_1_is_2_to_the_n_capped_at_60_s(
    failures: int, seconds: int
) -> None:
    assert backoff(Retry(), failures, 0.5) == seconds * SECOND


@pytest.mark.parametrize(("rand", "factor"), [(0.0, 0.75), (0.5, 1.0), (0.25, 0.875), (1.0, 1.25)])
@pytest.mark.parametrize(("failures", "seconds"), [(1, 2), (4, 16), (9, 60)])
def test_the_jitter_is_25_percent_either_way_after_the_cap(
    rand: float, factor: float, failures: int, seconds: int
) -> None:
    assert backoff(Retry(), failures, rand) == round(seconds * SECOND * factor)


@every_task_machine
def test_the_backoff_is_jittered_by_the_number_that_the_decision_got(machine: str) -> None:
    for rand, wait in ((0.0, 1.5), (0.5, 2.0), (0.75, 2.25)):
        drive = Driver(rand=rand)
        drive.submit(workflow(task("a"), lifecycle=tasks_follow(machine)))
        drive.exits("a", 1)
        assert drive.due(TimerKind.RETRY, "a") == wait


@every_task_machine
def test_n_is_the_number_of_failed_attempts_so_far_lost_ones_too(machine: str) -> None:
    drive = driven(machine=machine)
    drive.lost("a")
    assert drive.due(TimerKind.RETRY, "a") == 2
    drive.advance(2)
    drive.exits("a", 1)
    assert drive.due(TimerKind.RETRY, "a") == 4


# ---- breakers


def failing(count: int, settings: Settings | None = None) -> Driver:
    """So many failures of aider in a row, each in a run of its own."""
    drive = Driver(settings)
    for _ in range(count):
        drive.submit(workflow(task("a", tool="aider")))
        drive.exits("a", 127)
    return drive


def test_a_breaker_opens_after_5_consecutive_failures() -> None:
    assert failing(4).breaker("aider") == "CLOSED"
    assert failing(5).breaker("aider") == "OPEN"


def test_a_success_between_makes_the_count_start_anew() -> None:
    drive = failing(4)
    drive.submit(workflow(task("a", tool="aider")))
    drive.exits("a")
    for _ in range(4):
        drive.submit(workflow(task("a", tool="aider")))
        drive.exits("a", 127)
    assert drive.breaker("aider") == "CLOSED"


def test_the_cooldown_is_60_s() -> None:
    drive = failing(5)
    drive.advance(59)
    assert drive.breaker("aider") == "OPEN"
    drive.advance(1)
    assert drive.breaker("aider") == "HALF_OPEN"


def test_1_success_closes() -> None:
    drive = failing(5)
    drive.advance(60)
    drive.submit(workflow(task("a", tool="aider")))
    drive.exits("a")
    assert drive.events(ref=AIDER)[-1] == "success"
    assert drive.breaker("aider") == "CLOSED"


def test_1_failure_of_the_probe_opens_again_for_another_cooldown() -> None:
    drive = failing(5)
    drive.advance(60)
    drive.submit(workflow(task("a", tool="aider")))
    drive.exits("a", 127)
    assert drive.breaker("aider") == "OPEN"
    assert drive.due(TimerKind.COOLDOWN, ref=AIDER) == 60


# ---- the same error in a row


def test_the_same_error_more_than_2_times_in_a_row_opens_the_tasks_circuit() -> None:
    drive = driven()
    for wait in (2, 4):
        drive.exits("a", 1, error="no space left")
        assert drive.state("a") == "RETRYING"
        drive.advance(wait)
    drive.exits("a", 1, error="no space left")
    assert drive.state("a") == "CIRCUIT_OPEN"


def test_another_error_between_makes_the_row_start_anew() -> None:
    drive = driven()
    for error in ("x", "x", "y", "x"):
        drive.exits("a", 1, error=error)
        assert drive.state("a") == "RETRYING"
        drive.advance(60)


# ---- kinds of errors


@every_task_machine
@pytest.mark.parametrize("code", [126, 127])
def test_exit_126_and_127_are_permanent_and_not_retried(machine: str, code: int) -> None:
    drive = driven(machine=machine)
    drive.exits("a", code)
    assert drive.task("a").category is PERMANENT
    assert drive.phase() is Phase.FAILED


@every_task_machine
@pytest.mark.parametrize("code", [1, 2, 3, 125, 128, 137, 255, -9])
def test_the_rest_is_unknown_and_retried_within_the_bound(machine: str, code: int) -> None:
    drive = driven(machine=machine)
    drive.exits("a", code)
    assert drive.task("a").category is UNKNOWN
    drive.advance(2)
    assert drive.started() == ["a", "a"]


@every_task_machine
def test_a_timeout_is_transient_and_retried(machine: str) -> None:
    drive = driven(machine=machine)
    drive.advance(300)
    drive.exits("a", 127)
    assert drive.task("a").category is TRANSIENT
    assert drive.due(TimerKind.RETRY, "a") == 2


@every_task_machine
def test_a_lost_worker_is_transient_and_retried(machine: str) -> None:
    drive = driven(machine=machine)
    drive.lost("a")
    assert drive.task("a").category is TRANSIENT
    assert drive.due(TimerKind.RETRY, "a") == 2


RULES = (
    (ErrorRule(PERMANENT, exit_codes=frozenset({3})), 3, "", PERMANENT),
    (ErrorRule(TRANSIENT, exit_codes=frozenset({127})), 127, "", TRANSIENT),
    (ErrorRule(PERMANENT, pattern="SyntaxError"), 1, "x.py: SyntaxError: bad", PERMANENT),
    (ErrorRule(PERMANENT, pattern="SyntaxError"), 1, "connection reset", UNKNOWN),
    (ErrorRule(PERMANENT, exit_codes=frozenset({3})), 4, "", UNKNOWN),
)


@pytest.mark.parametrize("where", ["tool", "task"])
@pytest.mark.parametrize(("rule", "code", "tail", "category"), RULES)
def test_rules_on_the_tool_or_the_task_say_otherwise(
    where: str, rule: ErrorRule, code: int, tail: str, category: Category
) -> None:
    settings = Settings(tools={"aider": Tool("aider", errors=(rule,) if where == "tool" else ())})
    drive = driven(settings, tool="aider", errors=(rule,) if where == "task" else ())
    drive.exits("a", code, tail=tail)
    assert drive.task("a").category is category
    assert (drive.due(TimerKind.RETRY, "a") is None) is (category is PERMANENT)


# ---- workers


def test_an_unresponsive_worker_is_given_up_60_s_later() -> None:
    drive = driven()
    drive.feed(signals.WorkerQuiet, worker="w")
    drive.advance(59)
    assert drive.worker().health == "unresponsive"
    drive.advance(1)
    assert drive.worker().health == "shutdown"


def test_a_worker_heard_again_is_not_given_up() -> None:
    drive = driven()
    drive.feed(signals.WorkerQuiet, worker="w")
    drive.advance(59)
    drive.feed(signals.WorkerBack, worker="w")
    drive.advance(30)
    assert drive.worker().health == "busy"


# ---- jobs


def nested(depth: int) -> Plan:
    plan = workflow(task("leaf"), lifecycle="supervision")
    for _ in range(depth):
        plan = Plan("flow", (TaskPlan("sub", uses=plan),), plan.lifecycle)
    return plan


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_jobs_are_0_to_5_deep(depth: int) -> None:
    drive = Driver()
    drive.submit(nested(depth))
    drive.play()
    assert max(run.depth for run in drive.model.runs()) == depth
    assert {run.state for run in drive.model.runs()} == {"COMPLETED"}


def test_a_job_6_deep_is_refused() -> None:
    drive = Driver()
    with pytest.raises(Refused, match="5 deep"):
        drive.submit(nested(6))


def test_worker_count_is_1_by_default() -> None:
    assert workflow(task("a")).worker_count == 1


@pytest.mark.parametrize("count", [1, 10])
def test_worker_count_may_be_1_to_10(count: int) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle="supervision", worker_count=count))
    assert drive.state() == "RUNNING"


@pytest.mark.parametrize("count", [-1, 0, 11])
def test_any_other_worker_count_is_refused(count: int) -> None:
    drive = Driver()
    with pytest.raises(Refused, match="worker_count"):
        drive.submit(workflow(task("a"), lifecycle="supervision", worker_count=count))


# ---- approval and cancel


def test_an_approval_expires_after_24_h() -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), approval=Approval((Clause(),))))
    assert drive.due(TimerKind.EXPIRY) == 24 * HOUR


@every_pair
def test_the_cancel_grace_is_30_s(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=pair))
    drive.cancel()
    assert [halt.grace for halt in drive.told(Halt)] == [30 * SECOND]


@every_pair
def test_a_cancel_hook_has_5_minutes(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", has_cancel_hook=True), lifecycle=pair))
    drive.cancel()
    drive.exits("a", 143)
    assert drive.due(TimerKind.DEADLINE, "a") == 300
    drive.advance(299)
    assert len(drive.told(Halt)) == 1
    drive.advance(1)
    assert drive.told(Halt)[-1].token == drive.live("a")
