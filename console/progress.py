"""A line on a terminal's standard error that says how far something is, and leaves nothing behind."""

import sys
from time import monotonic

BETWEEN = 0.2
"""Seconds between two tellings; the first comes after the first of them."""


class Progress:
    """Silent unless someone watches and it takes long enough to be watched."""

    def __init__(self) -> None:
        self._watched = sys.stderr is not None and sys.stderr.isatty()
        self._next = monotonic() + BETWEEN
        self._told = False

    def tell(self, sentence: str) -> None:
        if not self._watched or monotonic() < self._next:
            return
        self._next = monotonic() + BETWEEN
        self._told = True
        print(f"\r\x1b[K{sentence}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Take the line away; whoever writes to standard output calls this first."""
        if self._told:
            self._told = False
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
