"""One transaction for whatever had queued up: each caller gets the answer that is his, and a bad item fails
alone. The queue is filled while the writer is held up, so that a batch is known to be one.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from engine.core.decision import Decision, Transition
from engine.store.connections import connect_reader
from engine.store.errors import RefusedByStore, StoreError
from engine.store.gate import Conflict, Reply, Request, RequestReused
from engine.store.sqlite_gate import SqliteGate
from engine.store.store import Store
from engine.store.verify import verify
from tests.store.orders import Move, Order, submission
from tests.store.soundness import prove

P = ParamSpec("P")
TASKS = 400
MANY = 300


def in_time(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """The test in a loop of its own, which it may not keep for long."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 30))

    return run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with Store(path) as store:
        store.call(lambda gate: gate.apply([submission(TASKS)])).result()
    return path


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as store:
        yield store
        # Whatever the test did, the writer goes on and the trail is whole.
        store.call(lambda gate: gate.load()).result(10)
    assert verify(store.place).sound


@contextmanager
def held_up(store: Store) -> Iterator[None]:
    """The writer does nothing until the block is left; what is queued meanwhile is one batch."""
    reached, go_on = threading.Event(), threading.Event()

    def wait(_: SqliteGate) -> None:
        reached.set()
        assert go_on.wait(30)

    done = store.call(wait)
    assert reached.wait(30)
    try:
        yield
    finally:
        go_on.set()
        done.result(30)


def begin(task: int, number: int | None = None) -> Order:
    return Order(number or 100 + task, (Move(task, "S_PENDING", 2),))


def changed(decision: Decision, **changes: Any) -> Decision:
    """The decision with its first change altered."""
    first = decision.changes[0]
    assert isinstance(first, Transition)
    return replace(decision, changes=(replace(first, **changes), *decision.changes[1:]))


def asked(name: str, *, fingerprint: str = "same", at: int = 1, ttl: int = 10**12) -> Request:
    return Request(name, "advance", fingerprint, at, 0, f'{{"for":"{name}"}}', ttl)


