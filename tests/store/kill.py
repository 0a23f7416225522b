"""Kills a process that commits, again and again, and looks each time whether the store kept its promises.

`python -m tests.store.kill --kills 200` prints its figures, and ends with 1 at the first broken promise. Many
callers send orders and write down, in a journal that outlives them, what they sent and what they were
answered. SIGKILL comes at any moment: while the store is made, opened, written, checkpointed or closed. What
was acknowledged must be there once; what was refused, never; what was neither, whole or not at all.
"""

import argparse
import os
import random
import select
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from engine.store.connections import connect_reader
from engine.store.errors import NoStore
from engine.store.files import Place
from tests.store.callers import CALLERS, Callers, Journal, Wanted
from tests.store.children import Child
from tests.store.soundness import Trail, Unsound, expect, prove

WINDOW = 0.25
"""Seconds of writing within which the kill comes."""
LONG = 60.0
"""Seconds after which a process that does not do what it should is a failure of its own."""
MOMENTS = {"writing": 9, "checkpoint": 4, "opening": 3, "closing": 2, "making": 2}
"""When a process is killed, and how often in twenty times."""


@dataclass(slots=True)
class Figures:
    """What happened."""

    kills: Counter[str] = field(default_factory=Counter)
    survived: int = 0
    """Processes that had ended before they could be killed."""
    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0
    unknown_stored: int = 0
    again: int = 0
    """Requests that got their first reply again."""

    def told(self, trail: Trail, seconds: float) -> str:
        when = ", ".join(f"{count} {moment}" for moment, count in self.kills.most_common())
        return (
            f"{self.kills.total()} kills ({when}; {self.survived} had ended by themselves)\n"
            f"{self.acknowledged} orders acknowledged, {self.refused} refused, {self.again} answered again\n"
            f"{self.unknown} sent and not answered, of which {self.unknown_stored} were stored, each whole\n"
            f"{trail.seq} rows, {len(trail.orders)} orders in the trail\n"
            f"lost 0, twice 0, torn 0, chain intact, {seconds:.0f} s"
        )


