"""A worker's two regions, health and control, through everything that can happen to it."""

import pytest

from engine.core import signals as s
from engine.core.decision import Ask, Dismiss, Reap
from engine.core.plan import SECOND, Plan, Settings, TaskPlan
from engine.core.records import TimerKind, Token
from engine.machines import Phase
from tests.core.scene import EXECUTION, Scene, task_ref, told, worker_ref

W = worker_ref("w")


def regions(scene: Scene, name: str = "w") -> tuple[str, str]:
    worker = scene.the_worker(name)
    return worker.health, worker.control


def busy(tasks: int = 1, slots: int = 2) -> Scene:
    """A worker with a run on it."""
    scene = Scene(slots=slots)
    scene.run_tasks(*(TaskPlan(f"t{n}") for n in range(tasks)), lifecycle=EXECUTION)
    assert regions(scene) == ("busy", "RUNNING")
    return scene


# ---- coming


def test_a_worker_that_is_created_waits_to_register() -> None:
    scene = Scene(Settings(register_within=9 * SECOND))
    scene.tell(s.WorkerCreated, worker="w")
    assert regions(scene) == ("initializing", "IDLE")
    assert scene.timer(W, TimerKind.GIVE_UP) == 9 * SECOND


def test_registering_makes_it_idle_with_its_slots_and_capabilities() -> None:
    scene = Scene()
    scene.tell(s.WorkerCreated, worker="w")
    scene.worker("w", 3, "gpu")
    assert regions(scene) == ("idle", "IDLE")
    assert scene.the_worker().slots == 3
    assert scene.the_worker().capabilities == {"gpu"}
    assert scene.timer(W, TimerKind.GIVE_UP) is None


def test_a_worker_may_register_without_having_been_created_here() -> None:
    scene = Scene(slots=1)
    assert scene.events(W) == ["registration_complete"]


def test_registering_twice_changes_nothing() -> None:
    scene = busy()
    before = scene.model.snapshot()
    scene.worker("w", 2)
    scene.tell(s.WorkerCreated, worker="w")
    assert scene.model.snapshot() == before


@pytest.mark.parametrize("slots", [0, -1])
def test_a_worker_without_a_slot_is_refused(slots: int) -> None:
    assert "at least one slot" in Scene().refused(s.WorkerRegistered, worker="w", slots=slots)


def test_a_worker_that_never_registers_is_given_up_by_a_recovery() -> None:
    scene = Scene()
    scene.tell(s.WorkerCreated, worker="w")
    scene.due(W, TimerKind.GIVE_UP)
    assert regions(scene) == ("shutdown", "TERMINATED")
    health = next(t for t in scene.transitions(W) if t.machine == "orchestration.worker")
    assert (health.event, health.kind) == ("registration_timed_out", "recovery")


def test_the_first_task_makes_both_regions_busy_and_the_last_leaves_control_running() -> None:
    scene = busy(2)
    scene.end(1, 1)
    assert regions(scene) == ("busy", "RUNNING")
    scene.end(1, 2)
    assert regions(scene) == ("idle", "RUNNING")
    scene.run_tasks(TaskPlan("more"))
    assert scene.events(W) == [
        "registration_complete",
        "task_assigned",
        "start_task",
        "task_completed",
        "task_assigned",
    ]


def test_a_slot_that_is_filled_again_in_the_same_batch_keeps_it_busy() -> None:
    scene = busy(3, slots=1)
    scene.end(1, 1)
    scene.end(1, 2)
    assert scene.events(W).count("task_completed") == 0


# ---- silence


def test_a_busy_worker_that_is_missed_is_unresponsive_and_its_attempts_are_in_doubt() -> None:
    scene = busy()
    scene.tell(s.WorkerQuiet, worker="w")
    assert regions(scene) == ("unresponsive", "RUNNING")
    assert scene.attempt(1, 1).doubt
    assert scene.timer(W, TimerKind.GIVE_UP) == 60 * SECOND


def test_an_idle_worker_that_is_missed_is_only_marked_and_gets_no_work() -> None:
    scene = Scene(slots=1)
    scene.tell(s.WorkerQuiet, worker="w")
    assert regions(scene) == ("idle", "IDLE")
    assert scene.the_worker().frozen
    scene.run_tasks(TaskPlan("a"))
    assert scene.started() == []
    scene.tell(s.WorkerBack, worker="w")
    assert scene.started() == [Token(1, 1, 1)]
    assert scene.timer(W, TimerKind.GIVE_UP) is None


