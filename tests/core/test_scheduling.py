"""What starts, where, and in which order: needs, capabilities, slots, limits, priority, fairness."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.core import signals as s
from engine.core.book import Table
from engine.core.decide import decide
from engine.core.decision import Start
from engine.core.dispatch import dispatch
from engine.core.plan import SECOND, Plan, Settings, TaskPlan, Tool
from engine.core.records import TimerKind, Token
from tests.core.scene import Scene, once, task_ref, told

SLACK = 3
"""Reads that may come and go with the shape of a plan, never with its size."""


def many(number: int, **fields: Any) -> tuple[TaskPlan, ...]:
    return tuple(TaskPlan(f"t{n}", **fields) for n in range(1, number + 1))


# ---- needs


def test_a_task_without_needs_starts_with_its_run() -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(TaskPlan("a"))
    assert scene.started() == [Token(run, 1, 1)]


def test_a_task_starts_when_the_last_of_its_needs_is_met() -> None:
    scene = Scene(slots=3)
    run = scene.run_tasks(TaskPlan("a"), TaskPlan("b"), TaskPlan("c", needs=(1, 2)))
    assert scene.started() == [Token(run, 1, 1), Token(run, 2, 1)]
    scene.end(run, 2)
    assert scene.task(run, 3).live is None
    scene.end(run, 1)
    assert scene.started()[-1] == Token(run, 3, 1)


def test_a_need_listed_twice_counts_once() -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(TaskPlan("a"), TaskPlan("b", needs=(1, 1)))
    scene.end(run, 1)
    assert scene.started()[-1] == Token(run, 2, 1)


def test_a_long_chain_runs_in_its_order() -> None:
    scene = Scene(slots=4)
    run = scene.run_tasks(*(TaskPlan(f"t{n}", needs=(n - 1,) if n > 1 else ()) for n in range(1, 30)))
    for number in range(1, 30):
        assert scene.started()[-1] == Token(run, number, 1)
        scene.end(run, number)
    assert scene.run(run).terminal


# ---- workers, capabilities and slots


def test_nothing_starts_without_a_worker_and_everything_ready_when_one_registers() -> None:
    scene = Scene()
    run = scene.run_tasks(*many(3))
    assert scene.started() == []
    scene.worker("w", 2)
    assert scene.started() == [Token(run, 1, 1), Token(run, 2, 1)]


def test_a_task_goes_only_to_a_worker_with_all_its_capabilities() -> None:
    scene = Scene()
    scene.worker("plain", 4)
    scene.worker("half", 4, "gpu")
    run = scene.run_tasks(TaskPlan("a", capabilities=frozenset({"gpu", "linux"})))
    assert scene.started() == []
    scene.worker("full", 1, "gpu", "linux", "more")
    assert scene.attempt(run, 1).worker == "full"


def test_a_task_without_capabilities_may_go_to_a_worker_that_has_some() -> None:
    scene = Scene()
    scene.worker("gpu", 1, "gpu")
    run = scene.run_tasks(TaskPlan("a"))
    assert scene.attempt(run, 1).worker == "gpu"


def test_a_worker_never_gets_more_than_its_slots() -> None:
    scene = Scene(slots=3)
    run = scene.run_tasks(*many(10))
    assert len(scene.model.holds("w")) == 3
    scene.end(run, 2)
    assert len(scene.model.holds("w")) == 3
    assert scene.started()[-1] == Token(run, 4, 1)


def test_the_worker_with_the_most_free_slots_is_taken() -> None:
    scene = Scene()
    scene.worker("small", 1)
    scene.worker("big", 3)
    run = scene.run_tasks(*many(4))
    assert sorted(scene.attempt(run, n).worker or "" for n in (1, 2, 3, 4)) == ["big", "big", "big", "small"]
    assert scene.attempt(run, 1).worker == "big"


def test_a_task_that_no_worker_can_do_does_not_hold_up_the_others() -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(TaskPlan("odd", capabilities=frozenset({"tpu"})), TaskPlan("plain"))
    assert scene.started() == [Token(run, 2, 1)]


# ---- limits


def test_a_run_stays_within_its_own_concurrency() -> None:
    scene = Scene(slots=10)
    run = scene.submit(Plan("p", many(6), concurrency=2))
    assert len(scene.started()) == 2
    scene.end(run, 1)
    assert scene.started() == [Token(run, n, 1) for n in (1, 2, 3)]


def test_the_concurrency_of_one_run_leaves_slots_to_another() -> None:
    scene = Scene(slots=3)
    first = scene.submit(Plan("p", many(6), concurrency=1))
    second = scene.submit(Plan("q", many(6)))
    assert [token.run for token in scene.started()] == [first, second, second]


def test_a_tool_stays_within_its_concurrency_over_all_runs() -> None:
    scene = Scene(Settings(tools={"aider": Tool("aider", concurrency=2)}), slots=10)
    first = scene.run_tasks(*many(2, tool="aider"))
    second = scene.run_tasks(TaskPlan("a", tool="aider"), TaskPlan("b"))
    assert scene.model.tool_live("aider") == 2
    assert [token.key for token in scene.started()] == [(first, 1), (first, 2), (second, 2)]
    scene.end(first, 1)
    assert scene.started()[-1].key == (second, 1)


def test_checks_do_not_count_against_the_limit_of_the_tool() -> None:
    scene = Scene(Settings(tools={"aider": Tool("aider", concurrency=1)}), slots=3)
    run = scene.run_tasks(*many(2, tool="aider", checks=1))
    scene.end(run, 1)
    assert scene.live(run, 1).purpose == "check"
    assert scene.live(run, 2) == Token(run, 2, 1)


# ---- order


def test_the_higher_priority_goes_first() -> None:
    scene = Scene()
    low = scene.submit(Plan("low", many(2), priority=-1))
    usual = scene.submit(Plan("usual", many(2)))
    high = scene.submit(Plan("high", many(2), priority=7))
    scene.worker("w", 5)
    assert [token.run for token in scene.started()] == [high, high, usual, usual, low]


def test_priority_goes_before_the_order_of_submission_for_a_single_slot() -> None:
    scene = Scene(slots=1)
    first = scene.submit(Plan("first", many(3)))
    urgent = scene.submit(Plan("urgent", many(1), priority=1))
    scene.end(first, 1)
    assert scene.started()[-1] == Token(urgent, 1, 1)


def test_a_retry_goes_before_fresh_work() -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(*many(4))
    scene.end(run, 1, 1)
    assert scene.started()[-1] == Token(run, 2, 1)
    scene.due(task_ref(run, 1), TimerKind.RETRY)
    scene.end(run, 2)
    assert scene.started()[-1] == Token(run, 1, 2)


def test_a_retry_waits_for_no_more_than_the_turn_of_its_run() -> None:
    scene = Scene()
    first = scene.run_tasks(*many(9))
    second = scene.run_tasks(*many(5))
    scene.worker("w", 2)
    scene.end(second, 1, 1)
    scene.due(task_ref(second, 1), TimerKind.RETRY)
    for _ in range(2):
        scene.end(*next(task.key for task in scene.model.tasks() if task.live and task.run == first))
    assert Token(second, 1, 2) in scene.started()[-2:]


def test_a_run_whose_tasks_all_retry_does_not_starve_fresh_work_of_another() -> None:
    scene = Scene(slots=50)
    flaky = scene.run_tasks(*many(50))
    for number in range(1, 51):
        scene.end(flaky, number, 1)
    scene.tell(s.DrainWorker, worker="w")
    for number in range(1, 51):
        scene.due(task_ref(flaky, number), TimerKind.RETRY)
    fresh = scene.run_tasks(*many(2))
    scene.worker("lone", 1)
    scene.end(*scene.started()[-1].key)
    assert fresh in {token.run for token in scene.started()[-2:]}


# ---- fairness


@pytest.mark.parametrize(
    ("crowd", "guest"),
    [
        ({}, {}),
        ({"tool": "aider"}, {"tool": "zed"}),
        ({"tool": "zed"}, {"tool": "aider"}),
        ({}, {"capabilities": frozenset({"gpu"})}),
        ({"capabilities": frozenset({"gpu"})}, {}),
    ],
    ids=["alike", "other tool", "other tool, before", "more capable", "less capable"],
)
def test_a_run_of_ten_thousand_ready_tasks_gives_the_next_run_its_turn_within_one_round(
    crowd: dict[str, Any], guest: dict[str, Any]
) -> None:
    scene = Scene()
    scene.worker("w", 1, "gpu")
    scene.submit(Plan("big", many(10_000, **crowd)))
    small = scene.submit(Plan("small", many(2, **guest)))
    scene.end(*scene.started()[-1].key)
    scene.end(*scene.started()[-1].key)
    assert small in {token.run for token in scene.started()[1:]}


def test_runs_take_turns_while_both_have_ready_tasks() -> None:
    scene = Scene(slots=1)
    one, two, three = (scene.run_tasks(*many(4)) for _ in range(3))
    for _ in range(11):
        scene.end(*scene.started()[-1].key)
    order = [token.run for token in scene.started()]
    assert order[0] == one, "it was alone"
    assert order[1:10] == [one, two, three] * 3
    assert sorted(order) == sorted([one, two, three] * 4)


def test_several_free_slots_are_shared_among_the_runs() -> None:
    scene = Scene()
    runs = [scene.run_tasks(*many(10)) for _ in range(3)]
    scene.worker("w", 6)
    assert sorted(token.run for token in scene.started()) == sorted(runs * 2)


# ---- purity and cost


def test_dispatch_is_pure_and_gives_the_same_answer_twice() -> None:
    scene = Scene()
    scene.run_tasks(*many(5), TaskPlan("c", tool="aider"))
    scene.run_tasks(TaskPlan("sub", uses=Plan("inner", many(1))), TaskPlan("z", needs=(1,)))
    settings = scene.model.settings
    decision = decide(scene.model, s.WorkerRegistered(id=99, worker="w", slots=3), 0, 0.5)
    scene.model.apply(decision)
    before = scene.model.snapshot(), scene.model.derived()
    answers = [dispatch(scene.model, 5 * SECOND, 99) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0].changes
    assert (scene.model.snapshot(), scene.model.derived()) == before
    assert scene.model.settings is settings


def test_every_start_carries_the_signal_that_caused_it() -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(*many(2))
    decisions = scene.tell(s.AttemptEnded, token=scene.live(run, 1), exit_code=0)
    assert [one.token for one in told(decisions) if isinstance(one, Start)] == [Token(run, 2, 1)]
    assert len({decision.signal for decision in decisions}) == 1


class Counter:
    """Counts the reads of every table of the core."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = 0
        plain: Callable[[Table[Any, Any], Any], Any] = Table.get

        def get(table: Table[Any, Any], key: Any) -> Any:
            self.reads += 1
            return plain(table, key)

        monkeypatch.setattr(Table, "get", get)

    def of(self, action: Callable[[], object]) -> int:
        before = self.reads
        action()
        return self.reads - before


