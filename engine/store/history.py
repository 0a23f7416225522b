"""How a page of history is found: by the most selective index, whatever the filter.

Each part of a filter that has an index is asked how many rows it has, up to a bound. The first that has
few is walked whole; else the trail is walked in order, where what is common is found soon.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, func, literal_column, select, text, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from engine.core.records import Entity
from engine.store import tables
from engine.store.codec import ref_values
from engine.store.dialect import unindexed
from engine.store.loading import TRAIL_COLUMNS
from engine.store.queries import HistoryFilter
from engine.store.tables import BREAKER_MACHINE, USUAL_SOURCES, WORKER_MACHINES

FEW = 2000
"""Rows that may be walked and sorted for one page."""

ENGINE = "engine"
"""The actor of most rows, and so the one that has no index."""

_MACHINES_OF = {Entity.WORKER: WORKER_MACHINES, Entity.BREAKER: (BREAKER_MACHINE,)}
"""A worker and a tool may have the same name; their machines tell them apart."""

audit, arrows = tables.audit, tables.arrows

_BOUND = text(
    """
WITH RECURSIVE span (low, high) AS (
  SELECT 1, coalesce(max(seq), 0) + 1 FROM audit
  UNION ALL
  SELECT CASE WHEN (SELECT at FROM audit WHERE seq = (low + high) / 2) < :moment
           THEN (low + high) / 2 + 1 ELSE low END,
         CASE WHEN (SELECT at FROM audit WHERE seq = (low + high) / 2) < :moment
           THEN high ELSE (low + high) / 2 END
  FROM span WHERE low < high
)
SELECT low FROM span WHERE low = high
"""
)
"""The first row at or after a moment: the trail is in the order of time, so halving finds it."""


def trail() -> Select[Any]:
    """Rows of the trail with their words, in the order in which `audit_row` takes them."""
    named = tables.tasks
    joined = audit.join(arrows, arrows.c.id == audit.c.arrow).outerjoin(
        named, (named.c.run == audit.c.run) & (named.c.number == audit.c.task)
    )
    part: Any = {"a": audit, "r": arrows, "t": named}
    columns = [part[table].c[name] for table, name in TRAIL_COLUMNS]
    return select(*columns).select_from(joined)


@dataclass(frozen=True, slots=True)
class Way:
    """A part of a filter that an index can find, and the order in which that index has its rows."""

    terms: tuple[tuple[str, Any], ...]
    order: tuple[str, ...] = ("seq",)
    only: tuple[ColumnElement[bool], ...] = ()
    """What a partial index must be told before it is used."""

    def conditions(self, *, indexed: bool = True) -> list[ColumnElement[bool]]:
        return [*self.only, *(_is(name, value, indexed) for name, value in self.terms)]


class HistoryQuery:
    """One page that is wanted: the numbers of its rows."""

    def __init__(self, wanted: HistoryFilter, descending: bool, after: int | None, limit: int) -> None:
        self._wanted = wanted
        self._descending = descending
        self._after = after
        self._limit = limit

    async def run(self, connection: AsyncConnection) -> list[int]:
        numbers = await self._arrows(connection)
        if numbers is not None and not numbers:
            return []
        ways = self._ways(numbers)
        rest = self._rest() + await self._bounds(connection)
        if numbers is not None and len(ways) == 1:
            near = await self._near(connection, [*ways[0].conditions(indexed=False), *rest])
            if len(near) == self._limit:
                return near
        chosen, few = await _choose(connection, ways)
        if chosen is None:
            return await self._walk(connection, rest, ("seq",))
        for way in ways:
            if way is not chosen:
                rest += way.conditions(indexed=False)
        if not few and numbers is not None and chosen is ways[-1]:
            return await self._merge(connection, numbers, rest)
        return await self._walk(connection, [*chosen.conditions(), *rest], chosen.order)

    async def _near(self, connection: AsyncConnection, conditions: list[ColumnElement[bool]]) -> list[int]:
        """What is common is found among the next rows, without asking any index."""
        if self._descending:
            last = select(func.max(audit.c.seq)).scalar_subquery() if self._after is None else self._after
            close = audit.c.seq > last - FEW
        else:
            close = audit.c.seq <= (self._after or 0) + FEW
        return await self._walk(connection, [*conditions, close], ("seq",))

    def _ways(self, numbers: Sequence[int] | None) -> list[Way]:
        """The narrowest first; the arrows last, because there may be many of them."""
        wanted = self._wanted
        ways = []
        if wanted.ref is not None:
            run, task, name = ref_values(wanted.ref)
            if name is None:
                ways.append(Way((("run", run), ("task", task)), ("version", "seq")))
            else:
                ways.append(Way((("name", name),)))
        if wanted.request_id is not None:
            ways.append(Way((("request_id", wanted.request_id),)))
        if wanted.actor is not None and wanted.actor != ENGINE:
            ways.append(Way((("actor", wanted.actor),), only=(audit.c.actor != _word(ENGINE),)))
        if wanted.source is not None and wanted.source not in USUAL_SOURCES:
            unusual = tuple(audit.c.source != _word(name) for name in USUAL_SOURCES)
            ways.append(Way((("source", wanted.source),), only=unusual))
        if wanted.kind is Entity.RUN:
            ways.append(Way((), only=(audit.c.task == literal_column("0"),)))
        if wanted.run is not None:
            ways.append(Way((("run", wanted.run),)))
        if numbers is not None:
            ways.append(Way((("arrow", tuple(numbers)),)))
        return ways

    def _rest(self) -> list[ColumnElement[bool]]:
        """What has no index of its own."""
        wanted = self._wanted
        found: list[ColumnElement[bool]] = []
        if wanted.kind is Entity.TASK:
            found.append(unindexed(audit.c.task) > 0)
        if wanted.actor == ENGINE:
            found.append(_is("actor", ENGINE, False))
        if wanted.source in USUAL_SOURCES:
            found.append(_is("source", wanted.source, False))
        if wanted.cause is not None:
            found.append(_is("cause", wanted.cause, False))
        return found

    async def _bounds(self, connection: AsyncConnection) -> list[ColumnElement[bool]]:
        found: list[ColumnElement[bool]] = []
        if self._after is not None:
            found.append(audit.c.seq < self._after if self._descending else audit.c.seq > self._after)
        for moment, later in ((self._wanted.since, True), (self._wanted.until, False)):
            if moment is not None:
                first = (await connection.execute(_BOUND, {"moment": moment})).scalar_one()
                found.append(audit.c.seq >= first if later else audit.c.seq < first)
        return found

    async def _arrows(self, connection: AsyncConnection) -> list[int] | None:
        """The arrows that are wanted; None when any will do."""
        wanted = self._wanted
        terms: list[ColumnElement[bool]] = []
        for name in ("machine", "from_state", "event", "to_state"):
            value = getattr(wanted, name)
            if value is not None:
                terms.append(arrows.c[name] == value)
        for kind in (wanted.kind, None if wanted.ref is None else wanted.ref.kind):
            if kind in _MACHINES_OF:
                terms.append(arrows.c.machine.in_(_MACHINES_OF[kind]))
        if wanted.facts is not None:
            terms.append(arrows.c.to_state.is_(None) if wanted.facts else arrows.c.to_state.is_not(None))
        if not terms:
            return None
        return list((await connection.execute(select(arrows.c.id).where(*terms))).scalars())

    async def _merge(
        self, connection: AsyncConnection, numbers: Sequence[int], rest: list[ColumnElement[bool]]
    ) -> list[int]:
        """The first rows of each arrow, and of all those the first."""
        order = audit.c.seq.desc() if self._descending else audit.c.seq
        each = [
            select(
                select(audit.c.seq)
                .where(audit.c.arrow == number, *rest)
                .order_by(order)
                .limit(self._limit)
                .subquery()
            )
            for number in numbers
        ]
        merged = union_all(*each).subquery()
        found = select(merged.c.seq).order_by(merged.c.seq.desc() if self._descending else merged.c.seq)
        return list((await connection.execute(found.limit(self._limit))).scalars())

    async def _walk(
        self, connection: AsyncConnection, conditions: list[ColumnElement[bool]], order: tuple[str, ...]
    ) -> list[int]:
        columns = [audit.c[name].desc() if self._descending else audit.c[name] for name in order]
        found = select(audit.c.seq).where(*conditions).order_by(*columns).limit(self._limit)
        return list((await connection.execute(found)).scalars())


async def _choose(connection: AsyncConnection, ways: Sequence[Way]) -> tuple[Way | None, bool]:
    """The first way with few rows, else the first way; and whether it has few."""
    for way in ways:
        some = select(audit.c.seq).where(*way.conditions()).limit(FEW).subquery()
        count = (await connection.execute(select(func.count()).select_from(some))).scalar_one()
        if count < FEW:
            return way, True
    return (ways[0] if ways else None), False


def _word(name: str) -> ColumnElement[str]:
    """A value that is written into the statement: an index is chosen before parameters are known."""
    return literal_column(f"'{name}'")


def _is(name: str, value: object, indexed: bool) -> ColumnElement[bool]:
    column: Any = audit.c[name] if indexed else unindexed(audit.c[name])
    found: ColumnElement[bool] = column.in_(value) if isinstance(value, tuple) else column == value
    return found
