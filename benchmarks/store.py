"""The gate beside raw `sqlite3` that writes the same rows: what the interlock, the chain and the queue cost.

Raw means: the same tables and indexes without triggers, rows made beforehand, no chain, one thread. Each
contestant runs in turns with the others, on a file of its own, with synchronous=FULL.
"""

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.figure import Figure
from engine.core.decide import decide
from engine.core.decision import Decision, Transition
from engine.core.model import Model
from engine.core.plan import Plan, Settings, TaskPlan
from engine.core.records import Entity, Ref
from engine.core.signals import Submit
from engine.machines import MACHINES, Kind
from engine.store import statements
from engine.store.gate import Request
from engine.store.interlock import triggers
from engine.store.store import Store

TASKS = 1000
SECONDS = 1.5
ROUNDS = 5
AHEAD = 100_000
"""Transitions made before the clock starts."""
MACHINE = MACHINES["toolchain.task"]
CYCLE = ("IN_PROGRESS", "FAILED", "RETRYING")


def measure() -> list[Figure]:
    contests: dict[str, Callable[[Path], float]] = {
        "raw batches of 100": lambda path: _raw(path, 100),
        "raw one by one": lambda path: _raw(path, 1),
        "gate, 500 callers": lambda path: _gate(path, 500),
        "gate, 1 caller": lambda path: _gate(path, 1),
        "gate, 500 callers with request ids": lambda path: _gate(path, 500, requests=True),
        "raw batches of 100 with keys": lambda path: _raw(path, 100, keys=True),
    }
    rates: dict[str, list[float]] = {name: [] for name in contests}
    for _ in range(ROUNDS):
        for name, run in contests.items():
            with tempfile.TemporaryDirectory(dir=".") as folder:
                rates[name].append(run(Path(folder) / "store.db"))
    typical = {name: median(found) for name, found in rates.items()}
    figures = [Figure(name, rate, "transitions/s") for name, rate in typical.items()]
    together = typical["gate, 500 callers"] / typical["raw batches of 100"]
    alone = typical["gate, 1 caller"] / typical["raw one by one"]
    keyed = typical["gate, 500 callers with request ids"] / typical["raw batches of 100 with keys"]
    return [
        *figures,
        Figure("500 callers over raw batches", together, "times", goal=0.6, at_least=True),
        Figure("1 caller over raw one by one", alone, "times", goal=0.4, at_least=True),
        Figure("500 callers with request ids over raw", keyed, "times", goal=0.6, at_least=True),
    ]


# ---- what is stored


def populate(path: Path, tasks: int = TASKS) -> None:
    """A store with one run whose tasks are all in progress."""
    plan = Plan("bench", tuple(TaskPlan(f"task{number}") for number in range(1, tasks + 1)))
    decision = decide(Model(Settings()), Submit(id=1, actor="ann", plan=plan), 1, 0.5)
    with Store(path) as store:
        store.call(lambda gate: gate.apply([decision])).result()
        begun = [move(number, 2, "PENDING", "IN_PROGRESS", 2) for number in range(1, tasks + 1)]
        store.call(lambda gate: gate.apply(begun)).result()


_EVENTS = {(arrow.source, arrow.target): arrow.event for arrow in MACHINE.arrows}


def move(task: int, version: int, source: str, target: str, at: int) -> Decision:
    """One transition of one task, as the core would decide it."""
    change = Transition(
        Ref(Entity.TASK, (1, task)), MACHINE.name, source, _EVENTS[source, target], target, Kind.NORMAL,
        version, {"attempt": version, "error": None, "retries": 1}, "as measured", None, None, at - 1,
        None,  # type: ignore[arg-type]
    )  # fmt: skip
    return Decision(at, at, "engine", "worker", changes=(change,))


def moves(tasks: list[int]) -> Iterator[Decision]:
    """For ever: the next transition of each of these tasks in turn."""
    standing = {task: (2, cycle(zip(CYCLE, (*CYCLE[1:], CYCLE[0]), strict=True))) for task in tasks}
    at = 10
    while True:
        for task in tasks:
            version, ways = standing[task]
            at += 1
            yield move(task, version + 1, *next(ways), at)
            standing[task] = version + 1, ways


# ---- the contestants


def _gate(path: Path, callers: int, *, requests: bool = False) -> float:
    populate(path)
    with Store(path) as store:
        return asyncio.run(_call(store, callers, requests))


async def _call(store: Store, callers: int, requests: bool) -> float:
    share = TASKS // callers
    ahead = AHEAD // callers if callers > 1 else AHEAD // 5
    work = [
        list(islice(moves(list(range(number * share + 1, number * share + share + 1))), ahead))
        for number in range(callers)
    ]
    done = 0
    begin = perf_counter()
    end = begin + SECONDS

    async def caller(number: int) -> None:
        nonlocal done
        for turn, decision in enumerate(work[number]):
            request = Request(f"{number}-{turn}", "advance", "same", turn) if requests else None
            await store.apply((decision,), request)
            done += 1
            if perf_counter() >= end:
                return

    await asyncio.gather(*map(caller, range(callers)))
    return done / (perf_counter() - begin)


def _raw(path: Path, batch: int, *, keys: bool = False) -> float:
    populate(path)
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("PRAGMA synchronous=FULL")
        for name in triggers():
            db.execute(f"DROP TRIGGER {name}")
        columns = ("attempt", "error", "retries", "state", "version", "entered", "updated")
        update = statements.change("tasks", columns, True)
        arrows = {
            (source, target): number
            for number, source, target in db.execute(
                "SELECT id, from_state, to_state FROM arrows WHERE machine = ?", (MACHINE.name,)
            )
        }
        (last,) = db.execute("SELECT max(seq) FROM audit").fetchone()
        rows = list(islice(_rows(last, arrows), AHEAD if batch > 1 else AHEAD // 5))
        done = 0
        begin = perf_counter()
        while perf_counter() - begin < SECONDS and done < len(rows):
            db.execute("BEGIN IMMEDIATE")
            for audit, task in rows[done : done + batch]:
                if db.execute(update, task).rowcount != 1:
                    raise AssertionError("the raw contestant lost its way")
                db.execute(statements.ADD_AUDIT, audit)
                if keys:
                    db.execute(statements.ADD_KEY, (f"{audit[0]}", "advance", "same", 0, "{}", 1, 2))
            db.execute("COMMIT")
            done += batch
        return done / (perf_counter() - begin)
    finally:
        db.close()


def _rows(
    last: int, arrows: dict[tuple[str, str], int]
) -> Iterator[tuple[tuple[object, ...], tuple[object, ...]]]:
    digest = bytes(32)
    words = '{"attempt":3,"error":null,"retries":1}'
    for seq, decision in enumerate(moves(list(range(1, TASKS + 1))), last + 1):
        change = decision.changes[0]
        assert isinstance(change, Transition)
        assert isinstance(change.ref.key, tuple)
        at, task, version = decision.at, change.ref.key[1], change.version
        arrow = arrows[change.source, change.target]
        audit = (seq, at, 1, task, None, version, arrow, at - 1, at, "engine", "worker", "as measured", None)
        entity = (version, None, 1, change.target, version, at, at, 1, task, version - 1, change.source)
        yield (*audit, words, digest, digest), entity
