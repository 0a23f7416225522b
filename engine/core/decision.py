"""What the core answers: changes, instructions and timers. Deltas only, never a copy of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.core.records import Attempt, Record, Ref, Report, Stop, TimerKind, Token
from engine.machines import Kind


@dataclass(frozen=True, slots=True)
class Closing:
    """How an attempt ended."""

    token: Token
    outcome: str
    exit_code: int | None = None
    report: Report | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """A new entity, in its initial state, version 1. Its first audit row."""

    ref: Ref
    machine: str
    state: str
    after: Record
    version: int = 1


@dataclass(frozen=True, slots=True)
class Transition:
    """One documented arrow taken. `sets` are the record's other fields that changed with it."""

    ref: Ref
    machine: str
    source: str
    event: str
    target: str
    kind: Kind
    version: int
    sets: Mapping[str, object]
    reason: str | None
    opens: Attempt | None
    closes: Closing | None
    since: int
    """When the entity entered the state that it leaves."""
    after: Record = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Fact:
    """Something recorded that moves no state: a vote, a mark, a waiver, evidence."""

    ref: Ref
    name: str
    sets: Mapping[str, object]
    reason: str | None
    opens: Attempt | None
    closes: Closing | None
    data: Mapping[str, object]
    after: Record = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AttemptNoted:
    """More is known of a live attempt (pid, stop sent, doubt). Not part of the audit trail."""

    token: Token
    after: Attempt


Change = Created | Transition | Fact | AttemptNoted


@dataclass(frozen=True, slots=True)
class TimerSet:
    ref: Ref
    kind: TimerKind
    due: int


@dataclass(frozen=True, slots=True)
class TimerCleared:
    ref: Ref
    kind: TimerKind


TimerChange = TimerSet | TimerCleared


@dataclass(frozen=True, slots=True)
class Instruction:
    """Something for the world outside to do. Idempotent: told twice, it is done once."""


@dataclass(frozen=True, slots=True)
class Start(Instruction):
    """Run this token on this worker, unless it has been there before."""

    token: Token
    worker: str


@dataclass(frozen=True, slots=True)
class Halt(Instruction):
    """Ask the attempt to end, and make it end after the grace. `grace` 0 kills at once.

    A token that has not started yet never will: a start that arrives later is refused, and the answer
    is that it was lost and never ran.
    """

    token: Token
    worker: str
    grace: int
    why: Stop


@dataclass(frozen=True, slots=True)
class Ask(Instruction):
    """Tell what became of these tokens: one answer for each."""

    worker: str
    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Forget(Instruction):
    """The result of this token is stored; it need not be told again, and the token never starts again."""

    token: Token


@dataclass(frozen=True, slots=True)
class Reap(Instruction):
    """The worker is given up: end it and what it runs, and tell what became of each token.

    A start that reaches the worker later is refused, and answered in the same way.
    """

    worker: str
    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Dismiss(Instruction):
    """The worker has nothing left to do and may end."""

    worker: str


@dataclass(frozen=True, slots=True)
class Decision:
    """All that one signal leads to, committed as a whole or not at all."""

    signal: int
    at: int
    actor: str
    source: str
    request_id: str | None = None
    changes: tuple[Change, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    timers: tuple[TimerChange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.instructions or self.timers)
