"""Simulated time: integer microseconds that only go forward, and only when told to."""

START = 1_700_000_000_000_000


class Clock:
    """What the engine is told to be now."""

    __slots__ = ("now",)

    def __init__(self, now: int = START) -> None:
        self.now = now

    def advance(self, to: int) -> None:
        """Let time pass until a moment."""
        if to < self.now:
            raise ValueError(f"the clock cannot go back from {self.now} to {to}")
        self.now = to

    def jump(self, by: int) -> None:
        """Skip a stretch of time at once, as a suspended machine does."""
        self.advance(self.now + by)
