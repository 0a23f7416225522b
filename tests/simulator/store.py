"""A store in memory that trusts nobody: every change is proved before it is kept.

It keeps the promise of `engine.store.gate.Gate`: all of a transaction or nothing. It can be told to
die before the commit, to die after it, or to lose a race.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from engine.core.decision import (
    AttemptNoted,
    Closing,
    Created,
    Decision,
    Fact,
    TimerSet,
    Transition,
)
from engine.core.model import Snapshot
from engine.core.records import (
    Attempt,
    Breaker,
    Entity,
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
from engine.machines import MACHINES, Arrow, Kind
from engine.store.gate import AuditRow, Conflict, OutboxRow, Reply, Request, RequestReused
from tests.simulator import telling
from tests.simulator.violation import Violation, story

T = TypeVar("T", Run, Task, Worker, Breaker)

HEALTH, CONTROL = "orchestration.worker", "supervision.worker"

_ARROWS: dict[tuple[str, str, str, str], Arrow] = {
    (machine.name, arrow.source, arrow.event, arrow.target): arrow
    for machine in MACHINES.values()
    for arrow in machine.arrows
}


class Trouble(Enum):
    """What the next commit meets."""

    LOST_BEFORE = "the engine dies before the commit"
    LOST_AFTER = "the commit is stored and the engine dies before it hears so"
    CONFLICT = "another writer was faster"


class EngineLost(Exception):
    """The engine died in the middle of a commit."""


@dataclass(frozen=True, slots=True)
class Execution:
    """An attempt, live or over."""

    attempt: Attempt
    ended: int | None = None
    closing: Closing | None = None


def region(record: Record, machine: str) -> tuple[str, int]:
    """State and version of a record under one of its machines."""
    if isinstance(record, Worker):
        if machine == HEALTH:
            return record.health, record.health_version
        return record.control, record.control_version
    return record.state, record.version


def machines_of(record: Record) -> tuple[str, ...]:
    if isinstance(record, Worker):
        return HEALTH, CONTROL
    if isinstance(record, Breaker):
        return ("pipeline.breaker",)
    return (record.machine,)


class Staging:
    """One transaction: what it changes, laid over what is stored."""

    def __init__(self, store: "SimulatedStore") -> None:
        self.store = store
        self.records: dict[Ref, Record] = {}
        self.executions: dict[Token, Execution] = {}
        self.due: dict[Ref, dict[str, int | None]] = {}
        """The timers of the decision at hand, as far as no row has told them yet."""
        self.at = store.at
        self.rows: list[AuditRow] = []
        self.counts: dict[tuple[Ref, str], int] = {}

    def record(self, ref: Ref) -> Record | None:
        return self.records.get(ref) or self.store.records.get(ref)

    def execution(self, token: Token) -> Execution | None:
        return self.executions.get(token) or self.store.executions.get(token)

    def live(self, token: Token) -> Execution | None:
        found = self.execution(token)
        return found if found is not None and found.ended is None else None


class SimulatedStore:
    """Everything that was committed."""

    def __init__(self) -> None:
        self.records: dict[Ref, Record] = {}
        self.open_attempts: dict[Token, Attempt] = {}
        self.executions: dict[Token, Execution] = {}
        """Every attempt that ever was."""
        self.updated: dict[Ref, int] = {}
        self.at = 0
        """The time of the last row. The trail never goes back in time."""
        self.timers: dict[tuple[Ref, TimerKind], int] = {}
        self.waiting: list[OutboxRow] = []
        self.trail: list[AuditRow] = []
        self.trails: dict[Ref, list[AuditRow]] = {}
        self.counts: dict[tuple[Ref, str], int] = {}
        """Transition rows of each region, its creation included."""
        self.requests: dict[str, Request] = {}
        self.counters: Counter[tuple[str, str, str, str]] = Counter()
        self.trouble: Trouble | None = None
        self.next_run = 1
        self._sent = 0

    # ---- the gate

    def apply(self, decisions: Sequence[Decision], request: Request | None = None) -> Reply | None:
        trouble, self.trouble = self.trouble, None
        if request is not None:
            reply = self.recall(request)
            if reply is not None:
                return reply
        staging = Staging(self)
        for decision in decisions:
            self._stage(staging, decision)
        if trouble is Trouble.LOST_BEFORE:
            raise EngineLost
        if trouble is Trouble.CONFLICT:
            raise Conflict(Ref(Entity.RUN, 0), "execution", ("pending", 1), None)
        self._commit(staging, decisions)
        reply = None
        if request is not None:
            self.requests[request.id] = request
            self.counters["idempotency_miss", request.operation, "", ""] += 1
            reply = Reply(request.status, request.body)
        if trouble is Trouble.LOST_AFTER:
            raise EngineLost
        return reply

    def recall(self, request: Request) -> Reply | None:
        known = self.requests.get(request.id)
        if known is None or known.at + known.ttl <= request.at:
            return None
        if (known.operation, known.fingerprint) != (request.operation, request.fingerprint):
            raise RequestReused(request.id, known.operation, request.operation)
        self.counters["idempotency_hit", request.operation, "", ""] += 1
        return Reply(known.status, known.body, again=True)

    def refused(self, machine: str, state: str, event: str) -> None:
        self.counters["refused", machine, state, event] += 1

    def sweep(self, now: int) -> int:
        old = [id for id, request in self.requests.items() if request.at + request.ttl <= now]
        for id in old:
            del self.requests[id]
        return len(old)

    def load(self) -> Snapshot:
        by_kind: dict[Entity, list[Record]] = {kind: [] for kind in Entity}
        for ref, record in self.records.items():
            by_kind[ref.kind].append(record)
        timers = [TimerSet(ref, kind, due) for (ref, kind), due in self.timers.items()]
        return Snapshot(
            runs=tuple(sorted(_only(Run, by_kind[Entity.RUN]), key=lambda run: run.number)),
            tasks=tuple(sorted(_only(Task, by_kind[Entity.TASK]), key=lambda task: task.key)),
            attempts=tuple(sorted(self.open_attempts.values(), key=lambda attempt: attempt.token)),
            workers=tuple(sorted(_only(Worker, by_kind[Entity.WORKER]), key=lambda worker: worker.id)),
            breakers=tuple(sorted(_only(Breaker, by_kind[Entity.BREAKER]), key=lambda breaker: breaker.tool)),
            timers=tuple(sorted(timers, key=lambda timer: (timer.ref.kind, str(timer.ref), timer.kind))),
            next_run=self.next_run,
        )

    def outbox(self) -> Sequence[OutboxRow]:
        return tuple(self.waiting)

    def delivered(self, seqs: Sequence[int]) -> None:
        done = frozenset(seqs)
        self.waiting = [row for row in self.waiting if row.seq not in done]

    def history(self, ref: Ref) -> Sequence[AuditRow]:
        return self.trails.get(ref, ())

    # ---- looking

    def runs(self) -> list[Run]:
        return [record for record in self.records.values() if isinstance(record, Run)]

    def run(self, number: int) -> Run | None:
        found = self.records.get(Ref(Entity.RUN, number))
        assert found is None or isinstance(found, Run)
        return found

    def task(self, key: TaskKey) -> Task:
        found = self.records[Ref(Entity.TASK, key)]
        assert isinstance(found, Task)
        return found

    def worker(self, name: str) -> Worker:
        found = self.records[Ref(Entity.WORKER, name)]
        assert isinstance(found, Worker)
        return found

    def breaker(self, tool: str) -> Breaker | None:
        found = self.records.get(Ref(Entity.BREAKER, tool))
        assert found is None or isinstance(found, Breaker)
        return found

    # ---- one transaction

    def _stage(self, staging: Staging, decision: Decision) -> None:
        staging.at = max(staging.at, decision.at)
        staging.due = telling.due(decision)
        for change in decision.changes:
            match change:
                case Transition():
                    self._transition(staging, decision, change)
                case Fact():
                    self._fact(staging, decision, change)
                case Created():
                    self._created(staging, decision, change)
                case AttemptNoted():
                    if staging.live(change.token) is None:
                        raise Violation(f"a note on {change.token}, which is not open")
                    staging.executions[change.token] = Execution(change.after)

    def _commit(self, staging: Staging, decisions: Sequence[Decision]) -> None:
        self.records |= staging.records
        self.counts |= staging.counts
        self.executions |= staging.executions
        for token, execution in staging.executions.items():
            if execution.ended is None:
                self.open_attempts[token] = execution.attempt
            else:
                self.open_attempts.pop(token, None)
        self.at = staging.at
        self.trail += staging.rows
        for row in staging.rows:
            self.trails.setdefault(row.ref, []).append(row)
            self.updated[row.ref] = row.at
        for decision in decisions:
            for timer in decision.timers:
                if isinstance(timer, TimerSet):
                    self.timers[timer.ref, timer.kind] = timer.due
                else:
                    self.timers.pop((timer.ref, timer.kind), None)
            for instruction in decision.instructions:
                self._sent += 1
                self.waiting.append(OutboxRow(self._sent, decision.signal, instruction))
        for ref in staging.records:
            if ref.kind is Entity.RUN:
                assert isinstance(ref.key, int)
                self.next_run = max(self.next_run, ref.key + 1)

    # ---- the proofs

    def _created(self, staging: Staging, decision: Decision, change: Created) -> None:
        machine = MACHINES.get(change.machine)
        counted = (change.ref, change.machine)
        if machine is None or change.machine not in machines_of(change.after):
            raise self._broken(change.ref, f"{change.ref} was created under {change.machine}")
        if counted in self.counts or counted in staging.counts:
            raise self._broken(change.ref, f"{change.ref} ({change.machine}) was created twice")
        if change.state != machine.initial or change.version != 1:
            raise self._broken(change.ref, f"{change.ref} begins in {change.state}, version {change.version}")
        if region(change.after, change.machine) != (machine.initial, 1):
            raise self._broken(
                change.ref, f"{change.ref} is stored in {region(change.after, change.machine)}"
            )
        staging.records[change.ref] = change.after
        staging.counts[counted] = 1
        self._row(staging, decision, change, change.machine, 1, None, "created", change.state, None)

    def _transition(self, staging: Staging, decision: Decision, change: Transition) -> None:
        ref, name = change.ref, change.machine
        stored = staging.record(ref)
        expected = (change.source, change.version - 1)
        if stored is None or name not in machines_of(stored):
            raise Conflict(ref, name, expected, None)
        if region(stored, name) != expected:
            raise Conflict(ref, name, expected, region(stored, name))
        arrow = _ARROWS.get((name, change.source, change.event, change.target))
        words = f"{ref} ({name}): {change.source} --{change.event}--> {change.target}"
        if arrow is None:
            raise self._broken(ref, f"{words} is in no document")
        if arrow.kind is not change.kind:
            raise self._broken(ref, f"{words} is {arrow.kind}, not {change.kind}")
        if MACHINES[name].is_terminal(change.source) and change.kind is Kind.NORMAL:
            raise self._broken(ref, f"{words} leaves a final state")
        counted = (ref, name)
        count = staging.counts.get(counted) or self.counts[counted]
        if change.version != count + 1:
            raise self._broken(ref, f"{words} is version {change.version} after {count} rows")
        staging.counts[counted] = change.version
        self._fold(ref, words, stored, {**change.sets, **_moved(stored, change, decision.at)}, change.after)
        staging.records[ref] = change.after
        self._attempts(staging, change)
        self._row(
            staging, decision, change, name, change.version, change.source, change.event, change.target,
            change.reason,
        )  # fmt: skip

    def _fact(self, staging: Staging, decision: Decision, change: Fact) -> None:
        stored = staging.record(change.ref)
        machine = machines_of(change.after)[0]
        expected = ("", region(change.after, machine)[1])
        if stored is None:
            raise Conflict(change.ref, machine, expected, None)
        if region(stored, machine)[1] != expected[1]:
            raise Conflict(change.ref, machine, expected, region(stored, machine))
        self._fold(change.ref, f"{change.ref}: fact {change.name}", stored, change.sets, change.after)
        staging.records[change.ref] = change.after
        self._attempts(staging, change)
        self._row(staging, decision, change, machine, expected[1], None, change.name, None, change.reason)

    def _fold(self, ref: Ref, words: str, stored: Record, sets: Mapping[str, object], after: Record) -> None:
        """What the row says happened must make exactly the record that is stored with it."""
        made = _made(stored, sets)
        if made != after:
            wrong = [name for name in type(after).__slots__ if getattr(made, name) != getattr(after, name)]
            told = ", ".join(f"{name}: {getattr(made, name)!r} != {getattr(after, name)!r}" for name in wrong)
            raise self._broken(ref, f"{words} does not fold to its record: {told}")

    def _attempts(self, staging: Staging, change: Transition | Fact) -> None:
        if change.closes is not None:
            token = change.closes.token
            found = staging.live(token)
            if found is None:
                raise self._broken(change.ref, f"{change.ref} closes {token}, which is not open")
            staging.executions[token] = replace(found, ended=staging.at, closing=change.closes)
        if change.opens is not None:
            token = change.opens.token
            if staging.execution(token) is not None:
                raise self._broken(change.ref, f"{change.ref} opens {token}, which was opened before")
            staging.executions[token] = Execution(change.opens)

    def _row(
        self, staging: Staging, decision: Decision, change: Created | Transition | Fact, machine: str,
        version: int, source: str | None, event: str, target: str | None, reason: str | None,
    ) -> None:  # fmt: skip
        seq = len(self.trail) + len(staging.rows) + 1
        staging.rows.append(
            AuditRow(
                seq, staging.at, decision.signal, decision.actor, decision.source, change.ref,
                change.after.label, machine, version, source, event, target, reason, decision.request_id,
                change.since if isinstance(change, Transition) else None, telling.told(change, staging.due),
            )
        )  # fmt: skip

    def _broken(self, ref: Ref, what: str) -> Violation:
        return Violation(what, story(self.history(ref)))


def _made(stored: Record, sets: Mapping[str, object]) -> Record:
    if isinstance(stored, Task):
        return evolve(stored, sets)
    if isinstance(stored, Run):
        return evolve(stored, sets)
    if isinstance(stored, Worker):
        return evolve(stored, sets)
    return evolve(stored, sets)


def _moved(stored: Record, change: Transition, at: int) -> dict[str, object]:
    """What a transition changes by itself, whatever else it sets."""
    phase = MACHINES[change.machine].phase[change.target]
    if not isinstance(stored, Worker):
        return {"state": change.target, "phase": phase, "version": change.version, "entered": at}
    side = "health" if change.machine == HEALTH else "control"
    return {
        side: change.target,
        f"{side}_phase": phase,
        f"{side}_version": change.version,
        f"{side}_entered": at,
    }


def _only(kind: type[T], records: Iterable[Record]) -> list[T]:
    return [record for record in records if isinstance(record, kind)]
