"""Cancelling: gracefully with hooks and a grace, by force at once, and what comes late."""

import pytest

from engine.core import signals as s
from engine.core.decision import Forget
from engine.core.errors import Refused
from engine.core.plan import SECOND, OnLost, Plan, Settings, TaskPlan
from engine.core.records import Purpose, Stop, TimerKind, Token
from engine.machines import LIFECYCLES, RUN_MACHINES, TASK_MACHINES, Lifecycle, Phase
from tests.core.scene import EXECUTION, ORCHESTRATION, PIPELINE, Scene, once, run_ref, task_ref, told

PAIRS = [Lifecycle(run, task) for run in RUN_MACHINES for task in TASK_MACHINES]
pairs = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.run}+{pair.task}")
machines = pytest.mark.parametrize("machine", TASK_MACHINES)


def running(machine: str = "toolchain.task", **fields: object) -> Scene:
    """A scene with run 1, whose only task runs."""
    scene = Scene(slots=2)
    task = TaskPlan("a", **fields)  # type: ignore[arg-type]
    scene.submit(Plan("p", (task,), Lifecycle("execution", machine)))
    return scene


# ---- gracefully


@pairs
def test_a_graceful_cancel_asks_the_attempt_to_stop_and_ends_the_run_when_it_has(pair: Lifecycle) -> None:
    scene = Scene(slots=2)
    run = scene.run_tasks(TaskPlan("a"), TaskPlan("b", needs=(1,)), lifecycle=pair)
    token = scene.live(run, 1)
    scene.tell(s.Cancel, run=run)
    assert [(halt.token, halt.grace, halt.why) for halt in scene.halts()] == [
        (token, 30 * SECOND, Stop.CANCEL)
    ]
    assert not scene.run(run).terminal
    scene.end(run, 1, -15)
    assert scene.run(run).phase is Phase.CANCELLED
    assert scene.started() == [token], "nothing new has started"
    assert list(scene.model.timers()) == []
    for task in scene.model.tasks_of(scene.run(run)):
        assert task.terminal or task.blocked or task.phase is Phase.FAILED


@pairs
def test_a_run_that_has_not_started_is_cancelled_at_once(pair: Lifecycle) -> None:
    scene = Scene()
    run = scene.run_tasks(TaskPlan("a"), TaskPlan("b", needs=(1,)), lifecycle=pair)
    scene.tell(s.Cancel, run=run)
    assert scene.run(run).phase is Phase.CANCELLED
    assert list(scene.model.timers()) == []


@pairs
def test_a_run_between_two_attempts_is_cancelled_at_once(pair: Lifecycle) -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(TaskPlan("a"), lifecycle=pair)
    scene.end(run, 1, 1)
    scene.tell(s.Cancel, run=run)
    assert scene.run(run).phase is Phase.CANCELLED
    assert list(scene.model.timers()) == []
    assert len(scene.started()) == 1


@machines
def test_under_cancel_nothing_is_retried(machine: str) -> None:
    scene = running(machine)
    scene.tell(s.Cancel, run=1)
    scene.end(1, 1, 1)
    assert scene.state(1) == "cancelled"
    assert scene.task(1, 1).retries == 0


@machines
def test_under_cancel_a_success_does_not_count_as_one(machine: str) -> None:
    scene = running(machine)
    scene.tell(s.Cancel, run=1)
    scene.end(1, 1, 0)
    assert scene.state(1) == "cancelled"
    assert scene.task(1, 1).phase is not Phase.SUCCEEDED


def test_a_retrying_task_of_001_keeps_its_state_and_loses_its_timer_while_the_run_is_cancelled() -> None:
    scene = Scene(slots=2)
    run = scene.run_tasks(TaskPlan("a"), TaskPlan("b"), lifecycle=ORCHESTRATION)
    scene.end(run, 1, 1)
    scene.tell(s.Cancel, run=run)
    assert scene.timer(task_ref(run, 1), TimerKind.RETRY) is None
    scene.pass_time(60)
    scene.tell(s.TimerDue, ref=task_ref(run, 1), kind=TimerKind.RETRY)
    scene.end(run, 2, -15)
    assert (scene.state(run), scene.state(run, 1)) == ("cancelled", "retrying")
    assert scene.task(run, 1).blocked


