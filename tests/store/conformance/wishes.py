"""Everything that can be wished of the queries, made from what a store holds."""

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import combinations
from random import Random
from typing import Any, TypeVar

from engine.core.records import Entity, Ref
from engine.machines import MACHINES, Phase
from engine.store.gate import AuditRow
from engine.store.queries import Cursor, HistoryFilter, Page, Queries, RunFilter, RunRow, RunSort

T = TypeVar("T")
Wishes = Mapping[str, Sequence[Any]]
"""For each field of a filter some values, all of which are somewhere, and some that are nowhere."""

MANY = 100_000


def run_wishes(rows: Sequence[RunRow]) -> Wishes:
    states = sorted({row.state for row in rows})
    return {
        "phases": [frozenset({phase}) for phase in Phase] + [frozenset({Phase.SUCCEEDED, Phase.FAILED})],
        "states": [*(frozenset({state}) for state in states), frozenset(states), frozenset({"nirvana"})],
        "machine": [*sorted({row.machine for row in rows}), "toolchain.task", "nothing"],
        "name": [*sorted({row.name for row in rows}), "nothing", ""],
        "requester": [*sorted({row.requester for row in rows if row.requester is not None}), "nobody"],
        "parent": [*sorted({row.parent_run for row in rows if row.parent_run is not None}), 1, 9999],
        "open": [True, False],
    }


def history_wishes(rows: Sequence[AuditRow]) -> Wishes:
    refs = list(dict.fromkeys(row.ref for row in rows))
    moments = sorted({row.at for row in rows} | {row.at + 1 for row in rows} | {0, 2**60})

    def values(name: str, *nowhere: object) -> list[Any]:
        found = [getattr(row, name) for row in rows if getattr(row, name) is not None]
        return [*dict.fromkeys(found), *nowhere]

    return {
        "ref": [
            *refs,
            Ref(Entity.RUN, 9999),
            Ref(Entity.TASK, (1, 9999)),
            Ref(Entity.WORKER, "nobody"),
            Ref(Entity.BREAKER, "nothing"),
            *(Ref(Entity.BREAKER, ref.key) for ref in refs if ref.kind is Entity.WORKER),
        ],
        "run": [*dict.fromkeys(ref.key for ref in refs if ref.kind is Entity.RUN), 9999],
        "kind": list(Entity),
        "machine": [*MACHINES, "nothing"],
        "from_state": values("from_state", "nirvana"),
        "event": values("event", "teleport"),
        "to_state": values("to_state", "nirvana"),
        "actor": values("actor", "engine", "nobody"),
        "source": values("source", "engine", "timer", "worker", "console"),
        "request_id": values("request_id", "nothing"),
        "cause": values("cause", 0, 2**60),
        "since": moments,
        "until": moments,
        "facts": [True, False],
    }


def every_field(wishes: Wishes, kind: type[RunFilter] | type[HistoryFilter]) -> None:
    """A new field of a filter must be wished for here, too."""
    assert set(wishes) == {spec.name for spec in fields(kind)}


def alone(wishes: Wishes) -> Iterator[dict[str, Any]]:
    for name, values in wishes.items():
        for value in values:
            yield {name: value}


def in_pairs(wishes: Wishes, random: Random, each: int) -> Iterator[dict[str, Any]]:
    """For each pair of fields so many pairs of values."""
    for one, other in combinations(wishes, 2):
        for _ in range(each):
            yield {one: random.choice(wishes[one]), other: random.choice(wishes[other])}


def some(wishes: Wishes, random: Random) -> dict[str, Any]:
    """A few fields at once; one that is wished for often gets a value that leaves something."""
    names = random.sample(sorted(wishes), random.choice((0, 1, 1, 2, 2, 3)))
    return {name: random.choice(wishes[name]) for name in names}


async def leaf(
    ask: Callable[[Cursor | None], Coroutine[Any, Any, Page[T]]], between: Callable[[], None] | None = None
) -> list[T]:
    """All rows, page by page; in between something may happen."""
    found: list[T] = []
    after: Cursor | None = None
    for _ in range(MANY):
        page = await ask(after)
        found += page.rows
        if page.next is None:
            return found
        assert page.rows, "an empty page that says that there is more"
        after = page.next
        if between is not None:
            between()
    raise AssertionError("the pages do not come to an end")


async def leaf_runs(
    queries: Queries,
    wanted: RunFilter,
    sort: RunSort,
    descending: bool,
    limit: int,
    between: Callable[[], None] | None = None,
) -> list[RunRow]:
    return await leaf(
        lambda after: queries.runs(wanted, sort, descending=descending, after=after, limit=limit), between
    )


async def leaf_history(
    queries: Queries,
    wanted: HistoryFilter,
    descending: bool,
    limit: int,
    between: Callable[[], None] | None = None,
) -> list[AuditRow]:
    return await leaf(
        lambda after: queries.history(wanted, descending=descending, after=after, limit=limit), between
    )
