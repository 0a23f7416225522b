"""The core before a store: what is told is decided, and what is decided is stored."""

from collections.abc import Callable
from typing import Any

from engine.core import signals
from engine.core.decision import Created, Decision, Fact, Transition
from engine.core.model import Model
from engine.core.plan import Plan, Settings, TaskPlan
from engine.core.records import Breaker, Run, Task, TimerKind, Worker, evolve
from engine.core.signals import Signal
from engine.machines import MACHINES, Kind
from tests.core.scene import Scene
from tests.store.conformance.drivers import Driver

HEALTH, CONTROL = "orchestration.worker", "supervision.worker"
BREAKER = "pipeline.breaker"


class Stage(Scene):
    """A scene whose every decision is stored."""

    def __init__(self, driver: Driver, settings: Settings | None = None, *, slots: int = 0) -> None:
        self.driver = driver
        super().__init__(settings, slots=slots)

    def tell(self, signal: Callable[..., Signal], /, **fields: object) -> list[Decision]:
        decisions = super().tell(signal, **fields)
        self.driver.gate.apply(decisions)
        return decisions

    def reload(self) -> None:
        """Another engine takes over what the store kept."""
        self.driver.reopen()
        self.model = Model.load(self.driver.gate.load(), self.model.settings)

    def finish(self, run: int, code: int = 0) -> None:
        """Everything that runs for a run exits, until it is over."""
        for _ in range(200):
            if self.run(run).terminal:
                return
            live = sorted(one.token for one in self.model.attempts() if one.token.run == run)
            for token in live:
                self.tell(signals.AttemptEnded, token=token, exit_code=code)
            if not live:
                timers = [timer for timer in self.model.timers() if timer.kind is TimerKind.RETRY]
                assert timers, f"run {run} stays in {self.state(run)}"
                self.due(timers[0].ref, TimerKind.RETRY)
        raise AssertionError(f"run {run} does not end")


# ---- changes that no signal would lead to


def decision(
    *changes: Any, at: int = 1, signal: int = 1, actor: str = "engine", source: str = "engine", **more: Any
) -> Decision:
    return Decision(signal, at, actor, source, changes=changes, **more)


def created(record: Run | Task | Worker | Breaker, machine: str | None = None) -> Created:
    name = machine or (record.machine if isinstance(record, Run | Task) else BREAKER)
    return Created(record.ref, name, MACHINES[name].initial, record)


def fact(record: Any, name: str = "noted", opens: Any = None, closes: Any = None, **sets: object) -> Fact:
    return Fact(record.ref, name, sets, None, opens, closes, {}, evolve(record, sets))


def moved(record: Run | Task, event: str, target: str, *, at: int = 1, **sets: object) -> Transition:
    """One documented arrow of a run or a task."""
    machine = MACHINES[record.machine]
    kinds = [
        arrow.kind
        for arrow in machine.arrows
        if (arrow.source, arrow.event, arrow.target) == (record.state, event, target)
    ]
    standing = {
        "state": target,
        "phase": machine.phase[target],
        "version": record.version + 1,
        "entered": at,
    }
    return Transition(
        record.ref, machine.name, record.state, event, target, kinds[0] if kinds else Kind.NORMAL,
        record.version + 1, sets, None, None, None, record.entered, evolve(record, {**sets, **standing}),
    )  # fmt: skip


def new_run(number: int = 1, plan: Plan | None = None, **fields: Any) -> Run:
    plan = plan or Plan("p", (TaskPlan("t1"), TaskPlan("t2")))
    first = plan.run_machine.initial
    return Run(
        number, plan, fields.pop("requester", "dev"), fields.pop("params", {}), first,
        plan.run_machine.phase[first], 1, 1, 1, **fields,
    )  # fmt: skip


def new_task(run: Run, number: int = 1, **fields: Any) -> Task:
    machine = run.plan.task_machine
    first = machine.initial
    return Task(
        run.number, number, run.plan.task(number), machine.name, first, machine.phase[first], 1, 1, 1,
        **fields,
    )  # fmt: skip


def new_worker(name: str = "w", **fields: Any) -> Worker:
    health, control = MACHINES[HEALTH], MACHINES[CONTROL]
    return Worker(
        name, fields.pop("slots", 1), fields.pop("capabilities", frozenset()), health.initial,
        health.phase[health.initial], 1, control.initial, control.phase[control.initial], 1, 1, 1, 1,
        **fields,
    )  # fmt: skip


def new_breaker(tool: str = "make", **fields: Any) -> Breaker:
    machine = MACHINES[BREAKER]
    return Breaker(tool, machine.initial, machine.phase[machine.initial], 1, 1, **fields)