def test_a_validating_task_of_001_finishes_under_cancel() -> None:
    scene = Scene(slots=2)
    run = scene.run_tasks(TaskPlan("a", checks=1), TaskPlan("b", needs=(1,)), lifecycle=ORCHESTRATION)
    scene.end(run, 1)
    scene.tell(s.Cancel, run=run)
    assert scene.halts() == []
    scene.end(run, 1, 0)
    assert (scene.state(run), scene.state(run, 1)) == ("cancelled", "completed")


def test_a_workstream_of_001_that_validates_refuses_a_cancel_and_takes_a_force() -> None:
    scene = Scene(slots=1)
    run = scene.submit(Plan("p", (TaskPlan("a"),), ORCHESTRATION, checks=1))
    scene.end(run, 1)
    assert scene.state(run) == "validating"
    assert "validating" in scene.refused(s.Cancel, run=run)
    scene.tell(s.Cancel, run=run, force=True)
    assert scene.events(run_ref(run))[-1] == "validation_failed"


def test_a_second_cancel_is_refused_and_names_the_way_out() -> None:
    scene = running()
    scene.tell(s.Cancel, run=1)
    assert "--force" in scene.refused(s.Cancel, run=1)


@pytest.mark.parametrize("force", [False, True])
@pairs
def test_a_run_that_is_over_refuses_to_be_cancelled(pair: Lifecycle, force: bool) -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(TaskPlan("a"), lifecycle=pair)
    scene.end(run, 1)
    assert scene.run(run).terminal
    scene.refused(s.Cancel, run=run, force=force)


# ---- hooks


@machines
def test_the_cancel_hook_runs_after_the_work_has_stopped(machine: str) -> None:
    scene = running(machine, has_cancel_hook=True)
    work = scene.live(1, 1)
    scene.tell(s.Cancel, run=1)
    scene.tell(s.AttemptEnded, token=work, exit_code=-15)
    hook = scene.live(1, 1)
    assert hook == Token(1, 1, 1, Purpose.HOOK, 1)
    assert scene.started() == [work, hook]
    assert scene.timer(task_ref(1, 1), TimerKind.DEADLINE) == 300 * SECOND
    scene.end(1, 1)
    assert scene.state(1) == "cancelled"
    assert scene.task(1, 1).phase is (Phase.FAILED if machine == "pipeline.step" else Phase.CANCELLED)


@machines
def test_a_hook_that_fails_fails_the_task_and_the_run_still_completes_its_cancel(machine: str) -> None:
    scene = running(machine, has_cancel_hook=True)
    scene.tell(s.Cancel, run=1)
    scene.end(1, 1, -15)
    scene.end(1, 1, 1)
    assert scene.state(1) == "cancelled"
    wanted = (Phase.CANCELLED, Phase.FAILED) if machine == "toolchain.task" else (Phase.FAILED,)
    assert scene.task(1, 1).phase in wanted
    assert scene.task(1, 1).error == "its cancel hook failed"


@machines
def test_a_hook_that_is_lost_has_failed(machine: str) -> None:
    scene = running(machine, has_cancel_hook=True)
    scene.tell(s.Cancel, run=1)
    scene.end(1, 1, -15)
    scene.tell(s.AttemptLost, token=scene.live(1, 1))
    assert scene.state(1) == "cancelled"
    assert "lost" in (scene.task(1, 1).error or "")


def test_a_hook_has_its_own_time_and_is_then_killed_and_left_behind() -> None:
    scene = running("execution", has_cancel_hook=True)
    scene.tell(s.Cancel, run=1)
    scene.end(1, 1, -15)
    hook = scene.live(1, 1)
    scene.due(task_ref(1, 1), TimerKind.DEADLINE)
    assert scene.halts()[-1].grace == 0
    scene.due(task_ref(1, 1), TimerKind.GRACE)
    assert (scene.state(1), scene.state(1, 1)) == ("cancelled", "failed")
    assert scene.facts(task_ref(1, 1), "not_proven_gone")
    scene.tell(s.AttemptEnded, token=hook, exit_code=0)
    assert len(scene.facts(task_ref(1, 1), "late_result")) == 1


