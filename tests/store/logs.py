"""Logs as bytes, ours and those of another system, and what the validator finds in them."""

import json
from collections.abc import Iterable

from engine.store.events import line_of
from engine.store.gate import AuditRow
from engine.store.log_problems import Problem
from engine.store.log_validator import validate


def line(one: AuditRow) -> bytes:
    text = line_of(one)
    assert text is not None
    return text.encode() + b"\n"


def lines(rows: Iterable[AuditRow]) -> list[bytes]:
    return [line(one) for one in rows]


def foreign(**changes: object) -> bytes:
    """An event of another system, which knows document 001 and nothing of our machines."""
    event: dict[str, object] = {
        "timestamp": "2024-01-15T10:30:00.000Z",
        "event_type": "task_state_transition",
        "severity": "info",
        "entity_id": "task-ulid-001",
        "from_state": "pending",
        "to_state": "queued",
        "trigger": "scheduler_assigned",
        "metadata": {},
        **changes,
    }
    return json.dumps({key: value for key, value in event.items() if value is not ...}).encode() + b"\n"


def found(log: Iterable[bytes], *, partial: bool = False) -> list[tuple[int, str]]:
    return [(problem.line, problem.kind.value) for problem in validate(log, partial=partial)]


def only(log: Iterable[bytes], *, partial: bool = False) -> Problem:
    (problem,) = validate(log, partial=partial)
    return problem
