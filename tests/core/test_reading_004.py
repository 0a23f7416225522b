"""The rows of READING.md on document 004: approvals, wait timers, and no retries."""

from typing import Any

import pytest

import engine.machines
from engine.core import signals
from engine.core.errors import Refused
from engine.core.plan import SECOND, Approval, Clause, OnFailure, Retry, Settings
from engine.core.records import TimerKind
from engine.machines import InvalidTransitionError, Lifecycle, Phase, can_transition

from .driver import HOUR, Driver, every_task_machine, task, workflow

ANYONE = Approval((Clause(),))
TWO = Approval((Clause(count=2),))
DAY = 24 * HOUR


def held(**wishes: Any) -> Driver:
    drive = Driver()
    drive.submit(workflow(task("a"), **wishes))
    return drive


def held_task(**wishes: Any) -> Driver:
    drive = Driver()
    drive.submit(workflow(task("a"), task("b", "a", **wishes), lifecycle="execution"))
    drive.exits("a")
    return drive


# ---- retries: none


@pytest.mark.parametrize("lifecycle", ["execution", "supervision"])
def test_an_attempt_is_a_record_below_a_task_that_stays_running(lifecycle: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=lifecycle))
    for wait in (2, 4):
        drive.exits("a", 1)
        assert drive.state("a") == "running"
        drive.advance(wait)
    assert drive.started() == ["a"] * 3
    assert drive.live("a").attempt == 3
    drive.exits("a")
    assert drive.history("a") == ["pending", "queued", "running", "success"]


def test_the_last_failed_attempt_fails_the_task() -> None:
    drive = Driver()
    drive.submit(workflow(task("a", retry=Retry(max_attempts=2)), lifecycle="execution"))
    drive.play({"a": [1, 1]})
    assert drive.history("a") == ["pending", "queued", "running", "failed"]


# ---- approval and wait timer at once


def test_with_both_the_run_is_held_and_the_timer_runs_at_once() -> None:
    drive = held(approval=ANYONE, wait=600 * SECOND)
    assert drive.history() == ["pending", "held"]
    assert drive.due(TimerKind.WAIT) == 600
    assert drive.due(TimerKind.EXPIRY) == DAY


def test_approve_fires_when_the_timer_ends_after_the_quorum() -> None:
    drive = held(approval=TWO, wait=600 * SECOND)
    drive.approve("ann")
    drive.approve("bob")
    assert drive.state() == "held"
    drive.advance(599)
    assert drive.state() == "held"
    drive.advance(1)
    assert drive.path()[1] == ("held", "APPROVE", "queued")
    assert drive.started() == ["a"]


def test_approve_fires_when_the_quorum_comes_after_the_timer() -> None:
    drive = held(approval=TWO, wait=600 * SECOND)
    drive.advance(600)
    assert drive.state() == "held"
    drive.approve("ann")
    assert drive.state() == "held"
    drive.approve("bob")
    assert drive.path()[1] == ("held", "APPROVE", "queued")


def test_a_vote_that_does_not_complete_the_quorum_is_a_fact() -> None:
    drive = held(approval=TWO)
    drive.approve("ann")
    assert drive.facts() == ["approved"]
    assert drive.path() == [("pending", "HOLD", "held")]


def test_expiry_ends_with_the_quorum() -> None:
    drive = held(approval=ANYONE, wait=2 * DAY * SECOND)
    drive.approve()
    assert drive.due(TimerKind.EXPIRY) is None
    drive.advance(2 * DAY - 1)
    assert drive.state() == "held"
    drive.advance(1)
    assert drive.state() == "running"


def test_a_wait_that_outlasts_the_expiry_does_not_save_a_run_without_its_quorum() -> None:
    drive = held(approval=TWO, wait=2 * DAY * SECOND)
    drive.approve("ann")
    drive.advance(DAY)
    assert drive.path()[-1] == ("held", "EXPIRE", "cancelled")


