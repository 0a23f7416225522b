"""READING.md, "Recovery and cascade transitions": each row, through its procedure and with its guard.

Decided elsewhere: that a recovery is drawn dashed (console) and needs a recovery record (store).
"""

import pytest

from engine.core import signals
from engine.core.errors import Refused
from engine.core.plan import OnFailure, Retry, Settings, Test, Tool, WhenOpen
from engine.core.records import Entity, Ref
from engine.machines import (
    MACHINES,
    InvalidTransitionError,
    Kind,
    Lifecycle,
    MachineError,
    Phase,
    RunCue,
    TaskCue,
)

from .driver import Driver, every_pair, every_run_machine, task, workflow

ONCE = Retry(max_attempts=1)
AIDER = Ref(Entity.BREAKER, "aider")
WORKER = Ref(Entity.WORKER, "w")

ROWS = {
    ("pipeline.workstream", "S_SUCCESS", "S_FAILED"): Kind.RECOVERY,
    ("pipeline.step", "S_FAILED", "S_PENDING"): Kind.RECOVERY,
    ("pipeline.step", "S_FAILED", "S_SUCCESS"): Kind.RECOVERY,
    ("pipeline.breaker", "OPEN", "CLOSED"): Kind.RECOVERY,
    ("orchestration.worker", "initializing", "shutdown"): Kind.RECOVERY,
    ("supervision.worker", "COMPLETED", "TERMINATED"): Kind.RECOVERY,
    ("supervision.worker", "FAILED", "TERMINATED"): Kind.RECOVERY,
    ("toolchain.task", "CIRCUIT_OPEN", "PENDING"): Kind.RECOVERY,
    ("toolchain.task", "CIRCUIT_OPEN", "CANCELLED"): Kind.CASCADE,
    ("toolchain.task", "RETRYING", "CANCELLED"): Kind.CASCADE,
    ("toolchain.task", "VALIDATING", "CANCELLED"): Kind.CASCADE,
    ("toolchain.task", "HALF_OPEN", "CANCELLED"): Kind.CASCADE,
}


def test_the_rows_are_these_and_each_has_a_guard() -> None:
    found = {
        (machine.name, arrow.source, arrow.target): arrow.kind
        for machine in MACHINES.values()
        for arrow in machine.arrows
        if arrow.kind is not Kind.NORMAL
    }
    assert found == ROWS
    assert all(
        arrow.guard
        for machine in MACHINES.values()
        for arrow in machine.arrows
        if arrow.kind is not Kind.NORMAL
    )


@every_pair
def test_ordinary_work_takes_neither_recoveries_nor_cascades(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), task("b", "a", checks=1), task("c", "b"), lifecycle=pair, checks=1))
    drive.play({"a": [1, 1], "b+check": [1], "c": [127]})
    assert {move.kind for move in drive.moves} == {Kind.NORMAL}


# ---- pipeline.workstream


def finished() -> Driver:
    drive = Driver()
    drive.submit(workflow(task("s1"), task("s2"), lifecycle="pipeline"))
    drive.play()
    return drive


def test_a_success_with_a_failed_step_is_corrected_to_failed() -> None:
    drive = finished()
    drive.corrupt("s2", state="S_FAILED", phase=Phase.FAILED)
    drive.feed(signals.CorrectRun, run=drive.run, reason="s2 never worked")
    assert drive.moves_of()[-1][4:8] == ("S_SUCCESS", "corrected_by_operator", "S_FAILED", Kind.RECOVERY)


def test_a_corrected_workstream_can_be_mended_by_a_reset() -> None:
    drive = finished()
    drive.corrupt("s2", state="S_FAILED", phase=Phase.FAILED)
    drive.feed(signals.CorrectRun, run=drive.run)
    drive.mend(signals.ResetTask, "s2")
    drive.play()
    assert drive.state() == "S_SUCCESS"
    assert drive.started() == ["s1", "s2", "s2"]


def test_a_success_whose_steps_all_succeeded_is_not_corrected() -> None:
    drive = finished()
    with pytest.raises(InvalidTransitionError, match="neither successful nor waived"):
        drive.feed(signals.CorrectRun, run=drive.run)


