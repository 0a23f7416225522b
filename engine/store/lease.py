"""The lease: whoever holds the lock on a store is its one writer, and drives every run in it.

The lock is the kernel's: it ends with the process that holds it, however that ends. Each holder gets a
term of its own, one higher than the last, which fences off what an earlier one may still do.
"""

import fcntl
import os
import socket
import sqlite3
import time
from pathlib import Path

from engine.store.errors import StoreBusy, StoreError

POLL = 0.05


class Lock:
    """An exclusive lock on a file, held until it is released or the process ends."""

    def __init__(self, path: Path, patience: float = 0.0) -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreError(f"the lock {path} cannot be opened: {error.strerror}") from None
        try:
            self._take(patience)
        except BaseException:
            os.close(self._fd)
            raise

    def _take(self, patience: float) -> None:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise StoreBusy(self._path.parent, self._holder()) from None
                time.sleep(POLL)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)

    def _holder(self) -> str | None:
        return os.pread(self._fd, 200, 0).decode(errors="replace") or None

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def begin_term(db: sqlite3.Connection, now: int) -> tuple[int, bool]:
    """Record that a term begins; its number, and whether the last one ended in good order."""
    db.execute("BEGIN IMMEDIATE")
    last = db.execute("SELECT term, released FROM engine_leases ORDER BY term DESC LIMIT 1").fetchone()
    term, clean = (last[0] + 1, last[1] is not None) if last else (1, True)
    values = (term, socket.gethostname(), os.getpid(), now)
    db.execute("INSERT INTO engine_leases (term, host, pid, acquired) VALUES (?, ?, ?, ?)", values)
    db.execute("COMMIT")
    return term, clean


def end_term(db: sqlite3.Connection, term: int, now: int) -> None:
    db.execute("UPDATE engine_leases SET released = ? WHERE term = ?", (now, term))
