"""Tools of an attacker with plain SQL, and the store that is attacked: an entity in every state there is.

Each entity is walked to its state by the gate, over documented arrows. An attack runs inside a savepoint
and is taken back, so that thousands of them share one store.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.core.decision import Created, Decision, Transition
from engine.core.plan import Plan, TaskPlan
from engine.core.records import Breaker, Entity, Record, Ref, Run, Task, Worker
from engine.machines import MACHINES, RUN_MACHINES, TASK_MACHINES, Arrow, Kind, Lifecycle, Machine
from engine.store.chain import GENESIS, arrow_words, link, row_hash
from engine.store.codec import ref_values
from engine.store.connections import connect_writer
from engine.store.files import Place
from engine.store.sqlite_gate import SqliteGate
from engine.store.statements import KEYS
from engine.store.tables import BREAKER_MACHINE, WORKER_MACHINES

START = 1_705_314_600_000_000
"""2024-01-15T10:30:00Z"""

TABLE = {
    Entity.RUN: "runs",
    Entity.TASK: "tasks",
    Entity.WORKER: "worker_regions",
    Entity.BREAKER: "breakers",
}

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """A machine together with the entities that it drives."""

    entity: Entity
    name: str

    def __str__(self) -> str:
        return f"{self.entity} {self.name}"

    @property
    def machine(self) -> Machine:
        return MACHINES[self.name]

    @property
    def table(self) -> str:
        return TABLE[self.entity]

    @property
    def key(self) -> tuple[str, ...]:
        return KEYS[self.table]

    @property
    def where(self) -> str:
        return " AND ".join(f"{column} = :{column}" for column in self.key)

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(state.name for state in self.machine.states)

    @property
    def legal(self) -> dict[tuple[str, str], tuple[Arrow, ...]]:
        """Each pair of states that an arrow joins, with its arrows."""
        pairs: dict[tuple[str, str], tuple[Arrow, ...]] = {}
        for arrow in self.machine.arrows:
            pair = (arrow.source, arrow.target)
            pairs[pair] = (*pairs.get(pair, ()), arrow)
        return pairs

    @property
    def illegal(self) -> list[tuple[str, str]]:
        """Every other pair, staying where it is included."""
        every = ((source, target) for source in self.states for target in self.states)
        return [pair for pair in every if pair not in self.legal]

    def ref(self, state: str) -> Ref:
        """The entity of this store that rests in the state."""
        place = SUBJECTS.index(self) * 100 + self.states.index(state) + 1
        if self.entity is Entity.RUN:
            return Ref(self.entity, place)
        if self.entity is Entity.TASK:
            return Ref(self.entity, (place, 1))
        return Ref(self.entity, f"{self.name}-{state}")

    def key_of(self, state: str) -> Values:
        key = self.ref(state).key
        values = key if isinstance(key, tuple) else (key,)
        return dict(zip(self.key, (*values, self.name), strict=False))


SUBJECTS = (
    *(Subject(Entity.RUN, name) for name in RUN_MACHINES),
    *(Subject(Entity.TASK, name) for name in TASK_MACHINES),
    *(Subject(Entity.WORKER, name) for name in WORKER_MACHINES),
    Subject(Entity.BREAKER, BREAKER_MACHINE),
)


# ---- the store


def way_to(machine: Machine, state: str) -> list[Arrow]:
    """A shortest documented way from the initial state."""
    ways: dict[str, list[Arrow]] = {machine.initial: []}
    edge = [machine.initial]
    while state not in ways:
        edge = [_step(ways, arrow) for here in edge for arrow in machine.arrows
                if arrow.source == here and arrow.target not in ways]  # fmt: skip
    return ways[state]


def _step(ways: dict[str, list[Arrow]], arrow: Arrow) -> str:
    ways[arrow.target] = [*ways[arrow.source], arrow]
    return arrow.target


class Fabricator:
    """Makes decisions out of nothing but the machines, and has the gate store them."""

    def __init__(self, gate: SqliteGate) -> None:
        self._gate = gate
        self._signals = 0

    def rest(self, subject: Subject, state: str) -> None:
        """Make an entity and walk it to this state."""
        ref = subject.ref(state)
        record = self._born(subject, ref)
        self._walk(ref, subject.machine, record, way_to(subject.machine, state))

    def _born(self, subject: Subject, ref: Ref) -> Record:
        key, entity = ref.key, subject.entity
        if entity is Entity.RUN:
            assert isinstance(key, int)
            run = self._run(key, Lifecycle(subject.name, "execution"))
            self._create(run, subject.name)
            return run
        if entity is Entity.TASK:
            assert isinstance(key, tuple)
            self._create(self._run(key[0], Lifecycle("execution", subject.name)), "execution")
            task = self._task(key[0], subject.name)
            self._create(task, subject.name)
            return task
        assert isinstance(key, str)
        if entity is Entity.BREAKER:
            machine = subject.machine
            breaker = Breaker(key, machine.initial, machine.phase[machine.initial], 1, START)
            self._create(breaker, subject.name)
            return breaker
        worker = self._worker(key)
        self._create(worker, *WORKER_MACHINES)
        return worker

    def _run(self, number: int, lifecycle: Lifecycle) -> Run:
        machine = MACHINES[lifecycle.run]
        plan = Plan(f"plan {lifecycle.run}", (TaskPlan("build"),), lifecycle)
        first, phase = machine.initial, machine.phase[machine.initial]
        return Run(number, plan, "dev", {}, first, phase, 1, START, START)

    def _task(self, run: int, name: str) -> Task:
        machine = MACHINES[name]
        first, phase = machine.initial, machine.phase[machine.initial]
        return Task(run, 1, TaskPlan("build"), name, first, phase, 1, START, START)

    def _worker(self, id: str) -> Worker:
        health, control = (MACHINES[name] for name in WORKER_MACHINES)
        return Worker(
            id, 1, frozenset(), health.initial, health.phase[health.initial], 1, control.initial,
            control.phase[control.initial], 1, START, START, START,
        )  # fmt: skip

    def _create(self, record: Record, *machines: str) -> None:
        born = [Created(record.ref, name, MACHINES[name].initial, record) for name in machines]
        self._store(*born)

    def _walk(self, ref: Ref, machine: Machine, record: Record, way: Sequence[Arrow]) -> None:
        for version, arrow in enumerate(way, 2):
            reason = "the operator knows why" if arrow.kind is Kind.RECOVERY else None
            move = (ref, machine.name, arrow.source, arrow.event, arrow.target, arrow.kind, version)
            self._store(Transition(*move, {}, reason, None, None, START, record))

    def _store(self, *changes: Created | Transition) -> None:
        self._signals += 1
        at = START + self._signals
        self._gate.apply([Decision(self._signals, at, "fabricator", "test", None, changes)])


def fabricate(path: Path) -> Place:
    """A store with one entity in each state of each machine."""
    place = Place(path)
    place.make()
    with closing(connect_writer(place, "OFF")) as db:
        fabricator = Fabricator(SqliteGate(db))
        for subject in SUBJECTS:
            for state in subject.states:
                fabricator.rest(subject, state)
    return place


# ---- the attacker


class Attacker:
    """Somebody with `sqlite3` and the file; `pragmas` are what a careful one would switch on."""

    def __init__(self, path: Path, *, pragmas: bool) -> None:
        self.db = sqlite3.connect(path, isolation_level=None, cached_statements=1000)
        if pragmas:
            self.db.execute("PRAGMA foreign_keys = ON")
            self.db.execute("PRAGMA recursive_triggers = ON")
        self.db.execute("BEGIN IMMEDIATE")
        self.tried = 0

    def close(self) -> None:
        self.db.execute("ROLLBACK")
        self.db.close()

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Whatever happens in here has not happened afterwards."""
        self.db.execute("SAVEPOINT attack")
        try:
            yield
        finally:
            self.db.execute("ROLLBACK TO attack")
            self.db.execute("RELEASE attack")

    def refused(self, sql: str, values: Values | Sequence[Any] = ()) -> str | None:
        """The sentence with which the database refuses it; None when it did not."""
        self.tried += 1
        try:
            self.db.execute(sql, values).fetchall()
        except sqlite3.IntegrityError as error:
            return str(error)
        return None

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return self.db.execute(f"SELECT * FROM {table}").fetchall()

    def row(self, subject: Subject, state: str) -> Values:
        """The whole row of the entity that rests in a state."""
        sql = f"SELECT * FROM {subject.table} WHERE {subject.where}"
        cursor = self.db.execute(sql, subject.key_of(state))
        found = cursor.fetchone()
        assert found is not None, (subject, state)
        return {column[0]: value for column, value in zip(cursor.description, found, strict=True)}

    def arrow(self, machine: str, arrow: Arrow) -> int:
        sql = "SELECT id FROM arrows WHERE machine = ? AND from_state = ? AND event = ? AND to_state = ?"
        key = (machine, arrow.source, arrow.event, arrow.target)
        number: int = self.db.execute(sql, key).fetchone()[0]
        return number

    def birth(self, machine: str) -> int:
        sql = "SELECT id FROM arrows WHERE machine = ? AND kind = 'created'"
        number: int = self.db.execute(sql, (machine,)).fetchone()[0]
        return number

    def forge(self, ref: Ref, version: int, arrow: int) -> int:
        """Append a row to the trail that nobody decided; its hash is made up."""
        (last,) = self.db.execute("SELECT max(seq) FROM audit").fetchone()
        values = (last + 1, START, *ref_values(ref), version, arrow, last, bytes(32), bytes(32))
        self.db.execute(FORGED, values)
        seq: int = last + 1
        return seq

    def forge_recovery(self, seq: int, machine: str, event: str, *, actor: str = "mallory") -> str | None:
        values = (seq, START, machine, "x", event, actor, "{}")
        return self.refused(RECOVERY, values)


