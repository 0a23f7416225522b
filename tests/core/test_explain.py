"""Why something does not move: each reason, produced for real, and always the scheduler's own."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import signals as s
from engine.core.decide import decide
from engine.core.dispatch import lane_blocker
from engine.core.explain import Explanation, explain, task_reason
from engine.core.plan import SECOND, OnLost, Plan, Settings, TaskPlan, Tool, WhenOpen
from engine.core.ready import Blocker, Why, lane_of, run_blocker, task_blocker
from engine.core.records import Entity, Ref, TimerKind
from engine.machines import Lifecycle
from tests.core.any_plan import SETTINGS, plans
from tests.core.promises import truthful_task
from tests.core.scene import EXECUTION, PIPELINE, Scene, approval, once, run_ref, task_ref, worker_ref

Case = Callable[[], tuple[Scene, Explanation]]


# ---- one case for each reason


def over() -> tuple[Scene, Explanation]:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"))
    scene.end(1, 1)
    return scene, scene.why(1, 1)


def running() -> tuple[Scene, Explanation]:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", timeout=40 * SECOND))
    scene.pass_time(10)
    why = scene.why(1, 1)
    assert (why.blocked_by, why.due) == (worker_ref("w"), 40 * SECOND)
    assert "1.1.1 runs on w, in 30 s" in why.sentence
    return scene, why


def stopping() -> tuple[Scene, Explanation]:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"))
    scene.tell(s.Cancel, run=1)
    why = scene.why(1, 1)
    assert (why.blocked_by, why.due) == (worker_ref("w"), 60 * SECOND)
    assert "cancelled" in why.sentence
    return scene, why


def need() -> tuple[Scene, Explanation]:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"), TaskPlan("b"), TaskPlan("c", needs=(1, 2)))
    scene.end(1, 1)
    why = scene.why(1, 3)
    assert why.blocked_by == task_ref(1, 2), "the first that is not met"
    assert "needs b" in why.sentence
    return scene, why


def run() -> tuple[Scene, Explanation]:
    scene = Scene(slots=3)
    scene.run_tasks(TaskPlan("a"), TaskPlan("b"), TaskPlan("c", needs=(2,)), lifecycle=PIPELINE)
    scene.end(1, 1, 1)
    scene.end(1, 2)
    assert scene.state(1) == "S_RETRYING"
    why = scene.why(1, 3)
    assert why.blocked_by == run_ref(1)
    return scene, why


def timer() -> tuple[Scene, Explanation]:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"))
    scene.end(1, 1, 1)
    why = scene.why(1, 1)
    assert why.due == 2 * SECOND
    assert "attempt 2" in why.sentence
    return scene, why


def people() -> tuple[Scene, Explanation]:
    scene = Scene(slots=1)
    scene.submit(Plan("p", (TaskPlan("a", approval=approval()),), EXECUTION))
    why = scene.why(1, 1)
    assert why.due == 3600 * SECOND
    return scene, why


def person() -> tuple[Scene, Explanation]:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", on_lost=OnLost.ASK))
    scene.tell(s.AttemptLost, token=scene.live(1, 1))
    return scene, scene.why(1, 1)


def failure() -> tuple[Scene, Explanation]:
    scene = Scene(slots=2)
    scene.run_tasks(TaskPlan("a", retry=once()), TaskPlan("b"), TaskPlan("c"))
    scene.end(1, 1, 1)
    return scene, scene.why(1, 3)


def concurrency() -> tuple[Scene, Explanation]:
    scene = Scene(slots=9)
    scene.submit(Plan("p", (TaskPlan("a"), TaskPlan("b")), concurrency=1))
    why = scene.why(1, 2)
    assert "1 of 1" in why.sentence
    return scene, why


def breaker() -> tuple[Scene, Explanation]:
    scene = Scene(slots=1)
    scene.tell(s.TripBreaker, tool="aider")
    scene.run_tasks(TaskPlan("a", tool="aider"))
    why = scene.why(1, 1)
    assert (why.blocked_by, why.due) == (Ref(Entity.BREAKER, "aider"), 60 * SECOND)
    return scene, why


def tool_limit() -> tuple[Scene, Explanation]:
    scene = Scene(Settings(tools={"aider": Tool("aider", concurrency=1)}), slots=2)
    scene.run_tasks(TaskPlan("a", tool="aider"), TaskPlan("b", tool="aider"))
    why = scene.why(1, 2)
    assert "1 of 1 run aider" in why.sentence
    return scene, why


def worker() -> tuple[Scene, Explanation]:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", capabilities=frozenset({"gpu"})))
    why = scene.why(1, 1)
    assert "gpu" in why.sentence
    return scene, why


def slot() -> tuple[Scene, Explanation]:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"), TaskPlan("b"))
    return scene, scene.why(1, 2)


def contact() -> tuple[Scene, Explanation]:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"), lifecycle=EXECUTION)
    scene.tell(s.WorkerQuiet, worker="w")
    why = scene.why(1, 1)
    assert why.blocked_by == worker_ref("w")
    return scene, why


def turn() -> tuple[Scene, Explanation]:
    scene = Scene(slots=1)
    signal = s.Submit(id=99, plan=Plan("p", (TaskPlan("a"),)), actor="dev")
    scene.model.apply(decide(scene.model, signal, 0, 0.5))
    return scene, scene.why(1, 1)


CASES: dict[Why, Case] = {
    Why.OVER: over,
    Why.RUNNING: running,
    Why.STOPPING: stopping,
    Why.NEED: need,
    Why.RUN: run,
    Why.TIMER: timer,
    Why.PEOPLE: people,
    Why.PERSON: person,
    Why.FAILURE: failure,
    Why.CONCURRENCY: concurrency,
    Why.BREAKER: breaker,
    Why.TOOL_LIMIT: tool_limit,
    Why.WORKER: worker,
    Why.SLOT: slot,
    Why.CONTACT: contact,
    Why.TURN: turn,
}


@pytest.mark.parametrize("why", list(Why))
def test_each_reason_is_given_where_it_is_the_case(why: Why) -> None:
    scene, told = CASES[why]()
    assert told.what is why
    assert told.ref == task_ref(*next(iter(scene.model.tasks())).key) or told.ref.kind is Entity.TASK
    assert told.moves
    assert told.sentence.startswith("1/")
    assert told.since <= scene.now


@pytest.mark.parametrize("why", [why for why in Why if why not in (Why.TURN, Why.OVER)])
def test_the_run_gives_a_reason_too_and_it_is_not_its_turn(why: Why) -> None:
    scene, _ = CASES[why]()
    told = scene.why(1)
    assert told.what not in (Why.TURN, Why.OVER)
    assert told.sentence.startswith("run 1: ")


# ---- reasons of runs


@pytest.mark.parametrize(
    ("plan", "what"),
    [
        (Plan("p", (TaskPlan("a"),), approval=approval()), Why.PEOPLE),
        (Plan("p", (TaskPlan("a"),), wait=5 * SECOND), Why.TIMER),
        (Plan("p", (TaskPlan("a"),)), Why.RUNNING),
        (Plan("p", (TaskPlan("a", capabilities=frozenset({"x"})),)), Why.WORKER),
    ],
)
def test_a_run_is_explained_by_its_own_condition_or_by_its_tasks(plan: Plan, what: Why) -> None:
    scene = Scene(slots=1)
    scene.submit(plan)
    assert scene.why(1).what is what


def test_a_task_of_a_held_run_is_explained_by_its_run() -> None:
    scene = Scene(slots=1)
    scene.submit(Plan("p", (TaskPlan("a"),), approval=approval()))
    told = scene.why(1, 1)
    assert (told.what, told.blocked_by, told.due) == (Why.PEOPLE, run_ref(1), 3600 * SECOND)


def test_a_workstream_that_rests_failed_waits_for_a_person_and_says_until_when() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", retry=once()), lifecycle=PIPELINE)
    scene.end(1, 1, 1)
    told = scene.why(1)
    assert (told.what, told.due) == (Why.PERSON, 24 * 3600 * SECOND)


def test_final_checks_that_wait_for_a_slot_say_so() -> None:
    scene = Scene(slots=1)
    scene.submit(Plan("p", (TaskPlan("a"),), checks=1))
    scene.tell(s.DrainWorker, worker="w")
    scene.end(1, 1)
    assert scene.why(1).what is Why.WORKER
    scene.worker("w2", 1)
    assert scene.why(1).what is Why.RUNNING


def test_a_stranded_task_is_explained_and_so_is_its_run() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", retry=once(), when_circuit_open=WhenOpen.WAIT, max_probes=0))
    scene.end(1, 1, 1)
    assert scene.why(1, 1).what is Why.PERSON
    assert scene.why(1).what is Why.PERSON


def test_since_is_when_the_state_was_entered() -> None:
    scene = Scene(slots=1)
    scene.pass_time(7)
    scene.run_tasks(TaskPlan("a"))
    scene.pass_time(5)
    scene.end(1, 1, 1)
    scene.pass_time(1)
    assert scene.why(1, 1).since == 12 * SECOND


def test_explain_changes_nothing_and_answers_the_same_twice() -> None:
    scene, told = slot()
    before = scene.model.snapshot(), scene.model.derived()
    assert scene.why(1, 2) == told
    assert (scene.model.snapshot(), scene.model.derived()) == before


# ---- the same predicate


def wander(scene: Scene, step: int) -> None:
    """One small thing happens, chosen by a number."""
    live = sorted(attempt.token for attempt in scene.model.attempts() if attempt.worker is not None)
    armed = sorted(scene.model.timers(), key=lambda timer: (timer.due, str(timer)))
    kind, rest = step % 8, step // 8
    if kind <= 3 and live:
        scene.tell(s.AttemptEnded, token=live[rest % len(live)], exit_code=(0, 0, 1, 2)[kind])
    elif kind <= 5 and armed:
        scene.due(armed[rest % len(armed)].ref, armed[rest % len(armed)].kind)
    elif kind == 6:
        signals = (s.WorkerQuiet, s.WorkerBack, s.PauseWorker, s.WorkerExhausted)
        signal = signals[rest % len(signals)]
        control = scene.the_worker().control
        if signal is not s.PauseWorker or control == "RUNNING":
            scene.tell(signal, worker="w")
    elif live:
        scene.tell(s.AttemptLost, token=live[rest % len(live)])


@given(
    drawn=st.lists(plans(), min_size=1, max_size=3),
    steps=st.lists(st.integers(0, 63), max_size=25),
    slots=st.integers(1, 4),
)
def test_a_task_is_ready_exactly_when_only_its_run_its_lane_or_its_turn_keeps_it(
    drawn: list[Plan], steps: list[int], slots: int
) -> None:
    scene = Scene(SETTINGS)
    scene.worker("w", slots, "gpu")
    for plan in drawn:
        scene.submit(plan, env="prod")
    for step in [-1, *steps]:
        if step >= 0:
            wander(scene, step)
        for task in list(scene.model.tasks()):
            run = scene.model.run(task.run)
            reason = task_reason(scene.model, task)
            told = explain(scene.model, task.ref, scene.now)
            shared = (
                run_blocker(scene.model, run),
                lane_blocker(scene.model, lane_of(run, task)),
                Blocker(Why.TURN),
            )
            ready = task.key in scene.model.queue.place
            own = task_blocker(scene.model, task)
            assert ready == (own is None and not run.terminal)
            if run.terminal:
                assert reason.why is Why.OVER
            elif own is not None and task.live is None and (own.why is Why.RUN or run.ending is not None):
                assert reason in (shared[0], own), "its run is not admitted yet, or ends"
            else:
                assert ready == (reason in shared), (ready, reason)
            assert told.what is reason.why
            if not task.terminal:
                truthful_task(scene.model, run, task, told)


def test_no_reason_is_given_that_the_schedulers_own_predicate_does_not_give() -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(TaskPlan("a"), TaskPlan("b"), lifecycle=Lifecycle("supervision.job", "execution"))
    reason = task_reason(scene.model, scene.task(run, 2))
    assert reason == lane_blocker(scene.model, lane_of(scene.run(run), scene.task(run, 2)))
    scene.due(task_ref(run, 1), TimerKind.DEADLINE)
    assert scene.why(run, 1).what is Why.STOPPING
