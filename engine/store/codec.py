"""Records as rows, and rows as records.

A change's fields are turned into column values once; the same values go into the entity's row and into
the metadata of its audit row, so that laying the metadata of a trail over each other gives the row.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from enum import Enum
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]
from typing import Any

from engine.core.decision import Closing, Created, Fact, Transition
from engine.core.records import (
    Attempt,
    Breaker,
    Entity,
    Hold,
    Purpose,
    Record,
    Ref,
    Report,
    Run,
    Task,
    Token,
    Worker,
)

Columns = dict[str, Any]

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)
_compiled = (
    c_make_encoder(None, _encoder.default, encode_basestring, None, ":", ",", False, False, True)
    if c_make_encoder is not None
    else None
)
"""What `encode` makes anew for each value: made once, it is twice as fast."""


def as_json(value: object) -> str:
    return "".join(_compiled(value, 0)) if _compiled is not None else _encoder.encode(value)


def scrubbed(value: Any) -> Any:
    """Text that UTF-8 cannot hold (a lone surrogate from a file name) is written as an escape."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _enum(value: Enum | None) -> object:
    return None if value is None else value.value


def _token(token: Token | None) -> str | None:
    return None if token is None else str(token)


def _tokens(tokens: Iterable[Token]) -> str | None:
    return as_json([str(token) for token in tokens]) or None if tokens else None


def _words(mapping: Mapping[str, str]) -> str:
    return as_json(dict(mapping))


def _set(names: Iterable[str]) -> str:
    return as_json(sorted(names))


def hold_values(hold: Hold | None) -> object:
    """A hold inside an audit row; in the tables it is rows of its own."""
    if hold is None:
        return None
    return {
        "approval": approval_values(hold),
        "votes": [[vote.actor, vote.at, vote.reason] for vote in hold.votes],
        "met": hold.met,
    }


def approval_values(hold: Hold) -> object:
    return {
        "clauses": [
            {"users": sorted(clause.users), "teams": sorted(clause.teams), "count": clause.count}
            for clause in hold.approval.clauses
        ],
        "expires": hold.approval.expires,
    }


ENCODERS: dict[str, Callable[[Any], object]] = {
    "live": _token,
    "fenced": _token,
    "probe": _token,
    "lost": _tokens,
    "ending": _enum,
    "pardon": _enum,
    "circuit": _enum,
    "category": _enum,
    "stopping": _enum,
    "params": _words,
    "metadata": _words,
    "capabilities": _set,
    "hold": hold_values,
    "probing": int,
    "checking": int,
    "asking": int,
    "final": int,
    "draining": int,
    "frozen": int,
    "doubt": int,
}
"""How a field becomes a column, where it is not the column already. An attempt's `fenced` is a flag."""


def columns_of(sets: Mapping[str, object]) -> Columns:
    """The fields that a change sets, as column values."""
    known = ENCODERS
    return {name: value if name not in known else known[name](value) for name, value in sets.items()}


# ---- births


def run_columns(run: Run, workflow: str) -> Columns:
    parent_run, parent_task = run.parent or (None, None)
    plan = run.plan
    return {
        "workflow": workflow,
        "name": plan.name,
        "task_description": plan.description or plan.name,
        "requester": run.requester,
        "params": _words(run.params),
        "created": run.created,
        "parent_run": parent_run,
        "parent_task": parent_task,
        "depth": run.depth,
        "worker_count": plan.worker_count,
        "task_count": len(plan.tasks),
        "origin_run": run.origin.run if run.origin else None,
        "origin_verb": run.origin.verb if run.origin else None,
    }


def worker_columns(worker: Worker) -> Columns:
    return {
        "slots": worker.slots,
        "capabilities": _set(worker.capabilities),
        "workspace": worker.workspace,
        "metadata": _words(worker.metadata),
        "created": worker.created,
    }


