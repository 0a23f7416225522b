"""READING.md, "How the engine meets the arrows": cancel and recovering.

Decided elsewhere: the finding about an attempt that is not proven gone (recovery); here it is the fact.
"""

from typing import Any

import pytest

from engine.core import signals
from engine.core.decision import Ask, Halt
from engine.core.plan import SECOND, Approval, Clause, OnLost
from engine.core.records import Purpose, Stop, TimerKind
from engine.machines import MACHINES, InvalidTransitionError, Lifecycle, Phase, RunCue

from .driver import HOUR, PAIRS, Driver, every_pair, every_task_machine, task, workflow


def driven(pair: Lifecycle | str, *, slots: int = 8) -> Driver:
    drive = Driver(slots=slots)
    drive.submit(workflow(task("a"), task("b"), task("c", "a"), lifecycle=pair))
    return drive


WITHOUT_CANCELLING = [pair for pair in PAIRS if RunCue.STOPPING not in MACHINES[pair.run].cues]


# ---- cancel


@every_task_machine
def test_cancel_is_cancel_graceful_from_running(machine: str) -> None:
    drive = driven(Lifecycle("execution", machine))
    drive.cancel()
    assert drive.path()[-1] == ("running", "CANCEL_GRACEFUL", "cancelling")
    drive.exits("a", 143)
    assert drive.state() == "cancelling"
    drive.exits("b", 143)
    assert drive.path()[-1] == ("cancelling", "COMPLETE", "cancelled")


def test_cancel_of_a_running_task_of_004_is_cancel_graceful_too() -> None:
    drive = driven("execution")
    drive.cancel()
    assert drive.path("a")[-1] == ("running", "CANCEL_GRACEFUL", "cancelling")
    drive.exits("a", 143)
    assert drive.path("a")[-1] == ("cancelling", "COMPLETE", "cancelled")


@every_pair
def test_cancel_from_anywhere_else_is_the_machines_cancel_arrow_at_once(pair: Lifecycle) -> None:
    drive = driven(pair, slots=0)
    drive.cancel()
    assert drive.phase() is Phase.CANCELLED


@pytest.mark.parametrize("wishes", [{"approval": Approval((Clause(),))}, {"wait": 600 * SECOND}])
def test_cancel_of_a_held_or_waiting_run_is_cancel(wishes: dict[str, Any]) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), **wishes))
    drive.cancel()
    assert drive.events()[-1] == "CANCEL"
    assert not list(drive.model.timers())


@every_pair
def test_what_runs_is_asked_to_stop_with_the_grace(pair: Lifecycle) -> None:
    drive = driven(pair)
    drive.cancel()
    assert [(halt.grace, halt.why) for halt in drive.told(Halt)] == [(30 * SECOND, Stop.CANCEL)] * 2


@every_pair
def test_force_is_the_cancel_arrow_at_once(pair: Lifecycle) -> None:
    drive = driven(pair)
    drive.cancel(force=True)
    assert drive.phase() is Phase.CANCELLED
    assert drive.phase("a") in (Phase.CANCELLED, Phase.FAILED)


@every_task_machine
def test_force_is_cancel_force_from_cancelling(machine: str) -> None:
    drive = driven(Lifecycle("execution", machine))
    drive.cancel()
    drive.cancel(force=True)
    assert drive.path()[-1] == ("cancelling", "CANCEL_FORCE", "cancelled")


def test_force_is_cancel_force_for_a_cancelling_task_too() -> None:
    drive = driven("execution")
    drive.cancel()
    drive.cancel(force=True)
    assert drive.path("a")[-1] == ("cancelling", "CANCEL_FORCE", "cancelled")


@every_pair
def test_force_fences_and_kills_the_attempts(pair: Lifecycle) -> None:
    drive = driven(pair)
    tokens = [drive.live("a"), drive.live("b")]
    drive.cancel(force=True)
    assert [(halt.token, halt.grace) for halt in drive.told(Halt)] == [(token, 0) for token in tokens]
    assert all(attempt.fenced for attempt in drive.model.attempts())
    before = drive.state("a"), drive.state()
    drive.ends(tokens[0], 0)
    assert (drive.state("a"), drive.state()) == before
    assert "late_result" in drive.facts("a")


@every_pair
def test_an_attempt_that_is_not_proven_gone_is_kept_on_record(pair: Lifecycle) -> None:
    drive = driven(pair)
    drive.cancel()
    drive.advance(HOUR)
    assert drive.phase() is Phase.CANCELLED
    assert "not_proven_gone" in drive.facts("a")
    assert all(attempt.fenced for attempt in drive.model.attempts())


@pytest.mark.parametrize("pair", WITHOUT_CANCELLING, ids=str)
def test_without_a_cancelling_state_cancel_is_a_mark_until_the_last_attempt_has_ended(
    pair: Lifecycle,
) -> None:
    drive = driven(pair)
    before = drive.state()
    drive.cancel()
    drive.exits("a", 143)
    assert drive.state() == before
    assert "ending" in drive.facts()
    drive.exits("b", 143)
    assert drive.phase() is Phase.CANCELLED


