"""What goes wrong in a simulated world: how often, and how often it did."""

from collections import Counter
from enum import StrEnum
from random import Random


class Fault(StrEnum):
    ENGINE_LOST_BEFORE_COMMIT = "engine lost before the commit"
    ENGINE_LOST_AFTER_COMMIT = "engine lost after the commit"
    COMMIT_CONFLICT = "commit conflict"
    SIGNAL_LOST = "signal lost"
    SIGNAL_TWICE = "signal told twice"
    SIGNAL_LATE = "signal late, overtaken by others"
    COMMAND_TWICE = "command given twice"
    TIMER_TWICE = "timer fired twice"
    INSTRUCTION_LOST = "instruction lost before it was confirmed"
    INSTRUCTION_TWICE = "instruction delivered twice"
    INSTRUCTION_LATE = "instruction late"
    START_DROPPED = "start confirmed and then lost by its worker"
    WORKER_KILLED = "worker killed"
    WORKER_FROZEN = "worker frozen"
    WORKER_LATE = "worker registers late"
    WORKER_NEVER = "worker never registers"
    WORKER_BROKEN = "worker broken"
    WORKER_EXHAUSTED = "worker exhausted"
    START_TORN = "worker killed between intent and process"
    UNKILLABLE = "process hangs in the kernel"
    CLOCK_JUMP = "clock jumps forward"


_WORST = {
    Fault.ENGINE_LOST_BEFORE_COMMIT: 0.06,
    Fault.ENGINE_LOST_AFTER_COMMIT: 0.06,
    Fault.COMMIT_CONFLICT: 0.05,
    Fault.SIGNAL_LOST: 0.25,
    Fault.SIGNAL_TWICE: 0.25,
    Fault.SIGNAL_LATE: 0.4,
    Fault.COMMAND_TWICE: 0.2,
    Fault.TIMER_TWICE: 0.2,
    Fault.INSTRUCTION_LOST: 0.25,
    Fault.INSTRUCTION_TWICE: 0.25,
    Fault.INSTRUCTION_LATE: 0.4,
    Fault.START_DROPPED: 0.05,
    Fault.WORKER_KILLED: 0.06,
    Fault.WORKER_FROZEN: 0.06,
    Fault.WORKER_LATE: 0.5,
    Fault.WORKER_NEVER: 0.3,
    Fault.WORKER_BROKEN: 0.02,
    Fault.WORKER_EXHAUSTED: 0.02,
    Fault.START_TORN: 0.03,
    Fault.UNKILLABLE: 0.2,
    Fault.CLOCK_JUMP: 0.02,
}
"""The highest probability of each, wherever it could strike."""


class Faults:
    """The faults of one world. Each kind is absent, rare or frequent, as the seed has it."""

    def __init__(self, random: Random) -> None:
        self._random = random
        calm = random.random() < 0.1
        self._rates = {
            kind: 0.0 if calm or random.random() < 0.4 else worst * random.random()
            for kind, worst in _WORST.items()
        }
        self.counts: Counter[Fault] = Counter()

    def strikes(self, kind: Fault) -> bool:
        rate = self._rates[kind]
        if rate and self._random.random() < rate:
            self.counts[kind] += 1
            return True
        return False

    def stop(self) -> None:
        """From now on nothing goes wrong any more."""
        self._rates = dict.fromkeys(Fault, 0.0)
