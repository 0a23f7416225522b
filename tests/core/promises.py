"""What the core promises whatever it is told: checked on every decision, and on the model after it."""

from engine.core import signals as s
from engine.core.book import LIVE, satisfies
from engine.core.decision import AttemptNoted, Created, Decision, Start, Transition
from engine.core.explain import Explanation, explain
from engine.core.model import Model
from engine.core.ready import Why, bad, task_blocker
from engine.core.records import Breaker, Record, Ref, Run, Task, TaskKey, Token, Worker
from engine.machines import MACHINES, Kind, Phase

Region = tuple[Ref, str]

RECOVERIES = (
    s.ResetTask,
    s.AttestTask,
    s.CorrectRun,
    s.ResetBreaker,
    s.TerminateWorker,
    s.WorkerGone,
    s.TimerDue,
)
"""The only signals that may fire a recovery arrow; a timer, when a worker never registered."""


class Promises:
    """Follows a model from its first decision on."""

    def __init__(self) -> None:
        self.at: dict[Region, tuple[str, int]] = {}
        """State and version of every region, told by its transitions alone."""
        self.alive: dict[TaskKey, set[Token]] = {}
        """What was told to start, and of which no end was told."""
        self.adopted: set[str] = set()
        self.started: list[Token] = []

    # ---- what was told

    def hear(self, signal: s.Signal) -> None:
        """The world outside says what became of an attempt."""
        if isinstance(signal, s.AttemptEnded | s.AttemptLost):
            self.alive.get(signal.token.key, set()).discard(signal.token)
        if isinstance(signal, s.AttemptAdopted):
            self.adopted.add(signal.worker)

    def follow(self, model: Model, signal: s.Signal, decision: Decision) -> None:
        """Check one decision, after it was applied."""
        assert decision.signal == signal.id
        for change in decision.changes:
            if isinstance(change, Created):
                assert (change.ref, change.machine) not in self.at, f"{change.ref} was created twice"
                assert change.state == MACHINES[change.machine].initial
                self.at[change.ref, change.machine] = (change.state, 1)
            elif isinstance(change, Transition):
                self._documented(model, signal, change)
            elif not isinstance(change, AttemptNoted):
                assert "state" not in change.sets, f"the fact {change.name} moves {change.ref}"
        for told in decision.instructions:
            if isinstance(told, Start):
                self._single(told.token)

    def _documented(self, model: Model, signal: s.Signal, change: Transition) -> None:
        where = (change.ref, change.machine)
        state, version = self.at[where]
        machine = MACHINES[change.machine]
        row = f"{change.machine} {change.source} --{change.event}--> {change.target}"
        assert state == change.source, f"{change.ref} is in {state}: {row}"
        assert change.version == version + 1, f"{change.ref} has version {version}: {row}"
        rows = [
            arrow
            for arrow in machine.arrows
            if (arrow.source, arrow.event, arrow.target) == (change.source, change.event, change.target)
        ]
        assert [arrow.kind for arrow in rows] == [change.kind], f"not in the table: {row}"
        if machine.is_terminal(state):
            assert change.kind is Kind.RECOVERY, f"terminal is terminal: {row}"
        if change.kind is Kind.RECOVERY:
            assert isinstance(signal, RECOVERIES), f"{type(signal).__name__} fired a recovery: {row}"
        if change.kind is Kind.CASCADE:
            assert isinstance(change.ref.key, tuple)
            run = model.run(change.ref.key[0])
            over = run.terminal or run.ending is not None or run.phase is Phase.FAILED
            assert over, f"its run goes on: {row}"
        self.at[where] = (change.target, change.version)

    def _single(self, token: Token) -> None:
        if token not in self.started:
            self.started.append(token)
        alive = self.alive.setdefault(token.key, set())
        alive.add(token)
        assert len(alive) == 1, f"at most one live attempt of a task: {sorted(map(str, alive))}"

    # ---- what is

    def check(self, model: Model, now: int) -> None:
        """Check the whole model, at rest after its dispatches."""
        snapshot, derived = model.snapshot(), model.derived()
        loaded = Model.load(snapshot, model.settings)
        assert loaded.snapshot() == snapshot
        for name, value in loaded.derived().items():
            assert value == derived[name], f"a reloaded model has other {name}"
        records: list[Record] = [*snapshot.runs, *snapshot.tasks, *snapshot.workers, *snapshot.breakers]
        for record in records:
            for machine, state, version in regions(record):
                assert self.at[record.ref, machine] == (state, version), (
                    f"{record.ref} differs from its trail"
                )
        for task in snapshot.tasks:
            self._task(model, task, now)
        for run in snapshot.runs:
            self._run(model, run, now)
        for worker in snapshot.workers:
            held = len(model.holds(worker.id))
            assert held <= worker.slots or worker.id in self.adopted, f"{worker.id} holds {held}"
        for timer in snapshot.timers:
            owner = _record(model, timer.ref)
            assert not _over(owner), f"{timer.ref} is over and its timer {timer.kind} runs"

    def _task(self, model: Model, task: Task, now: int) -> None:
        budget = model.settings.retry_of(task.plan).max_retries
        assert task.retries <= budget, f"{task.ref} used {task.retries} of {budget} retries"
        most = model.settings.max_losses + task.probes
        assert task.losses <= most, f"{task.ref} was lost {task.losses} times, probes included at most {most}"
        assert task.phase is not Phase.FAILING, f"{task.ref} rests in {task.state}, which is a moment"
        assert (task.live is None) or model.attempt(task.live) is not None
        run = model.run(task.run)
        queued = task.key in model.queue.place
        assert queued == (task_blocker(model, task) is None and not run.terminal)
        told = explain(model, task.ref, now)
        assert told.sentence
        if not task.terminal:
            truthful_task(model, run, task, told)

    def _run(self, model: Model, run: Run, now: int) -> None:
        told = explain(model, run.ref, now)
        assert told.sentence
        if run.terminal:
            assert told.what is Why.OVER
            for task in model.tasks_of(run):
                assert task.live is None, f"{task.ref} lives on in a run that is over"
            return
        live = model.tally(run.number)[LIVE]
        if run.ending is not None and run.phase is not Phase.FAILED:
            checked = run.plan.finishes_checks and any(task.checking for task in model.tasks_of(run))
            lives = live or run.live is not None or checked
            assert lives, f"run {run.number} ends and nothing of it lives"
        match told.what:
            case Why.RUNNING:
                assert live or run.live is not None
            case Why.TURN:
                raise AssertionError(f"run {run.number} only waits for its turn: {told}")
            case Why.OVER:
                raise AssertionError(f"run {run.number} is not over: {told}")
            case _:
                pass


