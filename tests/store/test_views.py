"""The documents' fields: each is there, under a name that a reader finds, with the right value."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import StaticPool, create_engine

from engine.core import signals as s
from engine.core.decision import Decision
from engine.core.plan import SECOND, Plan, Retry, Settings, TaskPlan, Tool, WhenOpen
from engine.core.records import CheckResult, Purpose, Report, TimerKind
from engine.machines import LIFECYCLES, MACHINES
from engine.store.connections import connect_writer
from engine.store.files import Place
from engine.store.sqlite_gate import SqliteGate
from engine.store.tables import BREAKER_MACHINE, WORKER_MACHINES, metadata
from tests.core.scene import Scene, task_ref
from tests.store.attack import START

Row = dict[str, Any]

RENAMED = {
    "workers": ("worker_states", {}),
    "worker_state_transitions": (
        "state_transitions",
        {"id": "transition_id", "worker_id": "entity_id", "timestamp": "transitioned_at"},
    ),
    "jobs": ("jobs", {}),
    "job_state_transitions": (
        "state_transitions",
        {"id": "transition_id", "job_id": "entity_id", "timestamp": "transitioned_at"},
    ),
    "idempotency_keys": (
        "idempotency_keys",
        {
            "endpoint": "operation",
            "response_status": "status",
            "response_body": "body",
            "created_at": "created",
            "expires_at": "expires",
        },
    ),
    "task_states": ("task_states", {}),
    "state_transitions": (
        "state_transitions",
        {"id": "transition_id", "task_id": "entity_id", "timestamp": "transitioned_at"},
    ),
}
"""For each table of documents 002 and 003 what holds it here, and the columns with another name."""

DOCUMENTED = {
    "workers": "id workspace_id status created_at updated_at metadata",
    "worker_state_transitions": "id worker_id from_state to_state reason timestamp",
    "jobs": (
        "id parent_job_id depth status worker_count created_at started_at completed_at task_description"
    ),
    "job_state_transitions": "id job_id from_state to_state reason timestamp",
    "idempotency_keys": "request_id endpoint response_status response_body created_at expires_at",
    "task_states": (
        "task_id workstream_id state previous_state attempt_count created_at started_at completed_at"
        " failed_at last_error error_count circuit_state execution_duration_ms validation_duration_ms"
        " total_duration_ms output_size_bytes exit_code"
    ),
    "state_transitions": "id task_id from_state to_state timestamp reason metadata",
}


class StoredScene(Scene):
    """A scene whose every decision is in a store."""

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__(Settings(tools={"lint": Tool("lint", has_health_command=True)}))
        self.db = db
        self.now = START
        self._gate = SqliteGate(db)

    def tell(self, signal: Callable[..., s.Signal], /, **fields: object) -> list[Decision]:
        decisions = super().tell(signal, **fields)
        self._gate.apply(decisions)
        return decisions

    def attempts(self, run: int, task: int, code: int, seconds: float, report: Report | None = None) -> None:
        """What is alive begins a second later, lasts so long and exits."""
        token = self.live(run, task)
        self.pass_time(1)
        self.tell(s.AttemptStarted, token=token, pid=7)
        self.pass_time(seconds)
        self.tell(s.AttemptEnded, token=token, exit_code=code, report=report)

    def rows(self, view: str, where: str = "1", *values: object) -> list[Row]:
        cursor = self.db.execute(f"SELECT * FROM {view} WHERE {where}", values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def told(self, run: int) -> Row:
        """The only task of a run, in the document's words."""
        (row,) = self.rows("task_states", "workstream_id = ?", run)
        return row

    def job(self, run: int) -> Row:
        (row,) = self.rows("jobs", "id = ?", run)
        return row


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[StoredScene]:
    place = Place(tmp_path / "interlock.db")
    place.make()
    with closing(connect_writer(place, "OFF")) as db:
        scene = StoredScene(db)
        fields = {"workspace": "/srv/build", "metadata": {"zone": "b"}}
        scene.tell(s.WorkerRegistered, worker="w", slots=4, **fields)
        yield scene


def after(seconds: float) -> int:
    return START + round(seconds * SECOND)


# ---- every column


@pytest.mark.parametrize("table", DOCUMENTED)
def test_every_documented_column_has_its_place(table: str, scene: StoredScene) -> None:
    holder, renamed = RENAMED[table]
    found = {row[1] for row in scene.db.execute(f"PRAGMA table_info({holder})")}
    wanted = {renamed.get(column, column) for column in DOCUMENTED[table].split()}
    assert len(wanted) >= 6
    assert wanted - found == set()


