"""The machines a second time, inside the database: raw SQL cannot make a move that they do not have.

The table `arrows` is filled from the Python machines, and triggers refuse what the gate would never do:
an undocumented move, a version that does not advance by one, a change without its audit row (or, for a
recovery, without its record), a birth outside the initial state, a change of machine or key, a removal,
any change of the trail. A refusal names the machine and the proper way. REPLACE and UPSERT meet the same
triggers, because those of INSERT look for the row that they would take away.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from engine.machines import MACHINES, RUN_MACHINES, TASK_MACHINES
from engine.store.tables import BREAKER_MACHINE, WORKER_MACHINES

CREATED = "created"
FACT = "fact"
RETIRED = "retired"
"""An arrow that was documented once: the trail speaks of it, and nobody can take it any more."""


@dataclass(frozen=True, slots=True)
class ArrowRow:
    """One row of `arrows`: a documented move, a birth, or (from the gate) the name of a fact."""

    machine: str
    from_state: str | None
    event: str
    to_state: str | None
    kind: str
    to_phase: str | None


def arrow_rows() -> Iterator[ArrowRow]:
    """Every move that any machine allows, with the birth of an entity first."""
    for machine in MACHINES.values():
        first = machine.initial
        yield ArrowRow(machine.name, None, CREATED, first, CREATED, machine.phase[first].name.lower())
        for arrow in machine.arrows:
            phase = machine.phase[arrow.target].name.lower()
            yield ArrowRow(machine.name, arrow.source, arrow.event, arrow.target, arrow.kind.value, phase)


@dataclass(frozen=True, slots=True)
class Guarded:
    """A table whose rows have a state, and how its key is found in the trail."""

    table: str
    key: tuple[str, ...]
    trail: str
    machines: tuple[str, ...]

    def same(self, left: str, right: str) -> str:
        return " AND ".join(f"{left}.{column} = {right}.{column}" for column in self.key)

    @property
    def moved_key(self) -> str:
        return " OR ".join(
            f"OLD.{column} IS NOT NEW.{column}" for column in dict.fromkeys((*self.key, "machine"))
        )


GUARDED = (
    Guarded("runs", ("number",), "a.run = NEW.number AND a.task = 0", tuple(sorted(RUN_MACHINES))),
    Guarded(
        "tasks",
        ("run", "number"),
        # Task 0 is the run itself: no task may live on its trail.
        "a.run = NEW.run AND a.task = NEW.number AND NEW.number > 0",
        tuple(sorted(TASK_MACHINES)),
    ),
    Guarded("worker_regions", ("worker", "machine"), "a.name = NEW.worker", WORKER_MACHINES),
    Guarded("breakers", ("tool",), "a.name = NEW.tool", (BREAKER_MACHINE,)),
)

MADE_WITH = {
    "runs": (
        "workflow", "name", "task_description", "requester", "params", "created", "parent_run", "parent_task",
        "depth", "worker_count", "task_count", "origin_run", "origin_verb",
    ),
    "tasks": ("name", "created"),
}  # fmt: skip
"""What is settled when an entity is made, and what people know it by."""

_TELLS = {
    "recoveries": "r.kind = 'recovery' AND r.machine = NEW.machine AND r.event = NEW.event",
    "decisions": (
        "a.run = NEW.run AND a.task = NEW.task AND CASE NEW.verdict WHEN 'rejected' THEN r.event = 'REJECT'"
        " ELSE r.event IN ('approved', 'APPROVE') END"
    ),
}
"""How the row of the trail tells of a record: these tables are not in the chain themselves."""

APPEND_ONLY = ("audit", "recoveries", "decisions")
KEPT = ("workers", "workflow_versions", "attempts")


def _way(machine: str = "") -> str:
    named = f"interlock machines {machine}".rstrip()
    return f"States change only through Interlock: see `{named}` and `interlock recover`."


def _refusal(guarded: Guarded, subject: str, what: str) -> str:
    """RAISE takes a literal only (until SQLite 3.47), so there is one for each machine."""
    cases = " ".join(
        f"WHEN '{name}' THEN RAISE(ABORT, '{name}: {what} {_way(name)}')" for name in guarded.machines
    )
    other = f"RAISE(ABORT, 'this machine does not drive {guarded.table}: {what} {_way()}')"
    return f"CASE {subject}.machine {cases} ELSE {other} END"


def _recorded(guarded: Guarded) -> str:
    """The audit row of this very move, with its recovery record where it needs one."""
    return (
        f"SELECT 1 FROM audit AS a CROSS JOIN arrows AS r"
        f" WHERE r.id = a.arrow AND {guarded.trail} AND a.version = NEW.version AND r.machine = NEW.machine"
        f" AND r.from_state = OLD.state AND r.to_state = NEW.state"
        f" AND (r.kind IN ('normal', 'cascade') OR r.kind = 'recovery'"
        f" AND EXISTS (SELECT 1 FROM recoveries AS c WHERE c.seq = a.seq))"
    )


def _update(guarded: Guarded) -> str:
    pair = (
        "SELECT 1 FROM arrows AS r WHERE r.machine = NEW.machine AND r.kind <> 'retired'"
        " AND r.from_state = OLD.state AND r.to_state = NEW.state"
    )
    return f"""CREATE TRIGGER {guarded.table}_move
