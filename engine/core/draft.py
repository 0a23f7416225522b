"""A decision in the making: a book laid over the model, and the list of what changed.

All moves go through here, so that each is a documented arrow, is recorded with its cause, and cannot
go round in circles.
"""

from collections.abc import Mapping
from dataclasses import replace

from engine.core.book import Book
from engine.core.decision import (
    AttemptNoted,
    Change,
    Closing,
    Created,
    Decision,
    Fact,
    Instruction,
    TimerChange,
    TimerCleared,
    TimerSet,
    Transition,
)
from engine.core.errors import FuseBlown
from engine.core.model import Model, fold_attempts, fold_record
from engine.core.records import (
    Attempt,
    Breaker,
    R,
    Record,
    Ref,
    Run,
    Task,
    TaskKey,
    TimerKind,
    Token,
    Worker,
    evolve,
)
from engine.core.signals import AttemptEnded, Signal
from engine.machines import (
    MACHINES,
    Arrow,
    BreakerCue,
    ControlCue,
    Cue,
    HealthCue,
    InvalidTransitionError,
    Machine,
    RunCue,
    TaskCue,
)

FUSE = 24
"""Moves of one entity for one signal; the longest documented chain is far below."""

HEALTH = MACHINES["orchestration.worker"]
CONTROL = MACHINES["supervision.worker"]
BREAKER = MACHINES["pipeline.breaker"]

Values = Mapping[str, object]
_NOTHING: Values = {}


