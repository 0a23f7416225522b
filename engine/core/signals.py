"""What the core is told: things that happened, and commands of people.

Every signal has an id; each transition and instruction that it leads to carries it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.core.plan import Plan
from engine.core.records import Ref, Report, TimerKind, Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    id: int
    actor: str = "engine"
    source: str = "engine"
    reason: str | None = None
    request_id: str | None = None


# ---- from workers and timers


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerDue(Signal):
    ref: Ref
    kind: TimerKind
    source: str = "timer"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted(Signal):
    """The process exists. It only adds pid and time."""

    token: Token
    pid: int | None = None
    source: str = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded(Signal):
    """The process ended and its exit code is known."""

    token: Token
    exit_code: int
    matched: frozenset[str] = frozenset()
    """The patterns of its error rules that its output matched. Whoever runs it matches them, in a process
    that can be ended: a pattern may take for ever.
    """
    fingerprint: str | None = None
    """What makes two errors the same; None when they cannot be compared."""
    report: Report | None = None
    source: str = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLost(Signal):
    """The process is gone or fenced off, and nobody can know how it ended."""

    token: Token
    evidence: str = ""
    ran: bool = True
    """False when it is certain that it never started."""
    source: str = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFound(Signal):
    """Asked after a restart or a silence: it is running."""

    token: Token
    pid: int | None = None
    source: str = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptMissing(Signal):
    """Asked after a restart or a silence: the worker has never heard of it, so it never started."""

    token: Token
    source: str = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptAdopted(Signal):
    """Another worker watches over it now."""

    token: Token
    worker: str
    source: str = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCreated(Signal):
    """A worker process was started; it has not registered yet."""

    worker: str
    workspace: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRegistered(Signal):
    worker: str
    slots: int
    capabilities: frozenset[str] = frozenset()
    workspace: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    source: str = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerQuiet(Signal):
    """Its heartbeats are missing."""

    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBack(Signal):
    """It is heard again."""

    worker: str
    source: str = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGone(Signal):
    """Its process is known to be dead."""

    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExhausted(Signal):
    """It ran out of a resource: it is paused."""

    worker: str
    source: str = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBroken(Signal):
    """It met an error that no retry can mend."""

    worker: str
    source: str = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStarted(Signal):
    """The engine begins, perhaps after a crash: what is believed alive has to be asked for."""


# ---- commands


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit(Signal):
    """`actor` is who asks for the run; without one, nobody may decide on it."""

    plan: Plan
    actor: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approve(Signal):
    target: Ref
    digest: str | None = None
    """What the voter saw; refused when the run's plan is another."""
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject(Signal):
    target: Ref
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel(Signal):
    run: int
    force: bool = False
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(Signal):
    """A new run that carries over what succeeded."""

    run: int
    actor: str = ""
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun(Signal):
    """A new run of everything, or of one task with or without what depends on it."""

    run: int
    task: int | None = None
    dependents: bool = True
    actor: str = ""
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLost(Signal):
    """A person decides about a lost attempt: try again, or let it fail."""

    run: int
    task: int
    retry: bool
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTask(Signal):
    """Its retries start anew."""

    run: int
    task: int
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiveTask(Signal):
    """It stays failed, and what depends on it may go on."""

    run: int
    task: int
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestTask(Signal):
    """It did succeed; the operator vouches for it, with evidence."""

    run: int
    task: int
    evidence: str
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectRun(Signal):
    """It was called a success while a task is not."""

    run: int
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonRun(Signal):
    """A failed workstream is given up."""

    run: int
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class TripBreaker(Signal):
    tool: str
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeBreaker(Signal):
    tool: str
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetBreaker(Signal):
    """`healthy` is what the tool's health command said; `override` names the tool to ignore it."""

    tool: str
    healthy: bool = False
    override: str | None = None
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseWorker(Signal):
    worker: str
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeWorker(Signal):
    worker: str
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainWorker(Signal):
    worker: str
    source: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateWorker(Signal):
    worker: str
    source: str = "cli"
