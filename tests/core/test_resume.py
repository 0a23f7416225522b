"""Taking up a run again: always a new run, linked to the old one, that carries over what is done."""

from dataclasses import replace

import pytest

from engine.core import signals as s
from engine.core.plan import OnFailure, Plan, TaskPlan
from engine.core.records import Origin, Pardon, Token
from engine.machines import RUN_MACHINES, TASK_MACHINES, Lifecycle, Phase
from tests.core.scene import EXECUTION, ORCHESTRATION, PIPELINE, Scene, approval, once, run_ref, task_ref

PAIRS = [Lifecycle(run, task) for run in RUN_MACHINES for task in TASK_MACHINES]
pairs = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.run}+{pair.task}")


def diamond(pair: Lifecycle = EXECUTION) -> Plan:
    """a, then b and c, then d; none is retried."""
    needs = {"a": (), "b": (1,), "c": (1,), "d": (2, 3)}
    return Plan("p", tuple(TaskPlan(name, need, retry=once()) for name, need in needs.items()), pair)


def stopped(pair: Lifecycle = EXECUTION) -> Scene:
    """Run 1 got through a and b, failed in c, and is over."""
    scene = Scene(slots=2)
    scene.submit(diamond(pair), env="prod")
    scene.end(1, 1)
    scene.end(1, 2)
    scene.end(1, 3, 1)
    if not scene.run(1).terminal:
        scene.tell(s.Cancel, run=1)
    assert scene.run(1).terminal
    return scene


def finished(pair: Lifecycle = EXECUTION) -> Scene:
    scene = Scene(slots=2)
    scene.submit(diamond(pair), env="prod")
    for number in (1, 2, 3, 4):
        scene.end(1, number)
    assert scene.run(1).phase is Phase.SUCCEEDED
    return scene


def run_of_new(scene: Scene, run: int) -> list[int]:
    return [token.task for token in scene.started() if token.run == run]


# ---- resume


@pairs
def test_resume_carries_over_what_succeeded_and_runs_the_rest(pair: Lifecycle) -> None:
    scene = stopped(pair)
    scene.tell(s.Resume, run=1, actor="ann")
    assert run_of_new(scene, 2) == [3]
    assert [task.pardon for task in scene.model.tasks_of(scene.run(2))] == [
        Pardon.CARRIED,
        Pardon.CARRIED,
        None,
        None,
    ]
    scene.end(2, 3)
    scene.end(2, 4)
    assert scene.run(2).phase is Phase.SUCCEEDED


@pairs
def test_a_carried_task_has_a_fact_or_an_arrow_that_says_so_and_started_nothing(pair: Lifecycle) -> None:
    scene = stopped(pair)
    scene.tell(s.Resume, run=1)
    task = scene.task(2, 1)
    assert (task.attempt, task.started) == (0, None)
    assert scene.facts(task_ref(2, 1), "carried_over"), "the carried_over fact, where a skip arrow exists too"
    skips = {"execution": ["SKIP"], "toolchain.task": ["dependency_failed"]}
    assert scene.events(task_ref(2, 1)) == skips.get(pair.task, [])


def test_the_new_run_and_the_old_one_know_each_other() -> None:
    scene = stopped()
    scene.tell(s.Resume, run=1)
    assert scene.run(2).origin == Origin(1, "resume")
    (fact,) = scene.facts(run_ref(1), "resumed")
    assert fact.data == {"by_run": 2}
    assert scene.state(1) == "failed", "the old run is never reopened"


def test_the_new_run_has_the_plan_and_the_parameters_of_the_old_one() -> None:
    scene = stopped()
    scene.tell(s.Resume, run=1, actor="ann")
    assert scene.run(2).plan is scene.run(1).plan
    assert scene.run(2).params == {"env": "prod"}
    assert scene.run(2).requester == "ann"


def test_whoever_resumes_is_the_requester_and_may_not_approve_the_own_run() -> None:
    scene = Scene(slots=1)
    scene.submit(replace(diamond(), approval=approval()))
    scene.tell(s.Reject, target=run_ref(1), actor="ann", reason="no")
    scene.tell(s.Resume, run=1, actor="ann")
    assert scene.state(2) == "held"
    assert "may not decide" in scene.refused(s.Approve, target=run_ref(2), actor="ann")
    scene.tell(s.Approve, target=run_ref(2), actor="bob")
    assert scene.state(2) == "running"


def test_a_resumed_run_can_be_resumed_again() -> None:
    scene = stopped()
    scene.tell(s.Resume, run=1)
    scene.end(2, 3, 1)
    assert scene.state(2) == "failed"
    scene.tell(s.Resume, run=2)
    assert run_of_new(scene, 3) == [3]
    assert scene.task(3, 1).pardon is Pardon.CARRIED


def test_without_a_checkpoint_resume_runs_everything() -> None:
    scene = Scene(slots=2)
    scene.submit(replace(diamond(), checkpoint=False))
    scene.end(1, 1)
    scene.end(1, 2, 1)
    scene.end(1, 3)
    scene.tell(s.Resume, run=1)
    assert run_of_new(scene, 2) == [1]


