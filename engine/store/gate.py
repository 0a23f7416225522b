"""The promise that every store keeps, the real one and the simulated one.

Losing a race is a normal answer (`Conflict`), never a partial write.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, Protocol

from engine.core.decision import Decision, Instruction
from engine.core.model import Snapshot
from engine.core.plan import SECOND
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
    cause: int
    """The signal that led to it."""
    actor: str
    source: str
    ref: Ref
    label: str
    """How people call the entity: `182`, `182/build`, a worker's id, a tool's name."""
    machine: str
    version: int
    from_state: str | None
    event: str
    to_state: str | None
    reason: str | None
    request_id: str | None = None
    since: int | None = None
    """For a transition: when the entity entered the state that it leaves."""
    metadata: Mapping[str, object] = field(default_factory=dict)
    """What else changed with it, by column: enough to rebuild the record from the trail alone."""


@dataclass(frozen=True, slots=True)
class Request:
    """A command that may be sent again: the same id and the same request get the first reply."""

    id: str
    operation: str
    fingerprint: str
    at: int
    status: int = 0
    body: str = "{}"
    """The reply, stored in the transaction of what it tells."""
    ttl: int = 3600 * SECOND


@dataclass(frozen=True, slots=True)
class Reply:
    """What a request was answered; `again` when it had been answered before and nothing was done now."""

    status: int
    body: str
    again: bool = False


class RequestReused(Exception):
    """A request id that was used for something else. Nothing was stored; send it under a new id."""

    def __init__(self, id: str, before: str, now: str) -> None:
        self.id = id
        same = "with other arguments" if before == now else f"for {before}"
        super().__init__(
            f"the request id {id} was used {same}; {now} was not done. Send it again under another id"
        )


def fingerprint(operation: str, arguments: Mapping[str, object]) -> str:
    """What makes two requests the same."""
    told = json.dumps([operation, arguments], sort_keys=True, default=str)
    return sha256(told.encode()).hexdigest()


class Gate(Protocol):
    """The only writer of state."""

    def apply(self, decisions: Sequence[Decision], request: Request | None = None) -> Reply | None:
        """Store all of them in one transaction, or raise `Conflict` and store none.

        With a request its reply is stored too; if it was answered before, nothing else is.
        """
        ...

    def recall(self, request: Request) -> Reply | None:
        """The reply that this request was given before, if it was; `RequestReused` for another's id."""
        ...

    def refused(self, machine: str, state: str, event: str) -> None:
        """Count a move that was asked for and is not documented. Refusals are counted, not stored."""
        ...

    def sweep(self, now: int) -> int:
        """Forget the requests whose time is over, and tell how many."""
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
