"""Worlds of the simulator as data for the queries, and two opinions about them compared."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from engine.core.decision import Decision
from engine.store.gate import Gate, Reply, Request
from engine.store.queries import Cursor, HistoryFilter, Page, Queries, RunFilter, RunSort
from tests.simulator.simulation import Parts, simulate
from tests.simulator.store import SimulatedStore, Staging
from tests.store.conformance.wishes import MANY, history_wishes, run_wishes, some


def asked(decisions: Sequence[Decision]) -> list[Decision]:
    """What people send has a request id, and now and then it is the same."""
    return [
        replace(made, request_id=f"request-{made.signal % 7}") if made.source == "cli" else made
        for made in decisions
    ]


class Recorder(SimulatedStore):
    """Keeps what was committed, so that another store can be given the same."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Sequence[Decision]] = []

    def apply(self, decisions: Sequence[Decision], request: Request | None = None) -> Reply | None:
        return super().apply(asked(decisions), request)

    def _commit(self, staging: Staging, decisions: Sequence[Decision]) -> None:
        super()._commit(staging, decisions)
        self.batches.append(decisions)

    def replay(self, gate: Gate, since: int = 0) -> None:
        for batch in self.batches[since:]:
            gate.apply(batch)


@cache
def world(seed: int) -> Recorder:
    """One world that was lived to its end. Nobody changes it any more."""
    made: list[Recorder] = []

    def store() -> Recorder:
        made.append(Recorder())
        return made[-1]

    simulate(seed, Parts(store=store))
    return made[-1]


def _beginning(page: Page[Any], random: Random) -> Cursor | None:
    """Where to go on: at the beginning, after the page, or anywhere near."""
    if page.next is None or random.random() < 0.3:
        return None
    value, number = page.next
    near = number + random.choice((-1, 0, 0, 0, 1))
    return near if value == number else value, near


async def compare(one: Queries, other: Queries, random: Random, count: int) -> int:
    """Ask both the same, many times; the number of answers that were not empty."""
    first = await other.history(limit=MANY, descending=False)
    runs = await other.runs(limit=MANY)
    assert await one.history(limit=MANY, descending=False) == first
    assert await one.runs(limit=MANY) == runs
    telling = 0
    history, listed = history_wishes(first.rows), run_wishes(runs.rows)
    page: Page[Any]
    for _ in range(count):
        wish, down, limit = some(history, random), random.random() < 0.5, random.choice((1, 2, 7, 50))
        after = None
        for _ in range(3):
            said = [
                await each.history(HistoryFilter(**wish), descending=down, after=after, limit=limit)
                for each in (one, other)
            ]
            assert said[0] == said[1], (wish, down, after, limit)
            page = said[0]
            telling += bool(page.rows)
            after = _beginning(page, random)
    for _ in range(count):
        wish, down, limit = some(listed, random), random.random() < 0.5, random.choice((1, 2, 7, 50))
        sort, after = random.choice(list(RunSort)), None
        for _ in range(3):
            told = [
                await each.runs(RunFilter(**wish), sort, descending=down, after=after, limit=limit)
                for each in (one, other)
            ]
            assert told[0] == told[1], (wish, sort, down, after, limit)
            page = told[0]
            telling += bool(page.rows)
            after = _beginning(page, random)
    for number in [*(row.number for row in runs.rows), 9999]:
        detail = await other.run(number)
        assert await one.run(number) == detail
        assert list(await one.attempts(number)) == list(await other.attempts(number))
        for task in detail.tasks[:3] if detail is not None else ():
            mine = list(await one.attempts(number, task.number))
            assert mine == list(await other.attempts(number, task.number))
    heads = [await each.head() for each in (one, other)]
    assert len({(head.seq, head.at) for head in heads}) == 1
    return telling
