"""Everything that is not over, in memory, with the queue of what may start.

A model changes in one way only: `apply` folds a decision into it. Loaded from a store's snapshot it is
equal to the one that lived through the same decisions.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from engine.core.book import Book
from engine.core.decision import AttemptNoted, Change, Created, Decision, Fact, TimerSet, Transition
from engine.core.errors import Refused
from engine.core.plan import Settings
from engine.core.queue import Queue
from engine.core.ready import final_checks_ready, lane_of, openness, task_blocker
from engine.core.records import Attempt, Breaker, Record, Run, Task, TaskKey, Token, Worker
from engine.core.refusals import settings_refusals
from engine.machines import Phase

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The records that a model is built from.

    Every run that is not over, and every run that is over while an attempt of it is open, with all
    their tasks; every open attempt; every worker that has not shut down, or that still has an open
    attempt; every breaker and every timer.
    """

    runs: tuple[Run, ...] = ()
    tasks: tuple[Task, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    workers: tuple[Worker, ...] = ()
    breakers: tuple[Breaker, ...] = ()
    timers: tuple[TimerSet, ...] = ()
    next_run: int = 1


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
        self.held: dict[str, dict[Token, None]] = {}
        """For each worker the executions that it has."""
        self.live: dict[int, dict[TaskKey, None]] = {}
        """For each run its tasks with a live attempt."""
        self.pool: dict[str, None] = {}
        """Workers that have not shut down."""
        self.spare: dict[str, None] = {}
        """Workers with a free slot."""
        self._shifted: dict[str, None] = {}
        """Workers whose record or load was touched."""

    @classmethod
    def load(cls, snapshot: Snapshot, settings: Settings) -> "Model":
        wrong = settings_refusals(settings)
        if wrong:
            raise Refused("settings", "; ".join(wrong))
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
        """Let go of a run that is over; what the store has of it can be recalled.

        A run of which a fenced attempt may still live stays: its late word is to be recorded.
        """
        run = self.run(number)
        if not run.terminal or any(attempt.token.run == number for attempt in self.attempts()):
            raise ValueError(f"run {number} is not over, or something of it may still live")
        for key in [(number, part) for part in range(1, len(run.plan.tasks) + 1)]:
            self._tasks.drop(key)
            self._needs.drop(key)
        self._runs.drop(number)
        self._tallies.drop(number)
        self.live.pop(number, None)

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
        self._shifted[worker.id] = None

    def _occupy(self, worker: str, token: Token) -> None:
        super()._occupy(worker, token)
        self.held.setdefault(worker, {})[token] = None
        self._shifted[worker] = None

    def _release(self, worker: str, token: Token) -> None:
        super()._release(worker, token)
        del self.held[worker][token]
        self._shifted[worker] = None

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
        for name in self._shifted:
            worker = self.worker(name)
            if worker is not None:
                _keep(self.pool, name, worker.health_phase is not Phase.CANCELLED)
                _keep(self.spare, name, self.free_slots(worker) > 0)
                _keep(self.loose, name, self._may_rest(worker))
        self._shifted.clear()

    def _may_rest(self, worker: Worker) -> bool:
        if self.load_of(worker.id) or worker.health_phase not in (Phase.QUEUED, Phase.ACTIVE):
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
        _keep(self.live.setdefault(task.run, {}), key, task.live is not None)
        if task.plan.tool is not None:
            waits = task.phase is Phase.BACKOFF and not run.terminal and task.blocked is None
            _keep(self.backoff.setdefault(task.plan.tool, {}), key, waits)

    def holds(self, worker: str) -> tuple[Token, ...]:
        return tuple(self.held.get(worker, ()))

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
            "holds": {name: sorted(held) for name, held in self.held.items() if held},
            "load": {name: load for name, load in self._load.own.items() if load},
            "live": {run: set(keys) for run, keys in self.live.items() if keys},
            "pool": set(self.pool),
            "spare": set(self.spare),
            "loose": set(self.loose),
            "tool_live": {tool: count for tool, count in self._tool_live.own.items() if count},
            "ready": dict(self.queue.place),
            "open": dict(self.queue.openness),
            "shown": {lane: set(runs) for lane, runs in self.queue.lanes.items() if runs},
            "backoff": {tool: set(keys) for tool, keys in self.backoff.items() if keys},
        }


def _keep(index: dict[K, None], key: K, belongs: bool) -> None:
    """Put a key into an index, or take it out."""
    if belongs:
        index[key] = None
    else:
        index.pop(key, None)


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