def fan(size: int) -> tuple[TaskPlan, ...]:
    """One task that nothing needs, and as many as you like that are ready beside it."""
    return many(size)


def chain(size: int) -> tuple[TaskPlan, ...]:
    return tuple(TaskPlan(f"t{n}", needs=(n - 1,) if n > 1 else ()) for n in range(1, size + 1))


SHAPES: dict[str, tuple[Callable[[int], tuple[TaskPlan, ...]], dict[str, Any], int]] = {
    "fan, one slot": (fan, {}, 1),
    "fan, many slots": (fan, {}, 20),
    "fan, limited by its run": (fan, {"concurrency": 3}, 20),
    "chain": (chain, {}, 5),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("code", [0, 1])
def test_one_task_exit_costs_the_same_in_a_run_of_100_and_of_10_000(
    shape: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, limits, slots = SHAPES[shape]
    costs = []
    for size in (100, 10_000):
        scene = Scene(slots=slots)
        run = scene.submit(Plan("p", tasks(size), **limits))
        with monkeypatch.context() as patch:
            counter = Counter(patch)
            costs.append(counter.of(lambda scene=scene, run=run: scene.end(run, 1, code)))  # type: ignore[misc]
    assert abs(costs[1] - costs[0]) <= SLACK, costs


def test_a_tool_at_its_limit_costs_the_same_in_a_run_of_100_and_of_10_000(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = []
    for size in (100, 10_000):
        scene = Scene(Settings(tools={"aider": Tool("aider", concurrency=2)}), slots=20)
        run = scene.run_tasks(*many(size, tool="aider"))
        with monkeypatch.context() as patch:
            counter = Counter(patch)
            costs.append(counter.of(lambda scene=scene, run=run: scene.end(run, 1)))  # type: ignore[misc]
    assert abs(costs[1] - costs[0]) <= SLACK, costs


def test_nothing_of_a_draining_run_is_looked_at_again_after_a_failure() -> None:
    scene = Scene(slots=2)
    run = scene.run_tasks(*many(6, retry=once()))
    scene.end(run, 1, 1)
    assert len(scene.started()) == 2
    scene.end(run, 2)
    assert scene.state(run) == "failed"
    assert len(scene.started()) == 2
