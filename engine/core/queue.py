"""The line of what is ready to start."""

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import NamedTuple

from engine.core.ready import CHECKS_ONLY, CLOSED, OPEN, Lane, Rank
from engine.core.records import TaskKey


class Offer(NamedTuple):
    """A ready task and its place in the line: the round of this dispatch, then its run's ticket."""

    round: int
    ticket: int
    key: TaskKey


class Queue:
    """Ready tasks by lane, and within a lane by run, in the order in which runs take turns.

    A run draws a ticket when it comes into the line and a new one whenever it is served; tickets are
    compared across lanes, so a run with many tasks has no more turns than one with few.
    """

    def __init__(self) -> None:
        self.lanes: dict[Lane, dict[int, dict[TaskKey, None]]] = {}
        self.place: dict[TaskKey, Lane] = {}
        self.ready: dict[int, dict[Lane, dict[TaskKey, None]]] = {}
        self.openness: dict[int, int] = {}
        self._tickets: dict[int, int] = {}
        self._drawn = 0

    def add(self, key: TaskKey, lane: Lane) -> None:
        if self.place.get(key) == lane:
            return
        self.remove(key)
        self.place[key] = lane
        tasks = self.ready.setdefault(key[0], {}).setdefault(lane, {})
        tasks[key] = None
        if len(tasks) == 1 and self._shown(lane, self.openness.get(key[0], CLOSED)):
            self._show(lane, key[0], tasks)

    def remove(self, key: TaskKey) -> None:
        """Take a task out; its run goes to the end of the line."""
        lane = self.place.pop(key, None)
        if lane is None:
            return
        run = key[0]
        tasks = self.ready[run][lane]
        del tasks[key]
        if not tasks:
            self._hide(lane, run)
            del self.ready[run][lane]
            if not self.ready[run]:
                del self.ready[run]
                self._tickets.pop(run, None)
                return
        self._draw(run)
        for other, rest in self.ready[run].items():
            shown = self.lanes.get(other, {})
            if run in shown:
                del shown[run]
                shown[run] = rest

    def open(self, run: int, level: int) -> None:
        """Say how far a run lets its ready tasks start."""
        before = self.openness.get(run, CLOSED)
        if level == before:
            return
        if level == CLOSED:
            self.openness.pop(run)
        else:
            self.openness[run] = level
        for lane, tasks in self.ready.get(run, {}).items():
            was, now = self._shown(lane, before), self._shown(lane, level)
            if now and not was:
                self._show(lane, run, tasks)
            elif was and not now:
                self._hide(lane, run)

    def forget(self, run: int) -> None:
        for key in [key for tasks in self.ready.get(run, {}).values() for key in tasks]:
            self.remove(key)
        self.openness.pop(run, None)

    @staticmethod
    def _shown(lane: Lane, level: int) -> bool:
        return level == OPEN or (level == CHECKS_ONLY and lane.rank is Rank.CHECK)

    def _draw(self, run: int) -> None:
        self._drawn += 1
        self._tickets[run] = self._drawn

    def _show(self, lane: Lane, run: int, tasks: dict[TaskKey, None]) -> None:
        if run not in self._tickets:
            self._draw(run)
        self.lanes.setdefault(lane, {})[run] = tasks

    def _hide(self, lane: Lane, run: int) -> None:
        shown = self.lanes.get(lane)
        if shown is not None:
            shown.pop(run, None)
            if not shown:
                del self.lanes[lane]

    def offers(self, lane: Lane, admitted: Callable[[TaskKey], bool]) -> Iterator[Offer]:
        """The ready tasks of a lane, one of each run in turn; a run that is not admitted leaves the line.

        Costs only what is taken.
        """
        line: Iterable[tuple[int, Iterator[TaskKey]]]
        line = ((self._tickets[run], iter(tasks)) for run, tasks in self.lanes[lane].items())
        for number in count():
            again: list[tuple[int, Iterator[TaskKey]]] = []
            for ticket, rest in line:
                key = next(rest, None)
                if key is not None and admitted(key):
                    yield Offer(number, ticket, key)
                    again.append((ticket, rest))
            if not again:
                return
            line = again