def stored(store: Store, sql: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(connect_reader(store.place)) as db:
        return db.execute(sql, values).fetchall()


def version_of(store: Store, task: int) -> int:
    return int(stored(store, "SELECT version FROM tasks WHERE number = ?", task)[0][0])


def counter(store: Store, name: str) -> int:
    return int(stored(store, "SELECT coalesce(sum(value), 0) FROM counters WHERE counter = ?", name)[0][0])


# ---- a bad item


UNKNOWN_COLUMN = {"attempt": 2, "no_such_column": 1}
BAD: dict[str, tuple[Decision, type[Exception]]] = {
    "a version that is over": (changed(begin(TASKS).decided()[0], version=1), Conflict),
    "a state that it is not in": (Order(9, (Move(TASKS, "S_FAILED", 2),)).decided()[0], Conflict),
    "an entity that is not there": (begin(TASKS + 1).decided()[0], Conflict),
    "a move that is not documented": (
        changed(begin(TASKS).decided()[0], target="COMPLETED"),
        RefusedByStore,
    ),
    "an entity that is there already": (submission(1), RefusedByStore),
    "a half that is bad": (
        Order(9, (Move(TASKS, "S_PENDING", 2), Move(TASKS - 1, "S_FAILED", 2))).decided()[0],
        Conflict,
    ),
    "an integer beyond 64 bits": (
        changed(begin(TASKS).decided()[0], sets={"retries": 1 << 80}),
        OverflowError,
    ),
    "a column that no table has": (changed(begin(TASKS).decided()[0], sets=UNKNOWN_COLUMN), Exception),
    "a value of no known type": (changed(begin(TASKS).decided()[0], sets={"error": {1, 2}}), Exception),
}


@pytest.mark.parametrize("case", BAD)
@in_time
async def test_a_bad_item_among_hundreds_fails_alone(store: Store, case: str) -> None:
    bad, kind = BAD[case]
    with held_up(store):
        first = [store.apply(begin(task).decided()) for task in range(1, MANY // 2)]
        wrong = store.apply([bad])
        last = [store.apply(begin(task).decided()) for task in range(MANY // 2, MANY)]
    assert await asyncio.gather(*first, *last) == [None] * (MANY - 1)
    with pytest.raises(kind):
        await wrong
    assert version_of(store, TASKS) == 1
    assert version_of(store, MANY - 1) == 2


@in_time
async def test_a_conflict_tells_where_the_entity_stands_now(store: Store) -> None:
    with held_up(store):
        won, lost = store.apply(begin(1, 7).decided()), store.apply(begin(1, 8).decided())
    await won
    with pytest.raises(Conflict, match="it is in S_RUNNING, version 2") as refused:
        await lost
    assert refused.value.found == ("S_RUNNING", 2)


@in_time
async def test_a_refusal_of_the_triggers_names_the_machine_and_the_way(store: Store) -> None:
    # The trail's row is right and the table's is not: only the trigger can see it.
    def forge(gate: SqliteGate) -> None:
        gate._db.execute("UPDATE tasks SET state = 'COMPLETED', version = 2 WHERE number = 1")

    with pytest.raises(Exception, match=r"pipeline\.step: .* `interlock machines pipeline\.step`"):
        await asyncio.wrap_future(store.call(forge))


@in_time
async def test_every_item_can_be_bad_and_each_gets_its_own_answer(store: Store) -> None:
    with held_up(store):
        wrong = [store.apply(Order(9, (Move(task, "S_FAILED", 2),)).decided()) for task in range(1, MANY)]
    answers = await asyncio.gather(*wrong, return_exceptions=True)
    assert [answer.ref.key for answer in answers if isinstance(answer, Conflict)] == [
        (1, task) for task in range(1, MANY)
    ]


# ---- text


TEXTS = {
    "lone surrogate": ("a\udcffb", r"a\udcffb"),
    "NUL": ("a\0b", "a\0b"),
    "both": ("\0\ud800", "\0\\ud800"),
}


@pytest.mark.parametrize("case", TEXTS)
@in_time
async def test_text_that_no_file_can_hold_is_stored_as_an_escape(store: Store, case: str) -> None:
    given, kept = TEXTS[case]
    (decision,) = begin(1).decided()
    bad = replace(changed(decision, sets={"error": given}, reason=given), actor=given, request_id=given)
    with held_up(store):
        others = [store.apply(begin(task).decided()) for task in range(2, 50)]
        answer = store.apply([bad])
    await asyncio.gather(answer, *others)
    told = stored(store, "SELECT reason, actor, request_id FROM audit WHERE cause = 101")
    assert told == [(kept, kept, kept)]
    assert stored(store, "SELECT error FROM tasks WHERE number = 1") == [(kept,)]
    assert version_of(store, 49) == 2


# ---- requests


@in_time
async def test_the_same_request_twice_in_one_batch_is_done_once(store: Store) -> None:
    with held_up(store):
        answers = [store.apply(begin(1).decided(), asked("r1")) for _ in range(3)]
    body = '{"for":"r1"}'
    assert await asyncio.gather(*answers) == [Reply(0, body), Reply(0, body, True), Reply(0, body, True)]
    assert version_of(store, 1) == 2
    assert (counter(store, "idempotency_hit"), counter(store, "idempotency_miss")) == (2, 1)


@in_time
async def test_a_request_id_used_for_something_else_fails_alone(store: Store) -> None:
    await store.apply(begin(1).decided(), asked("r1"))
    with held_up(store):
        good = [store.apply(begin(task).decided(), asked(f"r{task}")) for task in range(2, MANY)]
        reused = store.apply(begin(MANY).decided(), asked("r1", fingerprint="another"))
        in_batch = store.apply(begin(MANY).decided(), asked("r2", fingerprint="another"))
        more = store.apply(begin(MANY).decided())
    replies = await asyncio.gather(*good)
    assert [reply.body for reply in replies if reply] == [f'{{"for":"r{task}"}}' for task in range(2, MANY)]
    for wrong in (reused, in_batch):
        with pytest.raises(RequestReused, match="with other arguments"):
            await wrong
    await more


@in_time
async def test_a_request_that_failed_leaves_no_reply_behind(store: Store) -> None:
    with held_up(store):
        wrong = store.apply(Order(9, (Move(1, "S_FAILED", 2),)).decided(), asked("r1"))
        right = store.apply(begin(1).decided(), asked("r1"))
    with pytest.raises(Conflict):
        await wrong
    assert await right == Reply(0, '{"for":"r1"}')


@in_time
async def test_an_expired_key_is_forgotten_and_swept(store: Store) -> None:
    await store.apply(begin(1).decided(), asked("r1", at=1000, ttl=10))
    await store.apply(begin(2).decided(), asked("r2", at=1000))
    again = await store.apply(Order(9, (Move(1, "S_RUNNING", 3),)).decided(), asked("r1", at=1010, ttl=10))
    assert again == Reply(0, '{"for":"r1"}')
    assert version_of(store, 1) == 3
    assert await asyncio.wrap_future(store.call(lambda gate: gate.sweep(1019))) == 0
    assert await asyncio.wrap_future(store.call(lambda gate: gate.sweep(1020))) == 1
    assert stored(store, "SELECT request_id FROM idempotency_keys") == [("r2",)]
    assert await asyncio.wrap_future(store.call(lambda gate: gate.recall(asked("r1", at=1020)))) is None


# ---- order


@in_time
async def test_answers_come_in_the_order_of_the_calls_and_calls_come_between(store: Store) -> None:
    turns: list[int] = []
    sums: list[Future[int]] = []

    def versions(gate: SqliteGate) -> int:
        return int(gate._db.execute("SELECT sum(version) FROM tasks").fetchone()[0])

    answers = []
    with held_up(store):
        for turn, source in enumerate(("S_PENDING", "S_RUNNING", "S_FAILED", "S_RETRYING")):
            answer = store.apply(Order(200 + turn, (Move(1, source, 2 + turn),)).decided())
            answer.add_done_callback(partial(lambda turn, _: turns.append(turn), turn))
            answers.append(answer)
            sums.append(store.call(versions))
    assert await asyncio.wrap_future(store.call(versions)) == TASKS + 4
    await asyncio.gather(*answers)
    assert turns == [0, 1, 2, 3]
    assert [found.result() for found in sums] == [TASKS + 1, TASKS + 2, TASKS + 3, TASKS + 4]


@in_time
async def test_more_than_one_batch_holds_keeps_its_order(store: Store) -> None:
    sources = ("S_RUNNING", "S_FAILED", "S_RETRYING")
    with held_up(store):
        answers = [store.apply(begin(1).decided())]
        answers += [
            store.apply(Order(1000 + turn, (Move(1, sources[turn % 3], 3 + turn),)).decided())
            for turn in range(2500)
        ]
    assert await asyncio.gather(*answers) == [None] * 2501
    assert version_of(store, 1) == 2502


@in_time
async def test_what_a_call_raises_is_its_callers(store: Store) -> None:
    def wrong(_: SqliteGate) -> None:
        raise KeyError("mine")

    with held_up(store):
        before = store.apply(begin(1).decided())
        failing = store.call(wrong)
        after = store.apply(begin(2).decided())
    await asyncio.gather(before, after)
    with pytest.raises(KeyError, match="mine"):
        await asyncio.wrap_future(failing)


# ---- callers that go away


@in_time
async def test_a_cancelled_future_disturbs_nobody(store: Store) -> None:
    with held_up(store):
        answers = [store.apply(begin(task).decided()) for task in range(1, 100)]
        for answer in answers[::2]:
            answer.cancel()
        call = store.call(lambda gate: gate.load())
        assert call.cancel()
    assert await asyncio.gather(*answers[1::2]) == [None] * 49
    assert version_of(store, 99) == 2


def test_a_closed_loop_does_not_end_the_writer(store: Store) -> None:
    async def leave() -> None:
        for task in range(1, 50):
            store.apply(begin(task).decided())

    with held_up(store):
        asyncio.run(leave())

    async def stay() -> None:
        await store.apply(begin(50).decided())

    asyncio.run(stay())
    assert version_of(store, 49) == version_of(store, 50) == 2


# ---- listeners


@in_time
async def test_listeners_are_told_after_each_commit(store: Store) -> None:
    told: list[tuple[int, int]] = []

    def listen(seq: int) -> None:
        told.append((seq, int(stored(store, "SELECT max(seq) FROM audit")[0][0])))

    store.listen(listen)
    (before,) = stored(store, "SELECT max(seq) FROM audit")[0]
    await store.apply(begin(1).decided())
    with held_up(store):
        answers = [store.apply(begin(task).decided()) for task in range(2, 12)]
    await asyncio.gather(*answers)
    await asyncio.wrap_future(store.call(lambda gate: gate.apply(begin(12).decided())))
    await asyncio.wrap_future(store.call(lambda gate: gate.load()))
    assert told == [(before + 1,) * 2, (before + 11,) * 2, (before + 12,) * 2]


@in_time
async def test_a_listener_that_fails_does_not_end_the_writer(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: int) -> None:
        raise OSError("nobody home")

    told: list[int] = []
    store.listen(fail)
    store.listen(told.append)
    with caplog.at_level(logging.ERROR):
        await store.apply(begin(1).decided())
        await store.apply(begin(2).decided())
    assert "a listener of the store failed" in caplog.text
    assert len(told) == 2


# ---- closing


@in_time
async def test_closing_with_a_full_queue_stores_what_was_queued(path: Path) -> None:
    store = Store(path)
    with held_up(store):
        answers = [store.apply(begin(task).decided()) for task in range(1, MANY)]
        ending = asyncio.create_task(asyncio.to_thread(store.close))
        while not store._committer._stopped:
            await asyncio.sleep(0)
    await ending
    assert await asyncio.gather(*answers) == [None] * (MANY - 1)
    assert version_of(store, MANY - 1) == 2
    prove(store.place)


@in_time
async def test_nothing_is_taken_after_closing(path: Path) -> None:
    store = Store(path)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="the store is closed"):
        store.apply(begin(1).decided())
    with pytest.raises(StoreError, match="the store is closed"):
        store.call(lambda gate: gate.load())
    assert version_of(store, 1) == 1


def test_whatever_is_sent_while_it_closes_is_stored_or_refused(path: Path) -> None:
    """Callers in many threads against one that closes: nobody waits for ever."""
    store = Store(path)
    outcomes: list[bool] = []
    together = threading.Barrier(9, timeout=30)

    async def send(first: int) -> None:
        together.wait()
        for task in range(first, first + 40):
            try:
                await asyncio.wait_for(store.apply(begin(task).decided()), 30)
            except StoreError:
                outcomes.append(False)
            else:
                outcomes.append(True)

    threads = [
        threading.Thread(target=lambda first=first: asyncio.run(send(first))) for first in range(1, 321, 40)
    ]
    for thread in threads:
        thread.start()
    together.wait()
    store.close()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 320
    assert stored(store, "SELECT count(*) FROM tasks WHERE version = 2") == [(sum(outcomes),)]
    prove(store.place)
