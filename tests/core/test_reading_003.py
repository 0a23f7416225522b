"""The rows of READING.md on document 003: validation, retries and a task's own circuit.

The cascade row "parent workstream cancelled" is in `test_reading_recovery.py`.
"""

from typing import Any

import pytest

from engine.core import signals
from engine.core.decision import Start
from engine.core.errors import Refused
from engine.core.plan import Retry, Settings, Tool, WhenOpen
from engine.core.records import Entity, Purpose, Ref, TimerKind
from engine.machines import Lifecycle, Phase, is_terminal

from .driver import HOUR, Driver, Part, every_pair, every_run_machine, task, workflow

ONCE = Retry(max_attempts=1)
WAIT = WhenOpen.WAIT
AIDER = Ref(Entity.BREAKER, "aider")


def driven(*parts: Part, tool: Tool | None = None, **wishes: Any) -> Driver:
    drive = Driver(Settings(tools={tool.name: tool} if tool else {}))
    drive.submit(workflow(*parts, **wishes))
    return drive


# ---- FAILED and TIMEOUT are moments


def test_failed_is_not_terminal() -> None:
    assert not is_terminal("toolchain.task", "FAILED")


@every_run_machine
def test_failed_is_left_in_the_transaction_that_entered_it(machine: str) -> None:
    drive = driven(task("a", checks=1), lifecycle=Lifecycle(machine, "toolchain.task"))
    drive.play({"a": [1, 0, 1, 1], "a+check": [1]})
    entered = [move.decision for move in drive.moves_of("a") if move.target == "FAILED"]
    left = [move.decision for move in drive.moves_of("a") if move.source == "FAILED"]
    assert entered
    assert entered == left


def test_timeout_is_left_in_the_transaction_that_entered_it() -> None:
    drive = driven(task("a", retry=Retry(max_attempts=2)))
    for _ in range(2):
        drive.advance(300)
        drive.exits("a", 143)
        drive.advance(2)
    assert drive.together("a", "execution_timeout", "retry_available")
    assert drive.together("a", "execution_timeout", "no_retries_left", "max_retries_reached")
    assert drive.state("a") == "CIRCUIT_OPEN"


# ---- CIRCUIT_OPEN: fail


def test_by_default_there_is_no_probe_and_the_task_counts_as_failed_for_good() -> None:
    drive = driven(task("a", retry=ONCE))
    drive.exits("a", 1)
    assert drive.path("a")[-1] == ("FAILED", "max_retries_reached", "CIRCUIT_OPEN")
    assert drive.state() == "failed"
    drive.advance(HOUR)
    assert drive.started() == ["a"]
    assert drive.state("a") == "CIRCUIT_OPEN"


def test_by_default_no_probe_is_armed_while_the_run_still_runs() -> None:
    drive = driven(task("a", retry=ONCE), task("b"))
    drive.exits("a", 1)
    assert drive.due(TimerKind.PROBE, "a") is None
    drive.advance(200)
    assert drive.state("a") == "CIRCUIT_OPEN"


# ---- CIRCUIT_OPEN: wait


def test_wait_lets_one_probe_through_after_the_cooldown() -> None:
    drive = driven(task("a", retry=ONCE, when_circuit_open=WAIT))
    drive.exits("a", 1)
    assert (drive.state("a"), drive.state()) == ("CIRCUIT_OPEN", "running")
    drive.advance(59)
    assert drive.started() == ["a"]
    drive.advance(1)
    assert drive.path("a")[-2:] == [
        ("CIRCUIT_OPEN", "cooldown_expires", "HALF_OPEN"),
        ("HALF_OPEN", "test_retry", "IN_PROGRESS"),
    ]
    drive.exits("a")
    assert drive.state() == "success"


@pytest.mark.parametrize("probes", [1, 3])
def test_probes_are_bounded_by_max_probes_default_1_and_then_the_task_waits_for_a_person(probes: int) -> None:
    wishes = {} if probes == 1 else {"max_probes": probes}
    drive = driven(task("a", retry=ONCE, when_circuit_open=WAIT, **wishes))
    drive.exits("a", 1)
    for _ in range(probes):
        drive.advance(60)
        drive.exits("a", 1)
    drive.advance(24 * HOUR)
    assert drive.started() == ["a"] * (1 + probes)
    assert (drive.state("a"), drive.state()) == ("CIRCUIT_OPEN", "running")
    assert "reset it" in drive.explain("a")


def test_there_is_no_probe_after_a_permanent_error() -> None:
    drive = driven(task("a", when_circuit_open=WAIT))
    drive.exits("a", 127)
    drive.advance(HOUR)
    assert drive.started() == ["a"]
    assert (drive.state("a"), drive.state()) == ("CIRCUIT_OPEN", "running")


def test_a_person_resets_a_task_that_waits() -> None:
    drive = driven(task("a", when_circuit_open=WAIT))
    drive.exits("a", 127)
    drive.mend(signals.ResetTask, "a")
    drive.exits("a")
    assert drive.state() == "success"


