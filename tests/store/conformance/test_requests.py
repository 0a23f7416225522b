"""A command may be sent again: it is done once, and answered each time."""

import pytest

from engine.core.decision import Decision
from engine.core.plan import SECOND
from engine.store.gate import Conflict, Reply, Request, RequestReused, fingerprint
from tests.store.conformance.drivers import Driver
from tests.store.conformance.stage import created, decision, fact, new_run

RUN = new_run()
HIT, MISS = ("idempotency_hit", "submit", "", ""), ("idempotency_miss", "submit", "", "")


def request(
    id: str = "a", at: int = 10, *, ttl: int = 100, told: str = "x", operation: str = "submit"
) -> Request:
    return Request(id, operation, fingerprint(operation, {"told": told}), at, 201, '{"run": 1}', ttl)


def submit() -> list[Decision]:
    return [decision(created(RUN))]


def rows(driver: Driver) -> int:
    return driver.ask(lambda queries: queries.head()).seq


def test_a_request_is_answered_with_its_own_reply(driver: Driver) -> None:
    assert driver.gate.apply(submit(), request()) == Reply(201, '{"run": 1}')


def test_without_a_request_there_is_no_reply(driver: Driver) -> None:
    assert driver.gate.apply(submit()) is None
    assert driver.counters() == {}


def test_the_same_request_again_gets_the_first_reply_and_does_nothing(driver: Driver) -> None:
    driver.gate.apply(submit(), request())
    driver.reopen()
    later = Request(
        **{name: getattr(request(at=50), name) for name in ("id", "operation", "fingerprint", "at")}
    )
    assert driver.gate.apply([decision(fact(RUN, losses=4))], later) == Reply(201, '{"run": 1}', again=True)
    assert rows(driver) == 1
    assert driver.gate.load().runs == (RUN,)


def test_the_same_id_for_another_request_is_refused_and_nothing_is_stored(driver: Driver) -> None:
    driver.gate.apply(submit(), request())
    for other in (request(told="y"), request(operation="cancel")):
        with pytest.raises(RequestReused, match="request id a was used"):
            driver.gate.apply([decision(fact(RUN, losses=4))], other)
        with pytest.raises(RequestReused):
            driver.gate.recall(other)
    assert rows(driver) == 1
    assert driver.counters() == {MISS: 1}


def test_a_refused_request_is_told_what_its_id_was_used_for(driver: Driver) -> None:
    driver.gate.apply(submit(), request())
    with pytest.raises(RequestReused, match="with other arguments"):
        driver.gate.recall(request(told="y"))
    with pytest.raises(RequestReused, match="for submit; cancel was not done"):
        driver.gate.recall(request(operation="cancel"))


def test_recall_knows_what_was_answered_and_nothing_else(driver: Driver) -> None:
    assert driver.gate.recall(request()) is None
    driver.gate.apply(submit(), request())
    driver.reopen()
    assert driver.gate.recall(request()) == Reply(201, '{"run": 1}', again=True)
    assert driver.gate.recall(request("b")) is None


def test_hits_and_misses_are_counted_by_operation(driver: Driver) -> None:
    driver.gate.apply(submit(), request())
    driver.gate.apply(submit(), request())
    driver.gate.recall(request())
    driver.gate.recall(request("b"))
    driver.gate.apply([], request("c", operation="cancel"))
    driver.reopen()
    assert driver.counters() == {MISS: 1, HIT: 2, ("idempotency_miss", "cancel", "", ""): 1}


@pytest.mark.parametrize(("at", "known"), [(109, True), (110, False), (111, False)])
def test_a_request_is_forgotten_at_the_very_end_of_its_time(driver: Driver, at: int, known: bool) -> None:
    driver.gate.apply(submit(), request(at=10, ttl=100))
    assert (driver.gate.recall(request(at=at)) is not None) is known


def test_an_id_whose_time_is_over_may_be_used_for_something_else(driver: Driver) -> None:
    driver.gate.apply(submit(), request(at=10, ttl=100))
    late = request(at=110, told="y")
    assert driver.gate.apply([decision(fact(RUN, losses=1))], late) == Reply(201, '{"run": 1}')
    assert rows(driver) == 2
    assert driver.gate.recall(request(at=120, told="y")) is not None
    with pytest.raises(RequestReused):
        driver.gate.recall(request(at=120))


def test_sweeping_forgets_what_is_over_and_counts_it(driver: Driver) -> None:
    for id, at in (("a", 10), ("b", 20), ("c", 30)):
        driver.gate.apply([], request(id, at, ttl=100))
    assert driver.gate.sweep(109) == 0
    assert driver.gate.sweep(120) == 2
    driver.reopen()
    assert driver.gate.sweep(120) == 0
    assert [driver.gate.recall(request(id, 50)) is not None for id in "abc"] == [False, False, True]
    assert driver.gate.sweep(10**9) == 1


def test_a_request_lives_for_an_hour_unless_told_otherwise(driver: Driver) -> None:
    driver.gate.apply([], Request("a", "submit", "f", 0))
    assert driver.gate.sweep(3600 * SECOND - 1) == 0
    assert driver.gate.sweep(3600 * SECOND) == 1


def test_a_request_that_lost_a_race_was_not_answered(driver: Driver) -> None:
    with pytest.raises(Conflict):
        driver.gate.apply([decision(fact(RUN, losses=1))], request())
    assert driver.gate.recall(request()) is None
    assert driver.counters() == {}
    assert driver.gate.apply(submit(), request()) == Reply(201, '{"run": 1}')


def test_a_request_that_changes_nothing_is_answered_too(driver: Driver) -> None:
    assert driver.gate.apply([], request()) == Reply(201, '{"run": 1}')
    again = driver.gate.apply(submit(), request())
    assert again is not None
    assert again.again
    assert rows(driver) == 0


def test_refused_moves_are_counted_and_leave_no_row(driver: Driver) -> None:
    for state in ("pending", "pending", "running"):
        driver.gate.refused("execution", state, "teleport")
    driver.reopen()
    assert driver.counters() == {
        ("refused", "execution", "pending", "teleport"): 2,
        ("refused", "execution", "running", "teleport"): 1,
    }
    assert rows(driver) == 0


def test_equal_arguments_have_one_fingerprint_whatever_their_order() -> None:
    assert fingerprint("run", {"a": 1, "b": 2}) == fingerprint("run", {"b": 2, "a": 1})
    assert fingerprint("run", {"a": 1}) != fingerprint("run", {"a": 2}) != fingerprint("cancel", {"a": 2})
