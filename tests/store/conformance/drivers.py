"""The stores that the suite is run against. Another database is another entry of `DRIVERS`."""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Coroutine, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from engine.core.model import Snapshot
from engine.core.records import Token
from engine.machines import Kind, Phase, named
from engine.store.connections import connect_reader, connect_writer
from engine.store.errors import RefusedByStore
from engine.store.files import Place
from engine.store.gate import Gate
from engine.store.queries import Queries
from engine.store.reader import Reader
from engine.store.sqlite_gate import SqliteGate
from tests.simulator.answers import SimulatedQueries
from tests.simulator.store import SimulatedStore
from tests.simulator.violation import Violation

T = TypeVar("T")

Counters = Mapping[tuple[str, str, str, str], int]


class Check(NamedTuple):
    """One result of one check of an execution, in its place."""

    token: Token
    position: int
    name: str
    passed: bool
    duration: int
    exit_code: int | None
    output: str | None


class Driver(Protocol):
    """One store that is open, and what no query tells of it yet."""

    refusals: tuple[type[Exception], ...]
    """What is raised where a change is wrong in itself, and not just late."""

    @property
    def gate(self) -> Gate: ...

    def ask(self, question: "Question[T]") -> T:
        """Ask something of the same data that the gate writes."""
        ...

    def reopen(self) -> None:
        """Forget all that is in memory, and go on from what was kept."""
        ...

    def close(self) -> None: ...

    def kept(self, text: str) -> str:
        """How this store keeps a text that it cannot hold as it is."""
        ...

    def counters(self) -> Counters: ...

    def recoveries(self) -> list[tuple[int, str, str, str, str, str | None]]:
        """Row of the trail, machine, label, event, actor and reason."""
        ...

    def checks(self) -> list[Check]: ...

    def kept_of(self, token: Token) -> tuple[tuple[str, ...], str | None]:
        """Artifacts and diagnostics of an execution."""
        ...


Question = Callable[[Queries], Coroutine[Any, Any, T]]


class SqliteDriver:
    """A real file, written by the gate and read through SQLAlchemy."""

    refusals: tuple[type[Exception], ...] = (RefusedByStore, ValueError)

    def __init__(self, folder: Path) -> None:
        self.place = Place(folder / "interlock.db")
        self.place.make()
        self._open()

    def _open(self) -> None:
        self._db: sqlite3.Connection = connect_writer(self.place, "OFF")
        self._gate = SqliteGate(self._db)

    @property
    def gate(self) -> Gate:
        return self._gate

    def ask(self, question: Question[T]) -> T:
        async def asked() -> T:
            async with Reader(self.place.file) as reader:
                return await question(reader)

        return asyncio.run(asked())

    def reopen(self) -> None:
        self.close()
        self._open()

    def close(self) -> None:
        self._db.close()

    def kept(self, text: str) -> str:
        return text.encode("utf-8", "backslashreplace").decode()

    def _rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(connect_reader(self.place)) as db:
            return db.execute(sql, values).fetchall()

    def counters(self) -> Counters:
        return {
            (counter, machine, state, event): value
            for counter, machine, state, event, value in self._rows(
                "SELECT counter, machine, state, event, value FROM counters"
            )
        }

    def recoveries(self) -> list[tuple[int, str, str, str, str, str | None]]:
        return self._rows("SELECT seq, machine, entity, event, actor, reason FROM recoveries ORDER BY seq")

    def checks(self) -> list[Check]:
        found = self._rows(
            "SELECT c.run, c.task, c.attempt, a.purpose, c.round, position, name, passed, duration,"
            " c.exit_code, output FROM check_results AS c JOIN attempts AS a ON a.run = c.run"
            " AND a.task = c.task AND a.attempt = c.attempt AND a.round = c.round AND a.purpose = c.purpose"
            " ORDER BY c.run, c.task, c.attempt, c.round, position"
        )
        return [
            Check(Token(*token), place, name, bool(passed), *rest)
            for *token, place, name, passed, duration, code, output in found
            for rest in [(duration, code, output)]
        ]

    def kept_of(self, token: Token) -> tuple[tuple[str, ...], str | None]:
        ((artifacts, diagnostics),) = self._rows(
            "SELECT artifacts, diagnostics FROM attempts"
            " WHERE run = ? AND task = ? AND attempt = ? AND purpose = ? AND round = ?",
            *token,
        )
        return tuple(json.loads(artifacts or "[]")), diagnostics


class LeanStore(SimulatedStore):
    """Loads what a store must and no more; the simulator's own invariants want to see everything."""

    def load(self) -> Snapshot:
        every = super().load()
        busy = {attempt.token.run for attempt in every.attempts}
        holders = {attempt.worker for attempt in every.attempts}
        runs = tuple(run for run in every.runs if not run.terminal or run.number in busy)
        numbers = [run.number for run in runs]
        return replace(
            every,
            runs=runs,
            tasks=tuple(task for task in every.tasks if task.run in numbers),
            workers=tuple(
                worker
                for worker in every.workers
                if worker.health_phase is not Phase.CANCELLED or worker.id in holders
            ),
        )


class SimulatedDriver:
    """The store of the simulator: in memory, with its own proofs."""

    refusals: tuple[type[Exception], ...] = (Violation,)

    def __init__(self, _: Path) -> None:
        self.store = LeanStore()

    @property
    def gate(self) -> Gate:
        return self.store

    def ask(self, question: Question[T]) -> T:
        return asyncio.run(question(SimulatedQueries(self.store)))

    def reopen(self) -> None:
        """There is nothing behind its memory."""

    def close(self) -> None:
        """There is nothing to close."""

    def kept(self, text: str) -> str:
        return text

    def counters(self) -> Counters:
        return self.store.counters

    def recoveries(self) -> list[tuple[int, str, str, str, str, str | None]]:
        return [
            (row.seq, row.machine, row.label, row.event, row.actor, row.reason)
            for row in self.store.trail
            for arrow in named(row.machine).arrows
            if (arrow.source, arrow.event, arrow.target) == (row.from_state, row.event, row.to_state)
            and arrow.kind is Kind.RECOVERY
        ]

    def checks(self) -> list[Check]:
        return [
            Check(token, place, said.name, said.passed, said.duration, said.exit_code, said.output)
            for token, execution in sorted(self.store.executions.items(), key=lambda item: item[0])
            if execution.closing is not None and execution.closing.report is not None
            for place, said in enumerate(execution.closing.report.checks, 1)
        ]

    def kept_of(self, token: Token) -> tuple[tuple[str, ...], str | None]:
        closing = self.store.executions[token].closing
        if closing is None or closing.report is None:
            return (), None
        return closing.report.artifacts, closing.report.diagnostics


DRIVERS: dict[str, Callable[[Path], Driver]] = {
    "sqlite": SqliteDriver,
    "simulated": SimulatedDriver,
}
