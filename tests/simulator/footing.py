"""Why a run or a task that is not over may stand still: the invariant "nothing is stuck".

Written against the records alone, without the engine's own predicate, so that the two can disagree.
"""

from collections.abc import Mapping

from engine.core.model import Model
from engine.core.plan import OnFailure
from engine.core.records import Circuit, Pardon, Run, Task, Token, Worker
from engine.machines import Phase

FULFILLING = (Pardon.WAIVED, Pardon.CONDITION, Pardon.CARRIED, Pardon.LEFT_OUT)


def fulfilled(task: Task) -> bool:
    """Whether what needs this task may go on."""
    if task.phase is Phase.SUCCEEDED or task.pardon in FULFILLING:
        return True
    over = task.final or task.phase in (Phase.FAILED, Phase.CANCELLED)
    return task.plan.optional and over and not task.asking


def decided(run: Run, tasks: Mapping[int, Task]) -> bool:
    """A critical task failed for good or can never start, and the policy lets nothing new start."""
    if run.plan.mirrors_tasks or run.plan.failure_policy is OnFailure.CONTINUE:
        return False
    return any(_doomed(run, task, tasks) for task in tasks.values())


def _doomed(run: Run, task: Task, tasks: Mapping[int, Task]) -> bool:
    if not task.plan.fails_run or task.pardon or task.asking or task.blocked:
        return False
    if task.final or task.phase in (Phase.FAILED, Phase.CANCELLED):
        return True
    if task.phase not in (Phase.IDLE, Phase.QUEUED) or run.machine != "orchestration.workstream":
        return False
    return any(_barred(tasks[need], tasks) for need in task.plan.needs)


def _barred(task: Task, tasks: Mapping[int, Task]) -> bool:
    """Whether what needs this task can never start."""
    if fulfilled(task) or task.asking:
        return False
    if task.final or task.blocked or task.pardon is Pardon.TOLERATED:
        return True
    if task.phase in (Phase.FAILED, Phase.CANCELLED, Phase.SKIPPED):
        return True
    if task.phase not in (Phase.IDLE, Phase.QUEUED):
        return False
    return any(_barred(tasks[need], tasks) for need in task.plan.needs)


class Footing:
    """What everything of one moment stands on."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._timed: set[object] = {timer.ref for timer in model.timers()}
        self._open: dict[tuple[int, int], list[Token]] = {}
        self._busy: dict[str, int] = {}
        self._tools: dict[str, int] = {}
        self._live: dict[int, int] = {}
        for attempt in model.attempts():
            self._open.setdefault(attempt.token.key, []).append(attempt.token)
            self._live[attempt.token.run] = self._live.get(attempt.token.run, 0) + 1
            if attempt.worker is not None:
                self._busy[attempt.worker] = self._busy.get(attempt.worker, 0) + 1
            if attempt.tool is not None:
                self._tools[attempt.tool] = self._tools.get(attempt.tool, 0) + 1
        self._workers = list(model.workers())

    # ---- runs

    def of_run(self, run: Run) -> str | None:
        """What a run stands on; None when it is stuck."""
        if run.ref in self._timed:
            return "timer"
        if run.phase is Phase.HELD:
            return "people"
        if self._open.get((run.number, 0)):
            return "final checks"
        if run.checking and not self.takers(frozenset()):
            return "no capacity for its final checks"
        if self._live.get(run.number):
            return "live attempt"
        if run.ending is not None:
            checked = [task for task in self._model.tasks_of(run) if task.checking]
            lacking = any(not self.takers(task.plan.capabilities) for task in checked)
            return "no capacity for its last checks" if lacking and run.plan.finishes_checks else None
        if any(self._moves(run, task) for task in self._model.tasks_of(run)):
            return "task"
        return None

    def _moves(self, run: Run, task: Task) -> bool:
        """Whether a task of a run without live attempts can still do something by itself or by a person."""
        if task.terminal or task.pardon or task.blocked or task.final:
            return False
        if task.ref in self._timed or task.asking or task.checking:
            return True
        if task.phase in (Phase.HELD, Phase.WAITING):
            return True
        if any(not fulfilled(self._model.task((run.number, need))) for need in task.plan.needs):
            return False
        return task.phase is not Phase.FAILED and not self.decided(run)

    def decided(self, run: Run) -> bool:
        """A critical task failed, and the policy lets nothing new start."""
        return decided(run, {task.number: task for task in self._model.tasks_of(run)})

    def open_tokens(self, task: Task) -> list[Token]:
        return self._open.get(task.key, [])

    def tasks_alive(self, run: Run) -> int:
        return sum(1 for task in self._model.tasks_of(run) if self._open.get(task.key))

    # ---- tasks

    def of_task(self, task: Task) -> str | None:
        """What a task stands on; None when it is stuck."""
        run = self._model.run(task.run)
        if run.terminal:
            return "run has ended"
        if tokens := self._open.get(task.key):
            return self._live_attempt(tokens[0])
        if task.ref in self._timed:
            return "timer"
        if task.asking:
            return "person"
        if task.pardon or task.blocked or task.final or task.phase is Phase.FAILED:
            return "over in effect"
        if any(not fulfilled(self._model.task((task.run, need))) for need in task.plan.needs):
            return "need"
        if task.phase is Phase.PARKED and task.circuit is Circuit.OWN:
            return "person"
        return self._closed(run, task) or self._no_capacity(run, task)

    def _live_attempt(self, token: Token) -> str | None:
        attempt = self._model.attempt(token)
        assert attempt is not None
        if attempt.sub_run is not None and self._model.run(attempt.sub_run).terminal:
            return None
        return "live attempt"

    def _closed(self, run: Run, task: Task) -> str | None:
        """What the run itself has against a start."""
        if run.ending is not None:
            return "run ends"
        if run.phase in (
            Phase.HELD,
            Phase.WAITING,
            Phase.BACKOFF,
            Phase.FAILED,
            Phase.RECOVERING,
            Phase.IDLE,
        ):
            return "run rests"
        if self.decided(run) and not task.checking:
            return "run is decided"
        limit = run.plan.concurrency
        if limit is not None and self.tasks_alive(run) >= limit:
            return "concurrency"
        return None

    def _no_capacity(self, run: Run, task: Task) -> str | None:
        placed = task.plan.uses is None or task.checking
        if placed and not self.takers(task.plan.capabilities):
            return "no capacity"
        tool = task.plan.tool
        if tool is None or task.checking:
            return None
        breaker = self._model.breaker(tool)
        if breaker is not None:
            if breaker.phase is Phase.PARKED:
                return "breaker open"
            if breaker.phase is Phase.PROBING and breaker.probe is not None:
                return "breaker is being probed"
            if breaker.ramp is not None and self._tools.get(tool, 0) >= breaker.ramp:
                return "breaker has just closed"
        return "tool limit" if self.tool_is_full(tool) else None

    def tool_is_full(self, tool: str) -> bool:
        limit = self._model.settings.tool(tool).concurrency
        return limit is not None and self._tools.get(tool, 0) >= limit

    def takers(self, capabilities: frozenset[str]) -> list[Worker]:
        """Workers that could take one more execution with these requirements."""
        return [
            worker
            for worker in self._workers
            if worker.health_phase in (Phase.QUEUED, Phase.ACTIVE)
            and worker.control_phase in (Phase.IDLE, Phase.ACTIVE)
            and not worker.draining
            and not worker.frozen
            and capabilities <= worker.capabilities
            and self._busy.get(worker.id, 0) < worker.slots
        ]
