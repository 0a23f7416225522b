"""Whoever waits on the feed learns of every commit: real files, and writers that are real processes.

Where nothing else is said the poll is an hour away, so that only what is tested can have told.
"""

import asyncio
import ctypes
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from functools import wraps
from pathlib import Path
from typing import IO, ParamSpec

import pytest

from engine.store import feed as feed_module
from engine.store.feed import Feed, FeedClosed, Subscription

P = ParamSpec("P")

NEVER = 3600.0
SOON = 0.01
WRITER = """
import sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None)
for line in sys.stdin:
    store.execute(line).fetchall()
    print("done", flush=True)
store.close()
"""
CREATE = ("PRAGMA journal_mode = WAL", "CREATE TABLE counter (n INTEGER)", "INSERT INTO counter VALUES (0)")
COUNT = "UPDATE counter SET n = n + 1"


class Writer:
    """Another process that holds the database open and runs the statements it is told, one after another."""

    def __init__(self, stdin: IO[str], stdout: IO[str]) -> None:
        self._stdin, self._stdout = stdin, stdout

    def run(self, *statements: str) -> None:
        for statement in statements:
            self._stdin.write(f"{statement}\n")
        self._stdin.flush()
        for statement in statements:
            assert self._stdout.readline() == "done\n", statement

    def start(self, *statements: str) -> None:
        """Like `run`, without waiting for the statements to be done."""
        self._stdin.write("".join(f"{statement}\n" for statement in statements))
        self._stdin.flush()


@contextmanager
def writing(path: Path) -> Iterator[Writer]:
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        yield Writer(process.stdin, process.stdout)
        process.stdin.close()
        process.stdout.read()
    assert process.returncode == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with nothing but a counter, and no connection to it."""
    path = tmp_path / "a store.db"
    with writing(path) as writer:
        writer.run(*CREATE)
    return path


def in_time(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """The test in a loop of its own, which it may not keep for long."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def limited() -> None:
            async with asyncio.timeout(20):
                await test(*args, **kwargs)

        asyncio.run(limited())

    return run


