"""Tells whoever waits in this process that the store changed.

Several commits may be told as one change, and one commit may be told twice, but no commit goes untold: one
made in this process at once, one made by another within about a millisecond. Where the system does not
report writes to files (a network file system, no watches left), it is told within `poll` seconds instead.
"""

import asyncio
import ctypes
import os
import sqlite3
import struct
from contextlib import suppress
from pathlib import Path
from typing import Self

STEP = 0.001
"""Seconds until the first look after a write to the files; asyncio's timers are no finer."""
PATIENCE = 0.25
"""The rest between two looks, as a share of the time since the last write."""


class FeedClosed(Exception):
    """The feed was closed while someone waited on it: nothing more is told here, open a new one."""


class Subscription:
    """One listener's place in the feed. Tasks that share one miss what the other was told."""

    def __init__(self, pulse: "_Pulse") -> None:
        self._pulse = pulse
        self._seen = pulse.count

    async def changed(self) -> None:
        """Return once there was a commit since the last return, or since the subscription."""
        self._seen = await self._pulse.beyond(self._seen)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> None:
        try:
            await self.changed()
        except FeedClosed:
            raise StopAsyncIteration from None


class Feed:
    """Tells that the store changed: once for one or more commits, never not at all."""

    latest = 0
    """The highest number of a commit that was announced in this process."""

    def __init__(self, path: Path, *, poll: float = 0.5, inotify: bool = True) -> None:
        # SQLite resolves links too: the write-ahead log lies beside the real file.
        path = path.resolve()
        self._poll = poll
        self._pulse = _Pulse()
        self._own = Subscription(self._pulse)
        self._store = _Store(path)
        self._watch = _Watch(path) if inotify else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._written = 0.0

    async def __aenter__(self) -> Self:
        loop = self._loop = asyncio.get_running_loop()
        if self._watch and (fd := self._watch.open()) is not None:
            loop.add_reader(fd, self._hear)
        self._store.moved()
        # A commit may be half way now: its writes came too early to be heard.
        self._written = loop.time()
        self._rest(loop)
        return self

    async def __aexit__(self, *_: object) -> None:
        loop, self._loop = self._loop, None
        if self._timer:
            self._timer.cancel()
        if self._watch and self._watch.fd is not None:
            if loop:
                loop.remove_reader(self._watch.fd)
            self._watch.close()
        self._store.close()
        self._pulse.stop()

    def notice(self, seq: int) -> None:
        """Tell of a commit made in this process: after it, from any thread; ignored unless open."""
        if loop := self._loop:
            # The loop may have closed since the line above; then nobody waits any more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._noticed, seq)

    def subscribe(self) -> Subscription:
        """A place of its own in the feed, for one more task."""
        return Subscription(self._pulse)

    async def changed(self) -> None:
        """Return once there was a commit since the last return, or since the feed was opened."""
        await self._own.changed()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> None:
        await anext(self._own)

    def _noticed(self, seq: int) -> None:
        if self._loop:
            self.latest = max(self.latest, seq)
            # Looking now keeps the same commit from being told again when its writes are heard.
            self._store.moved()
            self._pulse.beat()

    def _hear(self) -> None:
        """The files of the store were written: its commit is visible by now, or will be soon."""
        if self._loop and self._watch and self._watch.heard():
            self._written = self._loop.time()
            self._rest(self._loop)
            self._look()

    def _tick(self) -> None:
        if self._loop:
            self._rest(self._loop)
            if self._watch:
                self._watch.arm()
            self._look()

    def _rest(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look again soon after a write, then ever more rarely, down to the poll.

        The log is written before its commit is visible, and what was heard may belong to the commit after
        the one that is seen. So looking goes on even after a change, and a commit whose flush takes long is
        told late by no more than a share of that time.
        """
        if self._timer:
            self._timer.cancel()
        rest = max(STEP, PATIENCE * (loop.time() - self._written))
        self._timer = loop.call_later(min(rest, self._poll), self._tick)

    def _look(self) -> None:
        if self._store.moved():
            self._pulse.beat()


class _Pulse:
    """A count of changes, and everyone who waits for it to rise."""

    def __init__(self) -> None:
        self.count = 0
        self._stopped = False
        self._next = asyncio.Event()

    def beat(self) -> None:
        self.count += 1
        self._wake()

    def stop(self) -> None:
        self._stopped = True
        self._wake()

    async def beyond(self, seen: int) -> int:
        while self.count == seen:
            if self._stopped:
                raise FeedClosed("The feed is closed: nothing more is told here. Open a new one")
            await self._next.wait()
        return self.count

    def _wake(self) -> None:
        self._next.set()
        self._next = asyncio.Event()


class _Store:
    """The database's own count of commits, as seen by one connection that only reads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log_path = path.with_name(f"{path.name}-wal")
        self._connection: sqlite3.Connection | None = None
        self._version: int | None = None
        self._main: tuple[int, int] | None = None
        self._log: tuple[int, int] | None = None

    def moved(self) -> bool:
        """Whether there was a commit since the last time it could be told; never waits for a lock."""
        try:
            version = self._current()
        except sqlite3.DatabaseError:
            # Absent, locked or half written: not known yet, and the next look compares with the same count.
            return False
        before, self._version = self._version, version
        return version != before

    def close(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None

    def _current(self) -> int:
        if self._connection and self._replaced():
            self.close()
        connection = self._connection or self._connect()
        version: int = connection.execute("PRAGMA data_version").fetchone()[0]
        # Reading creates the log where there is none.
        self._log = self._log or _identity(self._log_path)
        return version

    def _connect(self) -> sqlite3.Connection:
        # Counts of two connections do not compare.
        self._version = None
        self._main, self._log = _identity(self._path), _identity(self._log_path)
        uri = f"{self._path.as_uri()}?mode=ro"
        self._connection = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)
        self._connection.execute("PRAGMA query_only = 1")
        return self._connection

    def _replaced(self) -> bool:
        """Whether the files on the path are others than the ones that the connection holds open."""
        return (self._main, self._log) != (
            _identity(self._path),
            self._log and _identity(self._log_path),
        )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class _Watch:
    """Hears writes to the files of one database, as far as the system reports them (inotify).

    It watches the directory, because the files may come and go.
    """

    MODIFY, MOVED_TO, CREATE, DELETE = 0x2, 0x80, 0x100, 0x200
    OVERFLOW, IGNORED, ONLYDIR = 0x4000, 0x8000, 0x01000000
    HEAD = struct.Struct("iIII")

    def __init__(self, path: Path) -> None:
        self._directory = os.fsencode(path.parent)
        self._names = {os.fsencode(path.name), os.fsencode(f"{path.name}-wal")}
        self._armed = False
        self.fd: int | None = None

    def open(self) -> int | None:
        """The descriptor to listen on, or none where the system has nothing of the kind to give."""
        with suppress(AttributeError):
            fd: int = ctypes.CDLL(None).inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            self.fd = fd if fd >= 0 else None
        self.arm()
        return self.fd

    def arm(self) -> None:
        """Start to watch, unless it does already; without effect while there is no directory."""
        if self.fd is not None and not self._armed:
            mask = self.MODIFY | self.MOVED_TO | self.CREATE | self.DELETE | self.ONLYDIR
            self._armed = ctypes.CDLL(None).inotify_add_watch(self.fd, self._directory, mask) >= 0

    def heard(self) -> bool:
        """Whether the database's own files were among what was written."""
        if self.fd is None:
            return False
        try:
            events = os.read(self.fd, 65536)
        except BlockingIOError:
            return False
        ours, place = False, 0
        while place < len(events):
            _, mask, _, length = self.HEAD.unpack_from(events, place)
            place += self.HEAD.size + length
            name = events[place - length : place].rstrip(b"\0")
            ours |= name in self._names or bool(mask & self.OVERFLOW)
            self._armed &= not mask & self.IGNORED
        return ours

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd, self._armed = None, False
