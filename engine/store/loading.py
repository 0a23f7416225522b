"""Rows as records: what a model is built from, and the trail of one entity."""

import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from engine.core.decision import TimerSet
from engine.core.model import Snapshot
from engine.core.plan import Category, Plan
from engine.core.records import (
    Attempt,
    Breaker,
    Circuit,
    Ending,
    Entity,
    Hold,
    Origin,
    Pardon,
    Purpose,
    Ref,
    Run,
    Stop,
    Task,
    TimerKind,
    Token,
    Vote,
    Worker,
)
from engine.machines import MACHINES, Phase
from engine.store.codec import parse_ref, parse_token, ref_values
from engine.store.gate import AuditRow
from engine.store.plans import parse_approval, parse_plan
from engine.store.tables import BREAKER_MACHINE, WORKER_MACHINES

Row = sqlite3.Row
Holds = dict[tuple[int, int], Hold]

HEALTH, CONTROL = WORKER_MACHINES
GONE = tuple(state.name for state in MACHINES[HEALTH].states if state.phase is Phase.CANCELLED)

OPEN_RUNS = "SELECT number FROM runs WHERE ended IS NULL UNION SELECT run FROM attempts WHERE ended IS NULL"


def load_snapshot(db: sqlite3.Connection) -> Snapshot:
    """Everything that is not over."""
    attempts = [attempt_of(row) for row in _rows(db, "SELECT * FROM attempts WHERE ended IS NULL")]
    last = db.execute("SELECT max(number) FROM runs").fetchone()[0]
    runs, tasks = _runs_and_tasks(db, OPEN_RUNS)
    return Snapshot(
        runs=runs,
        tasks=tasks,
        attempts=tuple(sorted(attempts, key=lambda attempt: attempt.token)),
        workers=_workers(db, {attempt.worker for attempt in attempts}),
        breakers=tuple(breaker_of(row) for row in _rows(db, "SELECT * FROM breakers ORDER BY tool")),
        timers=_timers(db),
        next_run=(last or 0) + 1,
    )


def _rows(db: sqlite3.Connection, sql: str, *values: object) -> list[Row]:
    cursor = db.cursor()
    cursor.row_factory = sqlite3.Row
    return cursor.execute(sql, values).fetchall()


def _runs_and_tasks(db: sqlite3.Connection, wanted: str) -> tuple[tuple[Run, ...], tuple[Task, ...]]:
    holds = _holds(db, wanted)
    plans: dict[str, Plan] = {}
    runs: dict[int, Run] = {}
    for row in _rows(db, f"SELECT * FROM runs WHERE number IN ({wanted}) ORDER BY number"):
        version = row["workflow"]
        if version not in plans:
            text = db.execute("SELECT plan FROM workflow_versions WHERE id = ?", (version,)).fetchone()[0]
            plans[version] = parse_plan(text)
        runs[row["number"]] = run_of(row, plans[version], holds)
    found = _rows(db, f"SELECT * FROM tasks WHERE run IN ({wanted}) ORDER BY run, number")
    tasks = tuple(task_of(row, runs[row["run"]].plan, holds) for row in found)
    return tuple(runs.values()), tasks


def _holds(db: sqlite3.Connection, wanted: str) -> Holds:
    votes: dict[tuple[int, int], list[Vote]] = {}
    cast = (
        "SELECT d.run, d.task, d.actor, d.at, d.reason FROM decisions AS d"
        " JOIN holds AS h ON h.run = d.run AND h.task = d.task"
        f" WHERE d.run IN ({wanted}) AND d.verdict = 'approved' AND d.seq > h.opened_seq ORDER BY d.seq"
    )
    for run, task, actor, at, reason in db.execute(cast):
        votes.setdefault((run, task), []).append(Vote(actor, at, reason))
    return {
        (run, task): Hold(parse_approval(json.loads(approval)), tuple(votes.get((run, task), ())), bool(met))
        for run, task, approval, met in db.execute(
            f"SELECT run, task, approval, met FROM holds WHERE run IN ({wanted})"
        )
    }


# ---- one row, one record