def counter(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        n: int = connection.execute("SELECT n FROM counter").fetchone()[0]
        return n


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


@pytest.fixture
def quiet_opening(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Feeds opened now do not look by themselves; call it once they are open."""
    monkeypatch.setattr(feed_module, "STEP", NEVER)
    return monkeypatch.undo


@in_time
async def test_a_commit_in_another_process_is_told(path: Path, quiet_opening: Callable[[], None]) -> None:
    async with Feed(path, poll=NEVER) as feed:
        quiet_opening()
        with writing(path) as writer:
            for n in range(1, 21):
                writer.run(COUNT)
                await feed.changed()
                assert counter(path) == n


@in_time
async def test_commits_before_the_opening_are_not_told(path: Path) -> None:
    with writing(path) as writer:
        writer.run(COUNT)
        async with Feed(path, poll=SOON) as feed:
            waiting = asyncio.create_task(feed.changed())
            await asyncio.sleep(5 * SOON)
            assert not waiting.done()
            writer.run(COUNT)
            await waiting


@in_time
async def test_a_commit_in_this_process_is_told_by_its_writer_from_any_thread(path: Path) -> None:
    async with Feed(path, poll=NEVER, inotify=False) as feed:
        feed.notice(7)
        await feed.changed()
        await asyncio.to_thread(feed.notice, 8)
        await feed.changed()
        assert feed.latest == 8


@in_time
async def test_a_commit_that_its_writer_told_is_not_told_again_by_the_next_look(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        async with Feed(path, poll=SOON, inotify=False) as feed:
            connection.execute(COUNT)
            feed.notice(1)
            await feed.changed()
            waiting = asyncio.create_task(feed.changed())
            await asyncio.sleep(5 * SOON)
            assert not waiting.done()
            waiting.cancel()


@pytest.mark.parametrize("inotify", [True, False])
@in_time
async def test_commits_may_be_told_together_but_the_last_one_is_always_told(
    path: Path, inotify: bool
) -> None:
    commits = 300
    async with Feed(path, poll=NEVER if inotify else SOON, inotify=inotify) as feed:
        with writing(path) as writer:
            writer.start(*[COUNT] * commits)
            changes = 0
            while counter(path) < commits:
                await feed.changed()
                changes += 1
            assert 1 <= changes <= commits


@in_time
async def test_a_listener_that_was_busy_is_told_at_once_and_only_once(path: Path) -> None:
    async with Feed(path, poll=NEVER, inotify=False) as feed:
        for seq in range(5):
            feed.notice(seq)
        await asyncio.sleep(0)
        await feed.changed()
        waiting = asyncio.create_task(feed.changed())
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()


@in_time
async def test_a_wait_that_was_given_up_loses_nothing(path: Path) -> None:
    async with Feed(path, poll=NEVER, inotify=False) as feed:
        waiting = asyncio.create_task(feed.changed())
        await asyncio.sleep(0)
        feed.notice(1)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        await feed.changed()


@in_time
async def test_the_log_may_be_created_after_the_opening(
    tmp_path: Path, quiet_opening: Callable[[], None]
) -> None:
    path = tmp_path / "store.db"
    with writing(path) as writer:
        writer.run("CREATE TABLE other (n INTEGER)")
    async with Feed(path, poll=NEVER) as feed:
        assert not log_of(path).exists()
        quiet_opening()
        with writing(path) as writer:
            writer.run(*CREATE)
            assert log_of(path).exists()
            await feed.changed()
            writer.start(COUNT)
            while counter(path) < 1:
                await feed.changed()


@in_time
async def test_the_log_may_be_deleted_and_come_back(path: Path, quiet_opening: Callable[[], None]) -> None:
    async with Feed(path, poll=NEVER) as feed:
        quiet_opening()
        for n in range(1, 4):
            with writing(path) as writer:
                writer.start(COUNT)
                while counter(path) < n:
                    await feed.changed()
                writer.start("PRAGMA wal_checkpoint(TRUNCATE)")
            # The feed's own connection keeps SQLite from deleting it, so the test has to.
            log_of(path).unlink()
            path.with_name(f"{path.name}-shm").unlink()
            await feed.changed()


@in_time
async def test_the_database_may_be_created_after_the_opening(
    tmp_path: Path, quiet_opening: Callable[[], None]
) -> None:
    path = tmp_path / "store.db"
    async with Feed(path, poll=NEVER) as feed:
        quiet_opening()
        assert not path.exists()
        with writing(path) as writer:
            writer.run(*CREATE)
            await feed.changed()
            writer.start(COUNT)
            while counter(path) < 1:
                await feed.changed()


@in_time
async def test_even_the_directory_may_be_created_after_the_opening(tmp_path: Path) -> None:
    path = tmp_path / "later" / "store.db"
    async with Feed(path, poll=SOON) as feed:
        path.parent.mkdir()
        with writing(path) as writer:
            writer.run(*CREATE)
            await feed.changed()


@in_time
async def test_the_database_may_be_replaced_by_another(path: Path, quiet_opening: Callable[[], None]) -> None:
    other = path.with_name("other.db")
    with writing(other) as writer:
        writer.run(*CREATE)
    async with Feed(path, poll=NEVER) as feed:
        quiet_opening()
        os.replace(other, path)
        await feed.changed()
        with writing(path) as writer:
            writer.start(COUNT)
            while counter(path) < 1:
                await feed.changed()


@in_time
async def test_the_poll_alone_tells_too(path: Path) -> None:
    async with Feed(path, poll=SOON, inotify=False) as feed:
        with writing(path) as writer:
            for n in range(1, 6):
                writer.run(COUNT)
                await feed.changed()
                assert counter(path) == n


@pytest.mark.parametrize("missing", ["inotify_init1", "inotify_add_watch"])
@in_time
async def test_a_system_that_refuses_to_watch_only_makes_it_slower(
    path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    class Refusing:
        def __init__(self, _: object) -> None:
            setattr(self, missing, lambda *_: -1)

        def inotify_init1(self, _: int) -> int:
            return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    monkeypatch.setattr(ctypes, "CDLL", Refusing)
    async with Feed(path, poll=SOON) as feed:
        with writing(path) as writer:
            writer.run(COUNT)
            await feed.changed()


@in_time
async def test_a_locked_database_is_asked_again_and_never_waited_for(path: Path) -> None:
    loop = asyncio.get_running_loop()
    with writing(path) as writer:
        writer.run("PRAGMA locking_mode = EXCLUSIVE", COUNT)
        started = loop.time()
        feed = await Feed(path, poll=SOON).__aenter__()
        waiting = asyncio.create_task(feed.changed())
        await asyncio.sleep(5 * SOON)
        assert not waiting.done()
        assert loop.time() - started < 1
    await waiting
    await feed.__aexit__()


@in_time
async def test_a_rollback_silences_nothing(path: Path, quiet_opening: Callable[[], None]) -> None:
    spill = "INSERT INTO counter SELECT value FROM generate"
    rows = (
        "WITH RECURSIVE generate(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM generate LIMIT 50000) "
    )
    async with Feed(path, poll=NEVER) as feed:
        quiet_opening()
        with writing(path) as writer:
            writer.run("PRAGMA cache_size = 1", "BEGIN", rows + spill)
            assert log_of(path).stat().st_size > 100_000
            writer.run("ROLLBACK")
            writer.start(COUNT)
            while counter(path) < 1:
                await feed.changed()


@in_time
async def test_all_feeds_and_all_subscriptions_are_told(path: Path) -> None:
    async with Feed(path, poll=NEVER) as one, Feed(path, poll=NEVER) as two:
        listeners: list[Feed | Subscription] = [one, two, one.subscribe(), one.subscribe()]
        with writing(path) as writer:
            for _ in range(5):
                waiting = [asyncio.create_task(listener.changed()) for listener in listeners]
                writer.run(COUNT)
                await asyncio.gather(*waiting)


@in_time
async def test_closing_ends_every_wait(path: Path) -> None:
    async def count(changes: Feed) -> int:
        return len([None async for _ in changes])

    async with Feed(path, poll=NEVER) as feed:
        counting = asyncio.create_task(count(feed))
        waiting = asyncio.create_task(feed.subscribe().changed())
        feed.notice(1)
        await waiting
        waiting = asyncio.create_task(feed.subscribe().changed())
        await asyncio.sleep(0)
    assert await counting == 1
    with pytest.raises(FeedClosed, match="Open a new one"):
        await waiting
    feed.notice(2)


def test_a_writer_may_outlive_the_loop(path: Path) -> None:
    feeds = []

    @in_time
    async def test() -> None:
        feeds.append(await Feed(path).__aenter__())

    test()
    feeds[0].notice(1)
    asyncio.run(feeds[0].__aexit__())


@in_time
async def test_no_descriptor_is_left_open(path: Path) -> None:
    def descriptors() -> list[str]:
        return os.listdir("/proc/self/fd")

    before = descriptors()
    async with Feed(path, poll=NEVER) as one, Feed(path.with_name("absent.db")), Feed(path) as two:
        assert len(descriptors()) > len(before)
        with writing(path) as writer:
            writer.run(COUNT)
            await one.changed()
            await two.changed()
    assert len(descriptors()) == len(before)
