"""The rows of READING.md on document 002: jobs, and a worker's two regions.

Decided elsewhere: idempotency keys and their results, which `request_id` is accepted, and the count of
refusals (store, runtime).
"""

from collections.abc import Callable

import pytest

from engine.core import signals
from engine.core.decision import Ask, Reap
from engine.core.errors import Refused
from engine.core.plan import SECOND, Retry
from engine.core.records import Entity, Ref
from engine.machines import (
    MACHINES,
    InvalidTransitionError,
    Kind,
    Lifecycle,
    Phase,
    can_transition,
    transition,
)

from .driver import Driver, every_pair, task, workflow

ONCE = Retry(max_attempts=1)
WORKER = Ref(Entity.WORKER, "w")


def working(slots: int = 2) -> Driver:
    """A worker that runs one task."""
    drive = Driver(slots=slots)
    drive.submit(workflow(task("a"), lifecycle="supervision"))
    return drive


# ---- TERMINATED


@pytest.mark.parametrize("state", ["IDLE", "RUNNING", "PAUSED"])
def test_from_idle_running_and_paused_terminate_is_ordinary(state: str) -> None:
    arrow = MACHINES["supervision.worker"].arrow(state, "terminate")
    assert (arrow.target, arrow.kind) == ("TERMINATED", Kind.NORMAL)


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED"])
def test_from_completed_and_failed_terminate_is_a_recovery(state: str) -> None:
    arrow = MACHINES["supervision.worker"].arrow(state, "terminate")
    assert (arrow.target, arrow.kind) == ("TERMINATED", Kind.RECOVERY)


def idle(drive: Driver) -> None:
    pass


def running(drive: Driver) -> None:
    drive.submit(workflow(task("a"), lifecycle="supervision"))


def paused(drive: Driver) -> None:
    running(drive)
    drive.feed(signals.PauseWorker, worker="w")


@pytest.mark.parametrize("prepare", [idle, running, paused])
def test_a_supervisor_terminates_a_worker_in_any_open_state(prepare: Callable[[Driver], None]) -> None:
    drive = Driver()
    prepare(drive)
    drive.feed(signals.TerminateWorker, worker="w", reason="enough")
    assert drive.worker().control == "TERMINATED"
    assert drive.control()[-1] == "terminate"
    assert drive.reason("terminate", ref=WORKER) == "enough"


def test_a_terminated_worker_is_not_terminated_again() -> None:
    drive = Driver()
    drive.feed(signals.TerminateWorker, worker="w")
    with pytest.raises(InvalidTransitionError):
        drive.feed(signals.TerminateWorker, worker="w")


# ---- jobs


def test_submitted_to_canceled_is_allowed() -> None:
    assert transition("supervision.job", "SUBMITTED", "cancel") == "CANCELED"


def test_a_bad_file_is_refused_before_a_job_exists() -> None:
    drive = Driver()
    with pytest.raises(Refused):
        drive.submit(workflow(task("a"), lifecycle="supervision", worker_count=11))
    assert list(drive.model.runs()) == []


def test_a_job_found_bad_later_is_cancelled_with_the_reason() -> None:
    drive = Driver(slots=0)
    drive.submit(workflow(task("a"), lifecycle="supervision"))
    drive.cancel(reason="its tool does not exist")
    assert drive.path()[-1] == ("PENDING", "cancel", "CANCELED")
    assert drive.reason("cancel") == "its tool does not exist"


def test_a_job_has_no_error_arrow_before_it_runs() -> None:
    assert not can_transition("supervision.job", "SUBMITTED", "error")
    assert not can_transition("supervision.job", "PENDING", "error")


def test_while_running_a_job_found_bad_is_an_error() -> None:
    drive = working()
    drive.fails_for_good("a")
    assert drive.path()[-1] == ("RUNNING", "error", "FAILED")


def test_a_job_waits_in_pending_for_resources() -> None:
    drive = Driver(slots=0)
    drive.submit(workflow(task("a"), lifecycle="supervision"))
    assert drive.history() == ["SUBMITTED", "PENDING"]
    drive.register("w")
    assert drive.path()[-1] == ("PENDING", "allocate_resources", "RUNNING")


@every_pair
def test_a_runs_timeout_cancels_under_supervision_and_fails_elsewhere(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=pair, timeout=100 * SECOND))
    drive.advance(100)
    drive.exits("a", 143)
    end = Phase.CANCELLED if pair.run == "supervision.job" else Phase.FAILED
    assert drive.phase() is end


# ---- COMPLETED, and the loop of 001's worker


def test_control_stays_running_from_the_first_task_on() -> None:
    drive = working()
    drive.exits("a")
    assert (drive.worker().health, drive.worker().control) == ("idle", "RUNNING")
    drive.submit(workflow(task("a"), lifecycle="supervision"))
    drive.exits("a")
    assert drive.control() == ["start_task"]
    assert drive.health() == ["registration_complete", *["task_assigned", "task_completed"] * 2]


def test_complete_tasks_fires_when_a_drained_worker_ends_its_last() -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), task("b"), lifecycle="supervision"))
    drive.feed(signals.DrainWorker, worker="w")
    drive.exits("a")
    assert drive.control() == ["start_task"]
    drive.exits("b")
    assert drive.control() == ["start_task", "complete_tasks"]
    assert drive.worker().control == "COMPLETED"