def test_being_missed_twice_does_not_start_the_clock_anew() -> None:
    for scene in (busy(), Scene(slots=1)):
        scene.tell(s.WorkerQuiet, worker="w")
        scene.pass_time(30)
        scene.tell(s.WorkerQuiet, worker="w")
        assert scene.timer(W, TimerKind.GIVE_UP) == 60 * SECOND


def test_a_worker_that_comes_back_with_tasks_is_idle_and_busy_in_one_transaction_and_is_asked() -> None:
    scene = busy()
    scene.tell(s.WorkerQuiet, worker="w")
    decisions = scene.tell(s.WorkerBack, worker="w")
    assert [c.event for c in scene.transitions(W)[-2:]] == ["health_check_recovered", "task_assigned"]
    assert told(decisions) == [Ask("w", (Token(1, 1, 1),))]
    assert regions(scene) == ("busy", "RUNNING")


def test_a_worker_that_comes_back_empty_is_idle() -> None:
    scene = busy()
    scene.tell(s.WorkerQuiet, worker="w")
    scene.tell(s.AttemptEnded, token=scene.live(1, 1), exit_code=0)
    assert regions(scene) == ("unresponsive", "RUNNING")
    assert told(scene.tell(s.WorkerBack, worker="w")) == []
    assert regions(scene) == ("idle", "RUNNING")


def test_a_worker_that_was_not_missed_is_not_asked_when_it_is_heard() -> None:
    scene = busy()
    assert told(scene.tell(s.WorkerBack, worker="w")) == []


def test_an_unresponsive_worker_is_given_up_after_its_time_and_reaped() -> None:
    scene = busy()
    scene.tell(s.WorkerQuiet, worker="w")
    scene.due(W, TimerKind.GIVE_UP)
    assert regions(scene) == ("shutdown", "TERMINATED")
    assert scene.events(W)[-2:] == ["max_timeout_exceeded", "terminate"]
    assert "supervisor timeout" in (scene.transitions(W)[-1].reason or "")
    assert scene.instructions()[-1] == Reap("w", (Token(1, 1, 1),))


def test_a_frozen_idle_worker_goes_by_shutdown_requested_after_its_time() -> None:
    scene = Scene(slots=1)
    scene.tell(s.WorkerQuiet, worker="w")
    scene.due(W, TimerKind.GIVE_UP)
    assert scene.events(W) == ["registration_complete", "shutdown_requested", "terminate"]


# ---- gone


def test_an_idle_worker_that_dies_goes_by_shutdown_requested_with_the_reason() -> None:
    scene = Scene(slots=1)
    scene.tell(s.WorkerGone, worker="w", reason="killed by the kernel")
    shutdown = scene.transitions(W)[-2]
    assert (shutdown.event, shutdown.reason) == ("shutdown_requested", "killed by the kernel")
    assert regions(scene) == ("shutdown", "TERMINATED")


def test_a_busy_worker_that_dies_is_missed_and_given_up_at_once_and_its_attempts_asked_for() -> None:
    scene = busy()
    scene.tell(s.WorkerGone, worker="w")
    assert scene.events(W)[-3:] == ["health_check_timeout", "max_timeout_exceeded", "terminate"]
    assert scene.attempt(1, 1).doubt
    assert scene.state(1, 1) == "recovering"
    scene.tell(s.AttemptLost, token=Token(1, 1, 1))
    assert scene.model.holds("w") == ()


def test_gone_twice_is_gone_once() -> None:
    scene = busy()
    scene.tell(s.WorkerGone, worker="w")
    before = scene.model.snapshot()
    scene.tell(s.WorkerGone, worker="w")
    scene.tell(s.WorkerQuiet, worker="w")
    scene.tell(s.WorkerBack, worker="w")
    assert scene.model.snapshot() == before


def test_another_worker_watches_over_what_a_dead_one_ran() -> None:
    scene = busy()
    scene.tell(s.WorkerGone, worker="w")
    scene.worker("w2", 1)
    scene.tell(s.AttemptAdopted, token=Token(1, 1, 1), worker="w2")
    assert scene.attempt(1, 1).worker == "w2"
    assert regions(scene, "w2") == ("busy", "RUNNING")
    assert scene.state(1, 1) == "running"
    assert not scene.attempt(1, 1).doubt
    scene.end(1, 1)
    assert scene.state(1) == "success"