def test_a_success_with_a_waived_step_is_not_corrected() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=ONCE), lifecycle="pipeline"))
    drive.exits("s1", 1)
    drive.mend(signals.WaiveTask, "s1")
    assert drive.state() == "S_SUCCESS"
    with pytest.raises(InvalidTransitionError, match="neither successful nor waived"):
        drive.feed(signals.CorrectRun, run=drive.run)


def test_a_success_with_a_failed_non_critical_step_waived_on_record_is_not_corrected() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=ONCE, critical=False), task("s2"), lifecycle="pipeline"))
    drive.exits("s1", 1)
    drive.play()
    assert drive.state() == "S_SUCCESS"
    assert "waived" in drive.facts("s1")
    with pytest.raises(InvalidTransitionError, match="neither successful nor waived"):
        drive.feed(signals.CorrectRun, run=drive.run)


def test_a_success_with_a_step_passed_over_by_its_condition_is_not_corrected() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", when=(Test("params.go", "yes"),)), lifecycle="pipeline"))
    assert drive.state() == "S_SUCCESS"
    with pytest.raises(InvalidTransitionError):
        drive.feed(signals.CorrectRun, run=drive.run)


# ---- pipeline.step


def exhausted() -> Driver:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=Retry(max_attempts=2)), lifecycle="pipeline"))
    drive.play({"s1": [1, 1]})
    return drive


def test_a_failed_step_is_reset_to_pending_with_its_retries_at_0_in_the_same_transaction() -> None:
    drive = exhausted()
    assert drive.task("s1").retries == 1
    drive.mend(signals.ResetTask, "s1", reason="fixed the tool")
    move = next(move for move in drive.moves_of("s1") if move.kind is Kind.RECOVERY)
    assert move[4:7] == ("S_FAILED", "reset_by_operator", "S_PENDING")
    assert drive.task("s1").retries == 0
    drive.play({"s1": [1]})
    assert drive.started() == ["s1"] * 4
    assert drive.state() == "S_SUCCESS"


@pytest.mark.parametrize("event", ["reset_by_operator", "attested_by_operator"])
def test_without_its_guard_a_step_recovery_is_refused(event: str) -> None:
    with pytest.raises(MachineError):
        MACHINES["pipeline.step"].arrow("S_FAILED", event, {})


def test_a_failed_step_is_attested_to_have_succeeded_with_evidence() -> None:
    drive = exhausted()
    drive.mend(signals.AttestTask, "s1", evidence="the release is on the mirror")
    move = next(move for move in drive.moves_of("s1") if move.kind is Kind.RECOVERY)
    assert move[4:7] == ("S_FAILED", "attested_by_operator", "S_SUCCESS")
    assert [fact.data for fact in drive.noted if fact.name == "evidence"] == [
        {"evidence": "the release is on the mirror"}
    ]
    assert drive.state() == "S_SUCCESS"


@pytest.mark.parametrize("evidence", ["", "  "])
def test_a_failed_step_is_not_attested_without_evidence(evidence: str) -> None:
    drive = exhausted()
    with pytest.raises(InvalidTransitionError, match="evidence"):
        drive.mend(signals.AttestTask, "s1", evidence=evidence)


# ---- pipeline.breaker


def tripped() -> Driver:
    drive = Driver()
    drive.feed(signals.TripBreaker, tool="aider")
    return drive


def test_an_open_breaker_is_reset_when_the_tools_health_command_passes() -> None:
    drive = tripped()
    drive.feed(signals.ResetBreaker, tool="aider", healthy=True)
    assert drive.moves_of(ref=AIDER)[-1][4:8] == ("OPEN", "reset_by_operator", "CLOSED", Kind.RECOVERY)


def test_an_open_breaker_is_reset_when_the_operator_overrides_it_by_name() -> None:
    drive = tripped()
    drive.feed(signals.ResetBreaker, tool="aider", override="aider")
    assert drive.breaker("aider") == "CLOSED"


@pytest.mark.parametrize("override", [None, "", "git"])
def test_an_open_breaker_is_not_reset_otherwise(override: str | None) -> None:
    drive = tripped()
    with pytest.raises(InvalidTransitionError, match="health command"):
        drive.feed(signals.ResetBreaker, tool="aider", override=override)
    assert drive.breaker("aider") == "OPEN"


