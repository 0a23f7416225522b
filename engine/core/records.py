"""The rows that the core decides on: runs, tasks, attempts, workers, breakers.

Records are frozen: a change makes a new one. What can be derived from them is derived
(`engine.core.book`), not stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeVar

from engine.core.plan import Approval, Category, Plan, TaskPlan
from engine.machines import MACHINES, Phase

TaskKey = tuple[int, int]
"""Run number and task number; task 0 is the run itself, for its final checks."""


class Purpose(StrEnum):
    """What a process is for."""

    WORK = "work"
    CHECK = "check"
    HOOK = "hook"
    HEALTH = "health"


class Token(NamedTuple):
    """The name of one execution, once and for ever: run.task.attempt, and the round of a check or hook."""

    run: int
    task: int
    attempt: int
    purpose: Purpose = Purpose.WORK
    round: int = 0

    @property
    def key(self) -> TaskKey:
        return (self.run, self.task)

    def __str__(self) -> str:
        plain = f"{self.run}.{self.task}.{self.attempt}"
        return plain if self.purpose is Purpose.WORK else f"{plain}+{self.purpose}{self.round}"


class Entity(StrEnum):
    RUN = "run"
    TASK = "task"
    WORKER = "worker"
    BREAKER = "breaker"


class Ref(NamedTuple):
    """Which entity: a run's number, a task's key, a worker's id or a tool's name."""

    kind: Entity
    key: int | TaskKey | str

    def __str__(self) -> str:
        return "/".join(map(str, self.key)) if isinstance(self.key, tuple) else str(self.key)


class TimerKind(StrEnum):
    RETRY = "retry"
    DEADLINE = "deadline"
    GRACE = "grace"
    EXPIRY = "expiry"
    WAIT = "wait"
    PROBE = "probe"
    TIMEOUT = "timeout"
    ABANDON = "abandon"
    COOLDOWN = "cooldown"
    GIVE_UP = "give_up"


class Stop(StrEnum):
    """Why an attempt was told to stop."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    KILLED = "killed"


class Ending(StrEnum):
    """Why a run is being brought to its end, while attempts are still alive."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    FAILURE = "failure"


class Pardon(StrEnum):
    """Why a task counts as done although it did not succeed."""

    WAIVED = "waived"
    CONDITION = "condition"
    CARRIED = "carried_over"
    TOLERATED = "tolerated"
    LEFT_OUT = "left_out"


class Circuit(StrEnum):
    """Which circuit a parked task sits behind."""

    OWN = "own"
    BREAKER = "breaker"


class Vote(NamedTuple):
    actor: str
    at: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class Hold:
    """What a held run or task waits for."""

    approval: Approval
    votes: tuple[Vote, ...] = ()
    met: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """The run that this one takes up again."""

    run: int
    verb: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check said."""

    name: str
    passed: bool
    duration: int
    exit_code: int | None = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What whoever ran an attempt measured and kept of it. The core hands it on and decides nothing by it."""

    output_size: int | None = None
    cpu_time: int | None = None
    peak_memory: int | None = None
    artifacts: tuple[str, ...] = ()
    diagnostics: str | None = None
    checks: tuple[CheckResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution that may still be alive. Without a worker it is a sub-run."""

    token: Token
    worker: str | None
    sent: int
    tool: str | None = None
    sub_run: int | None = None
    started: int | None = None
    pid: int | None = None
    stopping: Stop | None = None
    fenced: bool = False
    doubt: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    number: int
    plan: Plan
    requester: str | None
    params: Mapping[str, str]
    state: str
    phase: Phase
    version: int
    created: int
    entered: int
    started: int | None = None
    ended: int | None = None
    parent: TaskKey | None = None
    depth: int = 0
    origin: Origin | None = None
    hold: Hold | None = None
    ending: Ending | None = None
    ending_reason: str | None = None
    resumed_by: int | None = None
    checking: bool = False
    """Its tasks are done and its final checks are not."""
    attempt: int = 0
    live: Token | None = None
    losses: int = 0

    @property
    def label(self) -> str:
        return str(self.number)

    @property
    def machine(self) -> str:
        return self.plan.lifecycle.run

    @property
    def terminal(self) -> bool:
        return MACHINES[self.machine].state[self.state].terminal

    @property
    def ref(self) -> Ref:
        return Ref(Entity.RUN, self.number)


