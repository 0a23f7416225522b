"""What a decision means to the tables: rows of the trail, and the statements that go with them.

Nothing is written here. A staging knows where the chain ends, gives each row its place in it, and lists
the statements in the order in which the triggers want them: the trail first, then what it speaks of.
"""

from collections.abc import Iterable
from typing import Any

from engine.core.decision import AttemptNoted, Closing, Created, Decision, Fact, TimerSet, Transition
from engine.core.plan import Plan
from engine.core.records import Attempt, Breaker, Entity, Hold, Record, Ref, Run, Task, Worker
from engine.machines import MACHINES, Kind
from engine.store import statements
from engine.store.chain import Head, arrow_words, link, row_hash
from engine.store.codec import (
    approval_values,
    as_json,
    attempt_values,
    birth_columns,
    change_words,
    closing_values,
    columns_of,
    ref_values,
    scrubbed,
    token_values,
)
from engine.store.errors import RefusedByStore
from engine.store.gate import Reply, Request, RequestReused
from engine.store.instructions import instruction_values
from engine.store.interlock import CREATED, FACT
from engine.store.plans import plan_text, version_id
from engine.store.tables import BREAKER_MACHINE, BY_ENTITY, WORKER_MACHINES

HEALTH = WORKER_MACHINES[0]
_REJECTED = "REJECT"

ArrowKey = tuple[str, str | None, str, str | None]
"""What names an arrow: machine, from, event, to."""


class Arrows:
    """The number and the canonical words of every arrow, as the database has them or is about to."""

    def __init__(self, rows: Iterable[tuple[int, ArrowKey]] = (), last: int = 0) -> None:
        self.known = {key: (number, arrow_words(*key)) for number, key in rows}
        self._last = last

    def add(self, key: ArrowKey) -> int:
        self._last += 1
        self.known[key] = self._last, arrow_words(*key)
        return self._last


Statement = tuple[str, tuple[Any, ...], Transition | Fact | None]
"""Its text, its values, and the change that lost a race if no row was met."""


Key = tuple[str, str, str, int, str, int, int]
"""A row of `idempotency_keys`: id, operation, fingerprint, status, body, created, expires."""


def answer_to(request: Request, key: Key | None) -> Reply | None:
    """What a request gets that was made under this key before; a key that has expired is none."""
    if key is None:
        return None
    _, operation, fingerprint, status, body, _, expires = key
    if expires <= request.at:
        return None
    if (operation, fingerprint) != (request.operation, request.fingerprint):
        raise RequestReused(request.id, operation, request.operation)
    return Reply(status, body, again=True)