def test_adopted_work_may_go_beyond_the_slots_and_nothing_new_is_added() -> None:
    scene = busy(2, slots=2)
    scene.worker("w2", 1)
    scene.run_tasks(TaskPlan("own"), TaskPlan("next"))
    scene.tell(s.WorkerGone, worker="w")
    for number in (1, 2):
        scene.tell(s.AttemptAdopted, token=Token(1, number, 1), worker="w2")
    assert len(scene.model.holds("w2")) == 3
    scene.end(1, 1)
    scene.end(1, 2)
    assert scene.task(2, 2).live is None
    scene.end(2, 1)
    assert scene.live(2, 2) == Token(2, 2, 1)


def test_a_worker_that_is_gone_adopts_nothing() -> None:
    scene = busy()
    scene.worker("w2", 1)
    scene.tell(s.WorkerGone, worker="w2")
    scene.tell(s.AttemptAdopted, token=Token(1, 1, 1), worker="w2")
    assert scene.attempt(1, 1).worker == "w"


# ---- pause and resume


def test_a_paused_worker_takes_no_new_work_and_goes_on_with_what_it_has() -> None:
    scene = busy(2, slots=1)
    scene.tell(s.PauseWorker, worker="w")
    assert regions(scene) == ("busy", "PAUSED")
    scene.end(1, 1)
    assert regions(scene) == ("idle", "PAUSED")
    assert len(scene.started()) == 1
    scene.tell(s.ResumeWorker, worker="w")
    assert regions(scene) == ("busy", "RUNNING")
    assert len(scene.started()) == 2


def test_a_paused_worker_finishes_the_checks_of_what_it_ran() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", checks=1))
    scene.tell(s.PauseWorker, worker="w")
    scene.end(1, 1)
    scene.end(1, 1)
    assert scene.state(1) == "success"


def test_pause_and_resume_are_refused_where_the_document_has_no_arrow() -> None:
    scene = Scene(slots=1)
    assert "IDLE" in scene.refused(s.PauseWorker, worker="w")
    assert "IDLE" in scene.refused(s.ResumeWorker, worker="w")
    scene = busy()
    assert "RUNNING" in scene.refused(s.ResumeWorker, worker="w")
    scene.tell(s.PauseWorker, worker="w")
    assert "PAUSED" in scene.refused(s.PauseWorker, worker="w")


def test_an_exhausted_worker_is_paused_with_the_reason() -> None:
    scene = busy()
    scene.tell(s.WorkerExhausted, worker="w", reason="the disk is full")
    last = scene.transitions(W)[-1]
    assert (last.event, last.reason) == ("pause", "the disk is full")
    scene.tell(s.WorkerExhausted, worker="w")
    assert scene.events(W).count("pause") == 1
    scene.tell(s.ResumeWorker, worker="w")
    assert regions(scene) == ("busy", "RUNNING")


# ---- drain


def test_a_drained_worker_goes_after_its_last_task() -> None:
    scene = busy(2, slots=2)
    scene.tell(s.DrainWorker, worker="w")
    assert regions(scene) == ("busy", "RUNNING"), "draining is a mark"
    scene.run_tasks(TaskPlan("new"))
    scene.end(1, 1)
    assert regions(scene) == ("busy", "RUNNING")
    scene.end(1, 2)
    assert scene.events(W)[-2:] == ["complete_tasks", "shutdown_requested"]
    assert regions(scene) == ("shutdown", "COMPLETED")
    assert scene.instructions()[-1] == Dismiss("w")
    assert scene.task(2, 1).live is None


def test_a_drained_worker_finishes_checks_and_hooks_first() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", checks=1))
    scene.tell(s.DrainWorker, worker="w")
    scene.end(1, 1)
    assert scene.live(1, 1).purpose == "check"
    scene.end(1, 1)
    assert scene.state(1) == "success"
    assert regions(scene) == ("shutdown", "COMPLETED")


def test_a_worker_that_never_had_a_task_is_drained_by_terminate() -> None:
    scene = Scene(slots=1)
    scene.tell(s.DrainWorker, worker="w")
    assert regions(scene) == ("shutdown", "TERMINATED")
    assert scene.instructions() == [Dismiss("w")]


def test_a_worker_is_drained_once() -> None:
    scene = busy()
    scene.tell(s.DrainWorker, worker="w")
    assert "already" in scene.refused(s.DrainWorker, worker="w")
    scene.end(1, 1)
    scene.refused(s.DrainWorker, worker="w")