# ---- workers


def test_a_worker_that_never_registered_within_its_time_is_shut_down() -> None:
    drive = Driver(slots=0)
    drive.feed(signals.WorkerCreated, worker="w")
    drive.advance(59)
    assert drive.worker().health == "initializing"
    drive.advance(1)
    moves = drive.moves_of(ref=WORKER, machine="orchestration.worker")
    assert (moves[-1].source, moves[-1].target, moves[-1].kind) == ("initializing", "shutdown", Kind.RECOVERY)


def test_a_worker_that_registered_in_time_is_not_shut_down() -> None:
    drive = Driver(slots=0)
    drive.feed(signals.WorkerCreated, worker="w")
    drive.advance(59)
    drive.register("w")
    drive.advance(1000)
    assert drive.worker().health == "idle"


def test_a_failed_worker_that_still_holds_something_is_terminated_by_recovery() -> None:
    drive = Driver()
    drive.submit(workflow(task("a")))
    drive.feed(signals.WorkerBroken, worker="w")
    drive.feed(signals.TerminateWorker, worker="w")
    move = drive.moves_of(ref=WORKER, machine="supervision.worker")[-1]
    assert move[4:8] == ("FAILED", "terminate", "TERMINATED", Kind.RECOVERY)


@pytest.mark.parametrize("signal", [signals.WorkerBroken, signals.DrainWorker])
def test_an_ended_worker_that_holds_nothing_is_not_terminated(signal: type[signals.Signal]) -> None:
    drive = Driver()
    drive.submit(workflow(task("a")))
    drive.exits("a")
    drive.feed(signal, worker="w")
    assert drive.worker().control in ("FAILED", "COMPLETED")
    with pytest.raises(InvalidTransitionError, match="holds"):
        drive.feed(signals.TerminateWorker, worker="w")


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED"])
@pytest.mark.parametrize("holds", [True, False])
def test_terminate_of_an_ended_worker_needs_that_it_still_holds_something(state: str, holds: bool) -> None:
    machine = MACHINES["supervision.worker"]
    if holds:
        assert machine.arrow(state, "terminate", {"still_holds": True}).kind is Kind.RECOVERY
    else:
        with pytest.raises(InvalidTransitionError):
            machine.arrow(state, "terminate", {"still_holds": False})


# ---- toolchain.task: recovery


def test_an_open_circuit_is_reset_to_pending_with_its_attempts_at_0_in_the_same_transaction() -> None:
    drive = Driver()
    drive.submit(workflow(task("a", retry=Retry(max_attempts=2), when_circuit_open=WhenOpen.WAIT)))
    drive.play({"a": [1, 1, 1]})
    drive.mend(signals.ResetTask, "a")
    move = next(move for move in drive.moves_of("a") if move.kind is Kind.RECOVERY)
    assert move[4:7] == ("CIRCUIT_OPEN", "manual_reset", "PENDING")
    assert (drive.task("a").retries, drive.task("a").probes, drive.task("a").failures) == (0, 0, 0)
    drive.play({"a": [1]})
    assert drive.state() == "success"


def test_an_open_circuit_of_a_terminal_run_is_not_reset() -> None:
    drive = Driver()
    drive.submit(workflow(task("a", retry=ONCE)))
    drive.exits("a", 1)
    with pytest.raises(Refused, match="over"):
        drive.mend(signals.ResetTask, "a")
    with pytest.raises(InvalidTransitionError):
        MACHINES["toolchain.task"].arrow("CIRCUIT_OPEN", "manual_reset", {"run_open_retries_zeroed": False})


# ---- toolchain.task: cascade


@every_run_machine
def test_circuit_open_goes_to_cancelled_when_its_run_was_cancelled(machine: str) -> None:
    drive = Driver()
    part = task("a", retry=ONCE, when_circuit_open=WhenOpen.WAIT)
    drive.submit(workflow(part, task("b"), lifecycle=Lifecycle(machine, "toolchain.task")))
    drive.exits("a", 1)
    drive.cancel()
    drive.exits("b", 143)
    assert drive.moves_of("a")[-1][4:8] == ("CIRCUIT_OPEN", "run_cancelled", "CANCELLED", Kind.CASCADE)


