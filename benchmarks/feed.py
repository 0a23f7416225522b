"""How long a commit in another process takes to reach a task that waits on the feed.

Measured from when COMMIT returned to its writer, and from before it was issued, which adds the writing and
flushing of the log. Both ways of flushing are measured, and the poll is too far away to help.
"""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import monotonic_ns

from benchmarks.figure import Figure
from engine.store.feed import Feed

COMMITS = 400
GOAL_MS = 1.5
WRITER = """
import random, sqlite3, sys, time
path, flush, commits = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = sqlite3.connect(path, isolation_level=None)
store.execute(f"PRAGMA synchronous = {flush}")
pauses = random.Random(7)
for _ in range(commits):
    time.sleep(pauses.uniform(0.002, 0.020))
    store.execute("BEGIN IMMEDIATE")
    start = time.monotonic_ns()
    store.execute("INSERT INTO row (start, payload) VALUES (?, ?)", (start, "x" * 500))
    store.execute("COMMIT")
    print(time.monotonic_ns() - start)
# Ending the process would compete for the core with whoever is told of the last commit.
time.sleep(0.1)
store.close()
"""


def measure() -> list[Figure]:
    figures = []
    for flush in ("NORMAL", "FULL"):
        with TemporaryDirectory(prefix="interlock-feed-") as directory:
            told, committed = asyncio.run(_latencies(Path(directory) / "store.db", flush))
        after = [whole - commit for whole, commit in zip(told, committed, strict=True)]
        figures += _spread(f"{flush}: the commit itself", committed)
        figures += _spread(f"{flush}: commit begun to told", told)
        figures += _spread(f"{flush}: commit done to told", after, goal=GOAL_MS)
    return figures


def _spread(name: str, times: list[float], goal: float | None = None) -> list[Figure]:
    return [
        Figure(f"{name}, p50", median(times), "ms"),
        Figure(f"{name}, p99", quantiles(times, n=100)[98], "ms"),
        Figure(f"{name}, max", max(times), "ms", goal=goal),
    ]


async def _latencies(path: Path, flush: str) -> tuple[list[float], list[float]]:
    """Milliseconds from each commit's start until it was told, and until it was done."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, start INTEGER, payload TEXT)")
        command = [sys.executable, "-c", WRITER, str(path), flush, str(COMMITS)]
        async with Feed(path, poll=3600) as feed, asyncio.timeout(120):
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
                told = await _told(feed, connection)
                output, _ = writer.communicate()
    return told, [int(line) / 1e6 for line in output.split()]


async def _told(feed: Feed, connection: sqlite3.Connection) -> list[float]:
    told: list[float] = []
    while len(told) < COMMITS:
        await feed.changed()
        now = monotonic_ns()
        for (start,) in connection.execute("SELECT start FROM row WHERE id > ? ORDER BY id", (len(told),)):
            told.append((now - start) / 1e6)
    return told
