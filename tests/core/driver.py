"""Drives the core in simulated time: tests say what happened and read what followed.

After every step it proves that `decide` and `dispatch` changed nothing by themselves, answer the same
twice, and that a model loaded from the snapshot equals the one that lived through it.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple, TypeVar

import pytest

from engine.core import signals
from engine.core.decide import decide
from engine.core.decision import Created, Decision, Fact, Instruction, Start, Transition
from engine.core.dispatch import dispatch
from engine.core.explain import explain
from engine.core.model import Model
from engine.core.plan import SECOND, Plan, Settings, TaskPlan
from engine.core.records import (
    Attempt,
    Entity,
    Purpose,
    Ref,
    Run,
    Task,
    TimerKind,
    Token,
    Worker,
    evolve,
)
from engine.machines import LIFECYCLES, RUN_MACHINES, TASK_MACHINES, Kind, Lifecycle, Phase
from tests.core.worker_side import matched

I = TypeVar("I", bound=Instruction)  # noqa: E741

HOUR = 3600
PAIRS = tuple(Lifecycle(run, task) for run, task in product(RUN_MACHINES, TASK_MACHINES))

every_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.run}+{pair.task}")
every_run_machine = pytest.mark.parametrize("machine", RUN_MACHINES)
every_task_machine = pytest.mark.parametrize("machine", TASK_MACHINES)


class Part(NamedTuple):
    """One task of a workflow under test, with its needs by name."""

    name: str
    needs: tuple[str, ...]
    wishes: Mapping[str, Any]


def task(name: str, *needs: str, **wishes: Any) -> Part:
    return Part(name, needs, wishes)


def workflow(*parts: Part, lifecycle: str | Lifecycle = "standard", **wishes: Any) -> Plan:
    """A plan of these tasks; a lifecycle by its name, or the pair."""
    numbers = {part.name: number for number, part in enumerate(parts, 1)}
    tasks = tuple(
        TaskPlan(part.name, needs=tuple(numbers[need] for need in part.needs), **part.wishes)
        for part in parts
    )
    pair = LIFECYCLES[lifecycle] if isinstance(lifecycle, str) else lifecycle
    return Plan("flow", tasks, pair, **wishes)


def tasks_follow(machine: str) -> Lifecycle:
    """A lifecycle whose tasks follow this machine, under a run that never mirrors them."""
    return Lifecycle("execution", machine)


class Move(NamedTuple):
    """One arrow taken, and in which decision."""

    decision: int
    at: int
    ref: Ref
    machine: str
    source: str
    event: str
    target: str
    kind: Kind
    reason: str | None


class Noted(NamedTuple):
    """One fact recorded, and in which decision."""

    decision: int
    ref: Ref
    name: str
    reason: str | None
    data: Mapping[str, object]


class Driver:
    """One engine without a world around it. Names are task names; without a name the run is meant."""

    def __init__(self, settings: Settings | None = None, *, slots: int = 8, rand: float = 0.5) -> None:
        self.model = Model(settings or Settings())
        self.now = 0
        self.rand = rand
        self.run = 0
        """The run that names are looked up in: the last one submitted or made by a command."""
        self.decisions: list[Decision] = []
        self.moves: list[Move] = []
        self.noted: list[Noted] = []
        self.created: list[Created] = []
        self.instructions: list[Instruction] = []
        self._signals = 0
        if slots:
            self.register("w", slots)

    # ---- telling

    def feed(self, make: Callable[..., signals.Signal], **fields: Any) -> Decision:
        """Give the core one signal, then let it dispatch. Returns what the signal itself led to."""
        self._signals += 1
        signal = make(id=self._signals, **fields)
        decision = self._step(lambda: decide(self.model, signal, self.now, self.rand))
        self._step(lambda: dispatch(self.model, self.now, signal.id))
        return decision

    def _step(self, ask: Callable[[], Decision]) -> Decision:
        before = self.model.snapshot(), self.model.derived()
        try:
            decision = ask()
        finally:
            assert (self.model.snapshot(), self.model.derived()) == before, "a decision changed the model"
        assert ask() == decision, "the same question got another answer"
        self.model.apply(decision)
        self._remember(decision)
        loaded = Model.load(self.model.snapshot(), self.model.settings)
        assert loaded.snapshot() == self.model.snapshot()
        assert loaded.derived() == self.model.derived()
        return decision

    def _remember(self, decision: Decision) -> None:
        number = len(self.decisions)
        self.decisions.append(decision)
        self.instructions.extend(decision.instructions)
        for change in decision.changes:
            if isinstance(change, Created):
                self.created.append(change)
            elif isinstance(change, Transition):
                arrow = (change.machine, change.source, change.event, change.target, change.kind)
                self.moves.append(Move(number, decision.at, change.ref, *arrow, change.reason))
            elif isinstance(change, Fact):
                self.noted.append(Noted(number, change.ref, change.name, change.reason, change.data))

    def register(self, worker: str, slots: int = 8, capabilities: frozenset[str] = frozenset()) -> None:
        self.feed(signals.WorkerRegistered, worker=worker, slots=slots, capabilities=capabilities)

    def submit(self, plan: Plan, requester: str | None = "dev", **params: str) -> int:
        self.run = self.model.next_run
        self.feed(signals.Submit, plan=plan, actor=requester or "", params=params)
        return self.run

    def begins(self, name: str) -> None:
        self.feed(signals.AttemptStarted, token=self.live(name), pid=7)

    def exits(
        self, name: str | None = None, code: int = 0, *, error: str | None = None, tail: str = ""
    ) -> None:
        """What it runs ends. Errors differ from attempt to attempt unless told that they are the same."""
        self.ends(self.live(name), code, error=error, tail=tail)

    def ends(self, token: Token, code: int = 0, *, error: str | None = None, tail: str = "") -> None:
        assert token in [start.token for start in self.told(Start)], f"{token} was never sent to a worker"
        fingerprint = error or f"error of {token}"
        found = matched(self.model, token, tail)
        self.feed(signals.AttemptEnded, token=token, exit_code=code, matched=found, fingerprint=fingerprint)

    def lost(self, name: str | None = None) -> None:
        self.feed(signals.AttemptLost, token=self.live(name), evidence="nobody saw it end")

    def found(self, name: str) -> None:
        self.feed(signals.AttemptFound, token=self.live(name), pid=7)

    def fails_for_good(self, name: str) -> None:
        """One permanent error: no retry follows."""
        self.exits(name, 127)

    def cancel(self, *, force: bool = False, reason: str | None = None) -> Decision:
        return self.feed(signals.Cancel, run=self.run, force=force, reason=reason, actor="ops")

    def approve(self, actor: str = "lead", name: str | None = None) -> None:
        self.feed(signals.Approve, target=self.ref(name), actor=actor)

    def reject(self, actor: str = "lead", name: str | None = None, reason: str | None = "no") -> None:
        self.feed(signals.Reject, target=self.ref(name), actor=actor, reason=reason)

    def mend(self, make: Callable[..., signals.Signal], name: str, **fields: Any) -> Decision:
        """A command of a person about a task."""
        return self.feed(make, run=self.run, task=self.task(name).number, **fields)

    def again(self, make: Callable[..., signals.Signal], **fields: Any) -> int:
        """Resume or rerun; names are looked up in the new run from here on."""
        old, new = self.run, self.model.next_run
        self.feed(make, run=old, actor="dev", **fields)
        self.run = new
        return new

    # ---- time

    def advance(self, seconds: float) -> None:
        """Let time pass; every timer that falls due on the way fires, in order."""
        target = self.now + round(seconds * SECOND)
        while True:
            timers = sorted(self.model.timers(), key=lambda timer: (timer.due, str(timer.ref), timer.kind))
            if not timers or timers[0].due > target:
                break
            self.now = max(self.now, timers[0].due)
            self.feed(signals.TimerDue, ref=timers[0].ref, kind=timers[0].kind)
        self.now = target

    def due(self, kind: TimerKind, name: str | None = None, *, ref: Ref | None = None) -> float | None:
        """In how many seconds a timer is due; None when it is not armed."""
        when = self.model.timer(ref or self.ref(name), kind)
        return None if when is None else (when - self.now) / SECOND

    def play(self, script: Mapping[str, Sequence[int]] | None = None, limit: int = 200) -> None:
        """End whatever runs, with the exit codes of the script (0 without one), until nothing moves.

        A key is a task's name; with `+check` it means the checks.
        """
        left = {name: list(codes) for name, codes in (script or {}).items()}
        for _ in range(limit):
            live = sorted(attempt.token for attempt in self.model.attempts() if attempt.worker is not None)
            if live:
                token = live[0]
                plan = self.model.run(token.run).plan
                name = plan.task(token.task).name if token.task else ""
                codes = left.get(name if token.purpose is Purpose.WORK else f"{name}+{token.purpose}", [])
                self.ends(token, codes.pop(0) if codes else 0)
                continue
            waits = (TimerKind.RETRY, TimerKind.PROBE, TimerKind.COOLDOWN)
            due = [timer.due for timer in self.model.timers() if timer.kind in waits]
            if not due:
                return
            self.advance((min(due) - self.now) / SECOND)
        raise AssertionError("it does not come to rest")

    # ---- reading

    def ref(self, name: str | None = None) -> Ref:
        if name is None:
            return Ref(Entity.RUN, self.run)
        return Ref(Entity.TASK, (self.run, self.record().plan.numbers[name]))

    def record(self) -> Run:
        return self.model.run(self.run)

    def task(self, name: str) -> Task:
        return self.model.task((self.run, self.record().plan.numbers[name]))

    def worker(self, name: str = "w") -> Worker:
        found = self.model.worker(name)
        assert found is not None
        return found

    def breaker(self, tool: str) -> str:
        found = self.model.breaker(tool)
        return found.state if found is not None else "CLOSED"

    def state(self, name: str | None = None) -> str:
        return self.record().state if name is None else self.task(name).state

    def states(self, *names: str) -> list[str]:
        return [self.state(name) for name in names]

    def phase(self, name: str | None = None) -> Phase:
        return self.record().phase if name is None else self.task(name).phase

    def live(self, name: str | None = None) -> Token:
        token = self.record().live if name is None else self.task(name).live
        assert token is not None, f"nothing runs for {name or 'the run'}: {self.path(name)}"
        return token

    def attempt(self, name: str) -> Attempt:
        found = self.model.attempt(self.live(name))
        assert found is not None
        return found

    def moves_of(self, name: str | None = None, *, ref: Ref | None = None, machine: str = "") -> list[Move]:
        wanted = ref or self.ref(name)
        return [move for move in self.moves if move.ref == wanted and machine in ("", move.machine)]

    def path(self, name: str | None = None, *, ref: Ref | None = None) -> list[tuple[str, str, str]]:
        return [(move.source, move.event, move.target) for move in self.moves_of(name, ref=ref)]

    def events(self, name: str | None = None, *, ref: Ref | None = None) -> list[str]:
        return [move.event for move in self.moves_of(name, ref=ref)]

    def history(self, name: str | None = None) -> list[str]:
        """Every state it was in, from its creation on."""
        first = next(change.state for change in self.created if change.ref == self.ref(name))
        return [first, *(move.target for move in self.moves_of(name))]

    def health(self, worker: str = "w") -> list[str]:
        """The events of a worker's health region."""
        return self._region(worker, "orchestration.worker")

    def control(self, worker: str = "w") -> list[str]:
        """The events of a worker's control region."""
        return self._region(worker, "supervision.worker")

    def _region(self, worker: str, machine: str) -> list[str]:
        ref = Ref(Entity.WORKER, worker)
        return [move.event for move in self.moves_of(ref=ref, machine=machine)]

    def together(self, name: str | None, *events: str, ref: Ref | None = None) -> bool:
        """Whether one decision held exactly these events of it, in this order."""
        mine = self.moves_of(name, ref=ref)
        by_decision = {move.decision: [m.event for m in mine if m.decision == move.decision] for move in mine}
        return list(events) in by_decision.values()

    def facts(self, name: str | None = None) -> list[str]:
        return [fact.name for fact in self.noted if fact.ref == self.ref(name)]

    def reason(self, event: str, name: str | None = None, *, ref: Ref | None = None) -> str:
        """Why it last took this event."""
        return [move.reason or "" for move in self.moves_of(name, ref=ref) if move.event == event][-1]

    def told(self, kind: type[I]) -> list[I]:
        return [instruction for instruction in self.instructions if isinstance(instruction, kind)]

    def started(self, *purposes: Purpose) -> list[str]:
        """The tasks whose work was sent to a worker, in order; or what else was sent, by purpose."""
        wanted = purposes or (Purpose.WORK,)
        tokens = [start.token for start in self.told(Start) if start.token.purpose in wanted]
        return [self.model.run(t.run).plan.task(t.task).name if t.task else "" for t in tokens]

    def explain(self, name: str | None = None) -> str:
        return explain(self.model, self.ref(name), self.now).sentence

    def corrupt(self, name: str, **fields: Any) -> None:
        """Damage a task as a slip of the hand in the database would, and load the model from that."""
        snapshot = self.model.snapshot()
        damaged = evolve(self.task(name), fields)
        tasks = tuple(damaged if task.key == damaged.key else task for task in snapshot.tasks)
        rest = (snapshot.attempts, snapshot.workers, snapshot.breakers, snapshot.timers, snapshot.next_run)
        self.model = Model.load(type(snapshot)(snapshot.runs, tasks, *rest), self.model.settings)