def test_what_is_derived_is_a_view_and_no_second_truth(scene: StoredScene) -> None:
    kinds = dict(scene.db.execute("SELECT name, type FROM sqlite_schema"))
    derived = ["task_states", "jobs", "worker_states", "state_transitions", "tool_invocations", "history"]
    assert {name: kinds[name] for name in derived} == dict.fromkeys(derived, "view")
    for table in metadata.tables.values():
        assert not {"previous_state", "circuit_state", "retry_count"} & set(table.c.keys()), table


# ---- the documents' checks

RUN = {
    "number": 1, "workflow": "x", "name": "x", "task_description": "x", "machine": "supervision.job",
    "state": "SUBMITTED", "version": 1, "params": "{}", "created": 1, "entered": 1, "updated": 1, "depth": 0,
    "worker_count": 1, "task_count": 1,
}  # fmt: skip
TASK = {
    "run": 1, "number": 1, "name": "x", "machine": "toolchain.task", "state": "PENDING", "version": 1,
    "created": 1, "entered": 1, "updated": 1,
}  # fmt: skip
REGION = {
    "worker": "w", "machine": "supervision.worker", "state": "IDLE", "version": 1, "entered": 1, "updated": 1,
}  # fmt: skip
BREAKER = {
    "tool": "t", "machine": BREAKER_MACHINE, "state": "CLOSED", "version": 1, "entered": 1, "updated": 1
}  # fmt: skip


