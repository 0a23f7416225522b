"""Processes forked from one that has imported everything: born in milliseconds, and ended by their id alone.

Only for programs with one thread: a fork copies a lock that another thread holds.
"""

import os
import select
import signal
import sys
import traceback
from collections.abc import Callable


class Child:
    """A process that does one piece of work and ends."""

    def __init__(self, work: Callable[[], None]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _do(work)
        self._watch = os.pidfd_open(self.pid)
        self.status: int | None = None

    def kill(self) -> None:
        """End it at once. Its id is its own until somebody has waited for it."""
        if self.status is None:
            signal.pidfd_send_signal(self._watch, signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        if self.status is None:
            signal.pidfd_send_signal(self._watch, signal.SIGTERM)

    def wait(self, seconds: float) -> int | None:
        """Its exit code, negative for a signal; None when it goes on after so many seconds."""
        if self.status is None and self.ended(seconds):
            _, status = os.waitpid(self.pid, 0)
            self.status = os.waitstatus_to_exitcode(status)
            os.close(self._watch)
        return self.status

    def ended(self, seconds: float) -> bool:
        return bool(select.select([self._watch], [], [], seconds)[0])


def _do(work: Callable[[], None]) -> None:
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - a child may not go on as if it were its parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
