"""Many processes on one store, and none of them is ever told that it is locked.

`python -m tests.store.locks --seconds 60 --processes 20` prints its figures, and ends with 1 when an error of
the driver reached anybody. First one process holds the store and takes the commands of the others over a
socket, as an engine will; then nobody does, and each command opens the store itself, in turn. All the while
readers come and go, with long queries and with transactions that stay open.
"""

import argparse
import asyncio
import json
import random
import signal
import socket
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TextIO

from engine.store.connections import connect_reader
from engine.store.errors import StoreBusy
from engine.store.files import Place
from engine.store.gate import Conflict
from engine.store.store import Store
from tests.store.children import Child
from tests.store.orders import NEXT, Move, Order, Standing, submission
from tests.store.soundness import Trail, Unsound, expect, prove

PATIENCE = 5.0
"""Seconds for which a command waits until the store is free."""
THOUGHT = 0.2
"""Seconds, at the most, between two commands of one person."""
SLACK = 60.0
"""Seconds after which a process that should have ended is a failure of its own."""
LONG_QUERY = (
    "SELECT count(*), sum(length(b.metadata)) FROM audit AS a JOIN audit AS b"
    " ON b.seq BETWEEN a.seq AND a.seq + ? WHERE a.seq < 10000 AND a.seq % ? = 0"
)


