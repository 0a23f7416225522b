"""What is going to happen in the simulated world, in the order in which it is due."""

from collections.abc import Callable
from heapq import heappop, heappush

Happening = Callable[[], None]


class Agenda:
    """A queue of happenings by time; those of the same moment come in the order they were entered."""

    def __init__(self) -> None:
        self._queue: list[tuple[int, int, Happening]] = []
        self._entered = 0

    def at(self, due: int, happening: Happening) -> None:
        self._entered += 1
        heappush(self._queue, (due, self._entered, happening))

    @property
    def next_due(self) -> int | None:
        return self._queue[0][0] if self._queue else None

    def run_due(self, now: int) -> int:
        """Let all happen that is due, and tell how much that was."""
        queue, count = self._queue, 0
        while queue and queue[0][0] <= now:
            heappop(queue)[2]()
            count += 1
        return count