@dataclass(frozen=True, slots=True)
class Task:
    run: int
    number: int
    plan: TaskPlan
    machine: str
    state: str
    phase: Phase
    version: int
    created: int
    entered: int
    started: int | None = None
    ended: int | None = None
    attempt: int = 0
    """Attempts started so far."""
    retries: int = 0
    """Retries used; never above the budget."""
    failures: int = 0
    """Failed and lost attempts since the last reset: the n of the backoff."""
    losses: int = 0
    check_losses: int = 0
    probes: int = 0
    health_checks: int = 0
    """Health commands run for it, ever."""
    probing: bool = False
    """The attempt in flight is a probe: its failure opens the circuit again."""
    live: Token | None = None
    fenced: Token | None = None
    """An execution that it was taken away from, and that is not proven gone."""
    checking: bool = False
    """It exited as expected and its checks have no verdict yet."""
    asking: bool = False
    """Its attempt is lost and a person is asked what to do."""
    final: bool = False
    """In an open circuit, and it counts as failed for good."""
    circuit: Circuit | None = None
    hold: Hold | None = None
    pardon: Pardon | None = None
    blocked: str | None = None
    """Why it will never start, where its machine has no state for that."""
    category: Category | None = None
    fingerprint: str | None = None
    repeats: int = 0
    error: str | None = None
    exit_code: int | None = None
    lost: tuple[Token, ...] = ()
    """Attempts given up as lost; a late word from one is kept as evidence."""

    @property
    def label(self) -> str:
        """How people call it: `182/build`."""
        return f"{self.run}/{self.plan.name}"

    @property
    def key(self) -> TaskKey:
        return (self.run, self.number)

    @property
    def ref(self) -> Ref:
        return Ref(Entity.TASK, (self.run, self.number))

    @property
    def terminal(self) -> bool:
        return MACHINES[self.machine].state[self.state].terminal


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process, with its two regions."""

    id: str
    slots: int
    capabilities: frozenset[str]
    health: str
    health_phase: Phase
    health_version: int
    control: str
    control_phase: Phase
    control_version: int
    created: int
    health_entered: int
    control_entered: int
    workspace: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    draining: bool = False
    frozen: bool = False
    """Idle and not heard of; it gets no work."""
    reason: str | None = None

    @property
    def label(self) -> str:
        return self.id

    @property
    def ref(self) -> Ref:
        return Ref(Entity.WORKER, self.id)

    @property
    def willing(self) -> bool:
        """Whether it may be given new work."""
        return (
            self.health_phase in (Phase.QUEUED, Phase.ACTIVE)
            and self.control_phase in (Phase.IDLE, Phase.ACTIVE)
            and not self.draining
            and not self.frozen
        )


@dataclass(frozen=True, slots=True)
class Breaker:
    """What guards one tool."""

    tool: str
    state: str
    phase: Phase
    version: int
    entered: int
    failures: int = 0
    successes: int = 0
    probe: Token | None = None
    ramp: int | None = None
    """After closing: how many may run at once, doubled by each success, until it is lifted."""
    error: str | None = None

    @property
    def label(self) -> str:
        return self.tool

    @property
    def ref(self) -> Ref:
        return Ref(Entity.BREAKER, self.tool)


Record = Run | Task | Worker | Breaker
R = TypeVar("R", bound=Run | Task | Worker | Breaker | Attempt)

_FIELDS: dict[type, tuple[str, ...]] = {
    cls: tuple(cls.__slots__) for cls in (Run, Task, Worker, Breaker, Attempt)
}


def evolve(record: R, sets: Mapping[str, object]) -> R:
    """The record with some fields changed. `dataclasses.replace` is three times slower."""
    cls = type(record)
    fields = _FIELDS[cls]
    assert sets.keys() <= set(fields), f"{cls.__name__} has no {sets.keys() - set(fields)}"
    new = object.__new__(cls)
    put = object.__setattr__
    for name in fields:
        put(new, name, sets[name] if name in sets else getattr(record, name))
    return new