@every_pair
def test_under_the_mark_nothing_is_mirrored_or_retried_or_started(pair: Lifecycle) -> None:
    drive = driven(pair)
    drive.cancel()
    moves = len(drive.path())
    drive.exits("a", 1)
    assert len(drive.path()) == moves
    assert drive.due(TimerKind.RETRY, "a") is None
    drive.advance(10)
    assert drive.started() == ["a", "b"]


@every_pair
def test_a_success_under_the_mark_frees_no_dependents(pair: Lifecycle) -> None:
    drive = driven(pair)
    drive.cancel()
    drive.exits("a", 0)
    drive.exits("b", 0)
    assert drive.phase() is Phase.CANCELLED
    assert drive.started() == ["a", "b"]


@every_task_machine
def test_000_from_pending_is_start_execution_then_abandon_in_one_transaction(machine: str) -> None:
    drive = driven(Lifecycle("pipeline.workstream", machine), slots=0)
    drive.cancel()
    assert drive.together(None, "start_execution", "abandon")


@every_task_machine
def test_000_from_retrying_is_retry_attempt_then_abandon_in_one_transaction(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=Lifecycle("pipeline.workstream", machine)))
    drive.exits("a", 1)
    assert drive.state() == "S_RETRYING"
    drive.cancel()
    assert drive.together(None, "retry_attempt", "abandon")


def test_000_from_retrying_with_a_running_step_waits_for_it() -> None:
    drive = driven("pipeline")
    drive.exits("a", 1)
    drive.cancel()
    assert drive.state() == "S_RETRYING"
    drive.advance(10)
    assert drive.state() == "S_RETRYING"
    drive.exits("b", 143)
    assert drive.together(None, "retry_attempt", "abandon")


@every_task_machine
def test_001_in_validating_cancel_is_refused(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=Lifecycle("orchestration.workstream", machine), checks=1))
    drive.exits("a")
    assert drive.state() == "validating"
    with pytest.raises(InvalidTransitionError) as caught:
        drive.cancel()
    assert caught.value.state == "validating"
    drive.exits()
    assert drive.state() == "completed"


@every_task_machine
def test_001_in_validating_force_is_validation_failed(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=Lifecycle("orchestration.workstream", machine), checks=1))
    drive.exits("a")
    drive.cancel(force=True)
    assert drive.path()[-1] == ("validating", "validation_failed", "failed")


@every_pair
def test_a_cancel_hook_runs_after_the_attempt_has_ended(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", has_cancel_hook=True), lifecycle=pair))
    drive.cancel()
    drive.exits("a", 143)
    assert drive.live("a").purpose is Purpose.HOOK
    assert not drive.record().terminal
    drive.exits("a")
    assert drive.phase() is Phase.CANCELLED


@every_pair
def test_a_failed_cancel_hook_fails_the_task_and_the_run_still_completes_its_cancel(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", has_cancel_hook=True), lifecycle=pair))
    drive.cancel()
    drive.exits("a", 143)
    drive.exits("a", 1)
    moves = drive.moves_of("a")
    assert any(MACHINES[pair.task].phase[move.target] in (Phase.FAILED, Phase.FAILING) for move in moves)
    assert drive.phase() is Phase.CANCELLED


def test_a_failed_cancel_hook_of_004_takes_fail_from_cancelling() -> None:
    drive = Driver()
    drive.submit(workflow(task("a", has_cancel_hook=True), lifecycle="execution"))
    drive.cancel()
    drive.exits("a", 143)
    drive.exits("a", 1)
    assert drive.path("a")[-1] == ("cancelling", "FAIL", "failed")
    assert drive.path()[-1] == ("cancelling", "COMPLETE", "cancelled")


# ---- recovering


def test_a_task_recovers_when_its_worker_is_unresponsive() -> None:
    drive = driven("execution")
    drive.feed(signals.WorkerQuiet, worker="w")
    assert drive.path("a")[-1] == ("running", "RECOVER", "recovering")


def test_a_task_recovers_when_its_worker_died() -> None:
    drive = driven("execution")
    drive.feed(signals.WorkerGone, worker="w")
    assert drive.path("a")[-1] == ("running", "RECOVER", "recovering")


@every_pair
def test_a_restart_asks_for_the_attempts_believed_alive(pair: Lifecycle) -> None:
    drive = driven(pair)
    drive.feed(signals.EngineStarted)
    assert [ask.tokens for ask in drive.told(Ask)] == [(drive.live("a"), drive.live("b"))]


@every_task_machine
def test_a_loss_that_arrives_while_the_run_recovers_takes_start_first(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=Lifecycle("execution", machine)))
    drive.feed(signals.EngineStarted)
    drive.lost("a")
    assert drive.path()[-1] == ("recovering", "START", "running")
    drive.play()
    assert drive.started() == ["a", "a"]


def test_a_run_does_not_recover_when_a_worker_is_unresponsive() -> None:
    drive = driven("execution")
    drive.feed(signals.WorkerQuiet, worker="w")
    assert drive.state() == "running"


@every_task_machine
def test_a_run_recovers_after_a_restart_with_attempts_believed_alive(machine: str) -> None:
    drive = driven(Lifecycle("execution", machine))
    drive.feed(signals.EngineStarted)
    assert drive.path()[-1] == ("running", "RECOVER", "recovering")
    drive.found("a")
    assert drive.state() == "recovering"
    drive.found("b")
    assert drive.path()[-1] == ("recovering", "START", "running")


def test_a_task_recovers_after_a_restart() -> None:
    drive = driven("execution")
    drive.feed(signals.EngineStarted)
    assert drive.state("a") == "recovering"
    drive.found("a")
    assert drive.path("a")[-1] == ("recovering", "START", "running")


def test_a_run_without_attempts_believed_alive_does_not_recover() -> None:
    drive = Driver()
    drive.submit(workflow(task("a")))
    drive.exits("a", 1)
    drive.feed(signals.EngineStarted)
    assert drive.state() == "running"


@every_pair
def test_a_task_between_two_attempts_does_not_recover(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), task("b"), lifecycle=pair))
    drive.exits("a", 1)
    before = drive.state("a")
    drive.feed(signals.WorkerQuiet, worker="w")
    drive.feed(signals.EngineStarted)
    assert drive.state("a") == before


