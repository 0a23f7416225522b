"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    # Frozen as they were: the machines of a later version may have other states.
    op.create_table(
        "arrows",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("from_state", sa.Text(), nullable=True),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("to_state", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("to_phase", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "kind IN ('created', 'normal', 'recovery', 'cascade', 'fact', 'retired')",
            name=op.f("ck_arrows_kind"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arrows")),
        sqlite_strict=True,
        sqlite_with_rowid=True,
    )
    op.create_index("arrows_pair", "arrows", ["machine", "from_state", "to_state"], unique=False)
    op.create_table(
        "audit",
        sa.Column("seq", BIG, autoincrement=False, nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.Column("run", BIG, nullable=True),
        sa.Column("task", sa.Integer(), nullable=True),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("arrow", sa.Integer(), nullable=False),
        sa.Column("since", BIG, nullable=True),
        sa.Column("cause", BIG, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("row_hash", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_audit")),
        sqlite_strict=True,
        sqlite_with_rowid=True,
    )
    op.create_index(
        "audit_actor", "audit", ["actor"], unique=False, sqlite_where=sa.text("actor != 'engine'")
    )
    op.create_index("audit_arrow", "audit", ["arrow"], unique=False)
    op.create_index("audit_entity", "audit", ["run", "task", "version", "arrow"], unique=False)
    op.create_index(
        "audit_name", "audit", ["name", "version"], unique=False, sqlite_where=sa.text("name IS NOT NULL")
    )
    op.create_index(
        "audit_named", "audit", ["name", "seq"], unique=False, sqlite_where=sa.text("name IS NOT NULL")
    )
    op.create_index(
        "audit_request", "audit", ["request_id"], unique=False, sqlite_where=sa.text("request_id IS NOT NULL")
    )
    op.create_index("audit_run", "audit", ["run", "seq"], unique=False)
    op.create_index("audit_runs", "audit", ["task", "seq"], unique=False, sqlite_where=sa.text("task = 0"))
    op.create_index(
        "audit_source",
        "audit",
        ["source"],
        unique=False,
        sqlite_where=sa.text("source != 'engine' AND source != 'timer' AND source != 'worker'"),
    )
    op.create_table(
        "breakers",
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("entered", BIG, nullable=False),
        sa.Column("updated", BIG, nullable=False),
        sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("successes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("probe", sa.Text(), nullable=True),
        sa.Column("ramp", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "machine = 'pipeline.breaker' AND state IN ('CLOSED', 'OPEN', 'HALF_OPEN')",
            name=op.f("ck_breakers_state"),
        ),
        sa.PrimaryKeyConstraint("tool", name=op.f("pk_breakers")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "counters",
        sa.Column("counter", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("value", BIG, nullable=False),
        sa.PrimaryKeyConstraint("counter", "machine", "state", "event", name=op.f("pk_counters")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "engine_leases",
        sa.Column("term", BIG, autoincrement=False, nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("acquired", BIG, nullable=False),
        sa.Column("released", BIG, nullable=True),
        sa.PrimaryKeyConstraint("term", name=op.f("pk_engine_leases")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created", BIG, nullable=False),
        sa.Column("expires", BIG, nullable=False),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_idempotency_keys")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_index("idempotency_keys_expires", "idempotency_keys", ["expires"], unique=False)
    op.create_table(
        "outbox",
        sa.Column("seq", BIG, autoincrement=False, nullable=False),
        sa.Column("cause", BIG, nullable=False),
        sa.Column("instruction", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("delivered", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_outbox")),
        sqlite_strict=True,
        sqlite_with_rowid=True,
    )
    op.create_table(
        "store_info",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_store_info")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "timers",
        sa.Column("entity_kind", sa.Text(), nullable=False),
        sa.Column("entity", sa.Text(), nullable=False),
        sa.Column("timer", sa.Text(), nullable=False),
        sa.Column("due", BIG, nullable=False),
        sa.PrimaryKeyConstraint("entity_kind", "entity", "timer", name=op.f("pk_timers")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("capabilities", sa.Text(), nullable=False),
        sa.Column("workspace", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("created", BIG, nullable=False),
        sa.Column("updated", BIG, nullable=False),
        sa.Column("draining", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("frozen", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "workflow_versions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("created", BIG, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workflow_versions")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "decisions",
        sa.Column("seq", BIG, autoincrement=False, nullable=False),
        sa.Column("run", BIG, nullable=False),
        sa.Column("task", sa.Integer(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("at", BIG, nullable=False),
        sa.CheckConstraint("verdict IN ('approved', 'rejected')", name=op.f("ck_decisions_verdict")),
        sa.ForeignKeyConstraint(["seq"], ["audit.seq"], name=op.f("fk_decisions_seq")),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_decisions")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_index("decisions_of", "decisions", ["run", "task", "seq"], unique=False)
    op.create_table(
        "recoveries",
        sa.Column("seq", BIG, autoincrement=False, nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("entity", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["seq"], ["audit.seq"], name=op.f("fk_recoveries_seq")),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_recoveries")),
        sqlite_strict=True,
        sqlite_with_rowid=True,
    )
    op.create_table(
        "runs",
        sa.Column("number", BIG, autoincrement=False, nullable=False),
        sa.Column("workflow", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("task_description", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("requester", sa.Text(), nullable=True),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("created", BIG, nullable=False),
        sa.Column("entered", BIG, nullable=False),
        sa.Column("updated", BIG, nullable=False),
        sa.Column("started", BIG, nullable=True),
        sa.Column("ended", BIG, nullable=True),
        sa.Column("parent_run", BIG, nullable=True),
        sa.Column("parent_task", sa.Integer(), nullable=True),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("worker_count", sa.Integer(), nullable=False),
        sa.Column("task_count", sa.Integer(), nullable=False),
        sa.Column("origin_run", BIG, nullable=True),
        sa.Column("origin_verb", sa.Text(), nullable=True),
        sa.Column("ending", sa.Text(), nullable=True),
        sa.Column("ending_reason", sa.Text(), nullable=True),
        sa.Column("resumed_by", BIG, nullable=True),
        sa.Column("checking", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("live", sa.Text(), nullable=True),
        sa.Column("losses", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint(
            "machine = 'execution' AND state IN ('pending', 'queued', 'running', 'recovering', 'cancelling', 'held', 'waiting', 'success', 'failed', 'cancelled', 'skipped') OR machine = 'orchestration.workstream' AND state IN ('planned', 'ready', 'executing', 'validating', 'completed', 'failed', 'cancelled') OR machine = 'pipeline.workstream' AND state IN ('S_PENDING', 'S_RUNNING', 'S_SUCCESS', 'S_FAILED', 'S_RETRYING', 'S_ABANDONED') OR machine = 'supervision.job' AND state IN ('SUBMITTED', 'PENDING', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELED')",
            name=op.f("ck_runs_state"),
        ),
        sa.CheckConstraint("depth BETWEEN 0 AND 5", name=op.f("ck_runs_depth")),
        sa.CheckConstraint("worker_count BETWEEN 1 AND 10", name=op.f("ck_runs_worker_count")),
        sa.ForeignKeyConstraint(["parent_run"], ["runs.number"], name=op.f("fk_runs_parent_run")),
        sa.ForeignKeyConstraint(["workflow"], ["workflow_versions.id"], name=op.f("fk_runs_workflow")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_runs")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_index("runs_ended", "runs", ["ended", "number"], unique=False)
    op.create_index("runs_name", "runs", ["name", "number"], unique=False)
    op.create_index(
        "runs_open",
        "runs",
        ["number"],
        unique=False,
        sqlite_where=sa.text("ended IS NULL"),
        postgresql_where=sa.text("ended IS NULL"),
    )
    op.create_index(
        "runs_parent", "runs", ["parent_run"], unique=False, sqlite_where=sa.text("parent_run IS NOT NULL")
    )
    op.create_index("runs_requester", "runs", ["requester", "number"], unique=False)
    op.create_index("runs_state", "runs", ["machine", "state", "number"], unique=False)
    op.create_index("runs_updated", "runs", ["updated", "number"], unique=False)
    op.create_table(
        "worker_regions",
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("entered", BIG, nullable=False),
        sa.Column("updated", BIG, nullable=False),
        sa.CheckConstraint(
            "machine = 'orchestration.worker' AND state IN ('initializing', 'idle', 'busy', 'unresponsive', 'shutdown') OR machine = 'supervision.worker' AND state IN ('IDLE', 'RUNNING', 'PAUSED', 'COMPLETED', 'FAILED', 'TERMINATED')",
            name=op.f("ck_worker_regions_state"),
        ),
        sa.ForeignKeyConstraint(["worker"], ["workers.id"], name=op.f("fk_worker_regions_worker")),
        sa.PrimaryKeyConstraint("worker", "machine", name=op.f("pk_worker_regions")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "attempts",
        sa.Column("run", BIG, nullable=False),
        sa.Column("task", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("tool", sa.Text(), nullable=True),
        sa.Column("sub_run", BIG, nullable=True),
        sa.Column("sent", BIG, nullable=False),
        sa.Column("started", BIG, nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("stopping", sa.Text(), nullable=True),
        sa.Column("fenced", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("doubt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("ended", BIG, nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("output_size", BIG, nullable=True),
        sa.Column("cpu_time", BIG, nullable=True),
        sa.Column("peak_memory", BIG, nullable=True),
        sa.Column("artifacts", sa.Text(), nullable=True),
        sa.Column("diagnostics", sa.Text(), nullable=True),
        sa.CheckConstraint("(ended IS NULL) = (outcome IS NULL)", name=op.f("ck_attempts_outcome")),
        sa.ForeignKeyConstraint(["run"], ["runs.number"], name=op.f("fk_attempts_run")),
        sa.PrimaryKeyConstraint("run", "task", "attempt", "purpose", "round", name=op.f("pk_attempts")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_index("attempts_open", "attempts", ["run"], unique=False, sqlite_where=sa.text("ended IS NULL"))
    op.create_index(
        "attempts_tool", "attempts", ["tool"], unique=False, sqlite_where=sa.text("tool IS NOT NULL")
    )
    op.create_table(
        "check_results",
        sa.Column("run", BIG, nullable=False),
        sa.Column("task", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("passed", sa.Integer(), nullable=False),
        sa.Column("duration", BIG, nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("output", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["run"], ["runs.number"], name=op.f("fk_check_results_run")),
        sa.PrimaryKeyConstraint(
            "run", "task", "attempt", "purpose", "round", "position", name=op.f("pk_check_results")
        ),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "holds",
        sa.Column("run", BIG, nullable=False),
        sa.Column("task", sa.Integer(), nullable=False),
        sa.Column("approval", sa.Text(), nullable=False),
        sa.Column("met", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("opened_seq", BIG, nullable=False),
        sa.Column("opened", BIG, nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.number"], name=op.f("fk_holds_run")),
        sa.PrimaryKeyConstraint("run", "task", name=op.f("pk_holds")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tasks",
        sa.Column("run", BIG, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created", BIG, nullable=False),
        sa.Column("entered", BIG, nullable=False),
        sa.Column("updated", BIG, nullable=False),
        sa.Column("started", BIG, nullable=True),
        sa.Column("ended", BIG, nullable=True),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("retries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("losses", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("check_losses", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("probes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("health_checks", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("probing", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("live", sa.Text(), nullable=True),
        sa.Column("fenced", sa.Text(), nullable=True),
        sa.Column("checking", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("asking", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("final", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("circuit", sa.Text(), nullable=True),
        sa.Column("pardon", sa.Text(), nullable=True),
        sa.Column("blocked", sa.Text(), nullable=True),
        sa.Column("category", sa.Text(), nullable=True),
        sa.Column("fingerprint", sa.Text(), nullable=True),
        sa.Column("repeats", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("lost", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "machine = 'execution' AND state IN ('pending', 'queued', 'running', 'recovering', 'cancelling', 'held', 'waiting', 'success', 'failed', 'cancelled', 'skipped') OR machine = 'orchestration.task' AND state IN ('pending', 'queued', 'running', 'validating', 'completed', 'failed', 'retrying', 'cancelled') OR machine = 'pipeline.step' AND state IN ('S_PENDING', 'S_RUNNING', 'S_SUCCESS', 'S_FAILED', 'S_RETRYING') OR machine = 'toolchain.task' AND state IN ('PENDING', 'IN_PROGRESS', 'VALIDATING', 'COMPLETED', 'FAILED', 'RETRYING', 'CIRCUIT_OPEN', 'HALF_OPEN', 'TIMEOUT', 'SKIPPED', 'CANCELLED')",
            name=op.f("ck_tasks_state"),
        ),
        sa.ForeignKeyConstraint(["run"], ["runs.number"], name=op.f("fk_tasks_run")),
        sa.PrimaryKeyConstraint("run", "number", name=op.f("pk_tasks")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
