"""Instructions and timers: kept with the decision that they come from, until they are done."""

import pytest

from engine.core.decision import (
    Ask,
    Dismiss,
    Forget,
    Halt,
    Instruction,
    Reap,
    Start,
    TimerChange,
    TimerCleared,
    TimerSet,
)
from engine.core.records import Purpose, Stop, TimerKind, Token
from tests.store.conformance.drivers import Driver
from tests.store.conformance.stage import (
    CONTROL,
    HEALTH,
    created,
    decision,
    fact,
    moved,
    new_breaker,
    new_run,
    new_task,
    new_worker,
)

TOKEN = Token(1, 2, 3, Purpose.CHECK, 4)
EVERY: tuple[Instruction, ...] = (
    Start(TOKEN, "w"),
    Halt(TOKEN, "w", 30, Stop.TIMEOUT),
    Halt(Token(1, 2, 3), "w", 0, Stop.KILLED),
    Ask("w", (TOKEN, Token(1, 2, 3))),
    Ask("w", ()),
    Forget(TOKEN),
    Reap("w\0\u202e🧨", (TOKEN,)),
    Dismiss("w"),
)
RUN, WORKER, BREAKER = new_run(), new_worker("1"), new_breaker("1")
TASK = new_task(RUN)


def told(driver: Driver) -> list[Instruction]:
    return [row.instruction for row in driver.gate.outbox()]


def timers(driver: Driver) -> tuple[TimerSet, ...]:
    driver.reopen()
    return driver.gate.load().timers


def begin(driver: Driver, *changes: TimerChange) -> None:
    born = [created(RUN), created(TASK), created(WORKER, HEALTH), created(WORKER, CONTROL), created(BREAKER)]
    driver.gate.apply([decision(*born, timers=changes)])


# ---- the outbox


def test_every_instruction_comes_back_in_the_order_in_which_it_was_told(driver: Driver) -> None:
    driver.gate.apply(
        [decision(instructions=EVERY[:3], signal=7), decision(instructions=EVERY[3:5], signal=8)]
    )
    driver.gate.apply([decision(instructions=EVERY[5:], signal=9)])
    driver.reopen()
    assert told(driver) == list(EVERY)
    rows = driver.gate.outbox()
    assert [row.signal for row in rows] == [7, 7, 7, 8, 8, 9, 9, 9]
    assert [row.seq for row in rows] == sorted({row.seq for row in rows})


def test_what_is_delivered_is_gone_and_the_rest_stays_in_order(driver: Driver) -> None:
    driver.gate.apply([decision(instructions=EVERY)])
    rows = driver.gate.outbox()
    driver.gate.delivered([rows[0].seq, rows[3].seq])
    driver.reopen()
    assert told(driver) == [*EVERY[1:3], *EVERY[4:]]
    driver.gate.apply([decision(instructions=(Dismiss("late"),))])
    assert told(driver)[-1] == Dismiss("late")
    driver.gate.delivered([row.seq for row in driver.gate.outbox()])
    assert told(driver) == []


def test_delivering_nothing_or_what_is_not_there_changes_nothing(driver: Driver) -> None:
    driver.gate.apply([decision(instructions=EVERY[:1])])
    driver.gate.delivered([])
    driver.gate.delivered([999])
    assert told(driver) == [EVERY[0]]


def test_a_number_is_never_given_twice(driver: Driver) -> None:
    """Else a late word that the first was delivered would remove the second, which never was."""
    driver.gate.apply([decision(instructions=EVERY[:2])])
    first = [row.seq for row in driver.gate.outbox()]
    driver.gate.delivered(first)
    driver.reopen()
    driver.gate.apply([decision(instructions=(Dismiss("w"),))])
    driver.gate.delivered(first)
    assert told(driver) == [Dismiss("w")]


# ---- timers


@pytest.mark.parametrize("kind", TimerKind)
def test_a_timer_of_every_kind_comes_back(driver: Driver, kind: TimerKind) -> None:
    begin(driver, TimerSet(TASK.ref, kind, 2**53 + 1))
    assert timers(driver) == (TimerSet(TASK.ref, kind, 2**53 + 1),)


def test_timers_of_entities_with_the_same_name_are_told_apart(driver: Driver) -> None:
    refs = (BREAKER.ref, RUN.ref, TASK.ref, WORKER.ref)
    armed = tuple(TimerSet(ref, TimerKind.GIVE_UP, due) for due, ref in enumerate(refs, 1))
    begin(driver, *armed)
    assert timers(driver) == armed
    driver.gate.apply([decision(timers=(TimerCleared(WORKER.ref, TimerKind.GIVE_UP),))])
    assert timers(driver) == armed[:3]


def test_a_timer_set_again_is_due_at_the_later_word(driver: Driver) -> None:
    begin(driver, TimerSet(TASK.ref, TimerKind.RETRY, 9))
    driver.gate.apply([decision(timers=(TimerSet(TASK.ref, TimerKind.RETRY, 5),))])
    assert timers(driver) == (TimerSet(TASK.ref, TimerKind.RETRY, 5),)


SET, AGAIN = TimerSet(TASK.ref, TimerKind.RETRY, 9), TimerSet(TASK.ref, TimerKind.RETRY, 11)
CLEARED = TimerCleared(TASK.ref, TimerKind.RETRY)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ((SET, CLEARED), ()),
        ((SET, CLEARED, AGAIN), (AGAIN,)),
        ((CLEARED, SET), (SET,)),
        ((SET, AGAIN), (AGAIN,)),
        ((SET, CLEARED, AGAIN, CLEARED), ()),
    ],
)
def test_of_several_words_about_a_timer_in_one_transaction_the_last_counts(
    driver: Driver, changes: tuple[TimerChange, ...], left: tuple[TimerSet, ...], together: bool
) -> None:
    begin(driver)
    decisions = [decision(timers=changes)] if together else [decision(timers=(one,)) for one in changes]
    driver.gate.apply(decisions)
    assert timers(driver) == left


def test_clearing_a_timer_that_is_not_set_changes_nothing(driver: Driver) -> None:
    begin(driver)
    driver.gate.apply([decision(timers=(CLEARED,))])
    assert timers(driver) == ()


def test_the_first_row_of_an_entity_tells_its_timers(driver: Driver) -> None:
    begin(driver)
    move = moved(TASK, "executor_starts", "IN_PROGRESS")
    later = fact(move.after, "noted")
    cleared = TimerCleared(TASK.ref, TimerKind.DEADLINE)
    driver.gate.apply(
        [decision(move, later, timers=(AGAIN, cleared, TimerSet(RUN.ref, TimerKind.TIMEOUT, 3)))]
    )
    _, first, second = driver.gate.history(TASK.ref)
    assert first.metadata == {"timers": {"retry": 11, "deadline": None}}
    assert second.metadata == {}
