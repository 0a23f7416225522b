"""The gate over SQLite: group commit, on one connection, in one thread.

Whatever is queued goes into one transaction. An item that cannot be stored fails alone: the batch is
taken back and done again, item by item. After any failure the end of the chain is read anew, because
only the database knows what it kept.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import groupby
from operator import itemgetter
from typing import overload

from engine.core.decision import Decision, Fact, Transition
from engine.core.model import Snapshot
from engine.core.plan import Plan
from engine.core.records import Ref
from engine.store import statements
from engine.store.chain import Head
from engine.store.codec import scrubbed
from engine.store.errors import StoreError
from engine.store.gate import AuditRow, Conflict, OutboxRow, Reply, Request, RequestReused
from engine.store.instructions import parse_instruction
from engine.store.interlock import RETIRED
from engine.store.loading import load_snapshot, trail_of
from engine.store.staging import Arrows, Key, Staging, Statement, answer_to, standing
from engine.store.trouble import explained

Answer = Reply | None | Exception


class _OneOfThem(Exception):
    """One of several statements that went together met nothing."""


_text, _values = itemgetter(0), itemgetter(1)

MAX_VERSIONS = 256
"""Plans whose stored version is remembered."""


@dataclass(slots=True)
class Item:
    """What one caller wants stored."""

    decisions: Sequence[Decision]
    request: Request | None


class SqliteGate:
    """The only writer of state, for a connection that is its own."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._arrows = Arrows()
        self._versions: dict[int, tuple[Plan, str]] = {}
        self._head = Head()
        self._sent = 0
        self._reload()

    @property
    def head(self) -> Head:
        """The end of the chain, as committed."""
        return self._head

    # ---- writing

    def apply(self, decisions: Sequence[Decision], request: Request | None = None) -> Reply | None:
        (answer,) = self.apply_all([Item(decisions, request)])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def apply_all(self, items: Sequence[Item]) -> list[Answer]:
        """Store the items in one transaction; each gets its own answer."""
        try:
            with explained():
                return self._together(items)
        except StoreError as failure:
            return self._gave_up(items, failure)
        except Exception as failure:  # noqa: BLE001 - one item is wrong, which says nothing against the others
            self._rollback()
            if len(items) == 1 and isinstance(failure, Conflict):
                return [failure]
        return self._one_by_one(items)

    def _gave_up(self, items: Sequence[Item], failure: StoreError) -> list[Answer]:
        """The store itself does not work: each caller gets an error of its own to raise."""
        self._rollback()
        return [type(failure)(*failure.args) for _ in items]

    def _together(self, items: Sequence[Item]) -> list[Answer]:
        """The usual case: everything fits, so nothing has to be told apart."""
        self._db.execute("BEGIN IMMEDIATE")
        staging = self._staging()
        staging.keys = self._keys([item.request for item in items if item.request is not None])
        answers = [self._stage(staging, item) for item in items]
        self._write(staging)
        self._db.execute("COMMIT")
        self._head, self._sent = staging.head, staging.sent
        return answers

    def _one_by_one(self, items: Sequence[Item]) -> list[Answer]:
        """One of them cannot be stored: each by itself, so that it fails alone."""
        answers: list[Answer] = []
        try:
            with explained():
                self._db.execute("BEGIN IMMEDIATE")
                for item in items:
                    answers.append(self._alone(item))
                self._db.execute("COMMIT")
        except StoreError as failure:
            return self._gave_up(items, failure)
        return answers

    def _alone(self, item: Item) -> Answer:
        self._db.execute("SAVEPOINT item")
        staging = self._staging(scrub=True)
        try:
            with explained():
                request = _scrubbed(item.request)
                staging.keys = {} if request is None else self._keys([request])
                answer = self._stage(staging, Item(item.decisions, request))
                self._write(staging, exactly=True)
            self._head, self._sent = staging.head, staging.sent
        except StoreError:
            raise
        except Exception as failure:  # noqa: BLE001 - whatever is wrong with it, it fails alone
            self._db.execute("ROLLBACK TO item")
            self._forget()
            answer = failure
        self._db.execute("RELEASE item")
        return answer

    def _stage(self, staging: Staging, item: Item) -> Answer:
        request = item.request
        reply = None
        if request is not None:
            try:
                reply = staging.answered(request)
            except RequestReused as refusal:
                return refusal
            if reply is not None:
                staging.count("idempotency_hit", request.operation)
                return reply
            reply = staging.answer(request)
            staging.count("idempotency_miss", request.operation)
        for decision in item.decisions:
            staging.add(decision)
        return reply

    def _write(self, staging: Staging, *, exactly: bool = False) -> None:
        db = self._db
        if staging.learned:
            db.executemany(statements.ADD_ARROW, staging.learned)
        for length, rows in groupby(staging.rows, len):
            plain = length == len(statements.PLAIN_AUDIT)
            db.executemany(statements.ADD_PLAIN_AUDIT if plain else statements.ADD_AUDIT, rows)
        for sql, group in groupby(staging.statements, _text):
            stretch = list(group)
            if len(stretch) == 1 or exactly:
                for statement in stretch:
                    if db.execute(sql, statement[1]).rowcount != 1:
                        self._check(statement)
            elif db.executemany(sql, map(_values, stretch)).rowcount != len(stretch):
                raise _OneOfThem
        if staging.timers:
            self._set_timers(staging)
        if staging.outbox:
            db.executemany(statements.SEND, staging.outbox)
        if staging.replies:
            db.executemany(statements.ADD_KEY, staging.replies)
        if staging.counts:
            db.executemany(statements.COUNT, [(*key, count) for key, count in staging.counts.items()])

    def _check(self, statement: Statement) -> None:
        """No row was met: somebody was faster, unless the statement may well change nothing."""
        sql, values, change = statement
        if sql in (statements.NOTE_ATTEMPT, statements.CLOSE_ATTEMPT):
            raise ValueError(f"an attempt that is not open was to be changed: {values}")
        if change is not None:
            raise self._conflict(change)

    def _set_timers(self, staging: Staging) -> None:
        cleared = [key for key, due in staging.timers.items() if due is None]
        wanted = [(*key, due) for key, due in staging.timers.items() if due is not None]
        self._db.executemany(statements.CLEAR_TIMER, cleared)
        self._db.executemany(statements.SET_TIMER, wanted)

    def _conflict(self, change: Transition | Fact) -> Conflict:
        machine, version = standing(change)
        state = change.source if isinstance(change, Transition) else ""
        key = change.ref.key if isinstance(change.ref.key, tuple) else (change.ref.key,)
        found = self._db.execute(statements.STANDING[change.ref.kind], (*key, machine)).fetchone()
        return Conflict(change.ref, machine, (state, version), found)

    # ---- requests and counts

    def recall(self, request: Request) -> Reply | None:
        request = _scrubbed(request)
        with explained():
            reply = answer_to(request, self._keys([request]).get(request.id))
        if reply is not None:
            self._count("idempotency_hit", request.operation)
        return reply

    def _keys(self, requests: Sequence[Request]) -> dict[str, Key]:
        """What is stored under the ids of these requests."""
        found: dict[str, Key] = {}
        ids = [request.id for request in requests]
        for first in range(0, len(ids), statements.KEYS_AT_ONCE):
            some = ids[first : first + statements.KEYS_AT_ONCE]
            wanted = (*some, *(None,) * (statements.KEYS_AT_ONCE - len(some)))
            found |= {key[0]: key for key in self._db.execute(statements.FIND_KEYS, wanted)}
        return found

    def refused(self, machine: str, state: str, event: str) -> None:
        self._count("refused", scrubbed(machine), scrubbed(state), scrubbed(event))

    def _count(self, counter: str, machine: str, state: str = "", event: str = "") -> None:
        with self._transaction():
            self._db.execute(statements.COUNT, (counter, machine, state, event, 1))

    def sweep(self, now: int) -> int:
        with self._transaction():
            return self._db.execute(statements.SWEEP_KEYS, (now,)).rowcount

    def delivered(self, seqs: Sequence[int]) -> None:
        with self._transaction():
            self._db.executemany(statements.DELIVERED, [(seq,) for seq in seqs])
            self._db.execute(statements.TIDY_OUTBOX)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """A small change that moves nothing in the chain."""
        with explained():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._rollback()
                raise

    # ---- what is remembered between two transactions

    def _staging(self, *, scrub: bool = False) -> Staging:
        if len(self._versions) > MAX_VERSIONS:
            self._versions.clear()
        return Staging(self._head, self._sent, self._arrows, self._versions, scrub=scrub)

    def _rollback(self) -> None:
        if self._db.in_transaction:
            with explained():
                self._db.execute("ROLLBACK")
        self._forget()
        self._reload()

    def _forget(self) -> None:
        """What was remembered of a transaction that was taken back."""
        self._versions.clear()
        self._reload_arrows()

    def _reload(self) -> None:
        with explained():
            row = self._db.execute(statements.HEAD).fetchone()
            self._head = Head(*row) if row else Head()
            self._sent = self._db.execute("SELECT coalesce(max(seq), 0) FROM outbox").fetchone()[0]
            self._reload_arrows()

    def _reload_arrows(self) -> None:
        documented = "SELECT id, machine, from_state, event, to_state FROM arrows WHERE kind <> ?"
        last = self._db.execute("SELECT coalesce(max(id), 0) FROM arrows").fetchone()[0]
        rows = self._db.execute(documented, (RETIRED,))
        self._arrows = Arrows(((number, (machine, *way)) for number, machine, *way in rows), last)

    # ---- reading

    def load(self) -> Snapshot:
        with explained():
            return load_snapshot(self._db)

    def outbox(self) -> Sequence[OutboxRow]:
        with explained():
            rows = self._db.execute(
                "SELECT seq, cause, instruction, body FROM outbox WHERE delivered = 0 ORDER BY seq"
            ).fetchall()
        return [OutboxRow(seq, cause, parse_instruction(name, body)) for seq, cause, name, body in rows]

    def history(self, ref: Ref) -> Sequence[AuditRow]:
        with explained():
            return trail_of(self._db, Ref(ref.kind, scrubbed(ref.key)))


@overload
def _scrubbed(request: None) -> None: ...
@overload
def _scrubbed(request: Request) -> Request: ...
def _scrubbed(request: Request | None) -> Request | None:
    """A request as it can be stored: text that UTF-8 cannot hold is written as an escape."""
    if request is None:
        return None
    told = {spec.name: scrubbed(getattr(request, spec.name)) for spec in fields(request)}
    return Request(**told)
