"""The lease: whoever holds the lock on a store is its one writer, and drives every run in it.

The lock is the kernel's: it ends with the process that holds it, however that ends. Each holder gets a
term of its own, one higher than the last, which fences off what an earlier one may still do.
"""

import contextlib
import fcntl
import os
import socket
import sqlite3
import time
from pathlib import Path

from engine.store.errors import StoreBusy
from engine.store.trouble import system_sentence_of

POLL = 0.01


class Lock:
    """An exclusive lock on a file, held until it is released or the process ends."""

    def __init__(self, path: Path, patience: float = 0.0) -> None:
        self._path = path
        self._fd = _open(path)
        try:
            if patience:
                self._wait(patience)
            elif not _taken(self._fd):
                raise StoreBusy(path.parent, self._holder())
        except BaseException:
            self.release()
            raise
        # Who holds it is for people to read: without room for it the lock holds as well.
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)

    def _wait(self, patience: float) -> None:
        """Whoever waits has a turn first, so that one who comes back at once does not overtake for ever."""
        begun = time.monotonic()
        turn = _open(self._path.with_name("turn"))
        try:
            for fd in (turn, self._fd):
                while not _taken(fd):
                    waited = time.monotonic() - begun
                    if waited >= patience:
                        raise StoreBusy(self._path.parent, self._holder())
                    # Who has waited longer asks more often, and so comes before the others.
                    time.sleep(max(POLL / (1 + 10 * waited), POLL / 10))
        finally:
            os.close(turn)

    def _holder(self) -> str | None:
        return os.pread(self._fd, 200, 0).decode(errors="replace") or None

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise system_sentence_of(error, path) from None


def _taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise system_sentence_of(error, "the lock of the store") from None
    return True


def holder_of(path: Path) -> str | None:
    """Who holds the lock, without touching it: one who takes it at this moment must not be in the way."""
    try:
        found = path.stat()
        locks = Path("/proc/locks").read_text()
        words = path.read_text(errors="replace")
    except OSError:
        return None
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    held = any("FLOCK" in line and place in line.split() for line in locks.splitlines())
    return (words or "somebody") if held else None


def ended_well(db: sqlite3.Connection) -> bool:
    """Whether the last holder gave its term back."""
    last = db.execute("SELECT released FROM engine_leases ORDER BY term DESC LIMIT 1").fetchone()
    return last is None or last[0] is not None


def begin_term(db: sqlite3.Connection, now: int) -> int:
    """Record that a term begins, and tell its number."""
    db.execute("BEGIN IMMEDIATE")
    term: int = db.execute("SELECT coalesce(max(term), 0) + 1 FROM engine_leases").fetchone()[0]
    values = (term, socket.gethostname(), os.getpid(), now)
    db.execute("INSERT INTO engine_leases (term, host, pid, acquired) VALUES (?, ?, ?, ?)", values)
    db.execute("COMMIT")
    return term


def end_term(db: sqlite3.Connection, term: int, now: int) -> None:
    db.execute("UPDATE engine_leases SET released = ? WHERE term = ?", (now, term))
