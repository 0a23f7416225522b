"""The tables, as SQLAlchemy metadata. What can be derived from them is a view (`views`), not a column.

Times are integer microseconds UTC. Every entity with a state has its machine, state and version, and the
triggers of `interlock` guard them. No entity table has a rowid: a second, hidden key would be a second
way to replace a row.
"""

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    and_,
    text,
)

from engine.core.plan import MAX_DEPTH, MAX_WORKERS
from engine.core.records import Entity
from engine.machines import MACHINES, RUN_MACHINES, TASK_MACHINES
from engine.store.dialect import big, table_options

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
    }
)

WORKER_MACHINES = ("orchestration.worker", "supervision.worker")
"""A worker's two regions: its health and its control."""

BREAKER_MACHINE = "pipeline.breaker"

USUAL_SOURCES = ("engine", "timer", "worker")


def _flag(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=text("0"))


def _count(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=text("0"))


def _moment(name: str, *, known: bool = False) -> Column[int]:
    return Column(name, big, nullable=not known)


def _states(*machines: str) -> CheckConstraint:
    """The documents' CHECK: under each machine only its own states."""
    clauses = []
    for name in machines:
        states = ", ".join(f"'{state.name}'" for state in MACHINES[name].states)
        clauses.append(f"machine = '{name}' AND state IN ({states})")
    return CheckConstraint(" OR ".join(clauses), name="state")


