"""Everything that is not over, in memory, with the queue of what may start.

A model changes in one way only: `apply` folds a decision into it. Loaded from a store's snapshot it is
equal to the one that lived through the same decisions.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from engine.core.book import Book
from engine.core.decision import AttemptNoted, Change, Created, Decision, Fact, TimerSet, Transition
from engine.core.plan import Settings
from engine.core.ready import (
    CHECKS_ONLY,
    CLOSED,
    OPEN,
    Lane,
    Rank,
    final_checks_ready,
    lane_of,
    openness,
    task_blocker,
)
from engine.core.records import (
    Attempt,
    Breaker,
    Record,
    Run,
    Task,
    TaskKey,
    Worker,
)
from engine.machines import Phase


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The records that a model is built from."""

    runs: tuple[Run, ...] = ()
    tasks: tuple[Task, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    workers: tuple[Worker, ...] = ()
    breakers: tuple[Breaker, ...] = ()
    timers: tuple[TimerSet, ...] = ()
    next_run: int = 1


class Offer(NamedTuple):
    """A ready task and its place in the line: the round of this dispatch, then its run's ticket."""

    round: int
    ticket: int
    key: TaskKey


class Queue:
    """Ready tasks by lane, and within a lane by run, in the order in which runs take turns.

    A run draws a ticket when it comes into the line and a new one whenever it is served; tickets are
    compared across lanes, so a run with many tasks has no more turns than one with few.
    """

    def __init__(self) -> None:
        self.lanes: dict[Lane, dict[int, dict[TaskKey, None]]] = {}
        self.place: dict[TaskKey, Lane] = {}
        self.ready: dict[int, dict[Lane, dict[TaskKey, None]]] = {}
        self.openness: dict[int, int] = {}
        self._tickets: dict[int, int] = {}
        self._drawn = 0

    def add(self, key: TaskKey, lane: Lane) -> None:
        if self.place.get(key) == lane:
            return
        self.remove(key)
        self.place[key] = lane
        tasks = self.ready.setdefault(key[0], {}).setdefault(lane, {})
        tasks[key] = None
        if len(tasks) == 1 and self._shown(lane, self.openness.get(key[0], CLOSED)):
            self._show(lane, key[0], tasks)

    def remove(self, key: TaskKey) -> None:
        """Take a task out; its run goes to the end of the line."""
        lane = self.place.pop(key, None)
        if lane is None:
            return
        run = key[0]
        tasks = self.ready[run][lane]
        del tasks[key]
        if not tasks:
            self._hide(lane, run)
            del self.ready[run][lane]
            if not self.ready[run]:
                del self.ready[run]
                self._tickets.pop(run, None)
                return
        self._draw(run)
        for other, rest in self.ready[run].items():
            shown = self.lanes.get(other, {})
            if run in shown:
                del shown[run]
                shown[run] = rest

    def open(self, run: int, level: int) -> None:
        """Say how far a run lets its ready tasks start."""
        before = self.openness.get(run, CLOSED)
        if level == before:
            return
        if level == CLOSED:
            self.openness.pop(run)
        else:
            self.openness[run] = level
        for lane, tasks in self.ready.get(run, {}).items():
            was, now = self._shown(lane, before), self._shown(lane, level)
            if now and not was:
                self._show(lane, run, tasks)
            elif was and not now:
                self._hide(lane, run)

    def forget(self, run: int) -> None:
        for key in [key for tasks in self.ready.get(run, {}).values() for key in tasks]:
            self.remove(key)
        self.openness.pop(run, None)

    @staticmethod
    def _shown(lane: Lane, level: int) -> bool:
        return level == OPEN or (level == CHECKS_ONLY and lane.rank is Rank.CHECK)

    def _draw(self, run: int) -> None:
        self._drawn += 1
        self._tickets[run] = self._drawn

    def _show(self, lane: Lane, run: int, tasks: dict[TaskKey, None]) -> None:
        if run not in self._tickets:
            self._draw(run)
        self.lanes.setdefault(lane, {})[run] = tasks

    def _hide(self, lane: Lane, run: int) -> None:
        shown = self.lanes.get(lane)
        if shown is not None:
            shown.pop(run, None)
            if not shown:
                del self.lanes[lane]

    def offers(self, lane: Lane, admitted: Callable[[TaskKey], bool]) -> Iterator[Offer]:
        """The ready tasks of a lane, one of each run in turn; a run that is not admitted leaves the line.

        Costs only what is taken.
        """
        line: Iterable[tuple[int, Iterator[TaskKey]]]
        line = ((self._tickets[run], iter(tasks)) for run, tasks in self.lanes[lane].items())
        for number in count():
            again: list[tuple[int, Iterator[TaskKey]]] = []
            for ticket, rest in line:
                key = next(rest, None)
                if key is not None and admitted(key):
                    yield Offer(number, ticket, key)
                    again.append((ticket, rest))
            if not again:
                return
            line = again


class Model(Book):
    """The book that decisions are made on."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings or Settings())
        self.queue = Queue()
        self.backoff: dict[str, dict[TaskKey, None]] = {}
        """Tasks between two attempts, by the tool whose breaker may park them."""
        self.loose: dict[str, None] = {}
        """Workers that may have nothing left to do."""
        self.unfinished: set[int] = set()
        """Runs that are not over, whose ready tasks are in the queue."""

    @classmethod
    def load(cls, snapshot: Snapshot, settings: Settings) -> "Model":
        model = cls(settings)
        model.recall(snapshot)
        return model

    def recall(self, snapshot: Snapshot) -> None:
        """Take in stored records: all of them at the start, one ended run when it is asked for later."""
        for run in snapshot.runs:
            self.put_run(run)
        for task in snapshot.tasks:
            self.put_task(task)
        for worker in snapshot.workers:
            self.put_worker(worker)
        for attempt in snapshot.attempts:
            self.put_attempt(attempt)
        for breaker in snapshot.breakers:
            self.put_breaker(breaker)
        for timer in snapshot.timers:
            self.set_timer(timer.ref, timer.kind, timer.due)
        self.next_run = max(self.next_run, snapshot.next_run)
        self._refresh()

    def retire(self, number: int) -> None:
        """Let go of a run that is over; what the store has of it can be recalled."""
        run = self.run(number)
        assert run.terminal, f"run {number} is not over"
        for key in [(number, part) for part in range(1, len(run.plan.tasks) + 1)]:
            self._tasks.drop(key)
            self._needs.drop(key)
        self._runs.drop(number)
        self._tallies.drop(number)

    def apply(self, decision: Decision) -> None:
        """Fold a decision into the model."""
        for change in decision.changes:
            self._fold(change)
        for timer in decision.timers:
            if isinstance(timer, TimerSet):
                self.set_timer(timer.ref, timer.kind, timer.due)
            else:
                self.clear_timer(timer.ref, timer.kind)
        self._refresh()

    def _fold(self, change: Change) -> None:
        if isinstance(change, AttemptNoted):
            self.put_attempt(change.after)
            return
        fold_record(self, change.after)
        if isinstance(change, Created):
            return
        fold_attempts(self, change)

    def put_worker(self, worker: Worker) -> None:
        super().put_worker(worker)
        self.loose[worker.id] = None

    def _release(self, worker: str, token: object) -> None:
        super()._release(worker, token)  # type: ignore[arg-type]
        self.loose[worker] = None

    def _refresh(self) -> None:
        """Bring the queue up to date with what was touched."""
        for key in self.touched_tasks:
            self._place(key)
        for number in self.touched_runs:
            run = self.run(number)
            if run.terminal:
                self.queue.forget(number)
                self.unfinished.discard(number)
                continue
            if number not in self.unfinished:
                self.unfinished.add(number)
                for task in self.tasks_of(run):
                    self._place(task.key)
            if final_checks_ready(run):
                self.queue.add((number, 0), lane_of(run, None))
            else:
                self.queue.remove((number, 0))
            self.queue.open(number, openness(self, run))
        self.touched_tasks.clear()
        self.touched_runs.clear()
        self.freed.clear()
        self.loose = {name: None for name in self.loose if self._may_rest(name)}

    def _may_rest(self, name: str) -> bool:
        worker = self.worker(name)
        if worker is None or self.holds(name) or worker.health_phase not in (Phase.QUEUED, Phase.ACTIVE):
            return False
        return worker.draining or worker.health_phase is Phase.ACTIVE

    def _place(self, key: TaskKey) -> None:
        task = self.find_task(key)
        if task is None:
            return
        run = self.run(task.run)
        if not run.terminal and task_blocker(self, task) is None:
            self.queue.add(key, lane_of(run, task))
        else:
            self.queue.remove(key)
        tool = task.plan.tool
        if tool is not None:
            if task.phase is Phase.BACKOFF and not run.terminal and task.blocked is None:
                self.backoff.setdefault(tool, {})[key] = None
            elif tool in self.backoff:
                self.backoff[tool].pop(key, None)

    # ---- the whole of it

    def runs(self) -> Iterable[Run]:
        return (run for run in self._runs.own.values() if run is not None)

    def tasks(self) -> Iterable[Task]:
        return (task for task in self._tasks.own.values() if task is not None)

    def tasks_of(self, run: Run) -> Iterable[Task]:
        return (self.task((run.number, number)) for number in range(1, len(run.plan.tasks) + 1))

    def attempts(self) -> Iterable[Attempt]:
        return (attempt for attempt in self._attempts.own.values() if attempt is not None)

    def workers(self) -> Iterable[Worker]:
        return (worker for worker in self._workers.own.values() if worker is not None)

    def breakers(self) -> Iterable[Breaker]:
        return (breaker for breaker in self._breakers.own.values() if breaker is not None)

    def timers(self) -> Iterable[TimerSet]:
        return (TimerSet(ref, kind, due) for (ref, kind), due in self._timers.own.items() if due is not None)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            tuple(sorted(self.runs(), key=lambda run: run.number)),
            tuple(sorted(self.tasks(), key=lambda task: task.key)),
            tuple(sorted(self.attempts(), key=lambda attempt: attempt.token)),
            tuple(sorted(self.workers(), key=lambda worker: worker.id)),
            tuple(sorted(self.breakers(), key=lambda breaker: breaker.tool)),
            tuple(sorted(self.timers(), key=lambda timer: (timer.ref.kind, str(timer.ref), timer.kind))),
            self.next_run,
        )

    def derived(self) -> dict[str, object]:
        """What follows from the records, in a form that can be compared."""
        return {
            "tallies": {run: tally for run, tally in self._tallies.own.items() if tally},
            "needs": {key: needs for key, needs in self._needs.own.items() if needs},
            "holds": {name: sorted(held) for name, held in self._holds.own.items() if held},
            "tool_live": {tool: count for tool, count in self._tool_live.own.items() if count},
            "ready": dict(self.queue.place),
            "open": dict(self.queue.openness),
            "shown": {lane: set(runs) for lane, runs in self.queue.lanes.items() if runs},
            "backoff": {tool: set(keys) for tool, keys in self.backoff.items() if keys},
        }


def fold_record(book: Book, record: Record) -> None:
    """Put a changed record where it belongs."""
    if isinstance(record, Task):
        book.put_task(record)
    elif isinstance(record, Run):
        book.put_run(record)
    elif isinstance(record, Worker):
        book.put_worker(record)
    else:
        book.put_breaker(record)


def fold_attempts(book: Book, change: Transition | Fact) -> None:
    """Close and open the attempts that a change closes and opens."""
    if change.closes is not None:
        book.close_attempt(change.closes.token)
    if change.opens is not None:
        book.put_attempt(change.opens)
