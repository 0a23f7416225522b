"""The records of everything that is not over, and what follows from them.

A `Book` keeps, beside each record, what the core must know without looking at a whole run: how the
tasks of a run stand, how many needs of a task are unmet, what a worker holds. Each is kept up to date
change by change. The model is a book; a draft is a book laid over a model.
"""

from enum import IntEnum
from typing import Generic, TypeVar

from engine.core.plan import Category, Settings
from engine.core.records import (
    Attempt,
    Breaker,
    Circuit,
    Pardon,
    Purpose,
    Ref,
    Run,
    Task,
    TaskKey,
    TimerKind,
    Token,
    Worker,
)
from engine.machines import Phase

K = TypeVar("K")
V = TypeVar("V")


class Table(Generic[K, V]):
    """A mapping that may lie over another: reads fall through, writes and removals stay on top.

    Two layers at most: a draft lies over a model, and nothing over a draft.
    """

    __slots__ = ("base", "own")

    def __init__(self, base: "Table[K, V] | None" = None) -> None:
        self.own: dict[K, V | None] = {}
        self.base = base

    def get(self, key: K) -> V | None:
        own = self.own
        if key in own:
            return own[key]
        return None if self.base is None else self.base.own.get(key)

    def put(self, key: K, value: V) -> None:
        self.own[key] = value

    def drop(self, key: K) -> None:
        if self.base is None:
            self.own.pop(key, None)
        else:
            self.own[key] = None


class Standing(IntEnum):
    """How a task stands towards the end of its run."""

    WAITING = 0
    """Not started, and it still may."""
    HELD = 1
    ACTIVE = 2
    RETRYING = 3
    PARKED = 4
    """Behind the open breaker of its tool."""
    STRANDED = 5
    """In its own open circuit, its probes used up: a person decides."""
    ASKING = 6
    DONE = 7
    FAILED = 8
    SHRUGGED = 9
    """Failed for good, and the run does not mind."""
    DOOMED = 10
    """Not started, critical, and behind a failure."""
    DOOMED_SOFT = 11
    DROPPED = 12


LIVE, DOUBT, ARMED = 13, 14, 15
"""Places in a tally besides the standings: tasks with a live attempt, attempts in doubt, timers that a
task waits for before it is tried again.
"""

Tally = tuple[int, ...]
EMPTY_TALLY: Tally = (0,) * 16

_RESTING = (Phase.IDLE, Phase.QUEUED)
_DOOMING = (Standing.FAILED, Standing.SHRUGGED, Standing.DOOMED, Standing.DOOMED_SOFT, Standing.DROPPED)
_SATISFYING = (Pardon.WAIVED, Pardon.CONDITION, Pardon.CARRIED, Pardon.LEFT_OUT)


def standing(task: Task, doomed: int) -> Standing:
    """How a task stands, given how many of its needs can never be met."""
    phase = task.phase
    if phase is Phase.SUCCEEDED or task.pardon is not None:
        return Standing.DONE
    if task.asking:
        return Standing.ASKING
    if failed_for_good(task):
        return Standing.FAILED if task.plan.fails_run else Standing.SHRUGGED
    if phase is Phase.SKIPPED or task.blocked is not None:
        return Standing.DROPPED
    if phase in _RESTING:
        if not doomed:
            return Standing.WAITING
        return Standing.DOOMED if task.plan.fails_run else Standing.DOOMED_SOFT
    if phase is Phase.HELD or phase is Phase.WAITING:
        return Standing.HELD
    if phase is Phase.BACKOFF:
        return Standing.RETRYING
    if phase is Phase.PARKED:
        if task.circuit is Circuit.BREAKER:
            return Standing.PARKED
        return Standing.RETRYING if probe_left(task) else Standing.STRANDED
    between = phase is Phase.ACTIVE and task.live is None and not task.checking
    return Standing.RETRYING if between else Standing.ACTIVE


def probe_left(task: Task) -> bool:
    """Whether a task in its own open circuit may still be tried by itself."""
    return task.probes < task.plan.max_probes and task.category is not Category.PERMANENT


def failed_for_good(task: Task) -> bool:
    return task.final or task.phase is Phase.FAILED or task.phase is Phase.CANCELLED