class Draft(Book):
    """What one signal leads to, so far."""

    def __init__(self, model: Model, signal: Signal, now: int, rand: float) -> None:
        super().__init__(model.settings, model)
        self.model = model
        self.signal = signal
        self.now = now
        self.rand = rand
        self.changes: list[Change] = []
        self.instructions: list[Instruction] = []
        self.timer_changes: list[TimerChange] = []
        self.failed_in: set[int] = set()
        """Runs in which an attempt failed: a mirroring machine follows."""
        self.due_in: set[int] = set()
        """Runs in which a task need not wait any longer."""
        self._stories: dict[Ref, list[str]] = {}

    # ---- moving

    def move_task(
        self,
        task: Task,
        cue: TaskCue,
        given: Values = _NOTHING,
        *,
        reason: str | None = None,
        values: Values = _NOTHING,
        opens: Attempt | None = None,
        closes: Closing | None = None,
        **more: object,
    ) -> Task:
        """Take the arrows that a cue stands for. Where the machine stays, what happened is a fact."""
        machine = MACHINES[task.machine]
        sets = {**given, **more}
        path = self._path(machine, cue, task.state, task.ref)
        if opens is not None:
            sets["live"] = opens.token
        elif closes is not None and closes.token == task.live:
            sets["live"] = None
        if not path:
            return self.note(task, cue.value.removeprefix("task."), reason, opens, closes, sets=sets)
        for event in path[:-1]:
            task = self._take(task, machine, event, values, {}, reason, None, closes)
            closes = None
        final = path[-1]
        arrow = machine.arrow(task.state, final, values, task.label)
        if machine.state[arrow.target].terminal:
            sets.setdefault("ended", self.now)
            self.disarm_all(task.ref)
        return self._take(task, machine, final, values, sets, reason, opens, closes)

    def move_run(
        self,
        run: Run,
        cue: RunCue,
        given: Values = _NOTHING,
        *,
        reason: str | None = None,
        values: Values = _NOTHING,
        **more: object,
    ) -> Run:
        machine = MACHINES[run.machine]
        sets = {**given, **more}
        path = self._path(machine, cue, run.state, run.ref)
        if not path:
            return self.note(run, cue.value.removeprefix("run."), reason, sets=sets) if sets else run
        for event in path[:-1]:
            run = self._take(run, machine, event, values, {}, reason)
        arrow = machine.arrow(run.state, path[-1], values, run.label)
        if machine.state[arrow.target].terminal:
            sets.setdefault("ended", self.now)
            self.disarm_all(run.ref)
        return self._take(run, machine, path[-1], values, sets, reason)

    def move_breaker(
        self,
        breaker: Breaker,
        cue: BreakerCue,
        *,
        reason: str | None = None,
        values: Values = _NOTHING,
        **sets: object,
    ) -> Breaker:
        (event,) = self._path(BREAKER, cue, breaker.state, breaker.ref)
        return self._take(breaker, BREAKER, event, values, sets, reason)

    def move_worker(
        self,
        worker: Worker,
        cue: HealthCue | ControlCue,
        *,
        reason: str | None = None,
        values: Values = _NOTHING,
        **sets: object,
    ) -> Worker:
        """Move one of the two regions of a worker; which one, the cue says."""
        health = isinstance(cue, HealthCue)
        machine = HEALTH if health else CONTROL
        path = self._path(machine, cue, worker.health if health else worker.control, worker.ref)
        for event in path:
            worker = self._take_region(worker, machine, event, values, sets, reason)
        return worker

    def answers(self, record: Run | Task, cue: Cue) -> bool:
        """Whether the record's machine gives this cue a meaning in its state."""
        return MACHINES[record.machine].steps(cue, record.state) is not None

    def _path(self, machine: Machine, cue: Cue, state: str, ref: Ref) -> tuple[str, ...]:
        path = machine.steps(cue, state)
        if path is None:
            word = cue.value.partition(".")[2]
            raise InvalidTransitionError(
                machine.name, state, word, machine.valid_events(state), self.label(ref)
            )
        return path

    def _take(
        self,
        record: R,
        machine: Machine,
        event: str,
        values: Values,
        sets: Mapping[str, object],
        reason: str | None,
        opens: Attempt | None = None,
        closes: Closing | None = None,
    ) -> R:
        assert isinstance(record, Run | Task | Breaker)
        arrow = self._arrow(machine, record.state, event, values, record.ref)
        version = record.version + 1
        if closes is not None and closes.token == getattr(record, "live", None) and "live" not in sets:
            sets = {**sets, "live": None}
        own = {
            "state": arrow.target,
            "phase": machine.phase[arrow.target],
            "version": version,
            "entered": self.now,
        }
        after = evolve(record, {**sets, **own})
        self._took(arrow, machine, version, sets, reason, record.entered, after, opens, closes)
        return after

    def _take_region(
        self,
        worker: Worker,
        machine: Machine,
        event: str,
        values: Values,
        sets: Mapping[str, object],
        reason: str | None,
    ) -> Worker:
        region = "health" if machine is HEALTH else "control"
        state = worker.health if machine is HEALTH else worker.control
        version = (worker.health_version if machine is HEALTH else worker.control_version) + 1
        arrow = self._arrow(machine, state, event, values, worker.ref)
        after = evolve(
            worker,
            {
                **sets,
                region: arrow.target,
                f"{region}_phase": machine.phase[arrow.target],
                f"{region}_version": version,
                f"{region}_entered": self.now,
            },
        )
        since = worker.health_entered if machine is HEALTH else worker.control_entered
        self._took(arrow, machine, version, sets, reason, since, after)
        return after

    def _took(
        self,
        arrow: Arrow,
        machine: Machine,
        version: int,
        sets: Values,
        reason: str | None,
        since: int,
        after: Record,
        opens: Attempt | None = None,
        closes: Closing | None = None,
    ) -> None:
        why = reason or self.signal.reason
        way = (arrow.source, arrow.event, arrow.target, arrow.kind)
        closes = self._reported(closes)
        self._record(
            Transition(after.ref, machine.name, *way, version, sets, why, opens, closes, since, after), after
        )

    def _reported(self, closes: Closing | None) -> Closing | None:
        """A closing with what was measured of the attempt, if this signal tells it."""
        signal = self.signal
        if closes is None or not isinstance(signal, AttemptEnded) or signal.report is None:
            return closes
        return replace(closes, report=signal.report) if closes.token == signal.token else closes

    def _arrow(self, machine: Machine, state: str, event: str, values: Values, ref: Ref) -> Arrow:
        story = self._stories.setdefault(ref, [])
        story.append(f"{machine.name} {state} {event}")
        if len(story) > FUSE:
            raise FuseBlown(str(ref), self.signal.id, tuple(story))
        return machine.arrow(state, event, values, self.label(ref))

    def label(self, ref: Ref) -> str:
        """How people call an entity."""
        task = self.find_task(ref.key) if isinstance(ref.key, tuple) else None
        return task.label if task is not None else str(ref)

    def _record(self, change: Transition | Fact, after: Record) -> None:
        self.changes.append(change)
        fold_record(self, after)
        fold_attempts(self, change)

    # ---- everything else that a decision may hold

    def create(self, record: Record, machine: str, state: str) -> None:
        self.changes.append(Created(record.ref, machine, state, record))
        fold_record(self, record)

    def note(
        self,
        record: R,
        name: str,
        reason: str | None = None,
        opens: Attempt | None = None,
        closes: Closing | None = None,
        data: Values = _NOTHING,
        sets: Values = _NOTHING,
        **more: object,
    ) -> R:
        """Record a fact: it moves no state."""
        sets = {**sets, **more}
        assert not isinstance(record, Attempt)
        if opens is not None:
            sets["live"] = opens.token
        elif closes is not None and closes.token == getattr(record, "live", None):
            sets["live"] = None
        after = evolve(record, sets)
        closes = self._reported(closes)
        fact = Fact(record.ref, name, sets, reason or self.signal.reason, opens, closes, data, after)
        self._record(fact, after)
        return after

    def note_attempt(self, attempt: Attempt, **sets: object) -> Attempt:
        after = evolve(attempt, sets)
        self.changes.append(AttemptNoted(attempt.token, after))
        self.put_attempt(after)
        return after

    def tell(self, instruction: Instruction) -> None:
        self.instructions.append(instruction)

    def arm(self, ref: Ref, kind: TimerKind, delay: int) -> None:
        self.timer_changes.append(TimerSet(ref, kind, self.now + delay))
        self.set_timer(ref, kind, self.now + delay)

    def disarm(self, ref: Ref, kind: TimerKind) -> None:
        if self.timer(ref, kind) is not None:
            self.timer_changes.append(TimerCleared(ref, kind))
            self.clear_timer(ref, kind)

    def disarm_all(self, ref: Ref) -> None:
        for kind in TimerKind:
            self.disarm(ref, kind)

    def touched(self, keys: Mapping[TaskKey, None]) -> list[Task]:
        """These tasks of the model and those that this draft touched, as they are now."""
        found = {**keys, **{key: None for key, task in self._tasks.own.items() if task is not None}}
        return [self.task(key) for key in found]

    def holds(self, worker: str) -> tuple[Token, ...]:
        """The executions that a worker has, fenced ones too."""
        found = {**self.model.held.get(worker, {}), **dict.fromkeys(self._attempts.own)}
        attempts = [self.attempt(token) for token in found]
        return tuple(one.token for one in attempts if one is not None and one.worker == worker)

    def live_tasks(self, run: int) -> list[Task]:
        """The tasks of a run with a live attempt."""
        own = (key for key in self._tasks.own if key[0] == run)
        tasks = [self.task(key) for key in {**self.model.live.get(run, {}), **dict.fromkeys(own)}]
        return [task for task in tasks if task.live is not None]

    @property
    def reach(self) -> int:
        """How many runs this decision has touched."""
        return len(self._tallies.own)

    def affected_runs(self) -> list[Run]:
        """Runs that changed, or one of whose tasks did."""
        return [self.run(number) for number in {**self._tallies.own, **self._runs.own}]

    def tasks_of(self, run: Run) -> list[Task]:
        return [self.task((run.number, number)) for number in range(1, len(run.plan.tasks) + 1)]

    def done(self) -> Decision:
        return Decision(
            self.signal.id,
            self.now,
            self.signal.actor,
            self.signal.source,
            self.signal.request_id,
            tuple(self.changes),
            tuple(self.instructions),
            tuple(self.timer_changes),
        )
