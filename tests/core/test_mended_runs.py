"""Runs come to the end that is theirs: sub-runs, endings, waivers, votes, reasons."""

from dataclasses import fields
from typing import Any

import pytest

from engine.core import signals as s
from engine.core.decision import Halt
from engine.core.errors import Refused
from engine.core.plan import SECOND, Approval, Clause, OnFailure, Retry, Settings, Test, Tool, WhenOpen
from engine.core.records import Stop, TimerKind
from engine.core.refusals import refusals
from engine.machines import InvalidTransitionError, Kind, Lifecycle, Phase
from tests.core.driver import (
    HOUR,
    Driver,
    every_pair,
    every_run_machine,
    every_task_machine,
    task,
    workflow,
)

ONCE = Retry(max_attempts=1)
ASKED = Approval((Clause(),), expires=10 * SECOND)
NEVER = (Test("params.x", "nobody says so"),)
"""A condition that is false in every run here."""


# ---- a run that was timed out and is mended


def timed_out_between_attempts(machine: str) -> Driver:
    """A workstream that rests timed out; `a` waits for its retry, `b` has failed for good."""
    drive = Driver()
    slow = Retry(base=1000 * SECOND, cap=1000 * SECOND)
    pair = Lifecycle("pipeline.workstream", machine)
    drive.submit(workflow(task("a", retry=slow), task("b"), lifecycle=pair, timeout=50 * SECOND))
    drive.exits("a", 1)
    drive.fails_for_good("b")
    drive.advance(51)
    assert drive.state() == "S_FAILED"
    return drive


@every_task_machine
def test_waiving_the_failure_of_a_timed_out_workstream_tries_again_what_waited_to_be(machine: str) -> None:
    drive = timed_out_between_attempts(machine)
    drive.mend(s.WaiveTask, "b", reason="known")
    drive.advance(0)
    assert drive.started() == ["a", "b", "a"]
    drive.play()
    assert drive.state() == "S_SUCCESS"


@every_task_machine
def test_other_runs_start_after_a_timed_out_workstream_was_mended(machine: str) -> None:
    drive = timed_out_between_attempts(machine)
    drive.mend(s.WaiveTask, "b", reason="known")
    drive.submit(workflow(task("z")))
    assert drive.started()[-1] == "z"


# ---- sub-runs


@every_pair
def test_a_rejected_sub_run_is_not_asked_for_again(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", uses=workflow(task("x"), approval=ASKED)), lifecycle=pair))
    drive.feed(s.Reject, target=drive.model.run(2).ref, actor="lead", reason="no")
    drive.play()
    assert drive.model.next_run == 3
    assert drive.phase() is Phase.FAILED


@every_pair
def test_a_sub_run_that_nobody_approved_in_time_is_not_asked_for_again(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", uses=workflow(task("x"), approval=ASKED)), lifecycle=pair))
    drive.advance(HOUR)
    assert drive.model.next_run == 3
    assert drive.phase() is Phase.FAILED


def test_hundreds_of_sub_runs_may_end_in_the_batch_that_starts_them() -> None:
    drive = Driver()
    middle = workflow(task("m", uses=workflow(task("x", when=NEVER))))
    drive.submit(workflow(*(task(f"t{n}", uses=middle) for n in range(250))))
    assert drive.state() == "success"
    assert drive.model.next_run == 502


@pytest.mark.parametrize("wish", [{"tool": "aider"}, {"has_cancel_hook": True}])
def test_a_task_that_uses_a_workflow_has_no_tool_and_no_cancel_hook(wish: dict[str, Any]) -> None:
    (wrong,) = refusals(workflow(task("a", uses=workflow(task("x")), **wish)))
    assert "no tool and no cancel hook; its tasks have" in wrong


# ---- endings


def test_a_graceful_cancel_of_final_checks_past_their_deadline_ends_by_itself() -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), checks=1))
    drive.exits("a")
    drive.advance(31)
    drive.cancel()
    drive.advance(HOUR)
    assert drive.state() == "cancelled"
    assert "not_proven_gone" in drive.facts()
    assert len(drive.told(Halt)) == 3


