"""The read side, fuzzed: the worlds of the simulator, asked anything, answered as plain Python answers.

INTERLOCK_WORLDS=N looks at so many worlds instead of a few.
"""

import os
from random import Random

import pytest

from tests.simulator.answers import SimulatedQueries
from tests.store.conformance.drivers import Driver
from tests.store.conformance.worlds import compare, world

WORLDS = int(os.environ.get("INTERLOCK_WORLDS", "8"))
QUESTIONS = 40


@pytest.mark.parametrize("seed", range(WORLDS))
def test_a_store_answers_as_plain_python_does(
    driver: Driver, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived = world(seed)
    lived.replay(driver.gate)
    driver.reopen()
    monkeypatch.setattr("engine.store.history.FEW", (0, 3, 30, 2000)[seed % 4])
    said = SimulatedQueries(lived)
    telling = driver.ask(lambda queries: compare(queries, said, Random(seed), QUESTIONS))
    assert telling > QUESTIONS / 2
    assert driver.gate.load().next_run == lived.next_run