def test_a_cancelled_run_can_be_resumed() -> None:
    scene = Scene(slots=2)
    scene.submit(diamond())
    scene.end(1, 1)
    scene.tell(s.Cancel, run=1, force=True)
    scene.worker("w2", 2)
    scene.tell(s.Resume, run=1)
    assert run_of_new(scene, 2) == [2, 3]


def test_a_waived_task_did_not_succeed_so_a_resumed_run_tries_it_again() -> None:
    scene = Scene(slots=2)
    plan = Plan("p", (TaskPlan("a", retry=once()), TaskPlan("b", (1,), retry=once())), PIPELINE)
    scene.submit(plan)
    scene.end(1, 1, 1)
    scene.tell(s.WaiveTask, run=1, task=1)
    scene.end(1, 2, 1)
    scene.tell(s.AbandonRun, run=1)
    scene.tell(s.Resume, run=1)
    assert scene.task(2, 1).pardon is None
    assert run_of_new(scene, 2) == [1]


def test_a_run_that_succeeded_or_goes_on_is_not_resumed() -> None:
    scene = finished()
    assert "rerun" in scene.refused(s.Resume, run=1)
    scene = Scene(slots=1)
    scene.submit(diamond())
    assert "not over" in scene.refused(s.Resume, run=1)
    assert "no such run" in scene.refused(s.Resume, run=9)


def test_nothing_left_to_do_ends_the_new_run_at_once_with_the_reason() -> None:
    scene = Scene(slots=2)
    plan = Plan("p", (TaskPlan("a", retry=once()),), ORCHESTRATION, checks=1)
    scene.submit(plan)
    scene.end(1, 1)
    scene.tell(s.AttemptEnded, token=scene.live(1), exit_code=1)
    assert scene.state(1) == "failed"
    scene.tell(s.Resume, run=1)
    assert scene.events(run_ref(2)) == ["all_tasks_created", "first_task_started", "all_tasks_completed"]
    assert scene.transitions(run_ref(2))[1].reason
    scene.tell(s.AttemptEnded, token=scene.live(2), exit_code=0)
    assert scene.state(2) == "completed"


# ---- rerun


@pairs
def test_rerun_of_everything_carries_nothing_over(pair: Lifecycle) -> None:
    scene = finished(pair)
    scene.tell(s.Rerun, run=1)
    assert run_of_new(scene, 2) == [1]
    assert scene.run(2).origin == Origin(1, "rerun")
    for number in (1, 2, 3, 4):
        scene.end(2, number)
    assert scene.run(2).phase is Phase.SUCCEEDED


@pairs
def test_rerun_of_a_task_with_its_dependents(pair: Lifecycle) -> None:
    scene = finished(pair)
    scene.tell(s.Rerun, run=1, task=2)
    assert run_of_new(scene, 2) == [2]
    scene.end(2, 2)
    assert run_of_new(scene, 2) == [2, 4]
    scene.end(2, 4)
    assert scene.run(2).phase is Phase.SUCCEEDED


@pairs
def test_rerun_of_a_task_without_its_dependents(pair: Lifecycle) -> None:
    scene = finished(pair)
    scene.tell(s.Rerun, run=1, task=1, dependents=False)
    assert run_of_new(scene, 2) == [1]
    scene.end(2, 1)
    assert run_of_new(scene, 2) == [1]
    assert scene.run(2).phase is Phase.SUCCEEDED


def test_rerun_of_a_failed_task_leaves_out_what_never_succeeded_beside_it() -> None:
    scene = Scene(slots=2)
    scene.submit(replace(diamond(), on_failure=OnFailure.CONTINUE))
    scene.end(1, 1)
    scene.end(1, 2, 1)
    scene.end(1, 3, 1)
    assert scene.state(1) == "failed"
    scene.tell(s.Rerun, run=1, task=2)
    assert run_of_new(scene, 2) == [2]
    scene.end(2, 2)
    pardons = [task.pardon for task in scene.model.tasks_of(scene.run(2))]
    assert pardons == [Pardon.CARRIED, None, Pardon.LEFT_OUT, Pardon.LEFT_OUT]
    assert scene.state(2) == "success"


def test_rerun_of_a_task_whose_need_is_not_done_is_refused() -> None:
    scene = stopped()
    answer = scene.refused(s.Rerun, run=1, task=4)
    assert "its need c is not done" in answer
    assert "resume 1" in answer


@pytest.mark.parametrize("task", [0, -1, 5])
def test_rerun_of_a_task_that_does_not_exist_is_refused(task: int) -> None:
    scene = finished()
    assert "no such task" in scene.refused(s.Rerun, run=1, task=task)


def test_rerun_of_a_run_that_goes_on_is_refused() -> None:
    scene = Scene(slots=1)
    scene.submit(diamond())
    assert "not over" in scene.refused(s.Rerun, run=1)
    assert "no such run" in scene.refused(s.Rerun, run=7)


def test_a_new_run_starts_with_fresh_attempts_and_tokens() -> None:
    scene = stopped()
    scene.tell(s.Rerun, run=1)
    assert scene.live(2, 1) == Token(2, 1, 1)
    assert scene.task(2, 3).retries == 0
