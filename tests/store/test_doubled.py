"""The worlds of the simulator over two stores at once: the real one keeps the very same, and can prove it.

INTERLOCK_SEEDS=N lives through so many worlds instead of some.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from engine.core.decision import Decision
from engine.store.connections import connect_reader
from engine.store.files import Place
from engine.store.fold import fold
from engine.store.gate import Reply, Request
from engine.store.loading import TRAIL, audit_row
from engine.store.reader import Reader
from engine.store.verify import verify
from tests.simulator.answers import SimulatedQueries
from tests.simulator.simulation import Parts, simulate
from tests.store.conformance.worlds import asked, compare
from tests.store.doubled import DoubledStore
from tests.store.tables import stored

SEEDS = int(os.environ.get("INTERLOCK_SEEDS", "140"))
CHUNK = 5
QUESTIONS = 5


class AskedStore(DoubledStore):
    """What people send has a request id."""

    def apply(self, decisions: Sequence[Decision], request: Request | None = None) -> Reply | None:
        return super().apply(asked(decisions), request)


@pytest.mark.parametrize("first", range(1000, 1000 + SEEDS, CHUNK))
def test_the_real_store_keeps_these_worlds_and_can_prove_them(first: int, tmp_path: Path) -> None:
    for seed in range(first, min(first + CHUNK, 1000 + SEEDS)):
        path = tmp_path / f"{seed}.db"
        made: list[AskedStore] = []

        def store(path: Path = path, made: list[AskedStore] = made) -> AskedStore:
            made.append(AskedStore(path))
            return made[-1]

        try:
            simulate(seed, Parts(store=store))
            lived = made[-1]
            lived.load()
            prove(Place(path), lived)
            asyncio.run(hear(path, lived, seed))
        finally:
            for each in made:
                each.close()


def prove(place: Place, lived: DoubledStore) -> None:
    """The chain is whole, the file is sound, and the tables are what the trail tells."""
    verdict = verify(place, processes=1)
    assert verdict.sound, verdict.broken
    assert verdict.rows == verdict.head.seq == len(lived.trail)
    with closing(connect_reader(place)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        rows = [audit_row(row) for row in db.execute(f"{TRAIL} ORDER BY a.seq")]
        assert rows == lived.trail
        folded = fold(rows)
        assert {ref: (one.columns, one.regions) for ref, one in folded.items()} == stored(db)
    assert folded.keys() == lived.records.keys()
    for ref, one in list(folded.items())[::5]:
        assert fold(lived.real.history(ref)) == {ref: one}


async def hear(path: Path, lived: DoubledStore, seed: int) -> None:
    """The readers of both answer the same."""
    async with Reader(path) as reader:
        await compare(reader, SimulatedQueries(lived), Random(seed), QUESTIONS)