# ---- a RETRYING task whose tool's breaker opens


@pytest.mark.parametrize("choice", list(WhenOpen))
def test_a_retrying_task_is_parked_and_goes_through_half_open_when_the_breaker_does(choice: WhenOpen) -> None:
    drive = driven(task("a", tool="aider", when_circuit_open=choice))
    drive.exits("a", 1)
    drive.feed(signals.TripBreaker, tool="aider")
    assert (drive.state("a"), drive.state()) == ("CIRCUIT_OPEN", "running")
    drive.advance(59)
    assert drive.state("a") == "CIRCUIT_OPEN"
    drive.advance(1)
    assert drive.breaker("aider") == "HALF_OPEN"
    assert drive.history("a")[-3:] == ["CIRCUIT_OPEN", "HALF_OPEN", "IN_PROGRESS"]
    drive.exits("a")
    assert (drive.state(), drive.breaker("aider")) == ("success", "CLOSED")


def test_a_parked_task_does_not_use_the_probes_of_its_own_circuit() -> None:
    drive = driven(task("a", tool="aider", when_circuit_open=WAIT))
    drive.exits("a", 1)
    drive.feed(signals.TripBreaker, tool="aider")
    drive.advance(60)
    assert drive.task("a").probes == 0


@pytest.mark.parametrize("has_health_command", [False, True])
def test_max_probes_governs_the_entry_from_failed_and_not_what_a_parked_task_did(
    has_health_command: bool,
) -> None:
    tool = Tool("aider", has_health_command=has_health_command)
    drive = driven(task("a", tool="aider", when_circuit_open=WAIT), tool=tool)
    drive.exits("a", 1)
    drive.feed(signals.TripBreaker, tool="aider")
    for _ in range(2):
        drive.advance(60)
        if has_health_command:
            drive.exits("a")
        drive.exits("a", 1)
    assert drive.started() == ["a"] * 3


def test_the_failure_that_opens_the_breaker_parks_the_task_it_retries() -> None:
    drive = driven(task("a", tool="aider"), tool=Tool("aider", failure_threshold=1))
    drive.exits("a", 1)
    assert drive.events("a")[-3:] == ["tool_execution_error", "retry_available", "circuit_opens"]


# ---- HALF_OPEN: the health command, and the probe


def healthy_tool() -> Tool:
    return Tool("aider", has_health_command=True)


def test_before_the_probe_the_tools_health_command_runs() -> None:
    drive = driven(task("a", tool="aider", retry=ONCE, when_circuit_open=WAIT), tool=healthy_tool())
    drive.exits("a", 1)
    drive.advance(60)
    assert drive.state("a") == "HALF_OPEN"
    assert drive.live("a").purpose is Purpose.HEALTH
    drive.exits("a")
    assert drive.path("a")[-1] == ("HALF_OPEN", "test_retry", "IN_PROGRESS")


def test_a_failed_health_command_is_half_open_to_circuit_open() -> None:
    drive = driven(task("a", tool="aider", retry=ONCE, when_circuit_open=WAIT), tool=healthy_tool())
    drive.exits("a", 1)
    drive.advance(60)
    drive.exits("a", 1)
    assert drive.path("a")[-1] == ("HALF_OPEN", "test_fails", "CIRCUIT_OPEN")
    assert drive.started() == ["a"]


def test_the_health_command_also_runs_before_the_probe_of_a_parked_task() -> None:
    drive = driven(task("a", tool="aider"), tool=healthy_tool())
    drive.exits("a", 1)
    drive.feed(signals.TripBreaker, tool="aider")
    drive.advance(60)
    assert drive.started(Purpose.HEALTH) == ["a"]
    drive.exits("a", 1)
    assert drive.path("a")[-1] == ("HALF_OPEN", "test_fails", "CIRCUIT_OPEN")
    assert drive.breaker("aider") == "OPEN"
    drive.advance(60)
    drive.exits("a")
    assert drive.state("a") == "IN_PROGRESS"


def test_a_probe_that_fails_goes_failed_to_circuit_open_never_retrying() -> None:
    drive = driven(task("a", retry=Retry(max_attempts=3, max_repeats=0), when_circuit_open=WAIT))
    drive.exits("a", 1)
    drive.advance(60)
    drive.exits("a", 2)
    assert drive.path("a")[-2:] == [
        ("IN_PROGRESS", "tool_execution_error", "FAILED"),
        ("FAILED", "max_retries_reached", "CIRCUIT_OPEN"),
    ]
    assert "RETRYING" not in drive.history("a")


def test_a_probe_of_the_breaker_that_fails_goes_failed_to_circuit_open_never_retrying() -> None:
    drive = driven(task("a", tool="aider"))
    drive.exits("a", 1)
    drive.feed(signals.TripBreaker, tool="aider")
    drive.advance(60)
    drive.exits("a", 1)
    assert drive.path("a")[-1] == ("FAILED", "max_retries_reached", "CIRCUIT_OPEN")
    assert drive.breaker("aider") == "OPEN"