@every_run_machine
def test_retrying_goes_to_cancelled_when_its_run_was_cancelled(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), task("b"), lifecycle=Lifecycle(machine, "toolchain.task")))
    drive.exits("a", 1)
    drive.cancel()
    drive.exits("b", 143)
    assert drive.moves_of("a")[-1][4:8] == ("RETRYING", "run_ended", "CANCELLED", Kind.CASCADE)


@pytest.mark.parametrize("policy", [OnFailure.FINISH, OnFailure.CANCEL])
def test_retrying_goes_to_cancelled_when_its_run_failed(policy: OnFailure) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), task("b"), on_failure=policy))
    drive.exits("a", 1)
    drive.fails_for_good("b")
    assert drive.state() == "failed"
    assert drive.moves_of("a")[-1][4:8] == ("RETRYING", "run_ended", "CANCELLED", Kind.CASCADE)


@pytest.mark.parametrize("force", [False, True])
def test_validating_goes_to_cancelled_when_its_run_was_cancelled(force: bool) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", checks=1)))
    drive.exits("a")
    drive.cancel(force=force)
    if not force:
        drive.exits("a", 143)
    assert drive.moves_of("a")[-1][4:8] == ("VALIDATING", "run_ended", "CANCELLED", Kind.CASCADE)


def test_validating_goes_to_cancelled_when_its_run_failed() -> None:
    drive = Driver()
    drive.submit(workflow(task("a", checks=1), task("b"), on_failure=OnFailure.CANCEL))
    drive.exits("a")
    drive.fails_for_good("b")
    drive.exits("a", 143)
    assert drive.moves_of("a")[-1][4:8] == ("VALIDATING", "run_ended", "CANCELLED", Kind.CASCADE)
    assert drive.state() == "failed"


def half_open(policy: OnFailure) -> Driver:
    """The health command of a's tool runs; b runs beside it."""
    drive = Driver(Settings(tools={"aider": Tool("aider", has_health_command=True)}))
    part = task("a", tool="aider", retry=ONCE, when_circuit_open=WhenOpen.WAIT)
    drive.submit(workflow(part, task("b"), on_failure=policy))
    drive.exits("a", 1)
    drive.advance(60)
    assert drive.state("a") == "HALF_OPEN"
    return drive


@pytest.mark.parametrize("force", [False, True])
def test_half_open_goes_to_cancelled_when_its_run_was_cancelled(force: bool) -> None:
    drive = half_open(OnFailure.FINISH)
    drive.cancel(force=force)
    if not force:
        drive.exits("a", 143)
        drive.exits("b", 143)
    assert drive.moves_of("a")[-1][4:8] == ("HALF_OPEN", "run_ended", "CANCELLED", Kind.CASCADE)
    assert drive.state() == "cancelled"


def test_half_open_goes_to_cancelled_when_its_run_failed() -> None:
    drive = half_open(OnFailure.CANCEL)
    drive.fails_for_good("b")
    drive.exits("a", 143)
    assert drive.moves_of("a")[-1][4:8] == ("HALF_OPEN", "run_ended", "CANCELLED", Kind.CASCADE)
    assert drive.state() == "failed"


def test_a_cascade_needs_that_its_run_has_ended() -> None:
    machine = MACHINES["toolchain.task"]
    for state, event in (("CIRCUIT_OPEN", "run_cancelled"), ("RETRYING", "run_ended")):
        with pytest.raises(InvalidTransitionError):
            machine.arrow(state, event, {"run_cancelled": False, "run_ended": False})


def test_no_other_cue_takes_a_recovery() -> None:
    procedures = {TaskCue.RESET, TaskCue.ATTESTED, RunCue.CORRECTED}
    for machine in (MACHINES["pipeline.workstream"], MACHINES["pipeline.step"], MACHINES["toolchain.task"]):
        recoveries = {arrow.event for arrow in machine.arrows if arrow.kind is Kind.RECOVERY}
        for cue, rows in machine.cues.items():
            if cue not in procedures:
                assert not [path for path in rows.values() if recoveries & set(path.split(" > "))]
