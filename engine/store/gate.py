"""The promise that every store keeps, the real one and the simulated one.

Losing a race is a normal answer (`Conflict`), never a partial write.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from engine.core.decision import Decision, Instruction
from engine.core.model import Snapshot
from engine.core.records import Ref


class Conflict(Exception):
    """An entity was no longer in the state and version that the decision was made on; nothing was stored."""

    def __init__(
        self, ref: Ref, machine: str, expected: tuple[str, int], found: tuple[str, int] | None
    ) -> None:
        self.ref = ref
        self.machine = machine
        self.expected = expected
        self.found = found
        now = f"it is in {found[0]}, version {found[1]}" if found else "it does not exist"
        super().__init__(
            f"{ref} ({machine}) was expected in {expected[0]}, version {expected[1]}; {now}."
            " Nothing was stored"
        )


class OutboxRow(NamedTuple):
    """An instruction that was committed and not yet delivered."""

    seq: int
    signal: int
    instruction: Instruction


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One row of the trail. Facts have no states and do not advance the version."""

    seq: int
    at: int
    signal: int
    actor: str
    source: str
    ref: Ref
    machine: str
    version: int
    from_state: str | None
    event: str
    to_state: str | None
    reason: str | None


class Gate(Protocol):
    """The only writer of state."""

    def apply(self, decisions: Sequence[Decision]) -> None:
        """Store all of them in one transaction, or raise `Conflict` and store none."""
        ...

    def load(self) -> Snapshot:
        """Every record that a model is built from."""
        ...

    def outbox(self) -> Sequence[OutboxRow]:
        """Instructions not yet delivered, oldest first."""
        ...

    def delivered(self, seqs: Sequence[int]) -> None:
        """These instructions need not be sent again."""
        ...

    def history(self, ref: Ref) -> Sequence[AuditRow]:
        """The trail of one entity, oldest first."""
        ...