@every_run_machine
@pytest.mark.parametrize("timeout", [None, 100 * SECOND])
def test_final_checks_that_never_end_are_given_up(machine: str, timeout: int | None) -> None:
    drive = Driver()
    pair = Lifecycle(machine, "execution")
    drive.submit(workflow(task("a"), checks=1, timeout=timeout, lifecycle=pair, abandon_after=HOUR * SECOND))
    drive.exits("a")
    drive.advance(2 * HOUR)
    assert drive.record().terminal
    assert drive.phase() is not Phase.SUCCEEDED
    assert len(drive.told(Halt)) <= 4


def follows_the_end_of_its_run(drive: Driver, name: str) -> bool:
    """Whether its last arrow is the cascade, in the decision that ended the run, and after that."""
    last, end = drive.moves_of(name)[-1], drive.moves_of()[-1]
    assert (last.target, last.kind, end.target) == ("CANCELLED", Kind.CASCADE, "cancelled")
    return last.decision == end.decision and drive.moves.index(end) < drive.moves.index(last)


@pytest.mark.parametrize("code", [0, 1])
def test_a_checked_task_of_a_cancelled_run_follows_when_the_run_ends_and_not_before(code: int) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", checks=1), task("b")))
    drive.exits("a")
    drive.cancel()
    drive.exits("a", code)
    assert (drive.state(), drive.state("a")) == ("cancelling", "VALIDATING")
    drive.exits("b", -15)
    assert follows_the_end_of_its_run(drive, "a")


@pytest.mark.parametrize("code", [0, 1])
def test_a_probed_task_of_a_cancelled_run_follows_when_the_run_ends_and_not_before(code: int) -> None:
    drive = Driver(Settings(tools={"aider": Tool("aider", has_health_command=True)}))
    part = task("a", tool="aider", when_circuit_open=WhenOpen.WAIT, retry=ONCE)
    drive.submit(workflow(part, task("b")))
    drive.exits("a", 1)
    drive.advance(60)
    assert drive.state("a") == "HALF_OPEN"
    drive.cancel()
    drive.exits("a", code)
    assert (drive.state(), drive.state("a")) == ("cancelling", "HALF_OPEN")
    drive.exits("b", -15)
    assert follows_the_end_of_its_run(drive, "a")


@every_run_machine
def test_the_timeout_of_a_run_counts_where_no_task_has_to_start(machine: str) -> None:
    drive = Driver()
    pair = Lifecycle(machine, "orchestration.task")
    drive.submit(workflow(task("a", when=NEVER), checks=1, timeout=10 * SECOND, lifecycle=pair))
    assert drive.live().task == 0
    assert drive.due(TimerKind.TIMEOUT) == 10


def test_a_task_of_001_whose_check_waits_for_a_worker_finishes_under_a_cancel() -> None:
    drive = Driver(slots=1)
    drive.submit(workflow(task("a", checks=1), lifecycle="orchestration"))
    work = drive.live("a")
    drive.feed(s.WorkerQuiet, worker="w")
    drive.ends(work)
    drive.cancel()
    assert (drive.state(), drive.state("a")) == ("executing", "validating")
    drive.register("w2")
    drive.exits("a")
    assert (drive.state(), drive.state("a")) == ("cancelled", "completed")


@every_pair
def test_only_a_workstream_of_001_fails_for_what_is_blocked_behind_a_tolerated_failure(
    pair: Lifecycle,
) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", critical=False), task("b", "a"), task("c"), lifecycle=pair))
    drive.fails_for_good("a")
    drive.play()
    assert "b" not in drive.started()
    blocked = pair.run == "orchestration.workstream"
    assert drive.phase() is (Phase.FAILED if blocked else Phase.SUCCEEDED)


# ---- mending what is ending


@pytest.mark.parametrize("verb", [s.WaiveTask, s.ResetTask])
def test_nothing_is_mended_in_a_run_that_is_being_failed(verb: type[s.Signal]) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), task("b"), on_failure=OnFailure.CANCEL))
    drive.fails_for_good("a")
    with pytest.raises(Refused, match=r"ending \(failure\), 1 of its tasks still end"):
        drive.mend(verb, "a", reason="known")