class Staging:
    """One transaction in the making."""

    def __init__(
        self,
        head: Head,
        sent: int,
        arrows: Arrows,
        versions: dict[int, tuple[Plan, str]],
        *,
        scrub: bool = False,
    ) -> None:
        self.seq, self.hash, self.at = head.seq, head.hash, head.at
        self.sent = sent
        self.rows: list[tuple[Any, ...]] = []
        self.statements: list[Statement] = []
        self.timers: dict[tuple[str, str, str], int | None] = {}
        self.outbox: list[tuple[int, int, str, str]] = []
        self.keys: dict[str, Key] = {}
        """What is stored or staged under the ids of requests."""
        self.replies: list[Key] = []
        self.counts: dict[tuple[str, str, str, str], int] = {}
        self.learned: list[tuple[Any, ...]] = []
        """Rows of `arrows`: facts that were never told before."""
        self._arrows = arrows
        self._versions = versions
        self._scrub = scrub

    @property
    def head(self) -> Head:
        return Head(self.seq, self.hash, self.at)

    def add(self, decision: Decision) -> None:
        """Stage all of one decision."""
        if decision.at > self.at:
            self.at = decision.at
        due = self._take_timers(decision) if decision.timers else {}
        for change in decision.changes:
            kind = type(change)
            if kind is Transition:
                self._transition(decision, change, due)  # type: ignore[arg-type]
            elif kind is Fact:
                self._fact(decision, change, due)  # type: ignore[arg-type]
            elif kind is AttemptNoted:
                self._note(change)  # type: ignore[arg-type]
            else:
                self._created(decision, change)  # type: ignore[arg-type]
        for instruction in decision.instructions:
            self.sent += 1
            name, body = instruction_values(instruction)
            self.outbox.append((self.sent, decision.signal, name, scrubbed(body) if self._scrub else body))

    # ---- requests

    def answered(self, request: Request) -> Reply | None:
        """The reply that the same request was given before, in this very transaction or an earlier one."""
        return answer_to(request, self.keys.get(request.id))

    def answer(self, request: Request) -> Reply:
        key = (
            request.id, request.operation, request.fingerprint, request.status, request.body, request.at,
            request.at + request.ttl,
        )  # fmt: skip
        self.keys[request.id] = key
        self.replies.append(key)
        return Reply(request.status, request.body)

    def count(self, counter: str, machine: str, state: str = "", event: str = "") -> None:
        key = (counter, machine, state, event)
        self.counts[key] = self.counts.get(key, 0) + 1

    # ---- the trail

    def _row(
        self, decision: Decision, ref: Ref, version: int, arrow: ArrowKey, since: int | None,
        reason: str | None, words: str,
    ) -> None:  # fmt: skip
        number, told = self._arrows.known.get(arrow) or self._learn(arrow)
        run, task, name = ref_values(ref)
        self.seq = seq = self.seq + 1
        at, cause, actor, source = self.at, decision.signal, decision.actor, decision.source
        request = decision.request_id
        if self._scrub:
            actor, source, words = scrubbed(actor), scrubbed(source), scrubbed(words)
            name, reason, request = scrubbed(name), scrubbed(reason), scrubbed(request)
        digest = row_hash(
            seq, at, run, task, name, version, told, since, cause, actor, source, reason, request, words
        )
        self.hash = chained = link(self.hash, digest)
        if name is None and request is None:
            # Most rows: leaving out what they have not got is an eighth of the cost of storing them.
            row: tuple[Any, ...] = (
                seq, at, run, task, version, number, since, cause, actor, source, reason, words, digest,
                chained,
            )  # fmt: skip
        else:
            row = (
                seq, at, run, task, name, version, number, since, cause, actor, source, reason, request,
                words, digest, chained,
            )  # fmt: skip
        self.rows.append(row)

    def _learn(self, key: ArrowKey) -> tuple[int, str]:
        """The name of a fact gets its number when it is first told; a transition is documented or refused."""
        machine, source, event, target = key
        if source is not None or target is not None or machine not in MACHINES:
            raise RefusedByStore(f"{machine} has no transition from {source} to {target} by {event}")
        number = self._arrows.add(key)
        self.learned.append((number, machine, None, event, None, FACT, None))
        return self._arrows.known[key]

    def _transition(
        self, decision: Decision, change: Transition, due: dict[Ref, dict[str, int | None]]
    ) -> None:
        columns = columns_of(change.sets)
        words = change_words(change, columns, due.pop(change.ref, None) if due else None)
        version, source, target = change.version, change.source, change.target
        arrow = (change.machine, source, change.event, target)
        self._row(decision, change.ref, version, arrow, change.since, change.reason, words)
        if "hold" in columns:
            self._hold(decision, change.ref, change.sets["hold"])
            del columns["hold"]
        if change.event == _REJECTED:
            self._verdict(decision, change.ref, "rejected", change.reason)
        if change.kind is Kind.RECOVERY:
            values = (
                self.seq, self.at, change.machine, change.after.label, change.event, decision.actor,
                change.reason, words,
            )  # fmt: skip
            self._say(statements.ADD_RECOVERY, values)
        kind, key = change.ref
        if kind is Entity.WORKER:
            if columns:
                columns["updated"] = self.at
                self._say(statements.change("workers", (*columns,), True), (*columns.values(), key), change)
            columns, table = {}, "worker_regions"
            whose: tuple[object, ...] = (key, change.machine)
        else:
            table, whose = _TABLE[kind], key if isinstance(key, tuple) else (key,)
        sql = statements.change(table, (*columns, "state", "version", "entered", "updated"), True)
        moved = (target, version, self.at, self.at)
        self._say(sql, (*columns.values(), *moved, *whose, version - 1, source), change)
        if change.opens is not None or change.closes is not None:
            self._attempts(change.opens, change.closes)

    def _fact(self, decision: Decision, change: Fact, due: dict[Ref, dict[str, int | None]]) -> None:
        columns = columns_of(change.sets)
        words = change_words(change, columns, due.pop(change.ref, None) if due else None)
        machine, version = _standing(change.after)
        self._row(
            decision, change.ref, version, (machine, None, change.name, None), None, change.reason, words
        )
        if "hold" in columns:
            self._hold(decision, change.ref, change.sets["hold"])
            del columns["hold"]
        columns["updated"] = self.at
        sql = statements.change(_TABLE[change.ref.kind], (*columns,), False)
        self._say(sql, (*columns.values(), *_key(change.ref), version), change)
        self._attempts(change.opens, change.closes)

    def _created(self, decision: Decision, change: Created) -> None:
        record, ref = change.after, change.ref
        workflow = self._version_of(record.plan, self.at) if isinstance(record, Run) else None
        columns = birth_columns(change, workflow)
        arrow = (change.machine, None, CREATED, change.state)
        self._row(decision, ref, 1, arrow, None, None, as_json(columns))
        born = {"machine": change.machine, "state": change.state, "version": 1, "entered": self.at}
        born["updated"] = self.at
        if isinstance(record, Worker):
            own = columns | {"id": record.id, "updated": self.at}
            sql, order = statements.add_worker(tuple(own))
            self._say(sql, tuple(own[name] for name in order))
            columns = {"worker": record.id}
        else:
            columns |= dict(zip(statements.KEYS[_TABLE[ref.kind]], _key(ref), strict=True))
        hold = columns.pop("hold", None)
        columns |= born
        table = "worker_regions" if isinstance(record, Worker) else _TABLE[ref.kind]
        sql, order = statements.birth(table, tuple(columns))
        self._say(sql, tuple(columns[name] for name in order))
        if hold is not None and isinstance(record, Run | Task) and record.hold is not None:
            self._hold(decision, ref, record.hold)

    def _say(self, sql: str, values: tuple[Any, ...], change: Transition | Fact | None = None) -> None:
        if self._scrub:
            values = tuple(map(scrubbed, values))
        self.statements.append((sql, values, change))

    # ---- what goes with it

    def _attempts(self, opens: Attempt | None, closes: Closing | None) -> None:
        if closes is not None:
            values = (self.at, *closing_values(closes), *token_values(closes.token))
            self._say(statements.CLOSE_ATTEMPT, values)
            if closes.report is not None and closes.report.checks:
                for place, check in enumerate(closes.report.checks, 1):
                    told = (check.name, int(check.passed), check.duration, check.exit_code, check.output)
                    values = (*token_values(closes.token), place, *told)
                    self._say(statements.ADD_CHECK, values)
        if opens is not None:
            values = (*token_values(opens.token), *attempt_values(opens))
            self._say(statements.OPEN_ATTEMPT, values)

    def _note(self, change: AttemptNoted) -> None:
        values = (*attempt_values(change.after), *token_values(change.token))
        self._say(statements.NOTE_ATTEMPT, values)

    def _hold(self, decision: Decision, ref: Ref, hold: object) -> None:
        assert isinstance(hold, Hold), hold
        run, task, _ = ref_values(ref)
        if hold.votes:
            self._verdict(decision, ref, "approved", hold.votes[-1].reason)
            self._say(statements.MEET_HOLD, (int(hold.met), run, task))
            return
        values = (run, task, as_json(approval_values(hold)), int(hold.met), self.seq, self.at)
        self._say(statements.OPEN_HOLD, values)

    def _verdict(self, decision: Decision, ref: Ref, verdict: str, reason: str | None) -> None:
        run, task, _ = ref_values(ref)
        values = (self.seq, run, task, decision.actor, verdict, reason, decision.at)
        self._say(statements.ADD_VERDICT, values)

    def _take_timers(self, decision: Decision) -> dict[Ref, dict[str, int | None]]:
        """The timers of this decision, by entity; the first row of each tells them."""
        due: dict[Ref, dict[str, int | None]] = {}
        for timer in decision.timers:
            when = timer.due if isinstance(timer, TimerSet) else None
            due.setdefault(timer.ref, {})[timer.kind.value] = when
            entity = scrubbed(str(timer.ref)) if self._scrub else str(timer.ref)
            self.timers[timer.ref.kind.value, entity, timer.kind.value] = when
        return due

    def _version_of(self, plan: Plan, at: int) -> str:
        """The workflow version of a plan, which is stored with the first run of it."""
        known = self._versions.get(id(plan))
        if known is not None and known[0] is plan:
            return known[1]
        text = plan_text(plan)
        name = version_id(text)
        self._versions[id(plan)] = (plan, name)
        self._say(statements.ADD_VERSION, (name, plan.name, None, text, at))
        return name


_TABLE = {kind: table.name for kind, table in BY_ENTITY.items()}


def _key(ref: Ref) -> tuple[Any, ...]:
    return ref.key if isinstance(ref.key, tuple) else (ref.key,)


def standing(change: Transition | Fact) -> tuple[str, int]:
    """The machine and the version that a change was decided on."""
    if isinstance(change, Transition):
        return change.machine, change.version - 1
    return _standing(change.after)


def _standing(record: Record) -> tuple[str, int]:
    """The machine and version that a fact is told under."""
    if isinstance(record, Worker):
        return HEALTH, record.health_version
    if isinstance(record, Breaker):
        return BREAKER_MACHINE, record.version
    return record.machine, record.version
