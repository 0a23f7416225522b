"""What a run is going to do: the plan made from a workflow file, and the operator's settings.

Plans are immutable and shared by every run of the same workflow version.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engine.machines import LIFECYCLES, MACHINES, Lifecycle, Machine, Phase, RunCue, TaskCue

SECOND = 1_000_000
"""Times and durations are integer microseconds."""

MAX_DEPTH = 5
MAX_WORKERS = 10


class OnFailure(StrEnum):
    """What happens to the rest when a critical task has failed for good."""

    FINISH = "finish"
    CONTINUE = "continue"
    CANCEL = "cancel"


class OnLost(StrEnum):
    """What happens to a task whose attempt is lost."""

    RETRY = "retry"
    ASK = "ask"
    FAIL = "fail"


class WhenOpen(StrEnum):
    """What a task does in an open circuit of its own."""

    FAIL = "fail"
    WAIT = "wait"


class Category(StrEnum):
    """How an error is read: worth another try, never, or who knows."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """Exit codes or an output pattern that put an error into a category; given both, both must match."""

    category: Category
    exit_codes: frozenset[int] = frozenset()
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how soon a failed task is tried again."""

    max_attempts: int = 5
    base: int = 2 * SECOND
    cap: int = 60 * SECOND
    jitter: float = 0.25
    max_repeats: int = 2

    @property
    def max_retries(self) -> int:
        return self.max_attempts - 1


@dataclass(frozen=True, slots=True)
class Tool:
    """The operator's profile of a tool, and of the breaker that guards it."""

    name: str
    retry_on_failure: bool = True
    retry: Retry | None = None
    timeout: int | None = None
    concurrency: int | None = None
    has_health_command: bool = False
    errors: tuple[ErrorRule, ...] = ()
    failure_threshold: int = 5
    cooldown: int = 60 * SECOND
    success_threshold: int = 1


@dataclass(frozen=True, slots=True)
class Clause:
    """One condition of an approval: so many votes of these users or members of these teams."""

    users: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()
    count: int = 1


@dataclass(frozen=True, slots=True)
class Approval:
    """Every clause must be met before the expiry."""

    clauses: tuple[Clause, ...]
    expires: int = 24 * 3600 * SECOND


@dataclass(frozen=True, slots=True)
class Test:
    """One part of a `when`: a parameter or the outcome of a need, compared with a value."""

    __test__ = False
    subject: str
    value: str
    equal: bool = True


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task. Tasks are numbered from 1 in the order of the file; `needs` are such numbers."""

    name: str
    needs: tuple[int, ...] = ()
    tool: str | None = None
    capabilities: frozenset[str] = frozenset()
    retry: Retry | None = None
    timeout: int | None = None
    expected_exits: frozenset[int] = frozenset({0})
    errors: tuple[ErrorRule, ...] = ()
    checks: int = 0
    has_cancel_hook: bool = False
    critical: bool = True
    optional: bool = False
    when: tuple[Test, ...] = ()
    on_lost: OnLost = OnLost.RETRY
    when_circuit_open: WhenOpen = WhenOpen.FAIL
    max_probes: int = 1
    approval: Approval | None = None
    wait: int | None = None
    uses: "Plan | None" = None

    @property
    def fails_run(self) -> bool:
        """Whether its failure for good fails the run."""
        return self.critical and not self.optional


@dataclass(frozen=True)
class Plan:
    """A workflow, ready to run."""

    name: str
    tasks: tuple[TaskPlan, ...]
    lifecycle: Lifecycle = LIFECYCLES["standard"]
    digest: str = ""
    description: str = ""
    concurrency: int | None = None
    priority: int = 0
    timeout: int | None = None
    on_failure: OnFailure | None = None
    approval: Approval | None = None
    wait: int | None = None
    checks: int = 0
    worker_count: int = 1
    grace: int = 30 * SECOND
    hook_timeout: int = 300 * SECOND
    abandon_after: int = 24 * 3600 * SECOND
    checkpoint: bool = True

    dependents: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    """For each task number (0 is empty) the tasks that need it."""
    numbers: dict[str, int] = field(init=False, repr=False, compare=False)
    run_machine: Machine = field(init=False, repr=False, compare=False)
    task_machine: Machine = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        dependents: list[list[int]] = [[] for _ in range(len(self.tasks) + 1)]
        for number, task in enumerate(self.tasks, 1):
            for need in dict.fromkeys(task.needs):
                if not 1 <= need <= len(self.tasks):
                    raise ValueError(f"{self.name}: task {task.name} needs number {need}, which is no task")
                dependents[need].append(number)
        object.__setattr__(self, "dependents", tuple(map(tuple, dependents)))
        object.__setattr__(self, "numbers", {task.name: n for n, task in enumerate(self.tasks, 1)})
        object.__setattr__(self, "run_machine", MACHINES[self.lifecycle.run])
        object.__setattr__(self, "task_machine", MACHINES[self.lifecycle.task])

    def task(self, number: int) -> TaskPlan:
        return self.tasks[number - 1]

    @property
    def failure_policy(self) -> OnFailure:
        """What the file says, else what the run machine's document says."""
        return self.on_failure or OnFailure(self.run_machine.on_failure)

    @property
    def mirrors_tasks(self) -> bool:
        """Whether the run's machine follows each failure of a task at once."""
        return RunCue.TASK_FAILED in self.run_machine.cues

    @property
    def finishes_checks(self) -> bool:
        """Whether a task that is being checked finishes although its run ends: nothing stops it."""
        machine = self.task_machine
        checking = [state.name for state in machine.states if state.phase is Phase.CHECKING]
        return any(machine.steps(TaskCue.STOPPING, state) is None for state in checking)


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's own rules; a workflow may tighten them, never loosen them."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    teams: Mapping[str, frozenset[str]] = field(default_factory=dict)
    policy: tuple[Clause, ...] = ()
    """Clauses that every approval needs besides its own."""
    self_approval: bool = False
    retry: Retry = Retry()
    task_timeout: int = 300 * SECOND
    check_timeout: int = 30 * SECOND
    max_losses: int = 3
    give_up_after: int = 60 * SECOND
    register_within: int = 60 * SECOND
    kill_margin: int = 30 * SECOND

    def tool(self, name: str | None) -> Tool:
        """The profile of a tool; one that nobody wrote has the documents' figures."""
        found = self.tools.get(name) if name is not None else None
        return found or Tool(name or "")

    def retry_of(self, task: TaskPlan) -> Retry:
        return task.retry or self.tool(task.tool).retry or self.retry

    def timeout_of(self, task: TaskPlan) -> int:
        return task.timeout or self.tool(task.tool).timeout or self.task_timeout
