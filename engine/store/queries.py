"""What can be asked of a store: pages of runs and of history, by filter and sort, without ever counting off.

A page ends with the key of its last row, and the next one begins there: the millionth row costs what the
first does, and rows that arrive meanwhile do not shift a page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from engine.core.records import Entity, Ref
from engine.machines import MACHINES, Phase
from engine.store.chain import Head
from engine.store.gate import AuditRow

T = TypeVar("T")
Cursor = tuple[int | str | None, int]
"""The sort value and the number of the last row of a page."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some rows, and where the next page begins; None when there is none."""

    rows: tuple[T, ...]
    next: Cursor | None = None


class RunSort(StrEnum):
    NUMBER = "number"
    UPDATED = "updated"
    NAME = "name"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs; what is left empty does not matter."""

    phases: frozenset[Phase] = frozenset()
    states: frozenset[str] = frozenset()
    machine: str | None = None
    name: str | None = None
    requester: str | None = None
    parent: int | None = None
    open: bool | None = None

    def admits(self, machine: str, state: str) -> bool:
        """Whether a state is one of those that are wanted."""
        if self.states and state not in self.states:
            return False
        return not self.phases or MACHINES[machine].phase[state] in self.phases

    @property
    def standings(self) -> list[tuple[str, str]] | None:
        """The states that are wanted, each under its machine; None when any will do."""
        if not self.phases and not self.states:
            return None
        return [
            (machine.name, state.name)
            for machine in MACHINES.values()
            for state in machine.states
            if self.admits(machine.name, state.name)
        ]


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Which rows of the trail; what is left empty does not matter."""

    ref: Ref | None = None
    run: int | None = None
    kind: Entity | None = None
    machine: str | None = None
    from_state: str | None = None
    event: str | None = None
    to_state: str | None = None
    actor: str | None = None
    source: str | None = None
    request_id: str | None = None
    cause: int | None = None
    since: int | None = None
    until: int | None = None
    """The first moment that is no longer wanted."""
    facts: bool | None = None
    """True for facts alone, False for transitions and creations alone."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run, without its plan."""

    number: int
    workflow: str
    name: str
    task_description: str
    machine: str
    state: str
    version: int
    requester: str | None
    params: str
    created: int
    entered: int
    updated: int
    started: int | None
    ended: int | None
    parent_run: int | None
    parent_task: int | None
    depth: int
    worker_count: int
    task_count: int
    origin_run: int | None
    origin_verb: str | None
    ending: str | None
    ending_reason: str | None
    resumed_by: int | None

    @property
    def phase(self) -> Phase:
        return MACHINES[self.machine].phase[self.state]


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task, without its plan."""

    run: int
    number: int
    name: str
    machine: str
    state: str
    version: int
    created: int
    entered: int
    updated: int
    started: int | None
    ended: int | None
    attempt: int
    retries: int
    failures: int
    losses: int
    live: str | None
    fenced: str | None
    asking: bool
    final: bool
    circuit: str | None
    pardon: str | None
    blocked: str | None
    category: str | None
    error: str | None
    exit_code: int | None

    @property
    def phase(self) -> Phase:
        return MACHINES[self.machine].phase[self.state]

    @property
    def label(self) -> str:
        return f"{self.run}/{self.name}"


@dataclass(frozen=True, slots=True)
class RunDetail:
    """A run with all its tasks."""

    run: RunRow
    tasks: tuple[TaskRow, ...]


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One execution, live or over, with what was measured of it."""

    run: int
    task: int
    attempt: int
    purpose: str
    round: int
    worker: str | None
    tool: str | None
    sub_run: int | None
    sent: int
    started: int | None
    pid: int | None
    stopping: str | None
    ended: int | None
    outcome: str | None
    exit_code: int | None
    output_size: int | None
    cpu_time: int | None
    peak_memory: int | None


class Queries(Protocol):
    """What every store can be asked."""

    async def runs(
        self,
        wanted: RunFilter = ...,
        sort: RunSort = ...,
        *,
        descending: bool = ...,
        after: Cursor | None = ...,
        limit: int = ...,
    ) -> Page[RunRow]:
        """A page of runs. What has no sort value comes below what has one; ties are sorted by number."""
        ...

    async def run(self, number: int) -> RunDetail | None:
        """One run with its tasks."""
        ...

    async def history(
        self,
        wanted: HistoryFilter = ...,
        *,
        descending: bool = ...,
        after: Cursor | None = ...,
        limit: int = ...,
    ) -> Page[AuditRow]:
        """A page of the trail, newest first unless told otherwise."""
        ...

    async def attempts(self, run: int, task: int | None = None) -> Sequence[AttemptRow]:
        """The executions of a run or of one of its tasks: task by task, the oldest first."""
        ...

    async def head(self) -> Head:
        """The end of the chain. The simulated store has no hashes, only a length."""
        ...
