"""What one word costs the core, counted in steps of the interpreter: never more because there is more.

Steps are exact and the same on every machine, so nothing here looks at a clock.
"""

import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from engine.core import signals as s
from engine.core.plan import OnFailure, Plan, TaskPlan, Test
from engine.core.records import TimerKind
from engine.core.refusals import refusals
from engine.machines import Lifecycle
from tests.core.scene import ORCHESTRATION, PIPELINE, Scene, once, task_ref

SMALL, LARGE = 100, 5_000
SLACK = 0.02
"""Steps may come and go with the shape of what is decided, never with its size."""
GLANCE = 20
"""Steps to pass over something without looking into it."""
DOUBLE = 2.2
"""Twice as much may cost twice as many steps, and a little for the beginning."""

MIRRORED_QUEUE = Lifecycle("pipeline.workstream", "orchestration.task")

Action = Callable[[], object]


def steps_of(action: Action) -> int:
    """How many instructions the interpreter executes for an action."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def memory_of(action: Action) -> int:
    """How many bytes an action needs at its height, beyond what was there."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        action()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def many(number: int, **fields: Any) -> tuple[TaskPlan, ...]:
    return tuple(TaskPlan(f"t{n}", **fields) for n in range(1, number + 1))


def exit_of(scene: Scene, run: int, task: int, code: int = 0) -> Action:
    """The word that a task's execution has ended; all that follows from it is decided at once."""
    token = scene.live(run, task)
    return lambda: scene.tell(s.AttemptEnded, token=token, exit_code=code, fingerprint=str(token))


# ---- one exit costs the same among few and among many


def fan_in(size: int) -> Action:
    """All but the last few needs of a join are met: they were passed over."""
    scene = Scene(slots=1)
    passed = many(size, when=(Test("params.x", "nobody says so"),))
    last = tuple(TaskPlan(f"last{n}") for n in range(3))
    join = TaskPlan("join", needs=tuple(range(1, size + 4)))
    run = scene.run_tasks(*passed, *last, join)
    return exit_of(scene, run, size + 1)


def dead_workers(size: int) -> Action:
    scene = Scene(slots=2)
    for number in range(size):
        scene.worker(f"dead{number}")
        scene.tell(s.WorkerGone, worker=f"dead{number}")
    return exit_of(scene, scene.run_tasks(*many(10)), 1)


def busy_workers(size: int) -> Action:
    scene = Scene()
    run = scene.run_tasks(*many(size + 10))
    for number in range(size):
        scene.worker(f"w{number}")
    return exit_of(scene, run, 1)


def busy_slots(size: int) -> Action:
    scene = Scene(slots=size)
    return exit_of(scene, scene.run_tasks(*many(size + 10)), 1)


def busy_slots_failing(size: int) -> Action:
    scene = Scene(slots=size)
    return exit_of(scene, scene.run_tasks(*many(size + 10)), 1, 1)


def tolerated_failures(size: int) -> Action:
    scene = Scene(slots=3)
    run = scene.run_tasks(*many(size, critical=False), lifecycle=PIPELINE)
    scene.end(run, 1, 127)
    return exit_of(scene, run, 2, 127)


def draining_by_cancel(lifecycle: Lifecycle) -> Callable[[int], Action]:
    def prepare(size: int) -> Action:
        scene = Scene(slots=5)
        run = scene.submit(Plan("p", many(size), lifecycle, on_failure=OnFailure.CANCEL))
        scene.end(run, 1, 127)
        return exit_of(scene, run, 2, -15)

    return prepare


def retries_in_line(size: int) -> Action:
    """All but a few have failed and stand in line again, while their worker takes nothing new."""
    scene = Scene(slots=size)
    run = scene.run_tasks(*many(size), lifecycle=MIRRORED_QUEUE)
    scene.tell(s.PauseWorker, worker="w")
    for number in range(4, size + 1):
        scene.end(run, number, 1)
    for number in range(4, size + 1):
        scene.due(task_ref(run, number), TimerKind.RETRY)
    return exit_of(scene, run, 1, 1)


def ready_runs(size: int) -> Action:
    scene = Scene(slots=1)
    runs = [scene.run_tasks(*many(5)) for _ in range(size)]
    return exit_of(scene, runs[0], 1)


SAME: dict[str, Callable[[int], Action]] = {
    "a join of so many needs": fan_in,
    "so many workers that are gone": dead_workers,
    "so many workers without a free slot": busy_workers,
    "so many slots of one worker": busy_slots,
    "so many slots, and it failed": busy_slots_failing,
    "so many tasks beside a tolerated failure under 000": tolerated_failures,
    "a run of so many that is cancelled by a failure under 000": draining_by_cancel(PIPELINE),
    "a run of so many that is cancelled by a failure under 001": draining_by_cancel(ORCHESTRATION),
    "so many retries in line below a mirroring run": retries_in_line,
    "so many ready runs": ready_runs,
}


