"""One measured number, and the way all of them are timed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured, and its goal if it has one: not to be exceeded, or to be reached."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    at_least: bool = False

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        reached = self.value >= self.goal if self.at_least else self.value <= self.goal
        return "met" if reached else "missed"


def best_of(repeats: int, *contestants: Callable[[], object]) -> Sequence[int]:
    """The shortest time of each in nanoseconds, taken in turns so that a busy moment hits all alike."""
    best = [10**18] * len(contestants)
    for _ in range(repeats):
        for place, run in enumerate(contestants):
            start = perf_counter_ns()
            run()
            best[place] = min(best[place], perf_counter_ns() - start)
    return best