def run_of(row: Row, plan: Plan, holds: Holds) -> Run:
    number, machine = row["number"], MACHINES[row["machine"]]
    parent = None if row["parent_run"] is None else (row["parent_run"], row["parent_task"])
    return Run(
        number=number,
        plan=plan,
        requester=row["requester"],
        params=json.loads(row["params"]),
        state=row["state"],
        phase=machine.phase[row["state"]],
        version=row["version"],
        created=row["created"],
        entered=row["entered"],
        started=row["started"],
        ended=row["ended"],
        parent=parent,
        depth=row["depth"],
        origin=None if row["origin_run"] is None else Origin(row["origin_run"], row["origin_verb"]),
        hold=holds.get((number, 0)),
        ending=_some(Ending, row["ending"]),
        ending_reason=row["ending_reason"],
        resumed_by=row["resumed_by"],
        checking=bool(row["checking"]),
        attempt=row["attempt"],
        live=_token(row["live"]),
        losses=row["losses"],
    )


def task_of(row: Row, plan: Plan, holds: Holds) -> Task:
    key = (row["run"], row["number"])
    machine = MACHINES[row["machine"]]
    return Task(
        run=row["run"],
        number=row["number"],
        plan=plan.task(row["number"]),
        machine=machine.name,
        state=row["state"],
        phase=machine.phase[row["state"]],
        version=row["version"],
        created=row["created"],
        entered=row["entered"],
        started=row["started"],
        ended=row["ended"],
        attempt=row["attempt"],
        retries=row["retries"],
        failures=row["failures"],
        losses=row["losses"],
        check_losses=row["check_losses"],
        probes=row["probes"],
        health_checks=row["health_checks"],
        probing=bool(row["probing"]),
        live=_token(row["live"]),
        fenced=_token(row["fenced"]),
        checking=bool(row["checking"]),
        asking=bool(row["asking"]),
        final=bool(row["final"]),
        circuit=_some(Circuit, row["circuit"]),
        hold=holds.get(key),
        pardon=_some(Pardon, row["pardon"]),
        blocked=row["blocked"],
        category=_some(Category, row["category"]),
        fingerprint=row["fingerprint"],
        repeats=row["repeats"],
        error=row["error"],
        exit_code=row["exit_code"],
        lost=tuple(map(parse_token, json.loads(row["lost"]))) if row["lost"] else (),
    )


def attempt_of(row: Row) -> Attempt:
    return Attempt(
        token=Token(row["run"], row["task"], row["attempt"], Purpose(row["purpose"]), row["round"]),
        worker=row["worker"],
        sent=row["sent"],
        tool=row["tool"],
        sub_run=row["sub_run"],
        started=row["started"],
        pid=row["pid"],
        stopping=_some(Stop, row["stopping"]),
        fenced=bool(row["fenced"]),
        doubt=bool(row["doubt"]),
    )


def breaker_of(row: Row) -> Breaker:
    return Breaker(
        tool=row["tool"],
        state=row["state"],
        phase=MACHINES[BREAKER_MACHINE].phase[row["state"]],
        version=row["version"],
        entered=row["entered"],
        failures=row["failures"],
        successes=row["successes"],
        probe=_token(row["probe"]),
        ramp=row["ramp"],
        error=row["error"],
    )


def _workers(db: sqlite3.Connection, busy: Iterable[str | None]) -> tuple[Worker, ...]:
    held = frozenset(busy)
    joined = _rows(
        db,
        "SELECT w.*, h.state AS health, h.version AS health_version, h.entered AS health_entered,"
        " c.state AS control, c.version AS control_version, c.entered AS control_entered"
        " FROM workers AS w"
        " JOIN worker_regions AS h ON h.worker = w.id AND h.machine = ?"
        " JOIN worker_regions AS c ON c.worker = w.id AND c.machine = ? ORDER BY w.id",
        HEALTH,
        CONTROL,
    )
    return tuple(worker_of(row) for row in joined if row["health"] not in GONE or row["id"] in held)