@pytest.mark.parametrize("name", SAME)
def test_one_exit_costs_the_same_among_100_and_among_5_000(name: str) -> None:
    small, large = (steps_of(SAME[name](size)) for size in (SMALL, LARGE))
    assert abs(large - small) <= SLACK * small, (small, large)


@pytest.mark.parametrize("code", [0, 1])
def test_an_exit_copies_nothing_that_grows_with_the_slots_of_its_worker(code: int) -> None:
    small, large = (
        memory_of(busy_slots_failing(size) if code else busy_slots(size)) for size in (SMALL, LARGE)
    )
    assert large <= small + 8 * LARGE // 2, (small, large)


# ---- twice as much costs twice as many steps


def all_exits(size: int) -> Action:
    """Every slot of one worker is taken, and all that runs fails."""
    scene = Scene(slots=size)
    run = scene.run_tasks(*many(size))

    def fail_all() -> None:
        for number in range(1, size + 1):
            exit_of(scene, run, number, 1)()

    return fail_all


def lanes_for_a_slot(size: int) -> Action:
    return lanes(size, 20)


def rerun_of_a_chain(size: int) -> Action:
    """Every link also needs a task that is not done."""
    scene = Scene(slots=2)
    links = (TaskPlan(f"t{n}", needs=(n + 2 if n else 1, 2)) for n in range(size))
    run = scene.run_tasks(TaskPlan("root"), TaskPlan("bad", retry=once()), *links)
    scene.end(run, 1)
    scene.end(run, 2, 1)
    return lambda: scene.tell(s.Rerun, run=run, task=1, actor="dev")


class Name(str):
    """A name whose comparisons are steps that can be counted."""

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True

    def __hash__(self) -> int:
        return str.__hash__(self)


def a_name_twice(size: int) -> Action:
    plan = Plan("p", tuple(TaskPlan(Name(f"t{n}")) for n in (*range(size), 0)))
    return lambda: refusals(plan)


DOUBLED: dict[str, Callable[[int], Action]] = {
    "exits of one worker": all_exits,
    "lanes for one free slot": lanes_for_a_slot,
    "links behind a task that is run again": rerun_of_a_chain,
    "names of which one comes twice": a_name_twice,
}


@pytest.mark.parametrize("name", DOUBLED)
def test_twice_as_many_cost_about_twice_as_much(name: str) -> None:
    small, large = (steps_of(DOUBLED[name](size)) for size in (200, 400))
    assert large <= DOUBLE * small, (small, large, large / small)


def lanes(size: int, workers: int, *, checks: int = 0) -> Action:
    """One task ends while so many others wait, each for a tool of its own, and every worker is busy.

    When it has checks, these keep its slot and none is free.
    """
    scene = Scene()
    first = scene.run_tasks(*many(workers, checks=checks))
    for number in range(workers):
        scene.worker(f"w{number}")
    scene.run_tasks(*(TaskPlan(f"t{n}", tool=f"tool{n}") for n in range(size)))
    return exit_of(scene, first, 1)


def test_workers_without_a_free_slot_are_not_looked_at_for_any_lane() -> None:
    few, crowd = (steps_of(lanes(SMALL, workers)) for workers in (2, 200))
    assert abs(crowd - few) <= SLACK * few, (few, crowd)


def test_nothing_of_a_lane_is_looked_at_without_a_free_slot() -> None:
    few, crowd = (steps_of(lanes(size, 2, checks=1)) for size in (SMALL, LARGE))
    assert (crowd - few) / (LARGE - SMALL) < GLANCE, (few, crowd)


def layers(depth: int, wide: int = 16) -> Plan:
    """A workflow that uses one other in many places, which does the same."""
    plan = Plan("innermost", (TaskPlan("x", max_probes=-1),))
    for level in range(depth):
        plan = Plan(f"level {level}", tuple(TaskPlan(f"t{n}", uses=plan) for n in range(wide)))
    return plan


def test_a_workflow_that_is_used_in_many_places_is_looked_at_once() -> None:
    two, three, four = (steps_of(partial(refusals, layers(depth))) for depth in (2, 3, 4))
    assert four - three <= (three - two) * 1.05, (two, three, four)


def test_what_is_wrong_with_a_workflow_that_is_used_in_many_places_is_told_once() -> None:
    assert len(refusals(layers(4))) == 1