def test_a_probe_whose_checks_fail_never_goes_to_retrying() -> None:
    drive = driven(task("a", retry=Retry(max_attempts=3, max_repeats=0), checks=1, when_circuit_open=WAIT))
    drive.exits("a", 1)
    drive.advance(60)
    drive.exits("a")
    drive.exits("a", 1)
    assert drive.path("a")[-1] == ("FAILED", "max_retries_reached", "CIRCUIT_OPEN")


def test_a_probe_that_succeeds_closes_the_tools_breaker() -> None:
    drive = driven(task("a", tool="aider"))
    drive.exits("a", 1)
    drive.feed(signals.TripBreaker, tool="aider")
    drive.advance(60)
    drive.exits("a")
    assert drive.events(ref=AIDER)[-1] == "success"
    assert drive.breaker("aider") == "CLOSED"


# ---- dependents of a failed dependency


def test_dependents_stay_pending_until_the_run_is_decided() -> None:
    drive = driven(task("a", retry=ONCE), task("b", "a"), task("c"))
    drive.exits("a", 1)
    assert drive.state("b") == "PENDING"
    drive.exits("c")
    assert drive.path("b") == [("PENDING", "dependency_failed", "SKIPPED")]


def test_dependents_of_a_circuit_that_recovers_run_after_all() -> None:
    drive = driven(task("a", retry=ONCE, when_circuit_open=WAIT), task("b", "a"))
    drive.exits("a", 1)
    assert drive.state("b") == "PENDING"
    drive.advance(60)
    drive.exits("a")
    drive.exits("b")
    assert drive.states("a", "b") == ["COMPLETED", "COMPLETED"]


def test_a_reset_is_possible_only_in_a_run_that_is_not_terminal_else_resume() -> None:
    drive = driven(task("a", retry=ONCE), task("b"))
    drive.exits("a", 1)
    drive.exits("b")
    assert drive.state() == "failed"
    with pytest.raises(Refused, match="resume"):
        drive.mend(signals.ResetTask, "a")


def test_a_reset_before_the_run_is_decided_saves_it() -> None:
    drive = driven(task("a", retry=ONCE), task("b"))
    drive.exits("a", 1)
    drive.mend(signals.ResetTask, "a")
    drive.exits("b")
    drive.exits("a")
    assert drive.state() == "success"


def test_a_terminal_run_arms_no_probe() -> None:
    drive = driven(task("a", retry=ONCE, when_circuit_open=WAIT), task("b"))
    drive.exits("a", 1)
    assert drive.due(TimerKind.PROBE, "a") == 60
    drive.fails_for_good("b")
    assert drive.state() == "failed"
    assert drive.due(TimerKind.PROBE, "a") is None
    drive.advance(HOUR)
    assert drive.started() == ["a", "b"]


# ---- validation


@every_pair
def test_checks_are_never_repeated_on_the_same_output(pair: Lifecycle) -> None:
    drive = driven(task("a", checks=1), lifecycle=pair)
    drive.play({"a+check": [1] * 9})
    checks = [start.token for start in drive.told(Start) if start.token.purpose is Purpose.CHECK]
    outputs = [(token.task, token.attempt) for token in checks]
    assert len(outputs) == len(set(outputs))


def test_after_failed_checks_the_task_itself_may_retry() -> None:
    drive = driven(task("a", checks=1))
    drive.exits("a")
    drive.exits("a", 1)
    assert drive.path("a")[-2:] == [
        ("VALIDATING", "tests_fail", "FAILED"),
        ("FAILED", "retry_available", "RETRYING"),
    ]
    drive.play()
    assert drive.started() == ["a", "a"]
    assert drive.state() == "success"


def test_under_001_a_failed_validation_is_final() -> None:
    drive = driven(task("a", checks=1), lifecycle="orchestration")
    drive.exits("a")
    drive.exits("a", 1)
    assert drive.path("a")[-1] == ("validating", "validation_failed", "failed")
    drive.advance(HOUR)
    assert drive.started() == ["a"]


# ---- attempts


@every_pair
def test_five_attempts_and_four_waits(pair: Lifecycle) -> None:
    drive = driven(task("a"), lifecycle=pair)
    waits = []
    for _ in range(4):
        drive.exits("a", 1)
        waits.append(drive.due(TimerKind.RETRY, "a"))
        drive.advance(waits[-1] or 0)
    drive.exits("a", 1)
    assert waits == [2, 4, 8, 16]
    assert drive.due(TimerKind.RETRY, "a") is None
    assert drive.started() == ["a"] * 5
    assert drive.phase() is Phase.FAILED


def test_max_retries_is_max_attempts_minus_one() -> None:
    assert Retry(max_attempts=5).max_retries == 4
    assert Retry().max_retries == 4