@dataclass(slots=True)
class Tally:
    """What one process did, and what went wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)
    """The most seconds that each took."""

    def did(self, what: str, since: float) -> None:
        self.counts[what] += 1
        self.took(what, time.monotonic() - since)

    def took(self, what: str, seconds: float) -> None:
        self.longest[what] = max(self.longest.get(what, 0.0), seconds)

    def __str__(self) -> str:
        counts = ", ".join(
            f"{count} {what} (longest {self.longest.get(what, 0):.2f} s)"
            for what, count in sorted(self.counts.items())
        )
        return f"{counts}; {self.errors.total()} errors"

    def failed(self, error: BaseException) -> None:
        told = error if not error.__cause__ else f"{error} <- {error.__cause__!r}"
        self.errors[f"{type(error).__name__}: {told}"] += 1


@dataclass(frozen=True, slots=True)
class Site:
    """Where the processes meet, and until when."""

    folder: Path
    until: float
    tasks: int

    @property
    def place(self) -> Place:
        return Place.of(self.folder / "store.db")

    @property
    def address(self) -> str:
        return str(self.folder / "commands")

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self.until


# ---- who reads


def read(site: Site, seed: int, tally: Tally) -> None:
    """Open, read, close, again and again, in every way in which a console or a script would."""
    choose = random.Random(seed)
    while site.goes_on:
        begun = time.monotonic()
        try:
            with closing(connect_reader(site.place)) as db:
                way = choose.choice((_glance, _glance, _snapshot, _long_query))
                way(db, choose)
            tally.did(way.__name__.strip("_"), begun)
        except (Exception, Unsound) as error:  # noqa: BLE001 - every kind is counted
            tally.failed(error)


def _glance(db: sqlite3.Connection, _: random.Random) -> None:
    db.execute("SELECT number, state, version FROM tasks ORDER BY number").fetchall()
    db.execute("SELECT seq, reason FROM audit ORDER BY seq DESC LIMIT 20").fetchall()


def _long_query(db: sqlite3.Connection, choose: random.Random) -> None:
    db.execute(LONG_QUERY, (choose.randrange(10, 100), choose.randrange(1, 10))).fetchone()


def _snapshot(db: sqlite3.Connection, choose: random.Random) -> None:
    """A transaction that stays open while others write: it sees one moment, and that one is whole."""
    db.execute("BEGIN")
    before = _moment(db)
    expect(before[0] == before[1], f"rows and versions of one moment differ: {before}")
    time.sleep(choose.uniform(0, 0.5))
    expect(_moment(db) == before, "the moment changed while it was read")
    db.execute("COMMIT")


def _moment(db: sqlite3.Connection) -> tuple[int, int]:
    (rows,) = db.execute("SELECT count(*) FROM audit WHERE run = 1 AND task > 0").fetchone()
    (versions,) = db.execute("SELECT sum(version) FROM tasks").fetchone()
    return rows, versions


# ---- who writes


def serve(site: Site, tally: Tally) -> None:
    """Hold the store and take commands: a line with a task and a version in, a line with the answer out."""
    with Store(site.place.file) as store:
        asyncio.run(_serve(site, store, tally))


async def _serve(site: Site, store: Store, tally: Tally) -> None:
    standing = _standing(site.place)
    numbers = iter(range(_last_order(site.place) + 1, sys.maxsize))
    talks = set[asyncio.Task[None]]()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        try:
            while line := await reader.readline():
                answer = await _answer(store, standing, numbers.__next__, json.loads(line), tally)
                writer.write(f"{json.dumps(answer)}\n".encode())
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()
            talks.discard(task)

    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    server = await asyncio.start_unix_server(talk, site.address)
    async with server:
        await over.wait()
    await asyncio.gather(*talks, return_exceptions=True)


async def _answer(
    store: Store,
    standing: dict[int, Standing],
    number: Callable[[], int],
    command: dict[str, int],
    tally: Tally,
) -> list[str]:
    begun = time.monotonic()
    task = command["task"]
    state, version = standing[task]
    order = Order(number(), (Move(task, state, version + command["step"]),))
    try:
        await store.apply(order.decided())
    except Conflict as conflict:
        tally.did("refused", begun)
        return ["refused", str(conflict)]
    except Exception as error:  # noqa: BLE001 - every kind is counted, here and by whoever asked
        tally.failed(error)
        return ["error", f"{type(error).__name__}: {error}"]
    standing[task] = NEXT[state], version + 1
    tally.did("stored", begun)
    return ["done", f"{task} {version + 1}"]


def command_by_socket(site: Site, tasks: list[int], seed: int, tally: Tally) -> None:
    """Send commands to whoever holds the store; every tenth is one that must be refused."""
    choose = random.Random(seed)
    while site.goes_on:
        try:
            with closing(socket.socket(socket.AF_UNIX)) as line:
                line.settimeout(SLACK)
                line.connect(site.address)
                with line.makefile("rw") as talk:
                    for _ in range(choose.randrange(1, 30)):
                        _send(talk, choose.choice(tasks), 0 if choose.random() < 0.1 else 1, tally)
        except Exception as error:  # noqa: BLE001 - every kind is counted
            tally.failed(error)


def _send(talk: TextIO, task: int, step: int, tally: Tally) -> None:
    begun = time.monotonic()
    talk.write(json.dumps({"task": task, "step": step}) + "\n")
    talk.flush()
    kind, text = json.loads(talk.readline())
    if kind == "error" or (kind == "done") != (step == 1):
        tally.errors[f"a command was answered {kind}: {text}"] += 1
    tally.did(f"answered {kind}", begun)


def command_alone(site: Site, tasks: list[int], seed: int, tally: Tally) -> None:
    """Nobody holds the store: open it, make one move, close it, as a command line does."""
    choose = random.Random(seed)
    while site.goes_on:
        begun = time.monotonic()
        try:
            with Store(site.place.file, patience=PATIENCE) as store:
                opened = time.monotonic()
                tally.did("opened", begun)
                task = choose.choice(tasks)
                state, version = _standing(site.place)[task]
                order = Order(_last_order(site.place) + 1, (Move(task, state, version + 1),))
                asyncio.run(_apply(store, order))
                tally.did("stored", opened)
                closing_since = time.monotonic()
            tally.did("closed", closing_since)
            # A command line takes longer than this to start.
            time.sleep(choose.uniform(0, THOUGHT))
        except StoreBusy as error:
            tally.did("gave up", begun)
            tally.failed(error)
        except Exception as error:  # noqa: BLE001 - every kind is counted
            tally.failed(error)


async def _apply(store: Store, order: Order) -> None:
    await store.apply(order.decided())


def _standing(place: Place) -> dict[int, Standing]:
    with closing(connect_reader(place)) as db:
        rows = db.execute("SELECT number, state, version FROM tasks").fetchall()
    return {number: (state, version) for number, state, version in rows}


def _last_order(place: Place) -> int:
    with closing(connect_reader(place)) as db:
        (last,) = db.execute("SELECT cause FROM audit ORDER BY seq DESC LIMIT 1").fetchone()
    return int(last)


# ---- all of them


def _tallied(work: Callable[[Tally], None], path: Path) -> None:
    tally = Tally()
    try:
        work(tally)
    except Exception as error:  # noqa: BLE001 - every kind is counted
        tally.failed(error)
    path.write_text(json.dumps([tally.counts, tally.errors, tally.longest]))


@dataclass(slots=True)
class Crowd:
    """The processes of one phase."""

    folder: Path
    name: str
    children: list[tuple[str, Path, Child]] = field(default_factory=list)

    def add(self, role: str, work: Callable[[Tally], None]) -> Child:
        path = self.folder / f"{self.name}-{len(self.children)}"
        child = Child(partial(_tallied, work, path))
        self.children.append((role, path, child))
        return child

    def end(self, seconds: float) -> dict[str, Tally]:
        """Wait for all of them, and add up what they tell, by role."""
        until = time.monotonic() + seconds
        found: dict[str, Tally] = {}
        for role, path, child in self.children:
            tally = found.setdefault(role, Tally())
            if child.wait(max(0.0, until - time.monotonic())) is None:
                tally.errors["a process did not end in time"] += 1
                child.kill()
                child.wait(SLACK)
                continue
            counts, errors, longest = json.loads(path.read_text())
            tally.counts.update(counts)
            tally.errors.update(errors)
            for what, seconds_ in longest.items():
                tally.took(what, seconds_)
        return found


def crowd(seconds: float, processes: int, folder: Path) -> tuple[str, bool]:
    """The figures of both phases, and whether nobody met an error."""
    import alembic.command  # noqa: F401 - before the forks, or each would take a quarter of a second for it

    readers = processes // 2
    commanders = max(1, processes - readers - 1)
    tasks = 4 * commanders
    place = Place.of(folder / "store.db")
    with Store(place.file) as store:
        store.call(lambda gate: gate.apply([submission(tasks)])).result()
    told = [f"{readers} readers and {commanders} commanders, {seconds:.0f} s, two phases"]
    clean = True
    for phase in ("with an engine", "without one"):
        site = Site(folder, time.monotonic() + seconds / 2, tasks)
        gathering = Crowd(folder, phase.replace(" ", "-"))
        engine = None
        if phase == "with an engine":
            engine = gathering.add("engine", partial(serve, site))
            _wait_for(site.address)
        for place_ in range(readers):
            gathering.add("readers", partial(read, site, place_))
        command = command_by_socket if engine else command_alone
        for place_ in range(commanders):
            own = list(range(place_ * 4 + 1, place_ * 4 + 5))
            gathering.add("commanders", partial(command, site, own, place_))
        for role, _, child in gathering.children:
            if role != "engine":
                child.ended(max(0.0, site.until - time.monotonic()) + SLACK)
        if engine:
            engine.terminate()
        for role, tally in gathering.end(SLACK).items():
            told.append(f"{phase}, {role}: {tally}")
            told += [f"    {count} × {error}" for error, count in tally.errors.most_common(5)]
            clean = clean and not tally.errors
    trail: Trail = prove(place)
    told.append(f"{trail.seq} rows, chain intact, integrity ok")
    return "\n".join(told), clean


def _wait_for(address: str) -> None:
    until = time.monotonic() + SLACK
    while time.monotonic() < until:
        with suppress(OSError), closing(socket.socket(socket.AF_UNIX)) as line:
            line.connect(address)
            return
        time.sleep(0.01)
    raise Unsound("the engine does not listen")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=20)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="interlock-locks-") as folder:
        try:
            told, clean = crowd(wanted.seconds, wanted.processes, Path(folder))
        except Unsound as broken:
            print(f"Broken: {broken}", file=sys.stderr)
            return 1
    print(told)
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
