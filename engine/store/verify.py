"""`interlock verify`: the proof that nobody has touched the audit trail.

Every row is hashed again and every link followed. What a chain alone cannot show, a cut-off end, shows
against an anchor kept elsewhere, and against the versions of the entities themselves. The trail is only
added to, so the rows that are there when it begins can be proved in parts, by several processes.
"""

import multiprocessing
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.store.chain import GENESIS, Head, arrow_words, link, row_hash
from engine.store.connections import connect_reader, reader_uri
from engine.store.errors import StoreError
from engine.store.events import timestamp
from engine.store.files import Place
from engine.store.trouble import explained

PART = 50_000
"""Rows that one process proves at a time."""

ROWS = (
    "SELECT seq, at, run, task, name, version, arrow, since, cause, actor, source, reason, request_id,"
    " metadata, row_hash, hash FROM audit WHERE seq BETWEEN ? AND ? ORDER BY seq"
)


@dataclass(frozen=True, slots=True)
class Break:
    """The first place where the trail is not what was written."""

    seq: int
    problem: str
    about: str | None = field(default=None, compare=False)
    """Whose row it is and of when, where the row is there."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verification found."""

    rows: int
    head: Head
    broken: Break | None = None

    @property
    def sound(self) -> bool:
        return self.broken is None


