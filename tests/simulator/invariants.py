"""The engine's promises, checked after every step on what changed, and on everything now and then."""

from collections import Counter
from dataclasses import replace

from engine.core.decision import AttemptNoted, Created, Decision, Fact, TimerSet, Transition
from engine.core.derive import derive_workstream
from engine.core.model import Model, Snapshot
from engine.core.plan import OnFailure, Settings
from engine.core.records import Attempt, Entity, Record, Ref, Run, Task, TaskKey, TimerKind, Token, Worker
from engine.machines import MACHINES, Phase, TaskCue
from tests.simulator.footing import Footing, fulfilled
from tests.simulator.ledger import Ledger
from tests.simulator.rules import Rules
from tests.simulator.store import SimulatedStore, machines_of, region
from tests.simulator.violation import Violation, brief, story
from tests.simulator.witness import DEADLINES, Witness

EVERYTHING = 16
"""So many steps lie between two looks at everything."""
REBUILD = 6
"""So many between two rebuilt models."""


class Invariants:
    """Watches one store from its first commit on."""

    def __init__(self, store: SimulatedStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._ledger = Ledger(store, settings)
        self._rules = Rules(store, settings)
        self._open: dict[TaskKey, list[Token]] = {}
        self._held: dict[str, dict[Token, bool]] = {}
        """For each worker what it holds, and whether it was adopted."""
        self._where: dict[Token, str] = {}
        self._freed: dict[str, bool] = {}
        """Workers that lost something in this decision, and whether it was adopted."""
        self._steps = 0

    def after(self, committed: list[Decision], model: Model | None, now: int, *, reloaded: bool) -> None:
        """Check what a step has changed. There is no model when the engine died in it."""
        self._steps += 1
        changed: dict[Ref, Record] = {}
        for decision in committed:
            self._freed.clear()
            self._ledger.follow(decision)
            self._rules.follow(decision)
            for change in decision.changes:
                if isinstance(change, AttemptNoted):
                    self._noted(change.after)
                    continue
                changed[change.ref] = change.after
                if not isinstance(change, Created):
                    self._attempts(change)
            for timer in decision.timers:
                if isinstance(timer, TimerSet):
                    changed.setdefault(timer.ref, self._store.records[timer.ref])
        for ref in changed:
            self._check(ref, self._store.records[ref])
        if model is None:
            return
        if reloaded or self._steps % REBUILD == 0:
            self.rebuilt(model)
        if self._steps % EVERYTHING == 0:
            self.everything(model, now)

    # ---- what changed

    def _attempts(self, change: Transition | Fact) -> None:
        if change.closes is not None:
            token = change.closes.token
            self._open[token.key].remove(token)
            worker = self._where.pop(token, None)
            if worker is not None:
                self._freed[worker] = self._held[worker].pop(token)
        if change.opens is not None:
            attempt = change.opens
            alive = self._open.setdefault(attempt.token.key, [])
            alive.append(attempt.token)
            if len(alive) > 1:
                raise self._broken(change.ref, f"two live attempts of one task: {alive[0]} and {alive[1]}")
            # A check or a hook takes over the place of what it follows on the same worker.
            follows = attempt.worker is not None and self._freed.pop(attempt.worker, False)
            self._hold(attempt, adopted=follows)

    def _noted(self, attempt: Attempt) -> None:
        if self._where.get(attempt.token) != attempt.worker:
            worker = self._where.pop(attempt.token, None)
            if worker is not None:
                del self._held[worker][attempt.token]
            self._hold(attempt, adopted=True)

    def _hold(self, attempt: Attempt, *, adopted: bool) -> None:
        if attempt.worker is None:
            return
        self._where[attempt.token] = attempt.worker
        held = self._held.setdefault(attempt.worker, {})
        held[attempt.token] = adopted
        worker = self._store.worker(attempt.worker)
        if len(held) > worker.slots and not any(held.values()):
            raise self._broken(
                worker.ref, f"{worker.id} has {worker.slots} slots and holds {', '.join(map(str, held))}"
            )

    def _check(self, ref: Ref, record: Record) -> None:
        if isinstance(record, Task):
            limit = self._settings.retry_of(record.plan).max_retries
            if record.retries > limit:
                raise self._broken(ref, f"{ref} used {record.retries} of {limit} retries")
            if record.phase is Phase.QUEUED and not record.pardon:
                for need in record.plan.needs:
                    if not fulfilled(self._store.task((record.run, need))):
                        raise self._broken(ref, f"{ref} is {record.state} and its need {need} is not met")
            if record.phase is Phase.FAILING:
                raise self._broken(ref, f"{ref} rests in {record.state}, which is a moment")
        if over(record):
            for kind in TimerKind:
                if (ref, kind) in self._store.timers:
                    raise self._broken(ref, f"{ref} is over and its timer {kind} is still set")

    # ---- everything

    def rebuilt(self, model: Model) -> None:
        """A model built from the store is the one that lived through it."""
        stored = self._kept(model)
        live = model.snapshot()
        if stored != live:
            for name in ("runs", "tasks", "attempts", "workers", "breakers", "timers", "next_run"):
                one, other = getattr(stored, name), getattr(live, name)
                if one != other:
                    raise Violation(f"the live model has other {name} than the store: {_differ(one, other)}")
        fresh = Model.load(stored, self._settings).derived()
        derived = model.derived()
        if fresh != derived:
            assert isinstance(fresh, dict)
            assert isinstance(derived, dict)
            wrong = [
                f"{name}: rebuilt {fresh[name]}, live {derived[name]}"
                for name in fresh
                if fresh[name] != derived[name]
            ]
            raise Violation(f"a rebuilt model derives otherwise: {'; '.join(wrong)}")

    def _kept(self, model: Model) -> Snapshot:
        """What is stored, without the runs that are over and have left the model."""
        stored = self._store.load()
        kept = {run.number for run in model.runs()}
        if len(kept) == len(stored.runs):
            return stored
        return replace(
            stored,
            runs=tuple(run for run in stored.runs if run.number in kept or not run.terminal),
            tasks=tuple(task for task in stored.tasks if task.run in kept),
        )

    def everything(self, model: Model, now: int) -> None:
        """Look at all that is not over."""
        self._ledger.check()
        for ref, kind in self._store.timers:
            if over(self._store.records[ref]):
                raise self._broken(ref, f"{ref} is over and its timer {kind} is still set")
        for worker in model.workers():
            held = sorted(self._held.get(worker.id, {}))
            if sorted(model.holds(worker.id)) != held:
                raise self._broken(worker.ref, f"{worker.id} holds {model.holds(worker.id)}, open are {held}")
            silent = worker.health_phase in (Phase.IDLE, Phase.RECOVERING) or worker.frozen
            if silent and not over(worker) and (worker.ref, TimerKind.GIVE_UP) not in self._store.timers:
                raise self._broken(worker.ref, f"{worker.id} is {worker.health} and is never given up")
            if (worker.health_phase is Phase.ACTIVE) != bool(held) and worker.health_phase in (
                Phase.ACTIVE,
                Phase.QUEUED,
            ):
                raise self._broken(worker.ref, f"{worker.id} is {worker.health} and holds {len(held)}")
        for attempt in model.attempts():
            self._has_deadline(attempt)
        footing = Footing(model)
        witness = Witness(model, footing, now)
        for run in model.runs():
            if run.terminal:
                self._children(model, run)
                continue
            self._derived(model, run)
            self._has_timeout(run)
            self._stands(run, footing.of_run(run), witness)
            for task in model.tasks_of(run):
                if not task.terminal:
                    self._rests(model, run, task)
                    self._stands(task, footing.of_task(task), witness)

    def _stands(self, record: Run | Task, footing: str | None, witness: Witness) -> None:
        try:
            lie = witness.lie(record)
        except Exception as error:
            raise self._broken(record.ref, f"explain raised {type(error).__name__}: {error}") from error
        if footing is None:
            raise self._broken(record.ref, f"{record.ref} is stuck ({lie}): {brief(record)}")
        if lie is not None:
            raise self._broken(record.ref, f"{lie} (it stands on: {footing}): {brief(record)}")

    def _has_deadline(self, attempt: Attempt) -> None:
        """No execution on a worker goes on for ever."""
        token = attempt.token
        if attempt.fenced or (attempt.worker is None and not self._store.task(token.key).plan.timeout):
            return
        if attempt.worker is None and attempt.stopping is not None:
            return
        ref = Ref(Entity.TASK, token.key) if token.task else Ref(Entity.RUN, token.run)
        if not any((ref, kind) in self._store.timers for kind in DEADLINES):
            raise self._broken(ref, f"{attempt} has neither deadline nor grace")

    def _has_timeout(self, run: Run) -> None:
        """A run that may take only so long is timed from its start until its end has begun."""
        if run.plan.timeout is None or run.started is None or run.ending is not None:
            return
        if run.phase is not Phase.FAILED and (run.ref, TimerKind.TIMEOUT) not in self._store.timers:
            raise self._broken(run.ref, f"{run.ref} may take {run.plan.timeout} and nothing times it")

    def _rests(self, model: Model, run: Run, task: Task) -> None:
        """Under an ending nothing is timed to be tried again, and behind an open breaker no retry waits."""
        if run.ending is not None and task.live is None:
            for kind in (TimerKind.RETRY, TimerKind.PROBE):
                if (task.ref, kind) in self._store.timers:
                    raise self._broken(task.ref, f"{task.ref} has a timer {kind} and its run is ending")
        breaker = model.breaker(task.plan.tool) if task.plan.tool is not None else None
        if breaker is not None and breaker.phase is Phase.PARKED and task.phase is Phase.BACKOFF:
            if MACHINES[task.machine].steps(TaskCue.PARK, task.state) and run.ending is None:
                raise self._broken(task.ref, f"{task.ref} waits to retry and breaker {breaker.tool} is open")

    def _children(self, model: Model, run: Run) -> None:
        """A run that has ended leaves no sub-run behind."""
        for attempt in model.attempts():
            if attempt.token.run == run.number and attempt.sub_run is not None:
                raise self._broken(run.ref, f"{run.ref} is over and its sub-run {attempt.sub_run} is open")

    def _derived(self, model: Model, run: Run) -> None:
        """Document 001 tells a workstream's state from its tasks; the core must not disagree."""
        if run.machine != "orchestration.workstream" or run.ending is not None:
            return
        if run.plan.failure_policy is OnFailure.CONTINUE:
            return
        derived = derive_workstream(list(model.tasks_of(run)))
        if derived != run.state:
            raise self._broken(run.ref, f"{run.ref} is {run.state}, its tasks say {derived}")

    def trail(self) -> None:
        """Versions count the rows of the trail, creation included."""
        rows: Counter[tuple[Ref, str]] = Counter()
        for row in self._store.trail:
            if row.to_state is not None:
                rows[row.ref, row.machine] += 1
        for ref, record in self._store.records.items():
            for machine in machines_of(record):
                version = region(record, machine)[1]
                if rows[ref, machine] != version:
                    raise self._broken(
                        ref, f"{ref} ({machine}) is version {version} after {rows[ref, machine]} rows"
                    )

    def _broken(self, ref: Ref, what: str) -> Violation:
        return Violation(what, story(self._store.history(ref)))


def over(record: Record) -> bool:
    """Whether a record's machines have all come to their end."""
    if isinstance(record, Worker):
        return record.health_phase is Phase.CANCELLED
    return isinstance(record, Run | Task) and record.terminal


def _differ(one: object, other: object) -> str:
    if isinstance(one, tuple) and isinstance(other, tuple):
        for left, right in zip(one, other, strict=False):
            if left != right:
                return f"{left} != {right}"
        return f"{len(one)} against {len(other)}"
    return f"{one} != {other}"
