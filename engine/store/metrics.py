"""Document 002's metrics, counted from the trail itself: nothing is counted twice or forgotten."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from engine.core.plan import SECOND
from engine.store.connections import connect_reader
from engine.store.files import Place
from engine.store.trouble import explained

BUCKETS = (0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 86400.0)
"""Seconds in a state: from a moment to a day."""


@dataclass(frozen=True, slots=True)
class PairCount:
    """How often one state followed another, by one event."""

    machine: str
    from_state: str
    event: str
    to_state: str
    count: int


@dataclass(frozen=True, slots=True)
class TimeInState:
    """How long entities stayed in a state before they left it."""

    machine: str
    state: str
    count: int
    seconds: float
    buckets: tuple[int, ...]
    """For each bound of `BUCKETS` how many stayed at most so long."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A counter of the gate: a refused transition, or a request that was answered before."""

    counter: str
    machine: str
    state: str
    event: str
    count: int


@dataclass(frozen=True, slots=True)
class Metrics:
    """All of it, of one moment."""

    pairs: tuple[PairCount, ...]
    times: tuple[TimeInState, ...]
    standing: tuple[tuple[str, str, int], ...]
    """Entities that are in a state now: machine, state, how many."""
    refused: tuple[Counted, ...]
    hits: int
    misses: int
    invocations: tuple[tuple[str, int], ...]
    rows: int

    @property
    def hit_rate(self) -> float:
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0


_WITHIN = [f"within_{place}" for place in range(len(BUCKETS))]
_SUMS = ", ".join(
    f"sum(a.at - a.since <= {round(bound * SECOND)}) AS {name}"
    for bound, name in zip(BUCKETS, _WITHIN, strict=True)
)
_PAIRS = (
    f"SELECT r.machine, r.from_state, r.event, r.to_state, g.n, g.seen, g.total, {', '.join(_WITHIN)} FROM"
    f" (SELECT a.arrow, count(*) AS n, count(a.since) AS seen, sum(a.at - a.since) AS total, {_SUMS}"
    " FROM audit AS a GROUP BY a.arrow) AS g JOIN arrows AS r ON r.id = g.arrow"
    " WHERE r.from_state IS NOT NULL ORDER BY r.machine, r.from_state, r.event, r.to_state"
)
_STANDING = " UNION ALL ".join(
    f"SELECT machine, state, count(*) FROM {table} GROUP BY machine, state"
    for table in ("runs", "tasks", "worker_regions", "breakers")
)


def measure(place: Place) -> Metrics:
    """The metrics of a store."""
    with closing(connect_reader(place)) as db, explained():
        db.execute("BEGIN")
        pairs, times = _moves(db)
        counted = [Counted(*row) for row in db.execute("SELECT * FROM counters ORDER BY 1, 2, 3, 4")]
        return Metrics(
            pairs=tuple(pairs),
            times=tuple(times),
            standing=tuple(_standing(db)),
            refused=tuple(one for one in counted if one.counter == "refused"),
            hits=sum(one.count for one in counted if one.counter == "idempotency_hit"),
            misses=sum(one.count for one in counted if one.counter == "idempotency_miss"),
            invocations=tuple(db.execute("SELECT tool, invocations FROM tool_invocations ORDER BY tool")),
            rows=db.execute("SELECT coalesce(max(seq), 0) FROM audit").fetchone()[0],
        )


def _moves(db: sqlite3.Connection) -> tuple[list[PairCount], Iterator[TimeInState]]:
    pairs = []
    spent: dict[tuple[str, str], list[int]] = {}
    for machine, source, event, target, count, *stayed in db.execute(_PAIRS):
        pairs.append(PairCount(machine, source, event, target, count))
        sums = spent.setdefault((machine, source), [0] * (2 + len(BUCKETS)))
        for place, value in enumerate(stayed):
            sums[place] += value or 0
    times = (
        TimeInState(machine, state, seen, total / SECOND, tuple(within))
        for (machine, state), (seen, total, *within) in sorted(spent.items())
    )
    return pairs, times


def _standing(db: sqlite3.Connection) -> Iterator[tuple[str, str, int]]:
    """The same machine may drive runs and tasks; both are counted."""
    counts: dict[tuple[str, str], int] = {}
    for machine, state, count in db.execute(_STANDING):
        counts[machine, state] = counts.get((machine, state), 0) + count
    for (machine, state), count in sorted(counts.items()):
        yield machine, state, count