def verify(
    place: Place,
    *anchors: Head | None,
    processes: int | None = None,
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> Verdict:
    """Prove the whole trail, and that it still holds what each anchor saw."""
    with closing(connect_reader(place)) as db, explained():
        head = _head(db)
        # Where a number is far beyond the count of the rows, one is missing no later than behind that many.
        last = min(head.seq, db.execute("SELECT count(*) FROM audit").fetchone()[0] + 1)
        done = 0
        for count, broken in _parts(place.file, last, processes):
            done += count
            if broken is not None:
                return Verdict(done, head, replace(broken, about=_about(db, broken.seq)))
            progress(done, last)
        broken = _before(db)
        for anchor in anchors:
            broken = broken or _against(db, anchor)
        return Verdict(done, head, broken or _tail(db))


def _parts(path: Path, last: int, processes: int | None) -> Iterator[tuple[int, Break | None]]:
    """The parts in order, each with its rows and its first broken link."""
    spans = [(path, first, min(first + PART - 1, last)) for first in range(1, last + 1, PART)]
    hands = min(processes or len(os.sched_getaffinity(0)), len(spans))
    # A fork of a program with threads may copy a lock that nobody will ever release.
    if hands < 2 or threading.active_count() > 1:
        yield from map(_prove, spans)
        return
    # Unlike a plain pool, this one notices when one of its processes is killed.
    with ProcessPoolExecutor(hands, multiprocessing.get_context("fork")) as pool:
        try:
            yield from pool.map(_prove, spans)
        except BrokenProcessPool:
            raise StoreError("a process that proved a part was killed: try again") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _prove(span: tuple[Path, int, int]) -> tuple[int, Break | None]:
    path, first, last = span
    with closing(sqlite3.connect(reader_uri(path), uri=True)) as db:
        words = {
            number: arrow_words(*key)
            for number, *key in db.execute("SELECT id, machine, from_state, event, to_state FROM arrows")
        }
        before = db.execute("SELECT hash, at FROM audit WHERE seq = ?", (first - 1,)).fetchone()
        if before is None and first > 1:
            return 0, Break(first - 1, "the row is missing")
        previous, at = before if first > 1 else (GENESIS, 0)
        try:
            return _walk(db.execute(ROWS, (first, last)), words, first, last, previous, at)
        except sqlite3.OperationalError:
            # Perhaps a text that is not UTF-8: no hash can be made of what this reads instead.
            db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
            return _walk(db.execute(ROWS, (first, last)), words, first, last, previous, at)


def _walk(
    rows: Iterable[tuple[object, ...]], words: dict[int, str], first: int, last: int, previous: bytes, at: int
) -> tuple[int, Break | None]:
    expected = first
    for row in rows:
        (
            seq, moment, run, task, name, version, arrow, since, cause, actor, source, reason, request,
            metadata, stored, chained,
        ) = row  # fmt: skip
        if seq != expected:
            return expected - first, Break(expected, "the row is missing")
        if arrow not in words:
            return expected - first, Break(expected, "the row tells of something that is not documented")
        try:
            digest = row_hash(
                seq, moment, run, task, name, version, words[arrow], since, cause, actor, source, reason,  # type: ignore[arg-type]
                request, metadata,  # type: ignore[arg-type]
            )  # fmt: skip
        except UnicodeEncodeError:
            digest = b""
        if digest != stored:
            return expected - first, Break(
                expected, "the row was edited, or somebody else added it: its hash is not its own"
            )
        previous = link(previous, digest)
        if previous != chained:
            return expected - first, Break(expected, "the row does not follow from the one before it")
        if moment < at:  # type: ignore[operator]
            return expected - first, Break(expected, "the row is older than the one before it")
        at = moment  # type: ignore[assignment]
        expected += 1
    if expected <= last:
        return expected - first, Break(expected, "the row is missing")
    return last - first + 1, None


def _about(db: sqlite3.Connection, seq: int) -> str | None:
    try:
        found = db.execute("SELECT entity_kind, entity_id, at FROM history WHERE seq = ?", (seq,)).fetchone()
        return f"{found[0]} {found[1]}, {timestamp(found[2])}" if found else None
    except (sqlite3.Error, ArithmeticError, TypeError, ValueError):
        # Whatever was written there, it is broken, and need not be readable too.
        return None


def _head(db: sqlite3.Connection) -> Head:
    found = db.execute("SELECT seq, hash, at FROM audit WHERE seq > 0 ORDER BY seq DESC LIMIT 1").fetchone()
    return Head(*found) if found else Head()


def _before(db: sqlite3.Connection) -> Break | None:
    found = db.execute("SELECT min(seq) FROM audit").fetchone()[0]
    return Break(found, "the row stands before the first one") if found is not None and found < 1 else None


def _against(db: sqlite3.Connection, anchor: Head | None) -> Break | None:
    if anchor is None:
        return None
    last = _head(db).seq
    if anchor.seq > last:
        return Break(last + 1, f"the trail ends at row {last}, and the anchor saw row {anchor.seq}")
    found = db.execute("SELECT hash FROM audit WHERE seq = ?", (anchor.seq,)).fetchone()
    if (found or (GENESIS,))[0] != anchor.hash:
        return Break(anchor.seq, "the row is not the one that the anchor saw: the trail was written anew")
    return None


_NAMED = "audit AS a JOIN arrows AS r ON r.id = a.arrow"
_TAILS = (
    (
        "SELECT CAST(e.number AS TEXT), e.version, (SELECT max(a.version) FROM audit AS a"
        " WHERE a.run = e.number AND a.task = 0) AS told FROM runs AS e"
    ),
    (
        "SELECT e.run || '/' || e.name, e.version, (SELECT max(a.version) FROM audit AS a"
        " WHERE a.run = e.run AND a.task = e.number) AS told FROM tasks AS e"
    ),
    (
        f"SELECT e.worker, e.version, (SELECT max(a.version) FROM {_NAMED}"
        " WHERE a.name = e.worker AND r.machine = e.machine) AS told FROM worker_regions AS e"
    ),
    (
        f"SELECT e.tool, e.version, (SELECT max(a.version) FROM {_NAMED}"
        " WHERE a.name = e.tool AND r.machine = e.machine) AS told FROM breakers AS e"
    ),
)
"""Each entity with its version, and the one that the trail tells of."""

_UPDATES = (
    (
        "SELECT CAST(e.number AS TEXT), e.updated, (SELECT max(a.at) FROM audit AS a"
        " WHERE a.run = e.number AND a.task = 0 AND a.version = e.version) AS told FROM runs AS e"
    ),
    (
        "SELECT e.run || '/' || e.name, e.updated, (SELECT max(a.at) FROM audit AS a"
        " WHERE a.run = e.run AND a.task = e.number AND a.version = e.version) AS told FROM tasks AS e"
    ),
    (
        "SELECT e.id, max(e.updated, coalesce(max(g.updated), 0)) AS updated,"
        f" (SELECT max(a.at) FROM {_NAMED} WHERE a.name = e.id AND r.machine <> 'pipeline.breaker') AS told"
        " FROM workers AS e LEFT JOIN worker_regions AS g ON g.worker = e.id GROUP BY e.id"
    ),
    (
        f"SELECT e.tool, e.updated, (SELECT max(a.at) FROM {_NAMED}"
        " WHERE a.name = e.tool AND r.machine = e.machine) AS told FROM breakers AS e"
    ),
)
"""The same with the time of the last change: a fact changes an entity, and not its version."""


def _tail(db: sqlite3.Connection) -> Break | None:
    """An entity that is further than the trail tells: the end of the trail was cut off."""
    for sql in _TAILS:
        found = db.execute(f"SELECT * FROM ({sql}) WHERE version IS NOT told LIMIT 1").fetchone()
        if found is not None:
            entity, version, told = found
            lacking = f"{entity} is at version {version}, and the trail tells of {told or 'none'}"
            return Break(_head(db).seq + 1, f"{lacking}: rows are missing")
    for sql in _UPDATES:
        found = db.execute(f"SELECT * FROM ({sql}) WHERE updated IS NOT told LIMIT 1").fetchone()
        if found is not None:
            lacking = f"{found[0]} was changed at another time than the trail tells"
            return Break(_head(db).seq + 1, f"{lacking}: rows are missing")
    return None