def worker_of(row: Row) -> Worker:
    return Worker(
        id=row["id"],
        slots=row["slots"],
        capabilities=frozenset(json.loads(row["capabilities"])),
        health=row["health"],
        health_phase=MACHINES[HEALTH].phase[row["health"]],
        health_version=row["health_version"],
        control=row["control"],
        control_phase=MACHINES[CONTROL].phase[row["control"]],
        control_version=row["control_version"],
        created=row["created"],
        health_entered=row["health_entered"],
        control_entered=row["control_entered"],
        workspace=row["workspace"],
        metadata=json.loads(row["metadata"]),
        draining=bool(row["draining"]),
        frozen=bool(row["frozen"]),
        reason=row["reason"],
    )


def _timers(db: sqlite3.Connection) -> tuple[TimerSet, ...]:
    rows = db.execute("SELECT entity_kind, entity, timer, due FROM timers")
    timers = [TimerSet(parse_ref(kind, entity), TimerKind(timer), due) for kind, entity, timer, due in rows]
    return tuple(sorted(timers, key=lambda timer: (timer.ref.kind, str(timer.ref), timer.kind)))


def _some(kind: Any, value: object) -> Any:
    return None if value is None else kind(value)


def _token(text: str | None) -> Token | None:
    return None if text is None else parse_token(text)


# ---- the trail

TRAIL_COLUMNS = (
    ("a", "seq"), ("a", "at"), ("a", "cause"), ("a", "actor"), ("a", "source"), ("a", "run"), ("a", "task"),
    ("a", "name"), ("t", "name"), ("r", "machine"), ("a", "version"), ("r", "from_state"), ("r", "event"),
    ("r", "to_state"), ("a", "reason"), ("a", "request_id"), ("a", "since"), ("a", "metadata"),
)  # fmt: skip
TRAIL = (
    f"SELECT {', '.join(f'{table}.{column}' for table, column in TRAIL_COLUMNS)}"
    " FROM audit AS a CROSS JOIN arrows AS r LEFT JOIN tasks AS t ON t.run = a.run AND t.number = a.task"
    " WHERE r.id = a.arrow"
)
"""Rows of the trail with their words; a cross join, so that they are walked in their own order."""


def trail_of(db: sqlite3.Connection, ref: Ref) -> list[AuditRow]:
    """All rows of one entity, oldest first."""
    run, task, name = ref_values(ref)
    if name is None:
        rows = db.execute(f"{TRAIL} AND a.run = ? AND a.task = ? ORDER BY a.seq", (run, task))
    else:
        machines = WORKER_MACHINES if ref.kind is Entity.WORKER else (BREAKER_MACHINE,)
        marks = ", ".join("?" * len(machines))
        where = f"{TRAIL} AND a.name = ? AND r.machine IN ({marks}) ORDER BY a.seq"
        rows = db.execute(where, (name, *machines))
    return [audit_row(row) for row in rows]


def transitions_after(db: sqlite3.Connection, seq: int, limit: int) -> list[AuditRow]:
    """The next transitions after a row, of all entities; creations and facts are left out."""
    moved = f"{TRAIL} AND a.seq > ? AND r.from_state IS NOT NULL ORDER BY a.seq LIMIT ?"
    return [audit_row(row) for row in db.execute(moved, (seq, limit))]


def audit_row(row: Iterable[Any]) -> AuditRow:
    """A row of `TRAIL` as what it tells."""
    (
        seq, at, cause, actor, source, run, task, name, task_name, machine, version, from_state, event,
        to_state, reason, request_id, since, metadata,
    ) = row  # fmt: skip
    ref, label = who(run, task, name, task_name, machine)
    return AuditRow(
        seq, at, cause, actor, source, ref, label, machine, version, from_state, event, to_state, reason,
        request_id, since, json.loads(metadata),
    )  # fmt: skip


def who(
    run: int | None, task: int | None, name: str | None, task_name: str | None, machine: str
) -> tuple[Ref, str]:
    """The entity of a row of the trail, and how people call it."""
    if name is not None:
        kind = Entity.BREAKER if machine == BREAKER_MACHINE else Entity.WORKER
        return Ref(kind, name), name
    assert run is not None
    assert task is not None
    if task == 0:
        return Ref(Entity.RUN, run), str(run)
    return Ref(Entity.TASK, (run, task)), f"{run}/{task_name or task}"