def test_a_task_without_a_hook_and_a_hook_without_a_worker_start_none() -> None:
    scene = running("execution", has_cancel_hook=True)
    scene.tell(s.Cancel, run=1)
    scene.tell(s.WorkerQuiet, worker="w")
    scene.tell(s.AttemptEnded, token=scene.live(1, 1), exit_code=-15)
    assert len(scene.started()) == 1
    assert scene.state(1) == "cancelled"


def test_a_check_that_is_cancelled_starts_no_hook() -> None:
    scene = running("toolchain.task", has_cancel_hook=True, checks=1)
    scene.end(1, 1)
    scene.tell(s.Cancel, run=1)
    scene.end(1, 1, -15)
    assert scene.states(1) == ["CANCELLED"]
    assert [token.purpose for token in scene.started()] == [Purpose.WORK, Purpose.CHECK]


# ---- the grace, and beyond


@machines
def test_the_escalation_from_asking_to_killing_to_going_on_is_bounded(machine: str) -> None:
    scene = running(machine)
    token = scene.live(1, 1)
    scene.tell(s.Cancel, run=1)
    assert scene.timer(task_ref(1, 1), TimerKind.GRACE) == 60 * SECOND
    scene.due(task_ref(1, 1), TimerKind.GRACE)
    assert [halt.grace for halt in scene.halts()] == [30 * SECOND, 0]
    scene.due(task_ref(1, 1), TimerKind.GRACE)
    assert scene.state(1) == "cancelled"
    assert scene.facts(task_ref(1, 1), "not_proven_gone")
    assert list(scene.model.timers()) == []
    assert scene.model.holds("w") == (token,), "its slot is taken until it is proven gone"
    assert len(scene.halts()) == 2


def test_the_grace_can_be_chosen_by_the_workflow() -> None:
    scene = Scene(Settings(kill_margin=3 * SECOND), slots=1)
    scene.submit(Plan("p", (TaskPlan("a"),), grace=7 * SECOND))
    scene.tell(s.Cancel, run=1)
    assert scene.halts()[0].grace == 7 * SECOND
    assert scene.timer(task_ref(1, 1), TimerKind.GRACE) == 10 * SECOND


def test_final_checks_are_stopped_and_left_behind_in_the_same_steps() -> None:
    scene = Scene(slots=1)
    run = scene.submit(Plan("p", (TaskPlan("a"),), checks=1))
    scene.end(run, 1)
    check = scene.live(run)
    scene.tell(s.Cancel, run=run)
    for _ in range(2):
        scene.due(run_ref(run), TimerKind.GRACE)
    assert scene.state(run) == "cancelled"
    assert [halt.token for halt in scene.halts()] == [check, check]
    scene.tell(s.AttemptEnded, token=check, exit_code=0)
    assert len(scene.facts(run_ref(run), "late_result")) == 1


@machines
def test_an_attempt_that_is_lost_while_it_is_cancelled_is_simply_over(machine: str) -> None:
    scene = running(machine, on_lost=OnLost.ASK)
    scene.tell(s.Cancel, run=1)
    scene.tell(s.AttemptLost, token=scene.live(1, 1))
    assert scene.state(1) == "cancelled"
    assert not scene.task(1, 1).asking


# ---- force


@pairs
def test_force_ends_a_running_run_at_once_and_kills_what_it_runs(pair: Lifecycle) -> None:
    scene = Scene(slots=2)
    run = scene.run_tasks(TaskPlan("a", has_cancel_hook=True), TaskPlan("b", needs=(1,)), lifecycle=pair)
    token = scene.live(run, 1)
    scene.tell(s.Cancel, run=run, force=True)
    assert scene.run(run).phase is Phase.CANCELLED
    assert [(halt.token, halt.grace, halt.why) for halt in scene.halts()] == [(token, 0, Stop.KILLED)]
    assert scene.started() == [token], "no hook"
    assert scene.model.holds("w") == (token,)