@pytest.fixture
def bare() -> Iterator[sqlite3.Connection]:
    """The tables alone, without triggers: what is left is what a CHECK refuses."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        metadata.create_all(create_engine("sqlite://", creator=lambda: db, poolclass=StaticPool))
        yield db


def accepts(db: sqlite3.Connection, table: str, row: Row, **others: object) -> bool:
    values = row | others
    named, marks = ", ".join(values), ", ".join("?" * len(values))
    db.execute("SAVEPOINT try")
    try:
        db.execute(f"INSERT INTO {table} ({named}) VALUES ({marks})", tuple(values.values()))
    except sqlite3.IntegrityError as error:
        if "CHECK constraint failed" not in str(error):
            raise
        return False
    finally:
        db.execute("ROLLBACK TO try")
    return True


def test_a_job_is_at_most_five_deep_and_has_one_to_ten_workers(bare: sqlite3.Connection) -> None:
    assert [n for n in range(-2, 9) if accepts(bare, "runs", RUN, depth=n)] == [0, 1, 2, 3, 4, 5]
    assert [n for n in range(-2, 14) if accepts(bare, "runs", RUN, worker_count=n)] == list(range(1, 11))


@pytest.mark.parametrize("table", ["runs", "tasks", "worker_regions", "breakers"])
def test_under_each_machine_there_are_its_own_states_only(table: str, bare: sqlite3.Connection) -> None:
    row = {"runs": RUN, "tasks": TASK, "worker_regions": REGION, "breakers": BREAKER}[table]
    every = sorted({state.name for machine in MACHINES.values() for state in machine.states} | {"", "x"})
    drives = {
        "runs": {pair.run for pair in LIFECYCLES.values()},
        "tasks": {pair.task for pair in LIFECYCLES.values()},
        "worker_regions": set(WORKER_MACHINES),
        "breakers": {BREAKER_MACHINE},
    }[table]
    for name, machine in MACHINES.items():
        fitting = {state for state in every if accepts(bare, table, row, machine=name, state=state)}
        assert fitting == ({state.name for state in machine.states} if name in drives else set()), name


def test_the_lists_of_document_002_are_the_lists_of_the_tables(bare: sqlite3.Connection) -> None:
    jobs = ["SUBMITTED", "PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELED"]
    workers = ["IDLE", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "TERMINATED"]
    every = sorted({*jobs, *workers, "running", "CANCELLED", "DONE"})
    assert [n for n in every if accepts(bare, "runs", RUN, state=n)] == sorted(jobs)
    assert [n for n in every if accepts(bare, "worker_regions", REGION, state=n)] == sorted(workers)


# ---- the values, after a small run


def test_a_task_that_is_retried_and_checked_tells_its_life(scene: StoredScene) -> None:
    """It fails from 1 to 3 s, is sent again at 5 s, works from 6 to 10.5 s, is checked from 11.5 to 13 s."""
    build = TaskPlan("build", tool="aider", checks=2)
    run = scene.submit(Plan("ship", (build,), description="Build it all", worker_count=3))
    begun = {
        "task_id": "1/build", "workstream_id": 1, "machine": "toolchain.task", "created_at": START,
        "started_at": START,
    }  # fmt: skip
    assert scene.told(run) == begun | {
        "state": "IN_PROGRESS", "previous_state": "PENDING", "attempt_count": 1, "completed_at": None,
        "failed_at": None, "updated_at": START, "last_error": None, "error_count": 0,
        "circuit_state": "CLOSED", "execution_duration_ms": None, "validation_duration_ms": None,
        "total_duration_ms": 0, "output_size_bytes": None, "exit_code": None, "worker_id": "w",
    }  # fmt: skip

    scene.attempts(run, 1, 3, 2, Report(output_size=100))
    assert scene.told(run) == begun | {
        "state": "RETRYING", "previous_state": "FAILED", "attempt_count": 1, "completed_at": None,
        "failed_at": after(3), "updated_at": after(3), "last_error": "exit 3", "error_count": 1,
        "circuit_state": "CLOSED", "execution_duration_ms": 2000, "validation_duration_ms": None,
        "total_duration_ms": 3000, "output_size_bytes": 100, "exit_code": 3, "worker_id": None,
    }  # fmt: skip
    assert scene.job(run)["retry_count"] == 1

    scene.due(task_ref(run, 1), TimerKind.RETRY)
    measured = Report(2048, 1_500_000, 40_000_000, ("dist/app.whl", "dist/notes"), "warmed up")
    scene.attempts(run, 1, 0, 4.5, measured)
    assert scene.told(run)["state"] == "VALIDATING"
    checks = (CheckResult("unit", True, 900_000, 0, "12 passed"), CheckResult("types", True, 100_000))
    scene.attempts(run, 1, 0, 1.5, Report(checks=checks))
    assert scene.told(run) == begun | {
        "state": "COMPLETED", "previous_state": "VALIDATING", "attempt_count": 2, "completed_at": after(13),
        "failed_at": after(3), "updated_at": after(13), "last_error": "exit 3", "error_count": 1,
        "circuit_state": "CLOSED", "execution_duration_ms": 6500, "validation_duration_ms": 1500,
        "total_duration_ms": 13000, "output_size_bytes": 2048, "exit_code": 0, "worker_id": None,
    }  # fmt: skip

    job = scene.job(run)
    assert not job.pop("retry_count")
    assert job == {
        "id": 1, "parent_job_id": None, "depth": 0, "machine": "execution", "status": "success",
        "previous_state": "running", "worker_count": 3, "created_at": START, "started_at": START,
        "completed_at": after(13), "failed_at": None, "updated_at": after(13),
        "task_description": "Build it all",
    }  # fmt: skip


def test_an_attempt_keeps_what_was_measured_and_each_check_its_result(scene: StoredScene) -> None:
    run = scene.submit(Plan("ship", (TaskPlan("build", tool="aider", checks=2),)))
    scene.attempts(run, 1, 0, 4, Report(2048, 1_500_000, 40_000_000, ("dist/app.whl",), "warmed up"))
    checks = (CheckResult("unit", False, 900_000, 1, "1 failed"), CheckResult("types", True, 100_000))
    scene.attempts(run, 1, 1, 2, Report(checks=checks))
    work, check = (
        scene.rows("attempts", "purpose = ?", purpose.value)[0] for purpose in (Purpose.WORK, Purpose.CHECK)
    )
    assert (work["worker"], work["tool"], work["pid"], work["exit_code"]) == ("w", "aider", 7, 0)
    assert (work["sent"], work["started"], work["ended"]) == (START, after(1), after(5))
    assert (work["output_size"], work["cpu_time"], work["peak_memory"]) == (2048, 1_500_000, 40_000_000)
    assert (json.loads(work["artifacts"]), work["diagnostics"]) == (["dist/app.whl"], "warmed up")
    assert (check["exit_code"], check["ended"]) == (1, after(8))
    kept = ("attempt", "position", "name", "passed", "duration", "exit_code", "output")
    assert [tuple(row[name] for name in kept) for row in scene.rows("check_results")] == [
        (1, 1, "unit", 0, 900_000, 1, "1 failed"),
        (1, 2, "types", 1, 100_000, None, None),
    ]
    assert scene.told(run)["last_error"]


def test_the_circuit_of_a_task_follows_from_its_state(scene: StoredScene) -> None:
    once = Retry(max_attempts=1)
    lint = TaskPlan("lint", tool="lint", retry=once, when_circuit_open=WhenOpen.WAIT)
    run = scene.submit(Plan("tidy", (lint,)))
    scene.attempts(run, 1, 3, 2)
    seen = [scene.told(run)]
    scene.due(task_ref(run, 1), TimerKind.PROBE)
    seen.append(scene.told(run))
    scene.attempts(run, 1, 0, 1)
    seen.append(scene.told(run))
    assert [(row["state"], row["previous_state"], row["circuit_state"]) for row in seen] == [
        ("CIRCUIT_OPEN", "FAILED", "OPEN"),
        ("HALF_OPEN", "CIRCUIT_OPEN", "HALF_OPEN"),
        ("IN_PROGRESS", "HALF_OPEN", "CLOSED"),
    ]
    assert {row["failed_at"] for row in seen} == {after(3)}
    assert {row["error_count"] for row in seen} == {1}


def test_the_retry_count_of_a_workstream_is_the_largest_among_its_failed_steps(scene: StoredScene) -> None:
    run = scene.submit(Plan("pipe", (TaskPlan("x"), TaskPlan("y")), LIFECYCLES["pipeline"]))
    counts = []
    for _ in range(2):
        scene.attempts(run, 1, 3, 1)
        job = scene.job(run)
        counts.append((job["status"], job["previous_state"], job["retry_count"], job["failed_at"]))
        scene.due(task_ref(run, 1), TimerKind.RETRY)
        assert not scene.job(run)["retry_count"]
    assert counts == [
        ("S_RETRYING", "S_FAILED", 1, after(2)),
        ("S_RETRYING", "S_FAILED", 2, after(6)),
    ]


def test_a_sub_job_knows_its_parent_and_its_depth(scene: StoredScene) -> None:
    pair = LIFECYCLES["supervision"]
    inner = Plan("inner", (TaskPlan("x"),), pair)
    middle = Plan("middle", (TaskPlan("call", uses=inner),), pair)
    scene.submit(Plan("outer", (TaskPlan("call", uses=middle),), pair))
    told = [(job["id"], job["parent_job_id"], job["depth"], job["status"]) for job in scene.rows("jobs")]
    assert told == [(1, None, 0, "RUNNING"), (2, 1, 1, "RUNNING"), (3, 2, 2, "RUNNING")]
    assert [job["task_description"] for job in scene.rows("jobs")] == ["outer", "middle", "inner"]


def test_a_worker_tells_its_workspace_both_regions_and_what_it_carries(scene: StoredScene) -> None:
    scene.pass_time(5)
    scene.submit(Plan("ship", (TaskPlan("build"),)))
    (row,) = scene.rows("worker_states")
    assert json.loads(row.pop("metadata")) == {"zone": "b"}
    assert row == {
        "id": "w", "workspace_id": "/srv/build", "health": "busy", "status": "RUNNING", "created_at": START,
        "updated_at": after(5),
    }  # fmt: skip


def test_invocations_are_counted_for_each_tool(scene: StoredScene) -> None:
    tasks = (
        TaskPlan("a", tool="aider"),
        TaskPlan("b", tool="ruff"),
        TaskPlan("c", tool="ruff"),
        TaskPlan("d"),
    )
    run = scene.submit(Plan("ship", tasks))
    scene.attempts(run, 1, 3, 1)
    scene.due(task_ref(run, 1), TimerKind.RETRY)
    found = {row["tool"]: row["invocations"] for row in scene.rows("tool_invocations")}
    assert found == {"aider": 2, "ruff": 2}


# ---- the trail in words


def test_the_transitions_of_a_task_are_told_in_order_with_reason_and_metadata(scene: StoredScene) -> None:
    run = scene.submit(Plan("ship", (TaskPlan("build", checks=1),)))
    scene.attempts(run, 1, 3, 2)
    rows = scene.rows("state_transitions", "entity_kind = 'task' ORDER BY transition_id")
    assert [(row["from_state"], row["to_state"], row["transitioned_at"], row["reason"]) for row in rows] == [
        (None, "PENDING", START, None),
        ("PENDING", "IN_PROGRESS", START, None),
        ("IN_PROGRESS", "FAILED", after(3), "exit 3"),
        ("FAILED", "RETRYING", after(3), "exit 3"),
    ]
    assert {row["entity_id"] for row in rows} == {"1/build"}
    assert json.loads(rows[2]["metadata"])["closes"] == {
        "token": "1.1.1",
        "outcome": "exited",
        "exit_code": 3,
    }
    assert json.loads(rows[3]["metadata"])["error"] == "exit 3"


def test_history_names_every_entity_and_holds_the_facts_as_well(scene: StoredScene) -> None:
    run = scene.submit(Plan("ship", (TaskPlan("build", tool="aider", checks=1),)))
    scene.attempts(run, 1, 3, 2)
    scene.due(task_ref(run, 1), TimerKind.RETRY)
    scene.attempts(run, 1, 0, 2)
    rows = scene.rows("history", "1 ORDER BY seq")
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert {(row["entity_kind"], row["entity_id"]) for row in rows} == {
        ("run", "1"), ("task", "1/build"), ("worker", "w"), ("breaker", "aider"),
    }  # fmt: skip
    facts = [row for row in rows if row["to_state"] is None]
    assert "checks_started" in {row["event"] for row in facts}
    assert all(row["from_state"] is None and row["kind"] == "fact" for row in facts)
    moves = {row["seq"] for row in rows} - {row["seq"] for row in facts}
    assert {row["transition_id"] for row in scene.rows("state_transitions")} == moves