class Killing:
    """A store whose writers are killed, and what is known of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.figures = Figures()
        self.trail = Trail()
        self._folder = folder
        self._place = Place.of(folder / "store.db")
        self._journal = Journal(folder / "journal")
        self._random = random.Random(seed)
        self._open: dict[int, Wanted] = {}
        """Requests that were sent and not answered: the next process sends them again."""
        self._gone: set[int] = set()
        """Orders that may never turn up any more."""
        self._number = 1
        self._opening = 0.05
        self._new = 0

    def once(self) -> None:
        """One process, from its birth to its end by SIGKILL."""
        moment = self._random.choices([*MOMENTS], [*MOMENTS.values()])[0]
        if moment == "making":
            self._make()
            return
        callers = Callers(
            self._place, self._journal, self._number, list(self._open.values()), self._random.random(),
            pages=self._random.choice((1, 3, 10)) if moment == "checkpoint" else 1000,
            orders=self._random.randrange(1, 2000) if moment == "closing" else None,
        )  # fmt: skip
        with _born(callers) as (child, news):
            begun = time.monotonic()
            if moment == "opening":
                child.ended(self._random.uniform(0, 1.5 * self._opening))
            else:
                _hear(child, news, b"o")
                self._opening = time.monotonic() - begun
                if moment == "closing":
                    _hear(child, news, b"c")
                    child.ended(self._random.uniform(0, 0.03))
                else:
                    child.ended(self._random.uniform(0, WINDOW))
            self._end(child, moment)
        self._look()

    def _end(self, child: Child, moment: str) -> bool:
        child.kill()
        code = child.wait(LONG)
        if code == 0:
            self.figures.survived += 1
            return False
        expect(code == -9, f"a process that was {moment} failed by itself with {code}: see above")
        self.figures.kills[moment] += 1
        return True

    def _look(self) -> None:
        """Compare what the journal tells with what the store holds."""
        news = self._journal.read()
        for wanted in news.sent:
            self._open[wanted.order.number] = wanted
            self._number = max(self._number, wanted.order.number)
        try:
            with closing(connect_reader(self._place)) as db:
                self.trail.look(db)
        except NoStore:
            expect(not self.trail.seq and not news.acknowledged, "the store is empty, and was not before")
        for number, moves in news.acknowledged.items():
            order = self._open.pop(number).order
            expect(number in self.trail.orders, f"lost: {order} was acknowledged and is not in the trail")
            for move in moves:
                kept = (
                    self.trail.by_version.get(move, number)
                    if order.asked
                    else self.trail.by_version.get(move)
                )
                expect(kept == number, f"lost: {order} was acknowledged, and {move} is of order {kept}")
        for number in news.refused:
            order = self._open.pop(number).order
            expect(number not in self.trail.orders, f"{order} was refused, and is in the trail")
        self._settle({wanted.order.number for wanted in news.sent})
        expect(not self._gone & self.trail.orders, "an order turned up after its process was gone")
        self.figures.acknowledged += len(news.acknowledged)
        self.figures.refused += len(news.refused)
        self.figures.again += news.again
        self.trail.by_version.clear()

    def _settle(self, sent: set[int]) -> None:
        """What has no answer: requests are sent again, all else is known by what is stored now."""
        for number, wanted in list(self._open.items()):
            stored = number in self.trail.orders
            if number in sent:
                self.figures.unknown += 1
                self.figures.unknown_stored += stored
            if wanted.order.asked:
                self._open[number] = Wanted(wanted.caller, wanted.order, stored)
                continue
            del self._open[number]
            if not stored:
                self._gone.add(number)

    def _make(self) -> None:
        """A store of its own is made, and killed at that, until it survives."""
        place = Place.of(self._folder / f"new{self._new}.db")
        callers = Callers(place, Journal(self._folder / f"new{self._new}"), 1, [], 0.5, orders=0)
        with _born(callers) as (child, _):
            child.ended(self._random.uniform(0, 0.15))
            killed = self._end(child, "making")
        try:
            with closing(connect_reader(place)) as db:
                Trail().look(db)
        except NoStore:
            expect(killed, "a store was made and closed, and is empty")
        if not killed:
            prove(place)
            self._new += 1

    def finish(self) -> None:
        """Everything once more from the first row, after a process that closed the store in good order."""
        callers = Callers(
            self._place,
            self._journal,
            self._number,
            list(self._open.values()),
            self._random.random(),
            orders=500,
        )
        with _born(callers) as (child, _):
            code = child.wait(LONG)
            expect(code == 0, f"the last process failed with {code}: see above")
            expect(not Path(f"{self._place.file}-wal").exists(), "the store was closed, and its log is there")
        self._look()
        whole = prove(self._place)
        expect(whole.hash == self.trail.hash, "the chain as followed is not the chain as it is")


@contextmanager
def _born(callers: Callers) -> Iterator[tuple[Child, int]]:
    news, told = os.pipe()
    child = Child(lambda: callers.run(told))
    os.close(told)
    try:
        yield child, news
    finally:
        os.close(news)
        child.kill()
        child.wait(LONG)


def _hear(child: Child, news: int, wanted: bytes) -> None:
    """Wait until the process says that it is so far; nothing more is heard of one that has ended."""
    until = time.monotonic() + LONG
    while select.select([news], [], [], max(0.0, until - time.monotonic()))[0]:
        heard = os.read(news, 1)
        if heard in (wanted, b""):
            return
    raise Unsound(f"process {child.pid} did not get as far as {wanted!r} in {LONG:.0f} s")


def kill(kills: int, seed: int, folder: Path) -> str:
    """The figures of so many kills; `Unsound` tells of a promise that was broken."""
    begun = time.monotonic()
    killing = Killing(folder, seed)
    import alembic.command  # noqa: F401 - before the forks, or each would take a quarter of a second for it

    for _ in range(4 * kills):
        if killing.figures.kills.total() >= kills:
            break
        expect(time.monotonic() - begun < LONG + 5 * kills, "it takes too long")
        killing.once()
    killing.finish()
    return killing.figures.told(killing.trail, time.monotonic() - begun)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    wanted = parser.parse_args()
    print(f"{wanted.kills} kills of a process with {CALLERS} callers, seed {wanted.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="interlock-kill-") as folder:
        try:
            print(kill(wanted.kills, wanted.seed, Path(folder)))
        except Unsound as broken:
            print(f"\nBroken: {broken}\n(seed {wanted.seed})", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
