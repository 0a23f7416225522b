"""Group commit: callers wait, one thread writes, and one transaction holds whatever had queued up.

No answer leaves before the commit that it tells of. The thread owns the connection: everything that
touches it is sent to the thread.
"""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from engine.core.decision import Decision
from engine.store.errors import StoreError
from engine.store.gate import Reply, Request
from engine.store.sqlite_gate import Answer, Item, SqliteGate

T = TypeVar("T")

MAX_BATCH = 1000
IDLE = 0.5
"""Seconds without work after which the WAL is emptied."""


@dataclass(slots=True)
class Order(Item):
    """An item, and whoever waits for it."""

    future: "asyncio.Future[Reply | None]"
    loop: asyncio.AbstractEventLoop


@dataclass(slots=True)
class Errand:
    """Something else to be done with the gate, between two transactions."""

    work: Callable[[SqliteGate], Any]
    future: "Future[Any]"

    def run(self, gate: SqliteGate) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.work(gate))
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
            self.future.set_exception(error)


class Committer:
    """The thread that writes."""

    def __init__(
        self, connection: sqlite3.Connection, gate: SqliteGate, committed: Callable[[int], None]
    ) -> None:
        self._db = connection
        self._gate = gate
        self._committed = committed
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._stopped = False
        self._door = threading.Lock()
        """Held while something is queued, so that nothing comes behind the end."""
        self._thread = threading.Thread(target=self._run, name="interlock-writer", daemon=True)
        self._thread.start()

    # ---- callers

    def apply(
        self, decisions: Sequence[Decision], request: Request | None = None
    ) -> "asyncio.Future[Reply | None]":
        """Store the decisions; the future is done when they are safe."""
        loop = asyncio.get_running_loop()
        order = Order(decisions, request, loop.create_future(), loop)
        self._put(order)
        return order.future

    def call(self, work: Callable[[SqliteGate], T]) -> "Future[T]":
        """Do something else with the gate, between two transactions."""
        future: Future[T] = Future()
        self._put(Errand(work, future))
        return future

    def _put(self, entry: Order | Errand) -> None:
        with self._door:
            if self._stopped:
                raise StoreError("the store is closed")
            self._queue.put(entry)

    def close(self) -> None:
        """Store what is queued, and end the thread."""
        with self._door:
            if not self._stopped:
                self._stopped = True
                self._queue.put(None)
        self._thread.join()

    # ---- the thread

    def _run(self) -> None:
        dirty = open_ = True
        while open_:
            try:
                entries = self._drain(self._queue.get(timeout=IDLE if dirty else None))
            except Empty:
                self._checkpoint()
                dirty = False
                continue
            open_ = entries[-1] is not None
            for kind, stretch in groupby(entries if open_ else entries[:-1], type):
                if kind is Order:
                    self._commit(list(stretch))
                else:
                    for errand in stretch:
                        self._run_errand(errand)
            dirty = True

    def _drain(self, first: Any) -> list[Any]:
        entries = [first]
        try:
            while entries[-1] is not None and len(entries) < MAX_BATCH:
                entries.append(self._queue.get_nowait())
        except Empty:
            pass
        return entries

    def _commit(self, orders: "list[Order]") -> None:
        """Orders that came one after the other are one transaction."""
        answers = self._answers(orders)
        self._committed(self._gate.head.seq)
        for loop, told in groupby(zip(orders, answers, strict=True), _loop):
            try:
                loop.call_soon_threadsafe(_resolve, list(told))
            except RuntimeError:
                # The loop is closed: what was stored is stored, and nobody is left to be told.
                continue

    def _run_errand(self, errand: "Errand") -> None:
        before = self._gate.head.seq
        errand.run(self._gate)
        if self._gate.head.seq != before:
            self._committed(self._gate.head.seq)

    def _answers(self, items: Sequence[Item]) -> list[Answer]:
        """What the gate answers; nothing that it meets may end the thread, or everybody waits for ever."""
        try:
            return self._gate.apply_all(items)
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the callers
            return [error] * len(items)

    def _checkpoint(self) -> None:
        """Move the WAL into the database. A reader in the way only puts it off.

        The file keeps its length: writing over it is twice as fast as making it longer.
        """
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def _loop(pair: "tuple[Order, Answer]") -> asyncio.AbstractEventLoop:
    return pair[0].loop


def _resolve(pairs: "list[tuple[Order, Answer]]") -> None:
    for order, answer in pairs:
        future = order.future
        if future.done():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