def test_a_worker_drained_before_it_registered_goes_when_it_does() -> None:
    scene = Scene()
    scene.tell(s.WorkerCreated, worker="w")
    scene.tell(s.DrainWorker, worker="w")
    scene.run_tasks(TaskPlan("a"))
    scene.worker("w", 1)
    assert regions(scene)[0] == "shutdown"
    assert scene.started() == []


# ---- terminate and broken


def test_a_terminated_worker_stops_and_what_it_ran_is_accounted_for() -> None:
    scene = busy()
    decisions = scene.tell(s.TerminateWorker, worker="w", reason="maintenance")
    assert scene.the_worker().control == "TERMINATED"
    assert Reap("w", (Token(1, 1, 1),)) in told(decisions)
    assert scene.the_worker().health == "busy", "it leaves after its last task"
    scene.end(1, 1, -15)
    assert regions(scene) == ("shutdown", "TERMINATED")
    assert scene.task(1, 1).losses == 1, "an attempt that its worker took along is lost, not failed"


def test_a_terminated_worker_that_holds_nothing_goes_at_once() -> None:
    scene = Scene(slots=1)
    scene.tell(s.TerminateWorker, worker="w")
    assert regions(scene) == ("shutdown", "TERMINATED")


def test_terminated_while_unresponsive_is_max_timeout_exceeded_with_the_reason() -> None:
    scene = busy()
    scene.tell(s.WorkerQuiet, worker="w")
    scene.tell(s.TerminateWorker, worker="w", reason="enough")
    shutdown = next(t for t in scene.transitions(W) if t.event == "max_timeout_exceeded")
    assert shutdown.reason == "enough"
    assert regions(scene) == ("shutdown", "TERMINATED")


def test_terminated_twice_is_refused() -> None:
    scene = busy()
    scene.tell(s.TerminateWorker, worker="w")
    assert "TERMINATED" in scene.refused(s.TerminateWorker, worker="w")


def test_a_broken_worker_has_failed_and_is_reaped() -> None:
    scene = busy()
    decisions = scene.tell(s.WorkerBroken, worker="w", reason="its state directory is corrupt")
    assert scene.the_worker().control == "FAILED"
    assert Reap("w", (Token(1, 1, 1),)) in told(decisions)
    scene.tell(s.AttemptLost, token=Token(1, 1, 1))
    assert regions(scene) == ("shutdown", "FAILED")
    assert scene.timer(task_ref(1, 1), TimerKind.RETRY) is not None


def test_a_broken_worker_that_still_holds_something_can_be_terminated_by_a_recovery() -> None:
    scene = busy()
    scene.tell(s.WorkerBroken, worker="w")
    scene.tell(s.TerminateWorker, worker="w")
    last = scene.transitions(W)[-1]
    assert (last.source, last.event, last.kind) == ("FAILED", "terminate", "recovery")


def test_a_completed_or_failed_worker_that_holds_nothing_is_not_terminated() -> None:
    scene = busy()
    scene.tell(s.DrainWorker, worker="w")
    scene.end(1, 1)
    assert "still holds" in scene.refused(s.TerminateWorker, worker="w")


def test_a_broken_idle_worker_is_terminated() -> None:
    scene = Scene(slots=1)
    scene.tell(s.WorkerBroken, worker="w")
    assert regions(scene) == ("shutdown", "TERMINATED")


@pytest.mark.parametrize("verb", [s.PauseWorker, s.ResumeWorker, s.DrainWorker, s.TerminateWorker])
def test_a_worker_that_nobody_knows_is_refused(verb: type[s.Signal]) -> None:
    assert "no such worker" in Scene().refused(verb, worker="ghost")


def test_whatever_happens_to_its_worker_a_run_ends_on_another() -> None:
    scene = Scene(slots=1)
    scene.worker("spare", 1)
    scene.submit(Plan("p", (TaskPlan("a"),)))
    first = scene.attempt(1, 1).worker or ""
    scene.tell(s.TerminateWorker, worker=first)
    scene.tell(s.AttemptLost, token=scene.live(1, 1))
    scene.due(task_ref(1, 1), TimerKind.RETRY)
    assert scene.attempt(1, 1).worker not in (first, None)
    scene.end(1, 1)
    assert scene.run(1).phase is Phase.SUCCEEDED
