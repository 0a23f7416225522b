"""What one task exit costs the core, in runs of 100 to 100 000 tasks: the curve must be flat.

Two shapes: all tasks independent, and pairs in which the second needs the first. Each exit is decided,
applied, and its slot filled again; the figure is the median over many exits.
"""

import gc
from itertools import count
from statistics import median
from time import perf_counter_ns

from benchmarks.figure import Figure
from engine.core.decide import decide
from engine.core.decision import Decision, Start
from engine.core.dispatch import dispatch
from engine.core.model import Model
from engine.core.plan import Plan, Settings, TaskPlan
from engine.core.records import Token
from engine.core.signals import AttemptEnded, Submit, WorkerRegistered
from engine.machines import LIFECYCLES

SIZES = (100, 1_000, 10_000, 100_000)
EXITS = 40
"""Exits measured in a fresh model; fewer than the smallest run has tasks."""
ROUNDS = 5
FLAT = 1.5
"""What the largest run may cost over the smallest and still be called the same."""


def measure() -> list[Figure]:
    figures = []
    for shape, plan_of in (("independent", _independent), ("pairs", _pairs)):
        costs: dict[int, tuple[float, float]] = {}
        for size in SIZES:
            costs[size] = _cost(plan_of(size))
            decide_us, all_us = costs[size]
            figures.append(Figure(f"{shape}, {size:,} tasks: decide one exit", decide_us, "us"))
            figures.append(Figure(f"{shape}, {size:,} tasks: with apply and refill", all_us, "us"))
        ratio = costs[10_000][0] / costs[100][0]
        figures.append(Figure(f"{shape}: decide at 10,000 over 100", ratio, "times", goal=FLAT))
        ratio = costs[100_000][1] / costs[100][1]
        figures.append(Figure(f"{shape}: all of it at 100,000 over 100", ratio, "times", goal=FLAT))
    return figures


def _independent(size: int) -> Plan:
    return Plan("wide", tuple(TaskPlan(f"t{n}") for n in range(1, size + 1)), LIFECYCLES["standard"])


def _pairs(size: int) -> Plan:
    tasks = tuple(TaskPlan(f"t{n}", needs=(n - 1,) if n % 2 == 0 else ()) for n in range(1, size + 1))
    return Plan("pairs", tasks, LIFECYCLES["standard"])


class _Engine:
    """The decider's loop without a store: decide, apply, refill."""

    def __init__(self) -> None:
        self.model = Model(Settings())
        self.ids = count(1)
        self.now = 0
        self.running: list[Token] = []
        self.decided: list[int] = []
        self.whole: list[int] = []

    def feed(self, decision: Decision) -> None:
        self.model.apply(decision)
        for instruction in decision.instructions:
            if isinstance(instruction, Start):
                self.running.append(instruction.token)

    def submit(self, plan: Plan) -> None:
        model, now = self.model, self.now
        self.feed(decide(model, WorkerRegistered(id=next(self.ids), worker="w", slots=8), now, 0.5))
        self.feed(decide(model, Submit(id=next(self.ids), plan=plan, actor="bench"), now, 0.5))
        self.feed(dispatch(model, now, 0))

    def exit_one(self) -> None:
        self.now += 1000
        signal = AttemptEnded(id=next(self.ids), token=self.running.pop(0), exit_code=0)
        start = perf_counter_ns()
        decision = decide(self.model, signal, self.now, 0.5)
        decided = perf_counter_ns()
        self.feed(decision)
        self.feed(dispatch(self.model, self.now, signal.id))
        self.whole.append(perf_counter_ns() - start)
        self.decided.append(decided - start)


def _cost(plan: Plan) -> tuple[float, float]:
    """Median microseconds of an exit: the decision alone, and with everything that follows."""
    decided: list[float] = []
    whole: list[float] = []
    for _ in range(1 if len(plan.tasks) > 10_000 else ROUNDS):
        engine = _Engine()
        engine.submit(plan)
        gc.collect()
        gc.disable()
        for _ in range(EXITS):
            engine.exit_one()
        gc.enable()
        decided.append(median(engine.decided) / 1000)
        whole.append(median(engine.whole) / 1000)
    return min(decided), min(whole)