BEFORE UPDATE OF {", ".join(dict.fromkeys((*guarded.key, "machine", "state", "version")))} ON {guarded.table}
WHEN {guarded.moved_key} OR NEW.version IS NOT OLD.version + 1 OR NOT EXISTS ({_recorded(guarded)})
BEGIN SELECT CASE
WHEN {guarded.moved_key} THEN {_refusal(guarded, "OLD", "an entity keeps its key and its machine.")}
WHEN NOT EXISTS ({pair}) THEN {_refusal(guarded, "OLD", "no such transition is documented.")}
WHEN NEW.version IS NOT OLD.version + 1
THEN {_refusal(guarded, "OLD", "a transition advances the version by one.")}
ELSE {_refusal(guarded, "OLD", "the trail has no row for this transition, or no record of its recovery.")}
END; END"""


def _insert(guarded: Guarded) -> str:
    exists = f"SELECT 1 FROM {guarded.table} AS o WHERE {guarded.same('o', 'NEW')}"
    born = (
        f"SELECT 1 FROM audit AS a CROSS JOIN arrows AS r"
        f" WHERE r.id = a.arrow AND {guarded.trail} AND a.version = 1 AND r.machine = NEW.machine"
        f" AND r.kind = '{CREATED}' AND r.to_state = NEW.state"
    )
    first = (
        "SELECT 1 FROM arrows AS r WHERE r.machine = NEW.machine"
        f" AND r.kind = '{CREATED}' AND r.to_state = NEW.state"
    )
    return f"""CREATE TRIGGER {guarded.table}_birth
BEFORE INSERT ON {guarded.table}
WHEN EXISTS ({exists}) OR NEW.version IS NOT 1 OR NOT EXISTS ({born})
BEGIN SELECT CASE
WHEN EXISTS ({exists}) THEN {_refusal(guarded, "NEW", "it exists already and cannot be replaced.")}
WHEN NOT EXISTS ({first}) OR NEW.version IS NOT 1
THEN {_refusal(guarded, "NEW", "an entity begins in its initial state, version 1.")}
ELSE {_refusal(guarded, "NEW", "the trail has no row for its creation.")}
END; END"""


def _fixed(guarded: Guarded) -> Iterator[str]:
    """What nobody may do to an entity at all."""
    ways = [("kept", "DELETE", "an entity is never removed.")]
    if guarded.table in MADE_WITH:
        columns = ", ".join(MADE_WITH[guarded.table])
        ways.append(("made", f"UPDATE OF {columns}", "an entity keeps what it was made with."))
    for name, moment, what in ways:
        yield (
            f"CREATE TRIGGER {guarded.table}_{name}\nBEFORE {moment} ON {guarded.table}\n"
            f"BEGIN SELECT {_refusal(guarded, 'OLD', what)}; END"
        )


def _raise(name: str, moment: str, table: str, sentence: str, when: str = "") -> str:
    condition = f"\nWHEN {when}" if when else ""
    return (
        f"CREATE TRIGGER {table}_{name}\nBEFORE {moment} ON {table}{condition}\n"
        f"BEGIN SELECT RAISE(ABORT, '{sentence}'); END"
    )


def _triggers() -> Iterator[str]:
    for guarded in GUARDED:
        yield _update(guarded)
        yield _insert(guarded)
        yield from _fixed(guarded)
    for table in KEPT:
        yield _raise(
            "kept",
            "DELETE",
            table,
            f"{table}: nothing is removed from here by hand. {_way()}",
        )
    for table in APPEND_ONLY:
        told = f"{table}: no row is ever changed or removed, and `interlock verify` proves it."
        yield _raise("unchanged", "UPDATE", table, told)
        yield _raise("kept", "DELETE", table, told)
    yield _raise(
        "appended", "INSERT", "audit",
        "audit: a row is added at the end of the trail, by Interlock alone.",
        "NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM audit)",
    )  # fmt: skip
    for table, told_there in _TELLS.items():
        yield _raise(
            "appended", "INSERT", table,
            f"{table}: a record belongs to one row of the trail that tells the same, once.",
            f"EXISTS (SELECT 1 FROM {table} WHERE seq = NEW.seq)"
            " OR NOT EXISTS (SELECT 1 FROM audit AS a JOIN arrows AS r ON r.id = a.arrow"
            f" WHERE a.seq = NEW.seq AND a.actor = NEW.actor AND {told_there})",
        )  # fmt: skip
    fixed = "arrows: the machines are documented, and their arrows come from Interlock alone."
    yield _raise("unchanged", "UPDATE", "arrows", fixed)
    yield _raise("kept", "DELETE", "arrows", fixed)
    yield _raise(
        "appended", "INSERT", "arrows", fixed,
        f"NEW.kind IS NOT '{FACT}' OR NEW.from_state IS NOT NULL OR NEW.to_state IS NOT NULL"
        " OR EXISTS (SELECT 1 FROM arrows WHERE id = NEW.id)",
    )  # fmt: skip


def triggers() -> dict[str, str]:
    """Every trigger by its name, as the database keeps its text."""
    return {sql.split(maxsplit=3)[2]: sql for sql in _triggers()}


def digest() -> str:
    """What this interlock is: another one after any change of a machine or a trigger."""
    told = repr((list(arrow_rows()), triggers()))
    return sha256(told.encode()).hexdigest()
