"""Pages of a history of ten thousand and of a million rows, and the proof of all of it.

A page costs what it shows, not what lies behind it: each is measured at both sizes.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.figure import Figure
from benchmarks.store import TASKS, moves, populate
from engine.core.records import Entity, Ref
from engine.store.files import Place
from engine.store.metrics import measure as count
from engine.store.queries import HistoryFilter, Page
from engine.store.reader import Reader
from engine.store.store import Store
from engine.store.verify import verify

SIZES = (10_000, 1_000_000)
BATCH = 1000
ROUNDS = 15
LIMIT_MS = 5.0
VERIFIED = 300_000

PAGES: dict[str, tuple[HistoryFilter, int | None]] = {
    "last page": (HistoryFilter(), None),
    "a page from the middle": (HistoryFilter(), 2),
    "one entity": (HistoryFilter(ref=Ref(Entity.TASK, (1, TASKS // 2))), None),
    "one run": (HistoryFilter(run=1), None),
    "by target state": (HistoryFilter(to_state="RETRYING"), None),
    "by machine": (HistoryFilter(machine="toolchain.task"), None),
    "by a rare actor": (HistoryFilter(actor="ann"), None),
    "by actor and event": (HistoryFilter(actor="ann", event="created"), None),
    "runs alone": (HistoryFilter(kind=Entity.RUN), None),
    "by time": (HistoryFilter(since=5_000, until=5_100), None),
    "nothing matches": (HistoryFilter(actor="nobody"), None),
}


def measure() -> list[Figure]:
    figures = []
    for size in SIZES:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            path = Path(folder) / "store.db"
            fill(path, size)
            for name, took in asyncio.run(_pages(path, size)).items():
                figures.append(Figure(f"{name}, {size:,} rows", took, "ms", goal=LIMIT_MS))
            figures += _whole(path, size)
    return figures


def fill(path: Path, size: int) -> None:
    """A history of so many rows."""
    populate(path)
    steps = moves(list(range(1, TASKS + 1)))
    with Store(path, synchronous="NORMAL") as store:
        for _ in range(size // BATCH):
            batch = list(islice(steps, BATCH))
            store.call(lambda gate, batch=batch: gate.apply(batch)).result()  # type: ignore[misc]


async def _pages(path: Path, size: int) -> dict[str, float]:
    async with Reader(path) as reader:
        found = {}
        for name, (wanted, part) in PAGES.items():
            after = None if part is None else (None, size // part)

            async def page(wanted: HistoryFilter = wanted, after: tuple[None, int] | None = after) -> object:
                return await reader.history(wanted, after=after)

            found[name] = await _typical(page)
        return found


async def _typical(page: Callable[[], Awaitable[object]]) -> float:
    times = []
    for _ in range(ROUNDS):
        begin = perf_counter()
        found = await page()
        times.append(perf_counter() - begin)
        assert isinstance(found, Page)
    return median(times) * 1000


def _whole(path: Path, size: int) -> list[Figure]:
    begin = perf_counter()
    verdict = verify(Place(path))
    rate = verdict.rows / (perf_counter() - begin)
    assert verdict.sound
    begin = perf_counter()
    count(Place(path))
    took = (perf_counter() - begin) * 1000
    goal = VERIFIED if size == SIZES[-1] else None
    return [
        Figure(f"verify, {size:,} rows", rate, "rows/s", goal=goal, at_least=True),
        Figure(f"metrics, {size:,} rows", took, "ms"),
    ]