def test_expiry_means_cancelled() -> None:
    drive = held(approval=ANYONE)
    drive.advance(DAY - 1)
    assert drive.state() == "held"
    drive.advance(1)
    assert drive.path() == [("pending", "HOLD", "held"), ("held", "EXPIRE", "cancelled")]
    assert drive.state("a") == "CANCELLED"


@pytest.mark.parametrize("policy", list(OnFailure))
def test_expiry_means_cancelled_always_for_a_task_too(policy: OnFailure) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", approval=ANYONE), lifecycle="execution", on_failure=policy))
    drive.advance(DAY)
    assert drive.path("a")[-1] == ("held", "EXPIRE", "cancelled")
    assert drive.record().terminal


def test_a_rejection_cancels() -> None:
    drive = held(approval=ANYONE)
    drive.reject(reason="not today")
    assert drive.path()[-1] == ("held", "REJECT", "cancelled")
    assert drive.reason("REJECT") == "not today"


def test_a_rejected_task_is_cancelled() -> None:
    drive = held_task(approval=ANYONE)
    drive.reject(name="b", reason="not today")
    assert drive.path("b")[-1] == ("held", "REJECT", "cancelled")


def test_a_wait_alone_is_waiting_and_goes_by_timer_done() -> None:
    drive = held(wait=600 * SECOND)
    assert drive.state() == "waiting"
    drive.advance(600)
    assert drive.path()[:2] == [("pending", "WAIT", "waiting"), ("waiting", "TIMER_DONE", "queued")]


def test_a_held_task_needs_the_quorum_and_the_timer_as_well() -> None:
    drive = held_task(approval=ANYONE, wait=600 * SECOND)
    assert drive.state("b") == "held"
    drive.approve(name="b")
    assert drive.state("b") == "held"
    drive.advance(600)
    assert drive.history("b") == ["pending", "held", "queued", "running"]


def test_nothing_of_a_held_run_starts() -> None:
    drive = held(approval=ANYONE)
    drive.advance(HOUR)
    assert drive.started() == []
    assert drive.phase("a") is Phase.IDLE


@pytest.mark.parametrize("machine", ["toolchain.task", "orchestration.task", "pipeline.step"])
def test_approval_of_a_single_task_is_refused_where_its_machine_has_no_held_state(machine: str) -> None:
    drive = Driver()
    plan = workflow(task("a", approval=ANYONE), lifecycle=Lifecycle("execution", machine))
    with pytest.raises(Refused, match=f"{machine} has no held state: approval of a single task needs"):
        drive.submit(plan)


# ---- always through queued


@every_task_machine
def test_a_run_always_goes_through_queued(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=Lifecycle("execution", machine)))
    assert drive.history() == ["pending", "queued", "running"]


def test_a_task_always_goes_through_queued() -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle="execution"))
    assert drive.history("a") == ["pending", "queued", "running"]


def test_there_is_no_arrow_from_pending_to_running() -> None:
    assert not can_transition("execution", "pending", "START")


# ---- InvalidTransitionError


def test_the_error_is_public() -> None:
    assert "InvalidTransitionError" in engine.machines.__all__


def test_the_error_carries_machine_entity_state_event_and_what_was_allowed() -> None:
    drive = held()
    with pytest.raises(InvalidTransitionError) as caught:
        drive.approve()
    error = caught.value
    assert (error.machine, error.entity, error.state) == ("execution", "1", "running")
    assert error.event == "APPROVE"
    assert set(error.allowed) == {"SUCCEED", "FAIL", "CANCEL", "CANCEL_GRACEFUL", "RECOVER"}


def test_a_refused_command_changes_nothing() -> None:
    drive = held()
    before = drive.model.snapshot()
    with pytest.raises(InvalidTransitionError):
        drive.feed(signals.Reject, target=drive.ref(), actor="lead", reason="no")
    assert drive.model.snapshot() == before


def test_the_policy_of_the_operator_counts_besides_the_workflows_clauses() -> None:
    drive = Driver(Settings(policy=(Clause(users=frozenset({"boss"})),)))
    drive.submit(workflow(task("a"), approval=ANYONE))
    drive.approve("ann")
    assert drive.state() == "held"
    drive.approve("boss")
    assert drive.state() == "running"
