"""A task that uses another workflow: its attempt is a run of its own."""

import pytest

from engine.core import signals as s
from engine.core.decision import Transition
from engine.core.plan import SECOND, Plan, Retry, Settings, TaskPlan
from engine.core.ready import Why
from engine.core.records import Entity, Ref, TimerKind, Token
from engine.core.refusals import refusals
from engine.machines import RUN_MACHINES, TASK_MACHINES, Lifecycle, Phase
from tests.core.scene import EXECUTION, PIPELINE, Scene, approval, once, run_ref, task_ref

PAIRS = [Lifecycle(run, task) for run in RUN_MACHINES for task in TASK_MACHINES]
pairs = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.run}+{pair.task}")


def inner(pair: Lifecycle = EXECUTION, **fields: object) -> Plan:
    return Plan("inner", (TaskPlan("x", retry=once()),), pair, **fields)  # type: ignore[arg-type]


def nested(levels: int, pair: Lifecycle = EXECUTION) -> Plan:
    """A workflow with so many levels of sub-runs below it."""
    plan = Plan("level", (TaskPlan("work", retry=once()),), pair)
    for _ in range(levels):
        plan = Plan("level", (TaskPlan("sub", uses=plan, retry=once()),), pair)
    return plan


def stage(child: Plan | None = None, pair: Lifecycle = EXECUTION, **fields: object) -> Scene:
    """Run 1 uses `child` in its first task, which runs as run 2; its second task needs that."""
    scene = Scene(slots=3)
    sub = TaskPlan("sub", uses=child or inner(), **fields)  # type: ignore[arg-type]
    scene.submit(Plan("outer", (sub, TaskPlan("after", needs=(1,))), pair), env="prod")
    assert scene.run(2).parent == (1, 1)
    return scene


# ---- going down


@pairs
def test_a_sub_run_starts_with_its_task_and_its_success_is_the_tasks(pair: Lifecycle) -> None:
    scene = stage(inner(pair), pair)
    assert scene.task(1, 1).phase is Phase.ACTIVE
    assert scene.run(2).depth == 1
    assert scene.started() == [Token(2, 1, 1)], "only the innermost work goes to a worker"
    scene.end(2, 1)
    assert scene.run(2).phase is Phase.SUCCEEDED
    assert scene.task(1, 1).phase is Phase.SUCCEEDED
    scene.end(1, 2)
    assert scene.run(1).phase is Phase.SUCCEEDED


def test_requester_and_parameters_are_handed_down() -> None:
    scene = stage()
    assert (scene.run(2).requester, scene.run(2).params) == ("dev", {"env": "prod"})


def test_a_sub_run_takes_no_slot_and_no_worker() -> None:
    scene = Scene(slots=1)
    scene.submit(nested(3))
    assert scene.started() == [Token(4, 1, 1)]
    assert scene.model.holds("w") == (Token(4, 1, 1),)


def test_a_sub_run_is_explained_by_what_it_waits_for() -> None:
    scene = stage()
    why = scene.why(1, 1)
    assert (why.what, why.blocked_by) == (Why.RUNNING, Ref(Entity.RUN, 2))


def test_checks_of_a_task_follow_its_sub_run() -> None:
    scene = stage(checks=1)
    scene.end(2, 1)
    assert scene.live(1, 1).purpose == "check"
    scene.end(1, 1)
    assert scene.state(1, 1) == "success"


# ---- depth


def test_five_levels_below_a_run_are_allowed() -> None:
    scene = Scene(slots=1)
    scene.submit(nested(5))
    assert [run.depth for run in scene.model.runs()] == [0, 1, 2, 3, 4, 5]
    scene.end(6, 1)
    assert {run.state for run in scene.model.runs()} == {"success"}


def test_a_sixth_level_is_refused_before_anything_exists() -> None:
    scene = Scene(slots=1)
    answer = scene.refused(s.Submit, plan=nested(6), actor="dev")
    assert "5 deep" in answer
    assert list(scene.model.runs()) == []


def test_what_a_sub_run_cannot_have_is_refused_with_the_outer_one() -> None:
    bad = Plan("bad", (TaskPlan("x", approval=approval()),))
    assert any("bad/x" in line for line in refusals(Plan("outer", (TaskPlan("sub", uses=bad),))))


# ---- failing


@pairs
def test_a_sub_run_that_fails_fails_its_task(pair: Lifecycle) -> None:
    scene = stage(inner(pair), pair, retry=once())
    scene.end(2, 1, 1)
    assert scene.run(2).terminal, "a workstream resting in S_FAILED is abandoned with its parent"
    assert scene.task(1, 1).phase in (Phase.FAILED, Phase.PARKED)
    assert scene.task(1, 2).live is None


def test_a_sub_run_resting_in_s_failed_is_abandoned_in_the_same_transaction() -> None:
    scene = stage(inner(PIPELINE), retry=once())
    decisions = scene.tell(s.AttemptEnded, token=scene.live(2, 1), exit_code=1)
    assert scene.events(run_ref(2))[-2:] == ["step_fails", "max_retries_exceeded"]
    moved = {change.ref for change in decisions[0].changes if isinstance(change, Transition)}
    assert {run_ref(1), run_ref(2), task_ref(1, 1), task_ref(2, 1)} <= moved


@pairs
def test_a_failed_sub_run_is_tried_again_as_another_run(pair: Lifecycle) -> None:
    scene = stage(inner(pair), pair, retry=Retry(max_attempts=2))
    scene.end(2, 1, 1)
    scene.due(task_ref(1, 1), TimerKind.RETRY)
    assert scene.run(3).parent == (1, 1)
    assert scene.task(1, 1).attempt == 2
    assert scene.task(1, 1).retries == 1
    scene.end(3, 1)
    assert scene.task(1, 1).phase is Phase.SUCCEEDED