def satisfies(task: Task) -> bool:
    """Whether what depends on this task may go on."""
    if task.phase is Phase.SUCCEEDED or task.pardon in _SATISFYING:
        return True
    return task.plan.optional and failed_for_good(task)


def dooms(task: Task, how: Standing) -> bool:
    """Whether what depends on this task can never start. A task that was only tolerated still does."""
    return not satisfies(task) and (how in _DOOMING or task.pardon is Pardon.TOLERATED)


class Book:
    """Records and what is derived from them."""

    def __init__(self, settings: Settings, base: "Book | None" = None) -> None:
        self.settings = settings
        self._runs: Table[int, Run] = Table(base._runs if base else None)
        self._tasks: Table[TaskKey, Task] = Table(base._tasks if base else None)
        self._attempts: Table[Token, Attempt] = Table(base._attempts if base else None)
        self._workers: Table[str, Worker] = Table(base._workers if base else None)
        self._breakers: Table[str, Breaker] = Table(base._breakers if base else None)
        self._timers: Table[tuple[Ref, TimerKind], int] = Table(base._timers if base else None)
        self._tallies: Table[int, Tally] = Table(base._tallies if base else None)
        self._needs: Table[TaskKey, tuple[int, int]] = Table(base._needs if base else None)
        self._load: Table[str, int] = Table(base._load if base else None)
        self._tool_live: Table[str, int] = Table(base._tool_live if base else None)
        self.next_run: int = base.next_run if base else 1
        self.touched_runs: dict[int, None] = {}
        self.touched_tasks: dict[TaskKey, None] = {}
        self.freed: dict[TaskKey, None] = {}
        """Tasks whose last unmet need was met by a change."""

    # ---- reading

    def run(self, number: int) -> Run:
        found = self._runs.get(number)
        if found is None:
            raise KeyError(f"there is no run {number}")
        return found

    def task(self, key: TaskKey) -> Task:
        found = self._tasks.get(key)
        if found is None:
            raise KeyError(f"there is no task {key[0]}/{key[1]}")
        return found

    def find_run(self, number: int) -> Run | None:
        return self._runs.get(number)

    def find_task(self, key: TaskKey) -> Task | None:
        return self._tasks.get(key)

    def attempt(self, token: Token) -> Attempt | None:
        return self._attempts.get(token)

    def worker(self, name: str) -> Worker | None:
        return self._workers.get(name)

    def breaker(self, tool: str) -> Breaker | None:
        return self._breakers.get(tool)

    def timer(self, ref: Ref, kind: TimerKind) -> int | None:
        return self._timers.get((ref, kind))

    def tally(self, run: int) -> Tally:
        return self._tallies.get(run) or EMPTY_TALLY

    def unmet(self, key: TaskKey) -> int:
        return (self._needs.get(key) or (0, 0))[0]

    def doomed(self, key: TaskKey) -> int:
        return (self._needs.get(key) or (0, 0))[1]

    def standing(self, key: TaskKey) -> Standing:
        return standing(self.task(key), self.doomed(key))

    def load_of(self, worker: str) -> int:
        """How many executions a worker has, fenced ones too."""
        return self._load.get(worker) or 0

    def free_slots(self, worker: Worker) -> int:
        return max(0, worker.slots - self.load_of(worker.id)) if worker.willing else 0

    def tool_live(self, tool: str) -> int:
        return self._tool_live.get(tool) or 0

    # ---- writing

    def put_run(self, run: Run) -> None:
        self._runs.put(run.number, run)
        self.touched_runs[run.number] = None
        if run.number >= self.next_run:
            self.next_run = run.number + 1

    def put_worker(self, worker: Worker) -> None:
        self._workers.put(worker.id, worker)

    def put_breaker(self, breaker: Breaker) -> None:
        self._breakers.put(breaker.tool, breaker)

    def set_timer(self, ref: Ref, kind: TimerKind, due: int) -> None:
        self._touch(ref, kind, 1 if self.timer(ref, kind) is None else 0)
        self._timers.put((ref, kind), due)

    def clear_timer(self, ref: Ref, kind: TimerKind) -> None:
        self._touch(ref, kind, -1 if self.timer(ref, kind) is not None else 0)
        self._timers.drop((ref, kind))

    def _touch(self, ref: Ref, kind: TimerKind, armed: int) -> None:
        if isinstance(ref.key, tuple):
            self.touched_tasks[ref.key] = None
            if armed and kind in (TimerKind.RETRY, TimerKind.PROBE):
                self._bump(ref.key[0], ARMED, armed)

    def put_task(self, task: Task) -> None:
        key = task.key
        old = self._tasks.get(key)
        self._tasks.put(key, task)
        self.touched_tasks[key] = None
        self.touched_runs[task.run] = None
        unmet, doomed = self._needs.get(key) or (0, 0)
        now = standing(task, doomed)
        if old is None:
            needs = len(set(task.plan.needs))
            if needs:
                self._needs.put(key, (needs + unmet, doomed))
            self._bump(task.run, now, 1)
            was, satisfied, dooming = None, False, False
        else:
            was = standing(old, doomed)
            if was is not now:
                self._bump(task.run, was, -1)
                self._bump(task.run, now, 1)
            satisfied = satisfies(old)
            dooming = dooms(old, was)
        if (old is not None and old.live is not None) != (task.live is not None):
            self._bump(task.run, LIVE, 1 if task.live is not None else -1)
        satisfying = satisfies(task)
        if satisfying != satisfied:
            self._spread_satisfaction(task, -1 if satisfying else 1)
        if dooms(task, now) != dooming:
            self._spread_doom(task, -1 if dooming else 1)

    def put_attempt(self, attempt: Attempt) -> None:
        token = attempt.token
        old = self._attempts.get(token)
        self._attempts.put(token, attempt)
        doubt = (1 if attempt.doubt else 0) - (1 if old is not None and old.doubt else 0)
        if doubt:
            self._bump(token.run, DOUBT, doubt)
        if old is None:
            self._count_tool(attempt, 1)
        if attempt.worker != (old.worker if old else None):
            if old is not None and old.worker is not None:
                self._release(old.worker, token)
            if attempt.worker is not None:
                self._occupy(attempt.worker, token)

    def close_attempt(self, token: Token) -> None:
        old = self._attempts.get(token)
        if old is None:
            return
        self._attempts.drop(token)
        if old.doubt:
            self._bump(token.run, DOUBT, -1)
        self._count_tool(old, -1)
        if old.worker is not None:
            self._release(old.worker, token)

    # ---- what follows

    def _bump(self, run: int, place: int, by: int) -> None:
        tally = list(self._tallies.get(run) or EMPTY_TALLY)
        tally[place] += by
        self._tallies.put(run, tuple(tally))
        self.touched_runs[run] = None

    def _count_tool(self, attempt: Attempt, by: int) -> None:
        if attempt.tool is not None and attempt.token.purpose in (Purpose.WORK, Purpose.HEALTH):
            self._tool_live.put(attempt.tool, self.tool_live(attempt.tool) + by)

    def _occupy(self, worker: str, token: Token) -> None:
        self._load.put(worker, self.load_of(worker) + 1)

    def _release(self, worker: str, token: Token) -> None:
        self._load.put(worker, self.load_of(worker) - 1)

    def _spread_satisfaction(self, task: Task, by: int) -> None:
        for dependent in self.run(task.run).plan.dependents[task.number]:
            key = (task.run, dependent)
            unmet, doomed = self._needs.get(key) or (0, 0)
            self._needs.put(key, (unmet + by, doomed))
            self.touched_tasks[key] = None
            if unmet + by == 0:
                self.freed[key] = None

    def _spread_doom(self, task: Task, by: int) -> None:
        """A need can never be met (or can again): so it is for all that wait behind it."""
        spread = [(task.number, by)]
        plan = self.run(task.run).plan
        while spread:
            number, by = spread.pop()
            for dependent in plan.dependents[number]:
                key = (task.run, dependent)
                unmet, doomed = self._needs.get(key) or (0, 0)
                self._needs.put(key, (unmet, doomed + by))
                waiting = self._tasks.get(key)
                if waiting is None:
                    continue
                was, now = standing(waiting, doomed), standing(waiting, doomed + by)
                if was is not now:
                    self._bump(task.run, was, -1)
                    self._bump(task.run, now, 1)
                    dooming = dooms(waiting, now)
                    if dooming != dooms(waiting, was):
                        spread.append((dependent, 1 if dooming else -1))
