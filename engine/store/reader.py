"""The queries, answered by SQLite through SQLAlchemy's async engine. It can read and nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
from sqlalchemy import (
    AsyncAdaptedQueuePool,
    ColumnElement,
    Row,
    Select,
    and_,
    event,
    literal,
    or_,
    select,
    tuple_,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from engine.core.records import Purpose, Ref
from engine.store import tables
from engine.store.chain import Head
from engine.store.codec import scrubbed
from engine.store.connections import connect_reader, reader_uri
from engine.store.dialect import READER_PRAGMAS
from engine.store.files import Place
from engine.store.gate import AuditRow
from engine.store.history import HistoryQuery, trail
from engine.store.loading import audit_row
from engine.store.queries import (
    AttemptRow,
    Cursor,
    HistoryFilter,
    Page,
    RunDetail,
    RunFilter,
    RunRow,
    RunSort,
    TaskRow,
)
from engine.store.trouble import explained_async

T = TypeVar("T")
W = TypeVar("W", RunFilter, HistoryFilter)

CONNECTIONS = 4

_MAY_LACK = {"ended"}
"""Columns to sort by that a run may not have yet; those runs come last when the newest come first."""

_RUN = [tables.runs.c[spec.name] for spec in fields(RunRow)]
_TASK = [tables.tasks.c[spec.name] for spec in fields(TaskRow)]
_ATTEMPT = [tables.attempts.c[spec.name] for spec in fields(AttemptRow)]


class Reader:
    """A store that is open for reading."""

    def __init__(self, path: Path | str | None = None) -> None:
        self.place = Place.of(path)
        connect_reader(self.place).close()
        self._engine = _engine(self.place.file)

    async def close(self) -> None:
        await self._engine.dispose()

    async def __aenter__(self) -> "Reader":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def runs(
        self,
        wanted: RunFilter = RunFilter(),  # noqa: B008 - it is frozen
        sort: RunSort = RunSort.NUMBER,
        *,
        descending: bool = True,
        after: Cursor | None = None,
        limit: int = 50,
    ) -> Page[RunRow]:
        _see_that_it_is_a_page(limit)
        found = select(*_RUN).where(*_conditions(_as_stored(wanted)))
        by, number = tables.runs.c[sort.value], tables.runs.c.number
        if after is not None:
            found = found.where(_beyond(by, number, after, descending))
        order = [by.desc(), number.desc()] if descending else [by, number]
        rows = [_row(RunRow, row) for row in await self._all(found.order_by(*order).limit(limit + 1))]
        return _page(rows, limit, lambda row: (getattr(row, sort.value), row.number))

    async def run(self, number: int) -> RunDetail | None:
        async with explained_async(), self._engine.connect() as connection:
            found = (await connection.execute(select(*_RUN).where(tables.runs.c.number == number))).first()
            if found is None:
                return None
            tasks = select(*_TASK).where(tables.tasks.c.run == number).order_by(tables.tasks.c.number)
            rows = (await connection.execute(tasks)).all()
        return RunDetail(_row(RunRow, found), tuple(_task(row) for row in rows))

    async def history(
        self,
        wanted: HistoryFilter = HistoryFilter(),  # noqa: B008 - it is frozen
        *,
        descending: bool = True,
        after: Cursor | None = None,
        limit: int = 50,
    ) -> Page[AuditRow]:
        _see_that_it_is_a_page(limit)
        async with explained_async(), self._engine.connect() as connection:
            query = HistoryQuery(
                _as_stored(wanted), descending, None if after is None else after[1], limit + 1
            )
            seqs = await query.run(connection)
            found = await _trail(connection, seqs, descending)
        return _page(found, limit, lambda row: (None, row.seq))

    async def attempts(self, run: int, task: int | None = None) -> Sequence[AttemptRow]:
        table = tables.attempts
        found = select(*_ATTEMPT).where(table.c.run == run)
        if task is not None:
            found = found.where(table.c.task == task)
        # What is checked was sent no later than its check, and with a sub-run that ends at once no earlier.
        later = table.c.purpose != Purpose.WORK.value
        order = (table.c.task, table.c.attempt, table.c.sent, later, table.c.round, table.c.purpose)
        return [_row(AttemptRow, row) for row in await self._all(found.order_by(*order))]

    async def head(self) -> Head:
        table = tables.audit
        last = select(table.c.seq, table.c.hash, table.c.at).order_by(table.c.seq.desc()).limit(1)
        rows = await self._all(last)
        return Head(*rows[0]) if rows else Head()

    async def _all(self, statement: Select[Any]) -> Sequence[Row[Any]]:
        async with explained_async(), self._engine.connect() as connection:
            rows: Sequence[Row[Any]] = (await connection.execute(statement)).all()
            return rows


def _engine(path: Path) -> AsyncEngine:
    async def connect() -> aiosqlite.Connection:
        # A URL would unquote a name with `%` in it once more than SQLite expects.
        return await aiosqlite.connect(reader_uri(path), uri=True)

    engine = create_async_engine(
        "sqlite+aiosqlite://",
        async_creator=connect,
        poolclass=AsyncAdaptedQueuePool,
        pool_size=CONNECTIONS,
        max_overflow=0,
    )

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        for pragma in READER_PRAGMAS:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    return engine


def _as_stored(wanted: W) -> W:
    """The same wish in the words of the store: text that UTF-8 cannot hold is stored as an escape."""
    told: dict[str, Any] = {spec.name: getattr(wanted, spec.name) for spec in fields(wanted)}
    if isinstance(told.get("ref"), Ref):
        told["ref"] = told["ref"]._replace(key=scrubbed(told["ref"].key))
    # An enumeration is text too, and must stay what it is.
    words = {name: scrubbed(value) for name, value in told.items() if type(value) is str}
    return type(wanted)(**told | words)


def _conditions(wanted: RunFilter) -> list[ColumnElement[bool]]:
    table = tables.runs
    found: list[ColumnElement[bool]] = []
    standings = wanted.standings
    if standings is not None:
        found.append(tuple_(table.c.machine, table.c.state).in_(standings))
    for column in ("machine", "name", "requester"):
        value = getattr(wanted, column)
        if value is not None:
            found.append(table.c[column] == value)
    if wanted.parent is not None:
        found.append(table.c.parent_run == wanted.parent)
    if wanted.open is not None:
        found.append(table.c.ended.is_(None) if wanted.open else table.c.ended.is_not(None))
    return found


def _beyond(
    by: ColumnElement[Any], number: ColumnElement[int], after: Cursor, descending: bool
) -> ColumnElement[bool]:
    """Rows past the cursor. Nothing sorts below anything, as SQLite has it."""
    value, last = after
    further = number < last if descending else number > last
    if by is number:
        return further
    if value is None:
        return and_(by.is_(None), further) if descending else or_(by.is_not(None), further)
    here = tuple_(by, number)
    past = (
        here < tuple_(literal(value), literal(last))
        if descending
        else here > tuple_(literal(value), literal(last))
    )
    return or_(past, by.is_(None)) if descending and by.key in _MAY_LACK else past


def _see_that_it_is_a_page(limit: int) -> None:
    if limit < 1:
        raise ValueError("a page has at least one row")


def _page(rows: Any, limit: int, key: Any) -> Page[Any]:
    if len(rows) <= limit:
        return Page(tuple(rows))
    kept = tuple(rows[:limit])
    return Page(kept, key(kept[-1]))


def _row(kind: Callable[..., T], row: Row[Any]) -> T:
    return kind(*row)


def _task(row: Row[Any]) -> TaskRow:
    values = dict(zip((spec.name for spec in fields(TaskRow)), row, strict=True))
    return TaskRow(**{**values, "asking": bool(values["asking"]), "final": bool(values["final"])})


async def _trail(connection: AsyncConnection, seqs: Sequence[int], descending: bool) -> list[AuditRow]:
    if not seqs:
        return []
    seq = tables.audit.c.seq
    found = trail().where(seq.in_(seqs)).order_by(seq.desc() if descending else seq)
    return [audit_row(row) for row in await connection.execute(found)]