def test_a_sub_run_cancelled_by_hand_is_not_tried_again() -> None:
    scene = stage(retry=Retry(max_attempts=5))
    scene.tell(s.Cancel, run=2)
    scene.end(2, 1, -15)
    assert scene.state(2) == "cancelled"
    assert (scene.state(1), scene.state(1, 1)) == ("failed", "failed")


def test_a_rejected_sub_run_fails_its_task() -> None:
    scene = stage(inner(approval=approval()), retry=once())
    assert scene.state(2) == "held"
    scene.tell(s.Reject, target=run_ref(2), actor="ann", reason="no")
    assert (scene.state(2), scene.state(1, 1), scene.state(1)) == ("cancelled", "failed", "failed")


# ---- cancelling


@pairs
@pytest.mark.parametrize("force", [False, True])
def test_cancelling_the_parent_cancels_the_sub_runs_below(pair: Lifecycle, force: bool) -> None:
    scene = Scene(slots=1)
    scene.submit(nested(3, pair))
    token = scene.live(4, 1)
    scene.tell(s.Cancel, run=1, force=force)
    assert scene.halts()[-1].token == token
    if not force:
        assert not any(run.terminal for run in scene.model.runs())
        scene.tell(s.AttemptEnded, token=token, exit_code=-15)
    assert {run.phase for run in scene.model.runs()} == {Phase.CANCELLED}
    assert list(scene.model.timers()) == []


def test_cancelling_the_parent_ends_a_sub_run_that_is_held() -> None:
    scene = stage(inner(approval=approval(), wait=9 * SECOND))
    scene.tell(s.Cancel, run=1)
    assert (scene.state(2), scene.state(1, 1), scene.state(1)) == ("cancelled",) * 3
    assert list(scene.model.timers()) == []


def test_cancelling_the_parent_ends_a_sub_run_that_has_not_started() -> None:
    scene = Scene()
    scene.submit(nested(2))
    scene.tell(s.Cancel, run=1)
    assert {run.state for run in scene.model.runs()} == {"cancelled"}


def test_force_after_a_graceful_cancel_reaches_down_as_well() -> None:
    scene = Scene(slots=1)
    scene.submit(nested(2))
    token = scene.live(3, 1)
    scene.tell(s.Cancel, run=1)
    scene.tell(s.Cancel, run=1, force=True)
    assert {run.state for run in scene.model.runs()} == {"cancelled"}
    assert [halt.grace for halt in scene.halts()] == [30 * SECOND, 0]
    scene.tell(s.AttemptEnded, token=token, exit_code=0)
    assert len(scene.facts(task_ref(3, 1), "late_result")) == 1
    assert scene.model.holds("w") == ()


def test_a_critical_failure_beside_it_cancels_a_sub_run_where_the_file_says_cancel() -> None:
    scene = Scene(slots=2)
    tasks = (TaskPlan("sub", uses=inner()), TaskPlan("b", retry=once()))
    scene.submit(Plan("outer", tasks, Lifecycle("orchestration.workstream", "execution")))
    scene.end(1, 2, 1)
    assert scene.state(2) == "cancelling"
    scene.end(2, 1, -15)
    assert (scene.state(2), scene.state(1, 1), scene.state(1)) == ("cancelled", "cancelled", "failed")


# ---- time


def test_a_task_that_times_out_stops_its_sub_run_and_may_be_tried_again() -> None:
    scene = stage(timeout=50 * SECOND, retry=Retry(max_attempts=2))
    scene.due(task_ref(1, 1), TimerKind.DEADLINE)
    assert scene.state(2) == "cancelling"
    scene.end(2, 1, -15)
    assert scene.task(1, 1).retries == 1
    scene.due(task_ref(1, 1), TimerKind.RETRY)
    scene.end(3, 1)
    assert scene.state(1, 1) == "success"


def test_the_operators_task_timeout_is_for_processes_and_not_for_sub_runs() -> None:
    scene = Scene(Settings(task_timeout=5 * SECOND), slots=1)
    scene.submit(nested(1))
    assert scene.timer(task_ref(1, 1), TimerKind.DEADLINE) is None
    assert scene.timer(task_ref(2, 1), TimerKind.DEADLINE) == 5 * SECOND


def test_the_timeout_of_a_sub_run_fails_its_task() -> None:
    scene = stage(inner(timeout=50 * SECOND), retry=once())
    scene.due(run_ref(2), TimerKind.TIMEOUT)
    scene.end(2, 1, -15)
    assert (scene.state(2), scene.state(1, 1), scene.state(1)) == ("failed", "failed", "failed")


# ---- a restart, and what may not be


def test_a_restart_asks_for_the_innermost_work_and_doubts_no_sub_run() -> None:
    scene = stage()
    scene.restart()
    assert (scene.state(1), scene.state(2)) == ("running", "recovering")
    assert scene.state(1, 1) == "running", "a sub-run is in the store: nobody has to ask for it"
    scene.tell(s.AttemptFound, token=scene.live(2, 1))
    scene.end(2, 1)
    assert scene.state(1, 1) == "success"


def test_words_about_the_token_of_a_sub_run_change_nothing() -> None:
    scene = stage()
    token = scene.live(1, 1)
    before = scene.model.snapshot()
    for kind in (s.AttemptStarted, s.AttemptFound, s.AttemptMissing):
        scene.tell(kind, token=token)
    after = scene.model.snapshot()
    assert (after.runs, after.tasks) == (before.runs, before.tasks)