def truthful_task(model: Model, run: Run, task: Task, told: Explanation) -> None:
    """Whether an explanation says what is the case."""
    attempt = model.attempt(task.live) if task.live is not None else None
    where = f"{task.ref} in {task.state}, run in {run.state}: {told}"
    match told.what:
        case Why.RUNNING:
            assert attempt is not None, where
        case Why.STOPPING:
            assert run.ending is not None or (attempt is not None and attempt.stopping is not None), where
        case Why.CONTACT:
            assert run.phase is Phase.RECOVERING or (attempt is not None and attempt.doubt), where
        case Why.TIMER:
            assert told.due is not None, where
        case Why.PEOPLE:
            assert Phase.HELD in (run.phase, task.phase), where
            assert told.due is not None or (task.hold or run.hold), where
        case Why.NEED:
            assert told.blocked_by is not None, where
            assert isinstance(told.blocked_by.key, tuple)
            assert not satisfies(model.task(told.blocked_by.key)), where
        case Why.OVER:
            marked = task.pardon is not None or task.blocked is not None or task.final
            assert run.terminal or marked, where
        case Why.BREAKER:
            breaker = model.breaker(task.plan.tool or "")
            assert breaker is not None, where
            assert breaker.phase is not Phase.ACTIVE or breaker.ramp is not None, where
        case Why.CONCURRENCY:
            assert run.plan.concurrency is not None, where
            assert model.tally(run.number)[LIVE] >= run.plan.concurrency, where
        case Why.FAILURE:
            assert bad(model, run.number), where
        case Why.PERSON:
            parked = task.phase in (Phase.PARKED, Phase.FAILED)
            assert task.asking or parked or run.phase is Phase.FAILED, where
        case Why.SLOT:
            assert not any(model.free_slots(worker) for worker in capable(model, task)), where
        case Why.WORKER:
            assert not any(worker.willing for worker in capable(model, task)), where
        case Why.TOOL_LIMIT:
            limit = model.settings.tool(task.plan.tool).concurrency
            assert limit is not None, where
            assert model.tool_live(task.plan.tool or "") >= limit, where
        case Why.RUN:
            assert run.phase in (Phase.HELD, Phase.WAITING, Phase.BACKOFF), where
        case Why.TURN:
            raise AssertionError(f"nothing keeps it, and it did not start: {where}")


def capable(model: Model, task: Task) -> list[Worker]:
    return [worker for worker in model.workers() if worker.capabilities >= task.plan.capabilities]


def regions(record: Record) -> list[tuple[str, str, int]]:
    """Machine, state and version of a record; a worker has two."""
    if isinstance(record, Worker):
        return [
            ("orchestration.worker", record.health, record.health_version),
            ("supervision.worker", record.control, record.control_version),
        ]
    machine = "pipeline.breaker" if isinstance(record, Breaker) else record.machine
    return [(machine, record.state, record.version)]


def _record(model: Model, ref: Ref) -> Record | None:
    if isinstance(ref.key, tuple):
        return model.find_task(ref.key)
    if isinstance(ref.key, int):
        return model.find_run(ref.key)
    return model.worker(ref.key) or model.breaker(ref.key)


def _over(record: Record | None) -> bool:
    assert record is not None
    if isinstance(record, Worker):
        return record.health_phase is Phase.CANCELLED
    return isinstance(record, Run | Task) and record.terminal
