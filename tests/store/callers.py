"""The process that is killed: many callers that share one store, and the journal of what they were told."""

import asyncio
import json
import os
import random
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

from engine.store.connections import connect_reader
from engine.store.errors import StoreError
from engine.store.files import Place
from engine.store.gate import Conflict
from engine.store.sqlite_gate import SqliteGate
from engine.store.store import Store
from tests.store.orders import NEXT, Move, Order, Standing, reply_body, submission

CALLERS = 32
EACH = 4
"""Tasks that one caller moves, and nobody else."""
LIFE = 30.0
"""Seconds after which a process ends by itself, if nobody kills it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An order, who sent it, and whether it is known to be stored."""

    caller: int
    order: Order
    stored: bool = False


@dataclass(slots=True)
class News:
    """What was written since the journal was last read."""

    sent: list[Wanted] = field(default_factory=list)
    acknowledged: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By order: the tasks and their versions."""
    refused: list[int] = field(default_factory=list)
    again: int = 0


class Journal:
    """Lines that are in the file once they are written, whatever becomes of the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def sent(self, caller: int, order: Order) -> None:
        self._write(["sent", caller, asdict(order)])

    def acknowledged(self, order: Order, again: bool) -> None:
        moves = [(move.task, move.version) for move in order.moves]
        self._write(["acknowledged", order.number, moves, order.request_id, again])

    def refused(self, order: Order) -> None:
        self._write(["refused", order.number])

    def _write(self, line: list[object]) -> None:
        os.write(self._fd, f"{json.dumps(line)}\n".encode())

    def read(self) -> News:
        """What was written since; the writer is gone, and may have been killed in the middle of a line."""
        news = News()
        found = os.pread(self._fd, os.fstat(self._fd).st_size - self._read, self._read)
        whole = found[: found.rfind(b"\n") + 1]
        self._read += len(whole)
        os.ftruncate(self._fd, self._read)
        for line in whole.splitlines():
            match json.loads(line):
                case "sent", caller, told:
                    moves = tuple(Move(**move) for move in told.pop("moves"))
                    news.sent.append(Wanted(caller, Order(moves=moves, **told)))
                case "acknowledged", number, moves, _, again:
                    news.acknowledged[number] = [(task, version) for task, version in moves]
                    news.again += again
                case _, number:
                    news.refused.append(number)
        return news


