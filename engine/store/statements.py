"""The statements of the gate, written in SQLAlchemy Core and compiled once to the driver's text."""

from functools import cache

from sqlalchemy import (
    ColumnElement,
    Executable,
    Table,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.sql.dml import Insert

from engine.core.records import Entity
from engine.store import tables
from engine.store.dialect import COMPILED, count_up, insert_new, upsert

KEYS = {
    "runs": ("number",),
    "tasks": ("run", "number"),
    "workers": ("id",),
    "worker_regions": ("worker", "machine"),
    "breakers": ("tool",),
}

ATTEMPT_KEY = ("run", "task", "attempt", "purpose", "round")
ATTEMPT_LIVE = ("worker", "tool", "sub_run", "sent", "started", "pid", "stopping", "fenced", "doubt")
ATTEMPT_END = (
    "ended", "outcome", "exit_code", "output_size", "cpu_time", "peak_memory", "artifacts", "diagnostics",
)  # fmt: skip
AUDIT = (
    "seq", "at", "run", "task", "name", "version", "arrow", "since", "cause", "actor", "source", "reason",
    "request_id", "metadata", "row_hash", "hash",
)  # fmt: skip


def sql(statement: Executable, *order: str) -> str:
    """The text of a statement; its parameters come in the order in which they are written."""
    compiled = statement.compile(dialect=COMPILED)  # type: ignore[attr-defined]
    names = tuple(compiled.positiontup or ())
    assert not order or names == order, (names, order)
    return str(compiled)


def _insert(table: Table, columns: tuple[str, ...]) -> Insert:
    return insert(table).values({name: bindparam(name) for name in columns})


@cache
def birth(name: str, columns: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The insert of a new entity, and the order of its columns."""
    table = tables.metadata.tables[name]
    order = tuple(column.name for column in table.c if column.name in columns)
    return sql(_insert(table, columns), *order), order


def add_worker(columns: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """A worker has two regions and is born with each; its own row is written once."""
    order = tuple(column.name for column in tables.workers.c if column.name in columns)
    return sql(insert_new(tables.workers, columns), *order), order


@cache
def change(name: str, columns: tuple[str, ...], moves: bool) -> str:
    """An update of one entity: the columns that it sets, its key, the version.

    It names the version that it expects; one that moves the state names the state too.
    """
    table = tables.metadata.tables[name]
    found = update(table).ordered_values(*((table.c[column], bindparam(column)) for column in columns))
    for key in KEYS[name]:
        found = found.where(table.c[key] == bindparam(f"key_{key}"))
    if "version" in table.c:
        found = found.where(table.c.version == bindparam("expected_version"))
    elif not moves:
        found = found.where(_health_stands())
    if moves and "state" in table.c:
        found = found.where(table.c.state == bindparam("expected_state"))
    return sql(found)


def _health_stands() -> ColumnElement[bool]:
    """A worker has its version in its regions; what is told of it is told under its health."""
    region = tables.worker_regions
    return exists().where(
        region.c.worker == tables.workers.c.id,
        region.c.machine == literal_column(f"'{tables.WORKER_MACHINES[0]}'"),
        region.c.version == bindparam("expected_version"),
    )


ADD_AUDIT = sql(_insert(tables.audit, AUDIT), *AUDIT)
PLAIN_AUDIT = tuple(name for name in AUDIT if name not in ("name", "request_id"))
ADD_PLAIN_AUDIT = sql(_insert(tables.audit, PLAIN_AUDIT), *PLAIN_AUDIT)
OPEN_ATTEMPT = sql(_insert(tables.attempts, ATTEMPT_KEY + ATTEMPT_LIVE), *ATTEMPT_KEY, *ATTEMPT_LIVE)


def _attempt(values: tuple[str, ...]) -> str:
    table = tables.attempts
    found = update(table).values({name: bindparam(name) for name in values}).where(table.c.ended.is_(None))
    for key in ATTEMPT_KEY:
        found = found.where(table.c[key] == bindparam(f"key_{key}"))
    return sql(found, *values, *(f"key_{key}" for key in ATTEMPT_KEY))


NOTE_ATTEMPT = _attempt(ATTEMPT_LIVE)
CLOSE_ATTEMPT = _attempt(ATTEMPT_END)

CHECK_RESULT = (
    "run", "task", "attempt", "purpose", "round", "position", "name", "passed", "duration", "exit_code",
    "output",
)  # fmt: skip
ADD_CHECK = sql(_insert(tables.check_results, CHECK_RESULT), *CHECK_RESULT)

TIMER = ("entity_kind", "entity", "timer", "due")
SET_TIMER = sql(upsert(tables.timers, TIMER, TIMER[:3]), *TIMER)
CLEAR_TIMER = sql(
    delete(tables.timers).where(
        tables.timers.c.entity_kind == bindparam("entity_kind"),
        tables.timers.c.entity == bindparam("entity"),
        tables.timers.c.timer == bindparam("timer"),
    ),
    "entity_kind", "entity", "timer",
)  # fmt: skip

OUTBOX = ("seq", "cause", "instruction", "body")
SEND = sql(_insert(tables.outbox, OUTBOX), *OUTBOX)
DELIVERED = sql(
    update(tables.outbox)
    .values(delivered=literal_column("1"))
    .where(tables.outbox.c.seq == bindparam("sent"))
)
TIDY_OUTBOX = sql(
    delete(tables.outbox).where(
        tables.outbox.c.delivered == literal_column("1"),
        tables.outbox.c.seq < select(func.max(tables.outbox.c.seq)).scalar_subquery(),
    )
)
"""The last one stays, delivered or not: its number must never be given again."""

RECOVERY = ("seq", "at", "machine", "entity", "event", "actor", "reason", "evidence")
ADD_RECOVERY = sql(_insert(tables.recoveries, RECOVERY), *RECOVERY)

HOLD = ("run", "task", "approval", "met", "opened_seq", "opened")
OPEN_HOLD = sql(upsert(tables.holds, HOLD, HOLD[:2]), *HOLD)
MEET_HOLD = sql(
    update(tables.holds)
    .values(met=bindparam("is_met"))
    .where(tables.holds.c.run == bindparam("key_run"), tables.holds.c.task == bindparam("key_task")),
    "is_met", "key_run", "key_task",
)  # fmt: skip
VERDICT = ("seq", "run", "task", "actor", "verdict", "reason", "at")
ADD_VERDICT = sql(_insert(tables.decisions, VERDICT), *VERDICT)

VERSION = ("id", "name", "source", "plan", "created")
ADD_VERSION = sql(insert_new(tables.workflow_versions, VERSION), *VERSION)

KEY = ("request_id", "operation", "fingerprint", "status", "body", "created", "expires")
ADD_KEY = sql(upsert(tables.idempotency_keys, KEY, KEY[:1]), *KEY)
_keys = tables.idempotency_keys
KEYS_AT_ONCE = 64
FIND_KEYS = sql(
    select(*(_keys.c[name] for name in KEY)).where(
        _keys.c.request_id.in_([bindparam(f"wanted_{place}") for place in range(KEYS_AT_ONCE)])
    )
)
"""The keys among so many ids; places that are not needed are left empty."""
SWEEP_KEYS = sql(delete(_keys).where(_keys.c.expires <= bindparam("now")))

COUNTER = ("counter", "machine", "state", "event")
COUNT = sql(count_up(tables.counters, COUNTER, "value"), *COUNTER, "value")

ARROW = ("id", "machine", "from_state", "event", "to_state", "kind", "to_phase")
ADD_ARROW = sql(_insert(tables.arrows, ARROW), *ARROW)
HEAD = "SELECT seq, hash, at FROM audit ORDER BY seq DESC LIMIT 1"


def _standing(table: Table, key: tuple[str, ...]) -> str:
    found = select(table.c.state, table.c.version)
    for name in dict.fromkeys((*key, "machine")):
        found = found.where(table.c[name] == bindparam(f"key_{name}"))
    return sql(found)


STANDING = {
    Entity.RUN: _standing(tables.runs, KEYS["runs"]),
    Entity.TASK: _standing(tables.tasks, KEYS["tasks"]),
    Entity.WORKER: _standing(tables.worker_regions, KEYS["worker_regions"]),
    Entity.BREAKER: _standing(tables.breakers, KEYS["breakers"]),
}
"""State and version of an entity under a machine, as they are now."""