@pytest.mark.parametrize("verb", [s.WaiveTask, s.ResetTask])
def test_a_timed_out_workstream_is_mended_when_its_last_attempt_has_ended(verb: type[s.Signal]) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), task("b"), lifecycle="pipeline", timeout=50 * SECOND))
    drive.fails_for_good("a")
    drive.advance(51)
    with pytest.raises(Refused, match=r"ending \(timeout\), 1 of its tasks still end"):
        drive.mend(verb, "a", reason="known")
    drive.exits("b", -15)
    drive.mend(verb, "a", reason="known")
    assert drive.record().ending is None


# ---- people


def test_who_has_approved_may_still_reject() -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), approval=Approval((Clause(count=2),))))
    drive.approve("lead")
    drive.reject("lead")
    assert drive.state() == "cancelled"


@pytest.mark.parametrize("verb", [s.Submit, s.Resume, s.Rerun])
def test_who_asks_for_a_run_is_the_actor_and_nobody_else_can_be_named(verb: type[s.Signal]) -> None:
    own = {field.name for field in fields(verb)} - {field.name for field in fields(s.Signal)}
    assert own <= {"plan", "params", "run", "task", "dependents"}


def test_whoever_reruns_a_run_asks_for_it() -> None:
    drive = Driver()
    first = drive.submit(workflow(task("a")), "alice")
    drive.exits("a")
    drive.feed(s.Rerun, run=first, actor="bob")
    assert drive.model.run(2).requester == "bob"


# ---- reasons


def test_the_failure_of_a_run_names_the_task_and_so_does_what_was_skipped_for_it() -> None:
    drive = Driver()
    drive.submit(workflow(task("build"), task("test", "build")))
    drive.fails_for_good("build")
    assert drive.reason("FAIL") == "build failed: exit 127"
    assert "build failed: exit 127" in drive.reason("dependency_failed", "test")


@pytest.mark.parametrize("machine", ["execution", "orchestration.workstream", "supervision.job"])
def test_a_run_that_cancels_the_rest_says_which_failure_it_was(machine: str) -> None:
    drive = Driver()
    pair = Lifecycle(machine, "toolchain.task")
    drive.submit(workflow(task("a"), task("b"), lifecycle=pair, on_failure=OnFailure.CANCEL))
    drive.fails_for_good("a")
    drive.exits("b", -15)
    assert drive.moves_of()[-1].reason == "a failed: exit 127"


def test_the_end_of_its_rest_does_not_take_the_place_of_the_reason_to_cancel() -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), task("b"), lifecycle="pipeline", abandon_after=10 * SECOND))
    drive.fails_for_good("a")
    drive.cancel(reason="the operator says so")
    drive.advance(11)
    drive.exits("b", -15)
    assert drive.moves_of()[-1].reason == "the operator says so"


def test_a_run_that_timed_out_or_failed_is_not_called_cancelled_by_a_late_cancel() -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), timeout=100 * SECOND))
    drive.advance(101)
    with pytest.raises(Refused, match=r"ending already \(timeout\); --force"):
        drive.cancel()
    drive.exits("a", -15)
    assert drive.state() == "failed"


def test_an_abandoned_run_refuses_a_cancel_because_it_is_over() -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle="pipeline"))
    drive.fails_for_good("a")
    drive.feed(s.AbandonRun, run=drive.run)
    with pytest.raises(InvalidTransitionError, match="it is final"):
        drive.cancel()


@pytest.mark.parametrize("run", ["orchestration.workstream", "execution"])
def test_a_check_of_001_that_never_ends_does_not_keep_a_cancelled_run_open(run: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", checks=1), lifecycle=Lifecycle(run, "orchestration.task")))
    drive.exits("a")
    drive.cancel()
    drive.advance(HOUR)
    assert drive.state() == "cancelled"
    assert "not_proven_gone" in drive.facts("a")
    assert len(drive.told(Halt)) <= 4


@pytest.mark.parametrize("run", ["orchestration.workstream", "execution"])
@pytest.mark.parametrize("code", [0, -9])
def test_a_killed_check_of_001_that_ends_after_all_ends_its_cancelled_run(run: str, code: int) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", checks=1), lifecycle=Lifecycle(run, "orchestration.task")))
    drive.exits("a")
    check = drive.live("a")
    drive.cancel()
    drive.advance(95)
    assert drive.told(Halt)[-1].why is Stop.KILLED
    drive.ends(check, code)
    assert drive.state() == "cancelled"
    assert drive.state("a") == "failed"
