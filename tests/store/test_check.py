"""`check` finds each inconsistency that it has a rule for, and nothing in what an engine has written."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.core.decide import decide
from engine.core.decision import Decision, Fact
from engine.core.model import Model
from engine.core.plan import Plan, Settings, TaskPlan
from engine.core.records import Entity, Ref, Run
from engine.core.signals import Submit
from engine.store.check import ACKNOWLEDGED, PYTHON_RULES, Finding, PythonRule, check
from engine.store.check_rules import RULES, Rule
from engine.store.connections import connect_reader
from engine.store.files import Place
from engine.store.store import Store
from engine.store.tables import metadata
from tests.store.planted import PLANTS, Plant
from tests.store.worlds import attacked, copied, watched

EVERY_RULE: list[Rule | PythonRule] = [*RULES, *PYTHON_RULES]
SEEDS = range(30)
EVERY = 12
"""Transactions between two looks into a world."""


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Place]:
    """Some worlds, each as it was again and again."""
    folder = tmp_path_factory.mktemp("worlds")
    return [place for seed in (0, 1, 7, 10, 12, 13, 28) for place in watched(folder / str(seed), seed, 25)]


def found_in(place: Place) -> list[Finding]:
    return list(check(place))


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, 6))
def test_what_an_engine_writes_has_no_findings_at_any_moment(tmp_path: Path, first: int) -> None:
    looked = 0
    for seed in range(first, first + 6):
        for place in watched(tmp_path / str(seed), seed, EVERY):
            assert found_in(place) == [], f"seed {seed}, {place.file}"
            looked += 1
    assert looked > 12


# ---- each rule


def _victim(stores: list[Place], plant: Plant) -> tuple[Place, str, tuple[object, ...]]:
    for place in stores:
        with closing(connect_reader(place)) as db:
            found = db.execute(f"{plant.victim} LIMIT 1").fetchone()
        if found is not None:
            return place, found[0], found[1:]
    pytest.fail(f"no store has a victim: {plant.victim}")


@pytest.mark.parametrize("plant", PLANTS, ids=[f"{one.rule}: {one.sql[:60]}" for one in PLANTS])
def test_a_planted_inconsistency_is_found_with_its_entity_and_evidence(
    stores: list[Place], tmp_path: Path, plant: Plant
) -> None:
    source, entity, values = _victim(stores, plant)
    place = copied(source, tmp_path / "store.db")
    with attacked(place) as db:
        for sql in plant.sql.split("; "):
            used = values[: max((place for place in range(1, 9) if f"?{place}" in sql), default=0)]
            assert db.execute(sql, used).rowcount != 0, sql
    findings = [one for one in found_in(place) if one.rule == plant.rule and one.entity == entity]
    assert findings, f"{plant.rule} does not name {entity}"
    assert any(plant.evidence in one.evidence for one in findings), findings
    assert all(one.evidence and one.sentence and one.document for one in findings)


def test_each_rule_has_a_planted_case() -> None:
    assert {plant.rule for plant in PLANTS} == {rule.name for rule in EVERY_RULE}


def test_a_rule_says_the_same_wherever_it_is_written() -> None:
    told = {(rule.name, rule.document, rule.sentence) for rule in EVERY_RULE}
    assert len(told) == len({name for name, _, _ in told})


# ---- any column

FOLDED = ("runs", "tasks", "workers", "worker_regions", "breakers")


@pytest.fixture(scope="module")
def vandalised(
    stores: list[Place], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Place, sqlite3.Connection]]:
    place = copied(stores[-1], tmp_path_factory.mktemp("vandal") / "store.db")
    with attacked(place):
        pass
    with closing(sqlite3.connect(place.file, isolation_level=None)) as db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        yield place, db


@pytest.mark.parametrize(
    ("table", "column"), [(table, column.name) for table in FOLDED for column in metadata.tables[table].c]
)
def test_an_edit_of_any_column_of_an_entity_is_found(
    vandalised: tuple[Place, sqlite3.Connection], table: str, column: str
) -> None:
    place, db = vandalised
    keys = [key.name for key in metadata.tables[table].primary_key]
    marks = " AND ".join(f"{key} = ?" for key in keys)
    *key, old = db.execute(f"SELECT {', '.join(keys)}, {column} FROM {table} ORDER BY 1 DESC").fetchone()
    text = metadata.tables[table].c[column].type.python_type is str
    new = f"{old or ''}x" if text else (old or 0) + 1
    db.execute(f"UPDATE {table} SET {column} = ? WHERE {marks}", (new, *key))
    after = [new if name == column else value for name, value in zip(keys, key, strict=True)]
    try:
        found = [one for one in found_in(place) if one.rule != "interlock_altered"]
        assert found
    finally:
        db.execute(f"UPDATE {table} SET {column} = ? WHERE {marks}", (old, *after))
    assert [one for one in found_in(place) if one.rule != "interlock_altered"] == []


# ---- acknowledged, hostile, damaged


def _acknowledge(place: Place, number: int) -> None:
    with Store(place.file) as store:
        run = next(run for run in store.call(lambda gate: gate.load()).result().runs if run.number == number)
        at = store.call(lambda gate: gate.head.at).result() + 1
        fact = Fact(Ref(Entity.RUN, number), ACKNOWLEDGED, {}, "we know", None, None, {}, run)
        store.call(lambda gate: gate.apply([Decision(at, at, "ann", "console", None, (fact,))])).result()


def _submitted(path: Path, *names: str, runs: int = 1) -> Place:
    plan = Plan("deploy", tuple(map(TaskPlan, names)))
    model = Model(Settings())
    with Store(path) as store:
        for number in range(1, runs + 1):
            decision = decide(model, Submit(id=number, actor="ann", plan=plan), number, 0.5)
            model.apply(decision)
            store.call(lambda gate, decision=decision: gate.apply([decision])).result()  # type: ignore[misc]
        return store.place


def test_what_a_person_has_acknowledged_is_accepted_for_that_run_alone(tmp_path: Path) -> None:
    place = _submitted(tmp_path / "store.db", "build", runs=12)
    _acknowledge(place, 1)
    assert found_in(place) == []
    with attacked(place) as db:
        db.execute("UPDATE tasks SET started = created - 1, retries = 9 WHERE run IN (1, 11, 12)")
        db.execute("UPDATE runs SET started = created - 1 WHERE number IN (1, 11)")
        db.execute("INSERT INTO workers (id, slots, capabilities, workspace, metadata, created, updated)"
                   " VALUES ('1', 1, '[]', '', '{}', 1, 1)")  # fmt: skip
    entities = {one.entity for one in found_in(place)}
    assert entities == {"11", "11/build", "12/build", "worker 1", "store"}


HOSTILE = "\x1b]0;owned\x07\n\x1b[31mred\u202e"


def test_hostile_names_are_evidence_like_any_other(tmp_path: Path) -> None:
    place = _submitted(tmp_path / "store.db", HOSTILE, "build")
    assert found_in(place) == []
    with attacked(place) as db:
        db.execute("UPDATE tasks SET started = created - 1, error = ? WHERE number = 1", (HOSTILE,))
    found = {one.rule: one for one in found_in(place)}
    assert found["times_out_of_order"].entity == f"1/{HOSTILE}"
    assert HOSTILE in found["record_differs_from_history"].evidence


def test_text_that_is_not_utf_8_is_found_and_does_not_stop_the_rest(tmp_path: Path) -> None:
    place = _submitted(tmp_path / "store.db", "build")
    with attacked(place) as db:
        db.execute("UPDATE tasks SET error = CAST(x'ff' AS TEXT)")
        db.execute("UPDATE runs SET started = created - 1")
    assert {one.rule for one in found_in(place)} == {
        "times_out_of_order", "interlock_altered", "record_differs_from_history",
    }  # fmt: skip


def test_a_clock_that_went_back_leaves_no_findings(tmp_path: Path) -> None:
    plan = Plan("deploy", (TaskPlan("build"),))
    model = Model(Settings())
    with Store(tmp_path / "store.db") as store:
        for number, now in ((1, 5_000_000), (2, 1_000_000)):
            decision = decide(model, Submit(id=number, actor="ann", plan=plan), now, 0.5)
            model.apply(decision)
            store.call(lambda gate, decision=decision: gate.apply([decision])).result()  # type: ignore[misc]
        assert isinstance(model.run(2), Run)
    assert found_in(store.place) == []


def test_an_empty_store_has_no_findings(tmp_path: Path) -> None:
    with Store(tmp_path / "store.db") as store:
        pass
    told: list[str] = []
    assert list(check(store.place, told.append)) == []
    assert told == [rule.name for rule in EVERY_RULE]