class Callers:
    """Everything that one process does, until it is killed or has sent enough."""

    def __init__(
        self, place: Place, journal: Journal, last: int, pending: Iterable[Wanted], seed: float, *,
        pages: int = 1000, orders: int | None = None,
    ) -> None:  # fmt: skip
        self._place, self._journal = place, journal
        self._number = last
        self._pending = list(pending)
        self._random = random.Random(seed)
        self._pages = pages
        """Of the log, after which it is moved into the database."""
        self._orders = orders
        """To be sent before the store is closed; for ever if nothing is said."""
        self._sent = 0
        self._closing = asyncio.Event()

    def run(self, told: int) -> None:
        self._store = Store(self._place.file)
        self._store.call(self._set_pages).result()
        os.write(told, b"o")
        asyncio.run(self._all(told))

    def _set_pages(self, gate: SqliteGate) -> None:
        gate._db.execute(f"PRAGMA wal_autocheckpoint={self._pages}").fetchone()

    async def _all(self, told: int) -> None:
        standing = self._standings()
        if not standing:
            await self._store.apply([submission(CALLERS * EACH)])
            standing = self._standings()
        self._until = time.monotonic() + LIFE
        if self._orders == 0:
            self._store.close()
            return
        async with asyncio.TaskGroup() as group:
            for caller in range(CALLERS):
                own = range(caller * EACH + 1, caller * EACH + EACH + 1)
                group.create_task(self._caller(caller, {task: standing[task] for task in own}))
            if self._orders is not None:
                await self._closing.wait()
                os.write(told, b"c")
                # In another thread, so that the answers to what is queued are heard while it closes.
                await asyncio.to_thread(self._store.close)

    def _standings(self) -> dict[int, Standing]:
        with closing(connect_reader(self._place)) as db:
            rows = db.execute("SELECT number, state, version FROM tasks").fetchall()
        return {number: (state, version) for number, state, version in rows}

    # ---- one caller

    async def _caller(self, caller: int, standing: dict[int, Standing]) -> None:
        try:
            for wanted in self._pending:
                if wanted.caller == caller:
                    await self._again(wanted, standing)
            while time.monotonic() < self._until:
                await self._next(caller, standing)
        except StoreError as error:
            if "closed" not in str(error):
                raise

    async def _again(self, wanted: Wanted, standing: dict[int, Standing]) -> None:
        reply = await self._store.apply(wanted.order.decided(), wanted.order.request)
        assert reply is not None
        assert reply.again == wanted.stored, f"{wanted} was answered {reply}"
        assert reply.body == reply_body(wanted.order.number), f"{wanted} was answered {reply}"
        self._journal.acknowledged(wanted.order, reply.again)
        if not wanted.stored:
            _advance(standing, wanted.order)

    async def _next(self, caller: int, standing: dict[int, Standing]) -> None:
        kind = self._random.random()
        tasks = self._random.sample([*standing], 1 if kind < 0.7 else self._random.randrange(1, EACH + 1))
        moves = tuple(Move(task, standing[task][0], standing[task][1] + 1) for task in tasks)
        several = self._random.randrange(1, len(moves) + 1)
        if kind < 0.85:
            order = self._order(moves, several, kind < 0.1)
            assert await self._send(caller, order), f"refused: {order}"
            _advance(standing, order)
        elif kind < 0.92:
            await self._twice(caller, moves, standing)
        elif kind < 0.96:
            await self._contest(caller, moves, several, standing)
        else:
            stale = (*moves[:-1], Move(moves[-1].task, moves[-1].source, moves[-1].version - 1))
            order = self._order(stale, several, False)
            assert not await self._send(caller, order), f"stored: {order}"

    async def _twice(self, caller: int, moves: tuple[Move, ...], standing: dict[int, Standing]) -> None:
        """One request, sent again before it is answered: stored once, and the same reply for both."""
        order = self._order(moves, 1, True)
        self._journal.sent(caller, order)
        replies = await asyncio.gather(*(self._store.apply(order.decided(), order.request) for _ in range(2)))
        assert [(reply.body, reply.again) for reply in replies if reply] == [
            (reply_body(order.number), False),
            (reply_body(order.number), True),
        ], f"{order} was answered {replies}"
        self._journal.acknowledged(order, True)
        _advance(standing, order)

    async def _contest(
        self, caller: int, moves: tuple[Move, ...], several: int, standing: dict[int, Standing]
    ) -> None:
        """Two orders for the same move: one is stored, the other is refused."""
        orders = [self._order(moves, several, False) for _ in range(2)]
        won = await asyncio.gather(*(self._send(caller, order) for order in orders))
        assert sorted(won) == [False, True], f"{orders}: {won}"
        _advance(standing, orders[won.index(True)])

    async def _send(self, caller: int, order: Order) -> bool:
        self._journal.sent(caller, order)
        try:
            reply = await self._store.apply(order.decided(), order.request)
        except Conflict:
            self._journal.refused(order)
            return False
        except StoreError:
            self._journal.refused(order)
            raise
        assert (reply.body if reply else None) == (reply_body(order.number) if order.asked else None)
        self._journal.acknowledged(order, False)
        return True

    def _order(self, moves: tuple[Move, ...], decisions: int, asked: bool) -> Order:
        self._number += 1
        self._sent += 1
        if self._orders is not None and self._sent >= self._orders:
            self._closing.set()
        rich = len(moves) > 1 or asked
        sends = self._random.randrange(3) if rich else 0
        return Order(self._number, moves, decisions, sends, rich and self._random.random() < 0.5, asked)


def _advance(standing: dict[int, Standing], order: Order) -> None:
    for move in order.moves:
        standing[move.task] = NEXT[move.source], move.version
