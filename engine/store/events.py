"""Document 001's event of a row of the trail, and the line of `transitions.jsonl` that tells it.

Every transition has one event; creations and facts have none. Type and severity follow from the
machines' own tables, so a new machine needs nothing here.
"""

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from json import JSONEncoder, dumps

from engine.core.records import Entity
from engine.machines import (
    MACHINES,
    BreakerCue,
    ControlCue,
    HealthCue,
    Phase,
    RunCue,
    TaskCue,
)
from engine.store.gate import AuditRow


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


EVENT_TYPES: dict[Entity, str] = {
    Entity.RUN: "workstream_state_transition",
    Entity.TASK: "task_state_transition",
    Entity.WORKER: "worker_state_transition",
    Entity.BREAKER: "breaker_state_transition",
}

_CUES: dict[Entity, tuple[type, ...]] = {
    Entity.RUN: (RunCue,),
    Entity.TASK: (TaskCue,),
    Entity.WORKER: (HealthCue, ControlCue),
    Entity.BREAKER: (BreakerCue,),
}

DRIVEN_BY: dict[Entity, tuple[str, ...]] = {
    entity: tuple(
        name for name, machine in MACHINES.items() if any(isinstance(cue, cues) for cue in machine.cues)
    )
    for entity, cues in _CUES.items()
}
"""The machines that an entity may follow."""

SEVERITIES: dict[Phase, Severity] = {
    Phase.BACKOFF: Severity.WARNING,
    Phase.FAILING: Severity.WARNING,
    Phase.FAILED: Severity.ERROR,
    Phase.RECOVERING: Severity.ERROR,
    Phase.PARKED: Severity.ERROR,
}
"""How bad it is to enter a state, by what the state means; everything else is information."""


def _severity(entity: Entity, phase: Phase, terminal: bool) -> Severity:
    if entity is Entity.RUN and phase is Phase.FAILED and terminal:
        return Severity.CRITICAL
    return SEVERITIES.get(phase, Severity.INFO)


SEVERITY_OF: dict[tuple[Entity, str, str], Severity] = {
    (entity, name, state.name): _severity(entity, state.phase, state.terminal)
    for entity, names in DRIVEN_BY.items()
    for name in names
    for state in MACHINES[name].states
}
"""By entity, machine and the state that is entered. A run that failed for good is critical."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1_000_000

_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_UNUSUAL = re.compile("[^ -~]")
"""What may be something that JSON can hold as it is, and a terminal, a line reader or UTF-8 cannot."""


def event_of(row: AuditRow) -> dict[str, object] | None:
    """The event of a transition; None for a creation or a fact."""
    if row.from_state is None or row.to_state is None:
        return None
    return {
        "timestamp": timestamp(row.at),
        "event_type": EVENT_TYPES[row.ref.kind],
        "severity": SEVERITY_OF[row.ref.kind, row.machine, row.to_state],
        "entity_id": row.label,
        "from_state": row.from_state,
        "to_state": row.to_state,
        "trigger": row.event,
        "metadata": _metadata(row),
    }


def line_of(row: AuditRow) -> str | None:
    """The event as one line of JSON without its newline, or None where there is no event."""
    event = event_of(row)
    if event is None:
        return None
    return _UNUSUAL.sub(_escaped, _encode(event))


def timestamp(at: int) -> str:
    """Microseconds since the epoch as ISO 8601 in UTC; always of the same width, so that it sorts."""
    return (_EPOCH + timedelta(microseconds=at)).isoformat(timespec="microseconds")[:-6] + "Z"


def _metadata(row: AuditRow) -> dict[str, object]:
    metadata: dict[str, object] = {
        "machine": row.machine,
        "seq": row.seq,
        "version": row.version,
        "actor": row.actor,
        "source": row.source,
        "cause": row.cause,
    }
    if row.reason is not None:
        metadata["reason"] = row.reason
    if row.request_id is not None:
        metadata["request_id"] = row.request_id
    if row.since is not None:
        metadata["duration_seconds"] = _seconds(row.at - row.since)
    for column, key in (("retries", "retry_count"), ("attempt", "attempt")):
        if isinstance(count := row.metadata.get(column), int):
            metadata[key] = count
    return metadata


def _seconds(duration: int) -> int | float:
    whole, rest = divmod(duration, _SECOND)
    return duration / _SECOND if rest else whole


def _escaped(found: re.Match[str]) -> str:
    """As an escape: what a terminal would obey, or a program would take for the end of the line."""
    char = found[0]
    return char if char.isprintable() else dumps(char)[1:-1]
