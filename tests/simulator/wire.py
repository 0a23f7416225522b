"""The way from the world into the engine: signals arrive late, twice, in another order or not at all."""

from collections import deque
from dataclasses import replace
from functools import partial
from random import Random

from engine.core.plan import SECOND
from engine.core.signals import Signal
from tests.simulator.agenda import Agenda
from tests.simulator.clock import Clock
from tests.simulator.faults import Fault, Faults


class Wire:
    """What the engine has been told and has not looked at yet. While the engine is down nobody listens."""

    def __init__(self, random: Random, clock: Clock, agenda: Agenda, faults: Faults) -> None:
        self._random = random
        self._clock = clock
        self._agenda = agenda
        self._faults = faults
        self._last = 0
        self.inbox: deque[Signal] = deque()
        self.up = True

    def next_id(self) -> int:
        self._last += 1
        return self._last

    def tell(self, signal: Signal) -> None:
        """From a worker or its supervisor; whoever tells must be ready to tell it again."""
        faults = self._faults
        if faults.strikes(Fault.SIGNAL_LOST):
            return
        if faults.strikes(Fault.SIGNAL_TWICE):
            self._later(replace(signal, id=self.next_id()))
        if faults.strikes(Fault.SIGNAL_LATE):
            self._later(signal)
        else:
            self.arrive(signal)

    def command(self, signal: Signal) -> None:
        """From a person, who sees whether it arrived, and may be impatient."""
        if self._faults.strikes(Fault.COMMAND_TWICE):
            self._later(replace(signal, id=self.next_id()))
        self.arrive(signal)

    def arrive(self, signal: Signal) -> None:
        """It arrives, if somebody is there."""
        if self.up:
            self.inbox.append(signal)

    def down(self) -> None:
        """The engine died, and what it had only been told died with it."""
        self.up = False
        self.inbox.clear()

    def _later(self, signal: Signal) -> None:
        delay = round(self._random.expovariate(1 / (5 * SECOND)))
        self._agenda.at(self._clock.now + delay, partial(self.arrive, signal))