@every_task_machine
def test_nothing_starts_in_a_recovering_run_until_start(machine: str) -> None:
    drive = Driver(slots=2)
    parts = (task("a"), task("b"), task("c"))
    drive.submit(workflow(*parts, lifecycle=Lifecycle("execution", machine)))
    drive.feed(signals.EngineStarted)
    drive.register("v")
    drive.advance(10)
    assert drive.started() == ["a", "b"]
    drive.found("a")
    assert drive.started() == ["a", "b"]
    drive.found("b")
    drive.exits("a")
    assert drive.started() == ["a", "b", "c"]


@every_task_machine
def test_a_result_that_arrives_while_the_run_recovers_takes_start_first(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=Lifecycle("execution", machine)))
    drive.feed(signals.EngineStarted)
    drive.exits("a")
    assert drive.together(None, "START", "SUCCEED")


@pytest.mark.parametrize("signal", [signals.EngineStarted, signals.WorkerQuiet])
def test_a_result_that_arrives_while_the_task_recovers_takes_start_first(
    signal: type[signals.Signal],
) -> None:
    drive = driven("execution")
    drive.feed(signal, **({"worker": "w"} if signal is signals.WorkerQuiet else {}))
    drive.exits("a")
    assert drive.together("a", "START", "SUCCEED")


@every_task_machine
def test_a_failed_result_that_arrives_while_the_run_recovers_takes_start_first(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=Lifecycle("execution", machine)))
    drive.feed(signals.EngineStarted)
    drive.fails_for_good("a")
    assert drive.together(None, "START", "FAIL")


@every_task_machine
def test_a_graceful_cancel_that_arrives_while_the_run_recovers_takes_start_first(machine: str) -> None:
    drive = driven(Lifecycle("execution", machine))
    drive.feed(signals.EngineStarted)
    drive.cancel()
    assert drive.together(None, "START", "CANCEL_GRACEFUL")


def test_a_graceful_cancel_that_arrives_while_the_task_recovers_takes_start_first() -> None:
    drive = driven("execution")
    drive.feed(signals.WorkerQuiet, worker="w")
    drive.cancel()
    assert drive.together("a", "START", "CANCEL_GRACEFUL")


@every_pair
def test_every_run_goes_on_after_a_restart_and_nothing_runs_twice(pair: Lifecycle) -> None:
    drive = driven(pair)
    drive.feed(signals.EngineStarted)
    drive.found("a")
    drive.found("b")
    drive.play()
    assert drive.started() == ["a", "b", "c"]
    assert drive.phase() is Phase.SUCCEEDED


@every_task_machine
def test_force_while_the_run_recovers_is_the_cancel_arrow_at_once(machine: str) -> None:
    drive = driven(Lifecycle("execution", machine))
    drive.feed(signals.EngineStarted)
    drive.cancel(force=True)
    assert drive.path()[-1] == ("recovering", "CANCEL", "cancelled")


@every_pair
def test_a_cancel_also_ends_a_task_whose_loss_nobody_has_answered(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", on_lost=OnLost.ASK), lifecycle=pair))
    drive.lost("a")
    drive.cancel()
    assert drive.phase() is Phase.CANCELLED
    assert not drive.task("a").asking