FORGED = (
    "INSERT INTO audit (seq, at, run, task, name, version, arrow, cause, actor, source, metadata,"
    " row_hash, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'mallory', 'sqlite3', '{}', ?, ?)"
)
RECOVERY = (
    "INSERT INTO recoveries (seq, at, machine, entity, event, actor, evidence) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
VOTE = "INSERT INTO decisions (seq, run, task, actor, verdict, at) VALUES (?, ?, ?, ?, ?, ?)"


NEW_ARROW = "INSERT INTO arrows (id, machine, from_state, event, to_state, kind) VALUES (?, ?, ?, 'x', ?, ?)"


def record(attacker: Attacker, machine: str, ref: Ref, version: int, arrows: Sequence[Arrow]) -> int:
    """Forge all that these arrows need, and tell the last row of it."""
    seq = 0
    for arrow in arrows:
        seq = attacker.forge(ref, version, attacker.arrow(machine, arrow))
        if arrow.kind is Kind.RECOVERY:
            assert attacker.forge_recovery(seq, machine, arrow.event) is None
    return seq


def forge_everything(attacker: Attacker, subject: Subject, state: str, row: Values) -> None:
    """For the next version of an entity: each arrow of each machine, each birth, and what is no arrow."""
    ref, version = subject.ref(state), row["version"] + 1
    for name, machine in MACHINES.items():
        record(attacker, name, ref, version, machine.arrows)
        for at in (1, version):
            attacker.forge(ref, at, attacker.birth(name))
    (free,) = attacker.db.execute("SELECT max(id) + 1 FROM arrows").fetchone()
    for target in subject.states:
        for kind in ("normal", "recovery", "cascade", "created", "fact", "retired"):
            assert attacker.refused(NEW_ARROW, (free, subject.name, state, target, kind)) is not None
    attacker.forge(ref, version, free)
    assert attacker.refused(NEW_ARROW, (free, subject.name, None, None, "fact")) is None
    attacker.forge(ref, version, free)


def broken_link(db: sqlite3.Connection) -> int | None:
    """The first row of the trail that is not what its hash says; `verify` does this for a whole store."""
    arrows = {
        number: arrow_words(*key)
        for number, *key in db.execute("SELECT id, machine, from_state, event, to_state FROM arrows")
    }
    before = GENESIS
    rows = db.execute(
        "SELECT seq, at, run, task, name, version, arrow, since, cause, actor, source, reason, request_id,"
        " metadata, row_hash, hash FROM audit ORDER BY seq"
    )
    for seq, at, run, task, name, version, arrow, *rest, digest, chained in rows:
        told = row_hash(seq, at, run, task, name, version, arrows.get(arrow, ""), *rest)
        before = link(before, told)
        if (told, before) != (digest, chained):
            return int(seq)
    return None


# ---- ways to change a state by hand


def changing(subject: Subject, assignment: str, verb: str = "UPDATE") -> str:
    return f"{verb} {subject.table} SET {assignment} WHERE {subject.where}"


def inserting(subject: Subject, columns: Sequence[str], verb: str = "INSERT", tail: str = "") -> str:
    named = ", ".join(columns)
    marks = ", ".join(f":{column}" for column in columns)
    return f"{verb} INTO {subject.table} ({named}) VALUES ({marks}) {tail}"


def ways(subject: Subject, row: Values, target: str) -> Iterator[tuple[str, Values]]:
    """Statements that would put the entity of this row into another state."""
    table, version, columns = subject.table, row["version"], tuple(row)
    key = {column: row[column] for column in subject.key}
    moved = key | {"to": target, "next": version + 1}
    whole = row | {"state": target}
    step = "state = :to, version = :next"
    on = ", ".join(subject.key)

    yield changing(subject, "state = :to"), moved
    yield changing(subject, "state = :to, version = version"), moved
    for jump in (1, version, version + 2, None):
        yield changing(subject, step), moved | {"next": jump}
    for verb in ("UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE", "UPDATE OR FAIL", "UPDATE OR ABORT"):
        yield changing(subject, step, verb), moved
    yield changing(subject, "(version, state) = (SELECT version + 1, :to)"), moved
    joined = " AND ".join(f"{table}.{column} = o.{column}" for column in subject.key)
    yield (
        (
            f"UPDATE {table} SET state = :to, version = o.version + 1"
            f" FROM (SELECT * FROM {table} WHERE {subject.where}) AS o WHERE {joined}"
        ),
        moved,
    )
    yield f"{changing(subject, step)} RETURNING state", moved
    for verb in ("REPLACE", "INSERT OR REPLACE", "INSERT OR IGNORE", "INSERT"):
        yield inserting(subject, columns, verb), whole
    for stepped in (1, version + 1):
        yield inserting(subject, columns, "REPLACE"), whole | {"version": stepped}
    for conflict in (f"ON CONFLICT ({on})", "ON CONFLICT"):
        upsert = f"{conflict} DO UPDATE SET state = excluded.state, version = {table}.version + 1"
        yield inserting(subject, columns, "INSERT", upsert), whole
        yield inserting(subject, columns, "INSERT", upsert), whole | {"version": version + 1}
    copied = ", ".join(f":{column} AS {column}" for column in columns)
    yield f"REPLACE INTO {table} SELECT {copied}", whole | {"version": version + 1}
    yield f"DELETE FROM {table} WHERE {subject.where}", key
    yield inserting(subject, columns), whole | {"version": 1}


def turncoats(subject: Subject, row: Values) -> Iterator[tuple[str, Values]]:
    """Statements that would make another entity of it: its key, its machine, its creation."""
    key = {column: row[column] for column in subject.key}
    others = [name for name in MACHINES if name != subject.name]
    for verb in ("UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE"):
        for column in subject.key:
            if column != "machine":
                free = f"{row[column]}9" if isinstance(row[column], str) else row[column] + 9000
                yield changing(subject, f"{column} = :free", verb), key | {"free": free}
        for name in others:
            other = {"other": name, "first": MACHINES[name].initial}
            yield changing(subject, "machine = :other", verb), key | other
            yield (
                changing(subject, "machine = :other, state = :first, version = version + 1", verb),
                key | other,
            )
        if "created" in row:
            yield changing(subject, "created = created + 1", verb), key
        yield changing(subject, "version = version + 1", verb), key
        yield changing(subject, "version = version", verb), key