workflow_versions = Table(
    "workflow_versions",
    metadata,
    Column("id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("source", Text),
    Column("plan", Text, nullable=False),
    _moment("created", known=True),
    PrimaryKeyConstraint("id"),
    **table_options(rowid=False),
)

runs = Table(
    "runs",
    metadata,
    Column("number", big, nullable=False, autoincrement=False),
    Column("workflow", Text, ForeignKey("workflow_versions.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("task_description", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("requester", Text),
    Column("params", Text, nullable=False),
    _moment("created", known=True),
    _moment("entered", known=True),
    _moment("updated", known=True),
    _moment("started"),
    _moment("ended"),
    Column("parent_run", big, ForeignKey("runs.number")),
    Column("parent_task", Integer),
    Column("depth", Integer, nullable=False),
    Column("worker_count", Integer, nullable=False),
    Column("task_count", Integer, nullable=False),
    Column("origin_run", big),
    Column("origin_verb", Text),
    Column("ending", Text),
    Column("ending_reason", Text),
    Column("resumed_by", big),
    _flag("checking"),
    _count("attempt"),
    Column("live", Text),
    _count("losses"),
    PrimaryKeyConstraint("number"),
    CheckConstraint(f"depth BETWEEN 0 AND {MAX_DEPTH}", name="depth"),
    CheckConstraint(f"worker_count BETWEEN 1 AND {MAX_WORKERS}", name="worker_count"),
    _states(*sorted(RUN_MACHINES)),
    **table_options(rowid=False),
)
Index(
    "runs_open", runs.c.number, sqlite_where=runs.c.ended.is_(None), postgresql_where=runs.c.ended.is_(None)
)
Index("runs_updated", runs.c.updated, runs.c.number)
Index("runs_name", runs.c.name, runs.c.number)
Index("runs_state", runs.c.machine, runs.c.state, runs.c.number)
Index("runs_ended", runs.c.ended, runs.c.number)
Index("runs_requester", runs.c.requester, runs.c.number)
Index("runs_parent", runs.c.parent_run, sqlite_where=runs.c.parent_run.is_not(None))

tasks = Table(
    "tasks",
    metadata,
    Column("run", big, ForeignKey("runs.number"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", Integer, nullable=False),
    _moment("created", known=True),
    _moment("entered", known=True),
    _moment("updated", known=True),
    _moment("started"),
    _moment("ended"),
    _count("attempt"),
    _count("retries"),
    _count("failures"),
    _count("losses"),
    _count("check_losses"),
    _count("probes"),
    _count("health_checks"),
    _flag("probing"),
    Column("live", Text),
    Column("fenced", Text),
    _flag("checking"),
    _flag("asking"),
    _flag("final"),
    Column("circuit", Text),
    Column("pardon", Text),
    Column("blocked", Text),
    Column("category", Text),
    Column("fingerprint", Text),
    _count("repeats"),
    Column("error", Text),
    Column("exit_code", Integer),
    Column("lost", Text),
    PrimaryKeyConstraint("run", "number"),
    _states(*sorted(TASK_MACHINES)),
    **table_options(rowid=False),
)

attempts = Table(
    "attempts",
    metadata,
    Column("run", big, ForeignKey("runs.number"), nullable=False),
    Column("task", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("round", Integer, nullable=False),
    Column("worker", Text),
    Column("tool", Text),
    Column("sub_run", big),
    _moment("sent", known=True),
    _moment("started"),
    Column("pid", Integer),
    Column("stopping", Text),
    _flag("fenced"),
    _flag("doubt"),
    _moment("ended"),
    Column("outcome", Text),
    Column("exit_code", Integer),
    Column("output_size", big),
    Column("cpu_time", big),
    Column("peak_memory", big),
    Column("artifacts", Text),
    Column("diagnostics", Text),
    PrimaryKeyConstraint("run", "task", "attempt", "purpose", "round"),
    CheckConstraint("(ended IS NULL) = (outcome IS NULL)", name="outcome"),
    **table_options(rowid=False),
)
Index("attempts_open", attempts.c.run, sqlite_where=attempts.c.ended.is_(None))
Index("attempts_tool", attempts.c.tool, sqlite_where=attempts.c.tool.is_not(None))

check_results = Table(
    "check_results",
    metadata,
    Column("run", big, ForeignKey("runs.number"), nullable=False),
    Column("task", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("round", Integer, nullable=False),
    Column("position", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("passed", Integer, nullable=False),
    Column("duration", big, nullable=False),
    Column("exit_code", Integer),
    Column("output", Text),
    PrimaryKeyConstraint("run", "task", "attempt", "purpose", "round", "position"),
    **table_options(rowid=False),
)

workers = Table(
    "workers",
    metadata,
    Column("id", Text, nullable=False),
    Column("slots", Integer, nullable=False),
    Column("capabilities", Text, nullable=False),
    Column("workspace", Text, nullable=False),
    Column("metadata", Text, nullable=False),
    _moment("created", known=True),
    _moment("updated", known=True),
    _flag("draining"),
    _flag("frozen"),
    Column("reason", Text),
    PrimaryKeyConstraint("id"),
    **table_options(rowid=False),
)

worker_regions = Table(
    "worker_regions",
    metadata,
    Column("worker", Text, ForeignKey("workers.id"), nullable=False),
    Column("machine", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", Integer, nullable=False),
    _moment("entered", known=True),
    _moment("updated", known=True),
    PrimaryKeyConstraint("worker", "machine"),
    _states(*WORKER_MACHINES),
    **table_options(rowid=False),
)

breakers = Table(
    "breakers",
    metadata,
    Column("tool", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", Integer, nullable=False),
    _moment("entered", known=True),
    _moment("updated", known=True),
    _count("failures"),
    _count("successes"),
    Column("probe", Text),
    Column("ramp", Integer),
    Column("error", Text),
    PrimaryKeyConstraint("tool"),
    _states(BREAKER_MACHINE),
    **table_options(rowid=False),
)

holds = Table(
    "holds",
    metadata,
    Column("run", big, ForeignKey("runs.number"), nullable=False),
    Column("task", Integer, nullable=False),
    Column("approval", Text, nullable=False),
    _flag("met"),
    Column("opened_seq", big, nullable=False),
    _moment("opened", known=True),
    PrimaryKeyConstraint("run", "task"),
    **table_options(rowid=False),
)

decisions = Table(
    "decisions",
    metadata,
    Column("seq", big, ForeignKey("audit.seq"), nullable=False, autoincrement=False),
    Column("run", big, nullable=False),
    Column("task", Integer, nullable=False),
    Column("actor", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("reason", Text),
    _moment("at", known=True),
    PrimaryKeyConstraint("seq"),
    CheckConstraint("verdict IN ('approved', 'rejected')", name="verdict"),
    **table_options(rowid=False),
)
Index("decisions_of", decisions.c.run, decisions.c.task, decisions.c.seq)

timers = Table(
    "timers",
    metadata,
    Column("entity_kind", Text, nullable=False),
    Column("entity", Text, nullable=False),
    Column("timer", Text, nullable=False),
    Column("due", big, nullable=False),
    PrimaryKeyConstraint("entity_kind", "entity", "timer"),
    **table_options(rowid=False),
)

outbox = Table(
    "outbox",
    metadata,
    Column("seq", big, nullable=False, autoincrement=False),
    Column("cause", big, nullable=False),
    Column("instruction", Text, nullable=False),
    Column("body", Text, nullable=False),
    _flag("delivered"),
    PrimaryKeyConstraint("seq"),
    **table_options(),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("request_id", Text, nullable=False),
    Column("operation", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("status", Integer, nullable=False),
    Column("body", Text, nullable=False),
    _moment("created", known=True),
    _moment("expires", known=True),
    PrimaryKeyConstraint("request_id"),
    **table_options(rowid=False),
)
Index("idempotency_keys_expires", idempotency_keys.c.expires)

counters = Table(
    "counters",
    metadata,
    Column("counter", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("value", big, nullable=False),
    PrimaryKeyConstraint("counter", "machine", "state", "event"),
    **table_options(rowid=False),
)

engine_leases = Table(
    "engine_leases",
    metadata,
    Column("term", big, nullable=False, autoincrement=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    _moment("acquired", known=True),
    _moment("released"),
    PrimaryKeyConstraint("term"),
    **table_options(rowid=False),
)

arrows = Table(
    "arrows",
    metadata,
    Column("id", Integer, nullable=False, autoincrement=False),
    Column("machine", Text, nullable=False),
    Column("from_state", Text),
    Column("event", Text, nullable=False),
    Column("to_state", Text),
    Column("kind", Text, nullable=False),
    Column("to_phase", Text),
    PrimaryKeyConstraint("id"),
    CheckConstraint("kind IN ('created', 'normal', 'recovery', 'cascade', 'fact', 'retired')", name="kind"),
    **table_options(),
)
Index("arrows_pair", arrows.c.machine, arrows.c.from_state, arrows.c.to_state)

audit = Table(
    "audit",
    metadata,
    Column("seq", big, nullable=False, autoincrement=False),
    _moment("at", known=True),
    Column("run", big),
    Column("task", Integer),
    Column("name", Text),
    Column("version", Integer, nullable=False),
    Column("arrow", Integer, nullable=False),
    _moment("since"),
    Column("cause", big, nullable=False),
    Column("actor", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("reason", Text),
    Column("request_id", Text),
    Column("metadata", Text, nullable=False),
    Column("row_hash", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    PrimaryKeyConstraint("seq"),
    **table_options(),
)
# With the arrow in it the triggers find all that they ask for in the index.
Index("audit_entity", audit.c.run, audit.c.task, audit.c.version, audit.c.arrow)
Index("audit_name", audit.c.name, audit.c.version, sqlite_where=audit.c.name.is_not(None))
Index("audit_named", audit.c.name, audit.c.seq, sqlite_where=audit.c.name.is_not(None))
Index("audit_run", audit.c.run, audit.c.seq)
Index("audit_arrow", audit.c.arrow)
# What the engine does by itself is most of the trail, and is found without an index.
Index("audit_actor", audit.c.actor, sqlite_where=audit.c.actor != "engine")
Index("audit_source", audit.c.source, sqlite_where=and_(*(audit.c.source != name for name in USUAL_SOURCES)))
Index("audit_runs", audit.c.task, audit.c.seq, sqlite_where=audit.c.task == 0)
Index("audit_request", audit.c.request_id, sqlite_where=audit.c.request_id.is_not(None))

recoveries = Table(
    "recoveries",
    metadata,
    Column("seq", big, ForeignKey("audit.seq"), nullable=False, autoincrement=False),
    _moment("at", known=True),
    Column("machine", Text, nullable=False),
    Column("entity", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text),
    Column("evidence", Text, nullable=False),
    PrimaryKeyConstraint("seq"),
    **table_options(),
)

store_info = Table(
    "store_info",
    metadata,
    Column("key", Text, nullable=False),
    Column("value", Text, nullable=False),
    PrimaryKeyConstraint("key"),
    **table_options(rowid=False),
)

BY_ENTITY = {Entity.RUN: runs, Entity.TASK: tasks, Entity.WORKER: workers, Entity.BREAKER: breakers}
"""Where each kind of entity has its own row."""
