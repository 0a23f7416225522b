"""A store that is open for writing: the lease, the gate behind its thread, and the feed of its commits."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from engine.core.decision import Decision
from engine.store.committer import Committer
from engine.store.connections import connect_writer, probe
from engine.store.errors import StoreDamaged
from engine.store.files import Place
from engine.store.gate import Reply, Request
from engine.store.lease import Lock, begin_term, end_term, ended_well
from engine.store.sqlite_gate import SqliteGate
from engine.store.trouble import explained

T = TypeVar("T")

log = logging.getLogger(__name__)


def now() -> int:
    """The wall clock in microseconds."""
    return time.time_ns() // 1000


class Store:
    """The one writer of a store. Whoever opens it holds the lease until it closes or its process ends."""

    def __init__(
        self, path: Path | str | None = None, *, synchronous: str = "FULL", patience: float = 0.0
    ) -> None:
        self.place = Place.of(path)
        probe(self.place)
        self.place.make()
        self._lock = Lock(self.place.lock, patience)
        try:
            self._db = connect_writer(self.place, synchronous)
        except BaseException:
            self._lock.release()
            raise
        try:
            with explained():
                if not ended_well(self._db):
                    _see_that_it_is_sound(self._db)
                self.term = begin_term(self._db, now())
                self._gate = SqliteGate(self._db)
        except BaseException:
            self._db.close()
            self._lock.release()
            raise
        self._closed = False
        self._listeners: list[Callable[[int], None]] = []
        self._committer = Committer(self._db, self._gate, self._tell)

    def apply(
        self, decisions: Sequence[Decision], request: Request | None = None
    ) -> "asyncio.Future[Reply | None]":
        """Store the decisions in one transaction, with whatever else has queued up."""
        return self._committer.apply(decisions, request)

    def call(self, work: Callable[[SqliteGate], T]) -> "Future[T]":
        """Do something else with the gate (`load`, `outbox`, `sweep`), in its own thread."""
        return self._committer.call(work)

    def listen(self, listener: Callable[[int], None]) -> None:
        """Call this after each commit with the number of the last row, in the writer's thread."""
        self._listeners.append(listener)

    def _tell(self, seq: int) -> None:
        for listener in self._listeners:
            try:
                listener(seq)
            except Exception:
                log.exception("a listener of the store failed")

    def close(self) -> None:
        """Store what is queued, give the lease back, and leave nothing in the WAL if no reader needs it."""
        if self._closed:
            return
        self._closed = True
        self._committer.close()
        try:
            with explained():
                end_term(self._db, self.term, now())
                # Nobody who waits for the lease waits for a reader: what stays in the WAL is safe there.
                self._db.execute("PRAGMA busy_timeout=0").fetchone()
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            self._db.close()
            self._lock.release()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _see_that_it_is_sound(db: sqlite3.Connection) -> None:
    """The last writer did not close the store: look before anything is added to it."""
    found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        log.error("quick_check says: %s", found)
        raise StoreDamaged(
            "the store is damaged: leave it as it is, and see `interlock doctor`."
            " Backups are in its `.d/archive` folder"
        )