def test_force_cuts_a_graceful_cancel_short() -> None:
    scene = running("execution", has_cancel_hook=True)
    scene.tell(s.Cancel, run=1)
    scene.end(1, 1, -15)
    scene.tell(s.Cancel, run=1, force=True)
    assert scene.events(task_ref(1, 1))[-1] == "CANCEL_FORCE"
    assert scene.events(run_ref(1))[-1] == "CANCEL_FORCE"


def test_force_in_s_failed_and_s_retrying_abandons() -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(TaskPlan("a", retry=once()), lifecycle=PIPELINE)
    scene.end(run, 1, 1)
    assert scene.state(run) == "S_FAILED"
    scene.tell(s.Cancel, run=run, force=True)
    assert scene.events(run_ref(run))[-1] == "max_retries_exceeded"


# ---- late results


@pairs
def test_a_late_result_of_a_forced_attempt_is_refused_and_kept_as_evidence_once(pair: Lifecycle) -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(TaskPlan("a"), lifecycle=pair)
    token = scene.live(run, 1)
    scene.tell(s.Cancel, run=run, force=True)
    states = scene.state(run), scene.states(run)
    decisions = scene.tell(s.AttemptEnded, token=token, exit_code=0)
    assert Forget(token) in told(decisions)
    for _ in range(3):
        scene.tell(s.AttemptEnded, token=token, exit_code=0)
    (late,) = scene.facts(task_ref(run, 1), "late_result")
    assert late.data == {"token": str(token), "result": "exit 0", "exit_code": 0}
    assert (scene.state(run), scene.states(run)) == states
    assert scene.model.holds("w") == ()


@machines
def test_a_late_result_of_a_superseded_attempt_is_refused_and_kept_as_evidence_once(machine: str) -> None:
    scene = running(machine)
    old = scene.live(1, 1)
    scene.tell(s.AttemptLost, token=old)
    scene.due(task_ref(1, 1), TimerKind.RETRY)
    new = scene.live(1, 1)
    for _ in range(3):
        scene.tell(s.AttemptEnded, token=old, exit_code=0)
    assert scene.live(1, 1) == new
    assert len(scene.facts(task_ref(1, 1), "late_result")) == 1
    scene.end(1, 1)
    assert scene.state(1) == "success"


def test_a_result_that_comes_twice_counts_once() -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(TaskPlan("a"), TaskPlan("b"), lifecycle=LIFECYCLES["standard"])
    token = scene.end(run, 1, 1)
    before = scene.task(run, 1)
    scene.tell(s.AttemptEnded, token=token, exit_code=1)
    assert scene.task(run, 1) == before


def test_a_token_that_nobody_gave_out_changes_nothing() -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(TaskPlan("a"), lifecycle=EXECUTION)
    before = scene.model.snapshot()
    for token in (Token(run, 1, 7), Token(run, 9, 1), Token(99, 1, 1), Token(run, 0, 3, Purpose.CHECK)):
        for kind in (s.AttemptStarted, s.AttemptFound, s.AttemptMissing, s.AttemptLost):
            scene.tell(kind, token=token)
        scene.tell(s.AttemptEnded, token=token, exit_code=0)
        scene.tell(s.AttemptAdopted, token=token, worker="w")
    assert scene.model.snapshot() == before


def test_a_task_is_not_started_again_while_its_fenced_attempt_is_not_proven_gone() -> None:
    scene = Scene(slots=2)
    run = scene.submit(Plan("p", (TaskPlan("a"),), PIPELINE, timeout=90 * SECOND))
    old = scene.live(run, 1)
    scene.due(run_ref(run), TimerKind.TIMEOUT)
    for _ in range(2):
        scene.due(task_ref(run, 1), TimerKind.GRACE)
    assert (scene.state(run), scene.model.holds("w")) == ("S_FAILED", (old,))
    try:
        scene.tell(s.ResetTask, run=run, task=1)
        granted = True
    except Refused:
        granted = False
    assert scene.started() == [old], "at most one live attempt of a task"
    scene.tell(s.AttemptLost, token=old)
    if not granted:
        scene.tell(s.ResetTask, run=run, task=1)
    assert scene.started() == [old, Token(run, 1, 2)]
