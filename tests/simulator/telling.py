"""What a change tells of itself in the trail, written a second time: from the values alone, and from nothing
of `engine.store` that it is compared with.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from hashlib import sha256
from typing import Any

from engine.core.decision import Closing, Created, Decision, Fact, TimerSet, Transition
from engine.core.plan import Plan
from engine.core.records import Attempt, Breaker, Hold, Record, Ref, Run, Task, Token, Worker

Words = dict[str, object]

BORN = {
    Run: {"number", "plan", "state", "phase", "version", "created", "entered", "requester", "params"}
    | {"parent", "depth", "origin"},
    Task: {"run", "number", "plan", "machine", "state", "phase", "version", "created", "entered"},
    Worker: {
        "id", "slots", "capabilities", "workspace", "metadata", "created", "health", "health_phase",
        "health_version", "health_entered", "control", "control_phase", "control_version", "control_entered",
    },
    Breaker: {"tool", "state", "phase", "version", "entered"},
}  # fmt: skip
"""What every new record has; the rest is told of a new one only where it is not as usual."""


def text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def word(value: object) -> object:
    """A value of a record, as a column keeps it."""
    match value:
        case Enum():
            return value.value
        case bool():
            return int(value)
        case Token():
            return str(value)
        case tuple():
            return text([str(token) for token in value]) if value else None
        case frozenset():
            return text(sorted(value))
        case Mapping():
            return text(dict(value))
        case Hold():
            return {
                "approval": approval(value),
                "votes": [list(vote) for vote in value.votes],
                "met": value.met,
            }
    return value


def approval(hold: Hold) -> Words:
    clauses = [
        {"users": sorted(clause.users), "teams": sorted(clause.teams), "count": clause.count}
        for clause in hold.approval.clauses
    ]
    return {"clauses": clauses, "expires": hold.approval.expires}


# ---- plans


def plan_id(plan: Plan) -> str:
    """The name of a workflow version: the digest of its plan with sorted keys and without defaults."""
    told = json.dumps(_told(plan), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return sha256(told.encode("utf-8", "backslashreplace")).hexdigest()


def _told(part: Any) -> Any:
    if isinstance(part, Enum):
        return part.value
    if is_dataclass(part):
        own = [spec for spec in fields(part) if spec.init]
        every = {spec.name: (getattr(part, spec.name), spec.default) for spec in own}
        return {
            name: _told(value) for name, (value, usual) in every.items() if usual is MISSING or value != usual
        }
    if isinstance(part, frozenset):
        return sorted(part)
    return [_told(item) for item in part] if isinstance(part, tuple) else part


# ---- changes


def born(record: Record) -> Words:
    told: Words = {}
    match record:
        case Run():
            plan = record.plan
            parent_run, parent_task = record.parent or (None, None)
            told = {
                "workflow": plan_id(plan),
                "name": plan.name,
                "task_description": plan.description or plan.name,
                "requester": record.requester,
                "params": word(record.params),
                "created": record.created,
                "parent_run": parent_run,
                "parent_task": parent_task,
                "depth": record.depth,
                "worker_count": plan.worker_count,
                "task_count": len(plan.tasks),
                "origin_run": None if record.origin is None else record.origin.run,
                "origin_verb": None if record.origin is None else record.origin.verb,
            }
        case Task():
            told = {"name": record.plan.name, "created": record.created}
        case Worker():
            own = ("slots", "capabilities", "workspace", "metadata", "created")
            told = {name: word(getattr(record, name)) for name in own}
    for spec in fields(record):
        value = getattr(record, spec.name)
        if spec.name not in BORN[type(record)] and value != spec.default:
            told[spec.name] = word(value)
    return told


def due(decision: Decision) -> dict[Ref, dict[str, int | None]]:
    """What became of the timers of each entity in one decision."""
    found: dict[Ref, dict[str, int | None]] = {}
    for timer in decision.timers:
        found.setdefault(timer.ref, {})[timer.kind.value] = timer.due if isinstance(timer, TimerSet) else None
    return found


def told(change: Created | Transition | Fact, timers: dict[Ref, dict[str, int | None]]) -> Words:
    """The metadata of a row. The timers of an entity are told by the first row that changes it."""
    if isinstance(change, Created):
        return _as_read(born(change.after))
    words: Words = {name: word(value) for name, value in change.sets.items()}
    if change.opens is not None:
        words["opens"] = _some(change.opens, "token", "worker", "tool", "sub_run")
    if change.closes is not None:
        words["closes"] = _some(change.closes, "token", "outcome", "exit_code")
    if mine := timers.pop(change.ref, None):
        words["timers"] = mine
    if isinstance(change, Fact) and change.data:
        words["data"] = dict(change.data)
    return _as_read(words)


def _some(part: Attempt | Closing, *names: str) -> Words:
    values = {name: getattr(part, name) for name in names}
    return {name: word(value) for name, value in values.items() if value is not None}


def _as_read(words: Words) -> Words:
    """What was written as JSON comes back as JSON has it."""
    read: Words = json.loads(json.dumps(words, default=str))
    return read