_REGION = frozenset(
    f"{side}{part}" for side in ("health", "control") for part in ("", "_phase", "_version", "_entered")
)
_OWN: dict[type, frozenset[str]] = {
    Run: frozenset(
        ("number", "plan", "requester", "params", "state", "phase", "version", "created", "entered")
    )
    | {"parent", "depth", "origin"},
    Task: frozenset(("run", "number", "plan", "machine", "state", "phase", "version", "created", "entered")),
    Worker: _REGION | {"id", "slots", "capabilities", "workspace", "metadata", "created"},
    Breaker: frozenset(("tool", "state", "phase", "version", "entered")),
}
"""What a new record's row has in columns of their own; the rest has defaults, as long as it is at them."""

_DEFAULTS = {
    cls: [(spec.name, spec.default) for spec in fields(cls) if spec.name not in _OWN[cls]]
    for cls in (Run, Task, Worker, Breaker)
}


def beyond_defaults(record: Record) -> Columns:
    """Fields of a new record that are not what a new record has."""
    return columns_of(
        {
            name: getattr(record, name)
            for name, usual in _DEFAULTS[type(record)]
            if getattr(record, name) != usual
        }
    )


# ---- attempts


def token_values(token: Token) -> tuple[int, int, int, str, int]:
    return (token.run, token.task, token.attempt, token.purpose.value, token.round)


def parse_token(text: str) -> Token:
    plain, _, rest = text.partition("+")
    run, task, attempt = plain.split(".")
    if not rest:
        return Token(int(run), int(task), int(attempt))
    purpose = rest.rstrip("0123456789")
    return Token(int(run), int(task), int(attempt), Purpose(purpose), int(rest[len(purpose) :]))


def attempt_values(attempt: Attempt) -> tuple[object, ...]:
    """The columns that change while it lives."""
    return (
        attempt.worker, attempt.tool, attempt.sub_run, attempt.sent, attempt.started, attempt.pid,
        _enum(attempt.stopping), int(attempt.fenced), int(attempt.doubt),
    )  # fmt: skip


def closing_values(closing: Closing) -> tuple[object, ...]:
    report = closing.report or Report()
    return (
        closing.outcome, closing.exit_code, report.output_size, report.cpu_time, report.peak_memory,
        as_json(list(report.artifacts)) if report.artifacts else None, report.diagnostics,
    )  # fmt: skip


def opening_words(attempt: Attempt) -> Columns:
    told = {
        "token": str(attempt.token),
        "worker": attempt.worker,
        "tool": attempt.tool,
        "sub_run": attempt.sub_run,
    }
    return {name: value for name, value in told.items() if value is not None}


def closing_words(closing: Closing) -> Columns:
    told = {"token": str(closing.token), "outcome": closing.outcome, "exit_code": closing.exit_code}
    return {name: value for name, value in told.items() if value is not None}


def change_words(change: Transition | Fact, columns: Columns, due: Mapping[str, int | None] | None) -> str:
    """The metadata of an audit row: what changed, and what began or ended with it."""
    if change.opens is None and change.closes is None and not due and type(change) is Transition:
        return as_json(columns) if columns else "{}"
    told = dict(columns)
    if change.opens is not None:
        told["opens"] = opening_words(change.opens)
    if change.closes is not None:
        told["closes"] = closing_words(change.closes)
    if due:
        told["timers"] = due
    if isinstance(change, Fact) and change.data:
        told["data"] = dict(change.data)
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"), default=str)


def birth_columns(change: Created, workflow: str | None) -> Columns:
    """What a creation row tells of the new entity."""
    record = change.after
    if isinstance(record, Run):
        assert workflow is not None
        own = run_columns(record, workflow)
    elif isinstance(record, Task):
        own = {"name": record.plan.name, "created": record.created}
    elif isinstance(record, Worker):
        own = worker_columns(record)
    else:
        own = {}
    return own | beyond_defaults(record)


# ---- references


def ref_values(ref: Ref) -> tuple[int | None, int | None, str | None]:
    """Run, task and name of an entity, as the trail has them."""
    key = ref.key
    if isinstance(key, tuple):
        return key[0], key[1], None
    if isinstance(key, int):
        return key, 0, None
    return None, None, key


def parse_ref(kind: str, text: str) -> Ref:
    entity = Entity(kind)
    if entity is Entity.TASK:
        run, _, task = text.partition("/")
        return Ref(entity, (int(run), int(task)))
    return Ref(entity, int(text) if entity is Entity.RUN else text)
