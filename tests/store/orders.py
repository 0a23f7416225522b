"""What the callers of the store's hardest tests want stored. A row of the trail tells which order it is of,
and how much else belongs to that: so the trail alone shows whether an order was stored whole.
"""

from dataclasses import dataclass

from engine.core.decide import decide
from engine.core.decision import Decision, Start, TimerChange, TimerCleared, TimerSet, Transition
from engine.core.model import Model
from engine.core.plan import Plan, Settings, TaskPlan
from engine.core.records import Entity, Ref, TimerKind, Token
from engine.core.signals import Submit
from engine.machines import MACHINES, Kind, Lifecycle
from engine.store.gate import Request

LIFECYCLE = Lifecycle("execution", "pipeline.step")
MACHINE = MACHINES[LIFECYCLE.task]
NEXT = {
    "S_PENDING": "S_RUNNING",
    "S_RUNNING": "S_FAILED",
    "S_FAILED": "S_RETRYING",
    "S_RETRYING": "S_RUNNING",
}
"""Round and round; each of these is a state to rest in."""
EVENT = {(arrow.source, arrow.target): arrow.event for arrow in MACHINE.arrows}
FOR_EVER = 10**15

Standing = tuple[str, int]
"""The state of a task and its version."""


@dataclass(frozen=True, slots=True)
class Move:
    """One step of one task, from where it stands."""

    task: int
    source: str
    version: int
    """The version that it leads to."""


@dataclass(frozen=True, slots=True)
class Order:
    """Moves that are stored whole or not at all, in one decision or in several."""

    number: int
    moves: tuple[Move, ...]
    decisions: int = 1
    sends: int = 0
    """Instructions that leave with it."""
    timer: bool = False
    """Whether it arms (or, every third one, disarms) the timer of its first task."""
    asked: bool = False
    """Whether it is a request that may be sent again."""

    @property
    def request_id(self) -> str | None:
        return f"request-{self.number}" if self.asked else None

    @property
    def request(self) -> Request | None:
        if self.request_id is None:
            return None
        body = reply_body(self.number)
        return Request(self.request_id, "advance", f"order {self.number}", 1, 0, body, FOR_EVER)

    def decided(self) -> list[Decision]:
        changes = [self._change(place, move) for place, move in enumerate(self.moves, 1)]
        share = -(-len(changes) // self.decisions)
        parts = [changes[first : first + share] for first in range(0, len(changes), share)]
        return [
            Decision(
                self.number, self.number, "engine", "worker", self.request_id, tuple(part),
                self._instructions() if place == len(parts) else (),
                self._timers() if place == 1 else (),
            )
            for place, part in enumerate(parts, 1)
        ]  # fmt: skip

    def _change(self, place: int, move: Move) -> Transition:
        target = NEXT[move.source]
        return Transition(
            task_ref(move.task), MACHINE.name, move.source, EVENT[move.source, target], target, Kind.NORMAL,
            move.version, {"attempt": move.version, "error": None, "retries": 1, "started": self.number},
            f"order {self.number}: {place} of {len(self.moves)}, sends {self.sends}", None, None, 1,
            None,  # type: ignore[arg-type]
        )  # fmt: skip

    def _instructions(self) -> tuple[Start, ...]:
        return tuple(Start(Token(1, self.moves[0].task, turn), "w1") for turn in range(self.sends))

    def _timers(self) -> tuple[TimerChange, ...]:
        if not self.timer:
            return ()
        ref = task_ref(self.moves[0].task)
        if self.number % 3 == 0:
            return (TimerCleared(ref, TimerKind.RETRY),)
        return (TimerSet(ref, TimerKind.RETRY, self.number),)


def task_ref(task: int) -> Ref:
    return Ref(Entity.TASK, (1, task))


def reply_body(number: int) -> str:
    return f'{{"order":{number}}}'


def submission(tasks: int) -> Decision:
    """One run with so many tasks, all of them new."""
    plan = Plan("orders", tuple(TaskPlan(f"task{number}") for number in range(1, tasks + 1)), LIFECYCLE)
    return decide(Model(Settings()), Submit(id=1, actor="ann", plan=plan), 1, 0.5)