def test_a_worker_drained_with_nothing_to_do_completes_at_once() -> None:
    drive = working()
    drive.exits("a")
    drive.feed(signals.DrainWorker, worker="w")
    assert (drive.worker().health, drive.worker().control) == ("shutdown", "COMPLETED")


# ---- the two regions together


def test_paused_takes_no_new_work() -> None:
    drive = working()
    drive.feed(signals.PauseWorker, worker="w")
    drive.submit(workflow(task("b"), lifecycle="supervision"))
    assert drive.started() == ["a"]
    drive.feed(signals.ResumeWorker, worker="w")
    assert drive.started() == ["a", "b"]


def test_the_running_attempts_of_a_paused_worker_go_on() -> None:
    drive = Driver()
    drive.submit(workflow(task("a", checks=1), lifecycle="supervision"))
    drive.feed(signals.PauseWorker, worker="w")
    assert drive.worker().health == "busy"
    drive.exits("a")
    drive.exits("a")
    assert drive.state() == "COMPLETED"
    assert (drive.worker().health, drive.worker().control) == ("idle", "PAUSED")


def test_busy_at_the_first_task_idle_after_the_last() -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), task("b"), lifecycle="supervision"))
    assert drive.health()[1:] == ["task_assigned"]
    drive.exits("a")
    assert drive.worker().health == "busy"
    drive.exits("b")
    assert drive.health()[1:] == ["task_assigned", "task_completed"]


def test_recovered_with_tasks_is_health_check_recovered_then_task_assigned_in_one_transaction() -> None:
    drive = working()
    drive.feed(signals.WorkerQuiet, worker="w")
    assert drive.worker().health == "unresponsive"
    drive.feed(signals.WorkerBack, worker="w")
    assert drive.together(None, "health_check_recovered", "task_assigned", ref=WORKER)
    assert [ask.tokens for ask in drive.told(Ask)] == [(drive.live("a"),)]


def test_recovered_without_tasks_is_idle() -> None:
    drive = working()
    drive.feed(signals.WorkerQuiet, worker="w")
    drive.exits("a")
    drive.feed(signals.WorkerBack, worker="w")
    assert drive.health()[-1] == "health_check_recovered"
    assert drive.worker().health == "idle"


def test_a_lost_worker_goes_to_shutdown_and_terminated_by_supervisor_timeout() -> None:
    drive = working()
    drive.feed(signals.WorkerQuiet, worker="w")
    drive.advance(60)
    assert drive.health()[-2:] == ["health_check_timeout", "max_timeout_exceeded"]
    assert drive.control()[-1] == "terminate"
    assert "supervisor timeout" in drive.reason("terminate", ref=WORKER)
    assert (drive.worker().health, drive.worker().control) == ("shutdown", "TERMINATED")
    assert drive.told(Reap)[-1].tokens == (drive.live("a"),)


def test_a_busy_worker_that_dies_is_a_lost_worker() -> None:
    drive = working()
    drive.feed(signals.WorkerGone, worker="w", reason="killed by the kernel")
    assert (drive.worker().health, drive.worker().control) == ("shutdown", "TERMINATED")
    assert drive.health()[-2:] == ["health_check_timeout", "max_timeout_exceeded"]


def test_a_busy_worker_that_is_terminated_has_to_account_for_what_it_holds() -> None:
    drive = working()
    drive.feed(signals.TerminateWorker, worker="w")
    assert drive.told(Reap)[-1].tokens == (drive.live("a"),)
    assert drive.worker().health == "busy"
    drive.lost("a")
    assert drive.worker().health == "shutdown"


def test_an_idle_worker_that_dies_goes_by_shutdown_requested_with_the_reason() -> None:
    drive = Driver()
    drive.feed(signals.WorkerGone, worker="w", reason="killed by the kernel")
    assert drive.health()[-1] == "shutdown_requested"
    assert drive.reason("shutdown_requested", ref=WORKER) == "killed by the kernel"


def test_a_crashed_worker_gets_a_successor_and_the_job_stays_running() -> None:
    drive = working()
    drive.register("v")
    drive.feed(signals.WorkerGone, worker="w")
    drive.lost("a")
    drive.advance(2)
    assert drive.attempt("a").worker == "v"
    assert drive.state() == "RUNNING"


# ---- the error table of 002


def test_an_exhausted_worker_is_paused() -> None:
    drive = working()
    drive.feed(signals.WorkerExhausted, worker="w", reason="no disk space")
    assert drive.worker().control == "PAUSED"


def test_an_unrecoverable_error_fails_the_worker() -> None:
    drive = working()
    drive.feed(signals.WorkerBroken, worker="w", reason="no memory")
    assert drive.control()[-1] == "error_unrecoverable"
    assert drive.worker().control == "FAILED"


@pytest.mark.parametrize("event", ["pause", "resume", "start_task", "complete_tasks"])
@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "TERMINATED"])
def test_a_worker_that_ended_accepts_nothing_else(state: str, event: str) -> None:
    assert not can_transition("supervision.worker", state, event)


def test_an_idle_worker_cannot_be_paused() -> None:
    drive = Driver()
    with pytest.raises(InvalidTransitionError):
        drive.feed(signals.PauseWorker, worker="w")
