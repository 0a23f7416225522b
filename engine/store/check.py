"""`interlock check`: whether what is stored makes sense, by the documents' own rules, over the whole store.

Rules that a query can tell are in `check_rules`; here are those that need the plans, the core's own
predicates or the trail. A finding names the rule, the entity and the evidence. An inconsistency that a
person has acknowledged on record is accepted.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from engine.core.derive import derive_workstream
from engine.core.model import Model, Snapshot
from engine.core.plan import OnFailure, Plan, Settings
from engine.core.records import Task
from engine.machines import Phase
from engine.store import schema
from engine.store.check_history import RAW, differences
from engine.store.check_rules import RULES, Rule
from engine.store.connections import connect_reader
from engine.store.files import Place
from engine.store.loading import load_snapshot
from engine.store.plans import parse_plan, version_id
from engine.store.trouble import explained

WORKSTREAM = "orchestration.workstream"
ACKNOWLEDGED = "acknowledged"

_RUN = re.compile(r"(\d+)(?:[/.]|$)")
"""The run that an entity belongs to, as `check_rules` calls them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be."""

    rule: str
    document: str
    entity: str
    evidence: str
    sentence: str


@dataclass(frozen=True, slots=True)
class PythonRule:
    """A rule that no query can tell."""

    name: str
    document: str
    sentence: str
    find: Callable[[sqlite3.Connection], Iterator[tuple[str, str]]]


def check(place: Place, progress: Callable[[str], None] = lambda rule: None) -> Iterator[Finding]:
    """Every finding, rule by rule, all of one moment of the store."""
    with closing(connect_reader(place)) as db, explained():
        # Text that is not UTF-8 was not written by Interlock; it is evidence, and no reason to stop.
        db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        db.execute("BEGIN")
        accepted = _acknowledged(db)
        every: list[Rule | PythonRule] = [*RULES, *PYTHON_RULES]
        for rule in every:
            progress(rule.name)
            found = rule.find(db) if isinstance(rule, PythonRule) else db.execute(rule.sql)
            for entity, evidence in found:
                run = _RUN.match(entity)
                if run is None or run[1] not in accepted:
                    yield Finding(rule.name, rule.document, entity, evidence, rule.sentence)


def _acknowledged(db: sqlite3.Connection) -> frozenset[str]:
    rows = db.execute(
        "SELECT a.run FROM arrows AS r CROSS JOIN audit AS a"
        " WHERE r.event = ? AND r.kind = 'fact' AND a.arrow = r.id AND a.task = 0",
        (ACKNOWLEDGED,),
    )
    return frozenset(str(run) for (run,) in rows)


# ---- rules in Python


def _readable(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    try:
        Model.load(load_snapshot(db), Settings())
    except RAW as error:
        yield "store", f"reading it gives {type(error).__name__}: {error}"


def _loaded(db: sqlite3.Connection) -> tuple[Snapshot, Model]:
    """What can be read; where it cannot, that is a finding of its own."""
    try:
        snapshot = load_snapshot(db)
        return snapshot, Model.load(snapshot, Settings())
    except RAW:
        return Snapshot(), Model(Settings())


def _derived(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Document 001 tells a workstream's state from its tasks, never over a terminal state."""
    snapshot, _ = _loaded(db)
    tasks: dict[int, list[Task]] = {}
    for task in snapshot.tasks:
        tasks.setdefault(task.run, []).append(task)
    for run in snapshot.runs:
        if run.machine != WORKSTREAM or run.terminal or run.ending is not None:
            continue
        if run.plan.failure_policy is OnFailure.CONTINUE:
            continue
        derived = derive_workstream(tasks.get(run.number, []))
        if derived != run.state:
            yield run.label, f"it is {run.state}, and its tasks say {derived}"


def _needs(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Whatever is lined up has all that it needs."""
    _, model = _loaded(db)
    for task in model.tasks():
        if model.run(task.run).terminal or task.phase is not Phase.QUEUED:
            continue
        if model.unmet(task.key):
            yield task.label, f"it is {task.state}, and {model.unmet(task.key)} of its needs are not met"


def _retries(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Where the workflow says how often; the engine's settings are not in the store."""
    plans: dict[str, Plan] = {}
    rows = db.execute(
        "SELECT t.run, t.number, t.retries, v.id, v.plan FROM tasks AS t JOIN runs AS w ON w.number = t.run"
        " JOIN workflow_versions AS v ON v.id = w.workflow WHERE t.retries > 0"
    )
    for run, number, retries, workflow, text in rows:
        try:
            if workflow not in plans:
                plans[workflow] = parse_plan(text)
            task = plans[workflow].task(number)
        except RAW:
            continue
        if task.retry is not None and retries > task.retry.max_retries:
            allowed = task.retry.max_retries
            yield f"{run}/{task.name}", f"it was retried {retries} times, {allowed} are allowed"


def _plans(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    for id, name, text in db.execute("SELECT id, name, plan FROM workflow_versions"):
        try:
            same = version_id(text) == id and parse_plan(text).name == name
        except RAW:
            same = False
        if not same:
            yield f"workflow {name}", f"the stored workflow {id[:12]} is not the one that was submitted"


def _interlock(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    if not schema.intact(db):
        yield "store", "its triggers, views or arrows are not those of this Interlock"
    # The names of facts come and go with the trail, so only their form is known.
    for machine, event, kind in db.execute(
        "SELECT machine, event, kind FROM arrows"
        " WHERE (kind = 'fact') <> (from_state IS NULL AND to_state IS NULL)"
    ):
        yield "store", f"{event} of {machine} is stored as {kind}"


PYTHON_RULES: tuple[PythonRule, ...] = (
    PythonRule("cannot_be_read", "000", "no engine can read what is stored", _readable),
    PythonRule(
        "derived_state_differs", "001", "a workstream is not in the state that its tasks give it", _derived
    ),
    PythonRule(
        "queued_before_its_needs", "001", "a task is queued and not all that it needs is done", _needs
    ),
    PythonRule("too_many_retries", "001", "a task was retried more often than it may be", _retries),
    PythonRule("workflow_edited", "000", "a stored workflow was changed after it was submitted", _plans),
    PythonRule("interlock_altered", "000", "the database does not guard its states as it should", _interlock),
    PythonRule(
        "record_differs_from_history", "000", "what is stored is not what the trail tells", differences
    ),
)
