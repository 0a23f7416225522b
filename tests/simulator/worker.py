"""A simulated worker process: its slots, its journal that survives it, and the processes it started."""

from dataclasses import dataclass, field
from enum import Enum

from engine.core.decision import Instruction
from engine.core.records import Token


class Life(Enum):
    """What became of an execution."""

    RUNNING = "running"
    UNREAPED = "ended, and its worker has not looked yet"
    ENDED = "ended, exit known"
    LOST = "ended, and nobody knows how"
    REFUSED = "never started, and never will be"


@dataclass(slots=True)
class Execution:
    """The lines of a journal that belong to one token."""

    token: Token
    owner: "SimulatedWorker"
    life: Life
    pid: int | None = None
    exit_code: int = 0
    """What it exits with, once it has."""
    matched: frozenset[str] = frozenset()
    fingerprint: str | None = None
    stubborn: bool = False
    """It ignores a polite request to stop."""
    unkillable: bool = False
    """It hangs in the kernel: even a kill takes its time."""
    adopted: bool = False
    forgotten: bool = False
    told: int = 0
    """How often its end was told without anybody forgetting it."""


@dataclass(slots=True)
class SimulatedWorker:
    id: str
    slots: int
    capabilities: frozenset[str]
    registers: bool = True
    alive: bool = True
    frozen: bool = False
    dismissed: bool = False
    journal: dict[Token, Execution] = field(default_factory=dict)
    mailbox: list[Instruction] = field(default_factory=list)
    """What arrived while it was frozen."""

    def running(self) -> list[Execution]:
        return [one for one in self.journal.values() if one.life is Life.RUNNING and one.owner is self]

    def __repr__(self) -> str:
        return f"<{self.id}>"
