"""Whether a store holds what it promised, read from its tables by nothing that the store itself would use.

A `Trail` is followed: each look proves the rows that came since the last one, in one snapshot.
"""

import json
import re
import sqlite3
from collections import Counter
from contextlib import closing

from engine.store.chain import GENESIS, arrow_words, link, row_hash
from engine.store.check import check
from engine.store.connections import connect_reader
from engine.store.files import Place
from engine.store.verify import verify
from tests.store.orders import reply_body

_TOLD = re.compile(r"order (\d+): (\d+) of (\d+), sends (\d+)")
_ROWS = (
    "SELECT a.seq, a.at, a.run, a.task, a.name, a.version, a.since, a.cause, a.actor, a.source, a.reason,"
    " a.request_id, a.metadata, a.row_hash, a.hash, r.machine, r.from_state, r.event, r.to_state"
    " FROM audit AS a LEFT JOIN arrows AS r ON r.id = a.arrow WHERE a.seq > ? ORDER BY a.seq"
)
_ENTITIES = (
    "SELECT number, 0, machine, state, version FROM runs"
    " UNION ALL SELECT run, number, machine, state, version FROM tasks"
)

Parts = list[tuple[int, int, int]]
"""Of one order: which part, of how many, and how many instructions left with it."""


class Unsound(Exception):
    """The store does not hold what it promised."""


def expect(kept: bool, story: str) -> None:
    if not kept:
        raise Unsound(story)


class Trail:
    """A store's history, as far as it was proved. Orders alone are in it, after the runs were submitted."""

    def __init__(self) -> None:
        self.seq, self.at, self.hash = 0, 0, GENESIS
        self.sent = 0
        self.orders: set[int] = set()
        self.by_version: dict[tuple[int, int], int] = {}
        """The order that took a task to a version."""
        self._standing: dict[tuple[int, int], tuple[str, str, int]] = {}
        self._timers: dict[str, int] = {}
        self._requests: set[int] = set()

    def look(self, db: sqlite3.Connection) -> None:
        """Prove what came since the last look, and that the tables are what the trail tells."""
        db.execute("BEGIN")
        try:
            self._see_that_the_past_stays(db)
            found: dict[int, Parts] = {}
            for row in db.execute(_ROWS, (self.seq,)):
                self._follow(row, found)
            self._see_that_orders_are_whole(db, found)
            self._compare(db)
        finally:
            db.execute("ROLLBACK")

    def _see_that_the_past_stays(self, db: sqlite3.Connection) -> None:
        if self.seq:
            kept = db.execute("SELECT hash FROM audit WHERE seq = ?", (self.seq,)).fetchone()
            expect(
                kept == (self.hash,), f"row {self.seq} of the trail was proved before, and is not there now"
            )

    def _follow(self, row: tuple[object, ...], found: dict[int, Parts]) -> None:
        *told, digest, chained, machine, source, event, target = row
        seq, at, run, task, name, version, since, cause, actor, by, reason, request, metadata = told
        expect(seq == self.seq + 1, f"row {self.seq + 1} of the trail is missing: the next one is {seq}")
        words = arrow_words(machine, source, event, target)  # type: ignore[arg-type]
        own = row_hash(
            seq, at, run, task, name, version, words, since, cause, actor, by, reason, request, metadata,  # type: ignore[arg-type]
        )  # fmt: skip
        expect(own == digest, f"row {seq} does not have its own hash")
        expect(link(self.hash, own) == chained, f"row {seq} does not follow from the row before it")
        expect(at >= self.at, f"row {seq} is older than the row before it")  # type: ignore[operator]
        self.seq, self.at, self.hash = seq, at, chained  # type: ignore[assignment]
        key: tuple[int, int] = (run, task)  # type: ignore[assignment]
        before = self._standing.get(key, (machine, None, 0))
        expect(
            (machine, source, version) == (before[0], before[1], before[2] + 1),
            f"row {seq} takes {key} from {source} to version {version}, and it was in {before}",
        )
        self._standing[key] = machine, target, version  # type: ignore[assignment]
        parsed = _TOLD.fullmatch(str(reason))
        if parsed is None:
            return
        number, place, parts, sends = map(int, parsed.groups())
        expect(cause == number, f"row {seq} is of order {number} and was caused by {cause}")
        expect(number not in self.orders, f"order {number} is there twice: again in row {seq}")
        found.setdefault(number, []).append((place, parts, sends))
        self.by_version[task, version] = number  # type: ignore[index]
        if request is not None:
            self._requests.add(number)
        if '"timers"' in str(metadata):
            due = json.loads(str(metadata))["timers"]["retry"]
            self._timers.pop(f"{run}/{task}", None)
            self._timers |= {f"{run}/{task}": due} if due is not None else {}

    def _see_that_orders_are_whole(self, db: sqlite3.Connection, found: dict[int, Parts]) -> None:
        sent = Counter[int]()
        for seq, cause in db.execute(
            "SELECT seq, cause FROM outbox WHERE seq > ? ORDER BY seq", (self.sent,)
        ):
            expect(seq == self.sent + 1, f"instruction {self.sent + 1} is missing: the next one is {seq}")
            self.sent = seq
            sent[cause] += 1
        for number, parts in found.items():
            _, count, sends = parts[0]
            whole = [(place, count, sends) for place in range(1, count + 1)]
            expect(parts == whole, f"of order {number} there are {parts}, and not {whole}")
            expect(sent.pop(number, 0) == sends, f"order {number} has not its {sends} instructions")
            if number in self._requests:
                key = f"request-{number}"
                reply = db.execute(
                    "SELECT body FROM idempotency_keys WHERE request_id = ?", (key,)
                ).fetchone()
                expect(
                    reply == (reply_body(number),), f"order {number} was stored without its reply: {reply}"
                )
        expect(not sent, f"instructions of orders that are not there: {sorted(sent)[:5]}")
        self.orders |= found.keys()

    def _compare(self, db: sqlite3.Connection) -> None:
        stored = {(run, task): (*rest,) for run, task, *rest in db.execute(_ENTITIES)}
        wrong = [
            key for key in stored.keys() | self._standing.keys() if stored.get(key) != self._standing.get(key)
        ]
        story = [f"{key}: stored {stored.get(key)}, told {self._standing.get(key)}" for key in wrong[:3]]
        expect(not wrong, f"entities that are not what the trail tells: {story}")
        timers = dict(db.execute("SELECT entity, due FROM timers"))
        expect(timers == self._timers, f"timers {timers}, and the trail tells {self._timers}")
        (keys,) = db.execute("SELECT count(*) FROM idempotency_keys").fetchone()
        expect(keys == len(self._requests), f"{keys} replies are kept for {len(self._requests)} requests")


def prove(place: Place) -> Trail:
    """Everything, from the first row to the last."""
    trail = Trail()
    with closing(connect_reader(place)) as db:
        trail.look(db)
        found = db.execute("PRAGMA integrity_check(3)").fetchall()
        expect(found == [("ok",)], f"integrity_check: {found}")
        orphans = db.execute("PRAGMA foreign_key_check").fetchall()
        expect(not orphans, f"foreign_key_check: {orphans[:3]}")
    findings = list(check(place))
    expect(not findings, f"check: {findings[:3]}")
    verdict = verify(place)
    expect(verdict.sound, f"verify: {verdict.broken}")
    expect(verdict.head.seq == trail.seq, f"verify ends at {verdict.head.seq}, the trail at {trail.seq}")
    return trail
