"""Raw SQL cannot break the interlock: every illegal pair of every machine, by every way there is."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from engine.core.records import Entity, Ref
from engine.machines import MACHINES, Kind
from engine.store import interlock
from engine.store.files import Place
from engine.store.verify import verify
from tests.store.attack import (
    FORGED,
    NEW_ARROW,
    START,
    SUBJECTS,
    VOTE,
    Attacker,
    Subject,
    Values,
    broken_link,
    changing,
    fabricate,
    forge_everything,
    inserting,
    record,
    turncoats,
    ways,
)

WAYS = 27
"""Statements that are tried for each illegal pair."""

ILLEGAL = {
    "run execution": 99,
    "run pipeline.workstream": 28,
    "run orchestration.workstream": 40,
    "run supervision.job": 29,
    "task execution": 99,
    "task pipeline.step": 18,
    "task orchestration.task": 55,
    "task toolchain.task": 98,
    "worker orchestration.worker": 16,
    "worker supervision.worker": 26,
    "breaker pipeline.breaker": 4,
}
"""Pairs of states that no arrow joins: states squared, less the pairs that are joined."""

every_subject = pytest.mark.parametrize("subject", SUBJECTS, ids=str)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return fabricate(tmp_path_factory.mktemp("attacked") / "interlock.db")


@pytest.fixture(params=[False, True], ids=["default pragmas", "all pragmas on"])
def attacker(request: pytest.FixtureRequest, place: Place) -> Iterator[Attacker]:
    with closing(Attacker(place.file, pragmas=request.param)) as attacker:
        assert attacker.db.execute("PRAGMA recursive_triggers").fetchone() == (int(request.param),)
        assert attacker.db.execute("PRAGMA foreign_keys").fetchone() == (int(request.param),)
        yield attacker


def tells_the_way(told: str | None, machine: str, what: str = "") -> bool:
    """Whether it was refused, by this machine, with the reason and what to type instead."""
    return (
        told is not None
        and told.startswith(f"{machine}: ")
        and f"`interlock machines {machine}`" in told
        and "`interlock recover`" in told
        and what in told
    )


# ---- moves that no machine has


def test_the_ten_machines_have_512_illegal_pairs() -> None:
    assert {subject.name for subject in SUBJECTS} == set(MACHINES)
    assert {str(subject): len(subject.illegal) for subject in SUBJECTS} == ILLEGAL
    assert sum(ILLEGAL.values()) == 512


@pytest.mark.parametrize("forged", [False, True], ids=["with an honest trail", "with a forged trail"])
@every_subject
def test_no_way_leads_over_an_illegal_pair(subject: Subject, forged: bool, attacker: Attacker) -> None:
    tried = 0
    for state in subject.states:
        before, row = attacker.rows(subject.table), attacker.row(subject, state)
        assert row["state"] == state
        with attacker.undone():
            if forged:
                forge_everything(attacker, subject, state, row)
            for target in [target for source, target in subject.illegal if source == state]:
                for sql, values in ways(subject, row, target):
                    told = attacker.refused(sql, values)
                    assert tells_the_way(told, subject.name), (sql, values, told)
                    assert attacker.row(subject, state) == row, sql
                    tried += 1
            assert attacker.rows(subject.table) == before
    assert tried == ILLEGAL[str(subject)] * WAYS


@pytest.mark.parametrize("forged", [False, True], ids=["with an honest trail", "with a forged trail"])
@every_subject
def test_an_entity_keeps_its_key_its_machine_its_version_and_its_creation(
    subject: Subject, forged: bool, attacker: Attacker
) -> None:
    tried = 0
    for state in subject.states:
        before, row = attacker.rows(subject.table), attacker.row(subject, state)
        with attacker.undone():
            if forged:
                forge_everything(attacker, subject, state, row)
            for sql, values in turncoats(subject, row):
                told = attacker.refused(sql, values)
                assert tells_the_way(told, subject.name), (sql, values, told)
                tried += 1
            assert attacker.rows(subject.table) == before
    keys = len(subject.key) - ("machine" in subject.key)
    created = subject.table in ("runs", "tasks")
    assert tried == len(subject.states) * 3 * (keys + 2 * (len(MACHINES) - 1) + created + 2)


@every_subject
def test_a_row_has_one_key_and_no_rowid_by_which_it_could_be_replaced(
    subject: Subject, attacker: Attacker
) -> None:
    unique = [row for row in attacker.db.execute(f"PRAGMA index_list({subject.table})") if row[2]]
    assert [row[3] for row in unique] == ["pk"]
    row = attacker.row(subject, subject.states[0])
    for hidden in ("rowid", "oid", "_rowid_"):
        with pytest.raises(sqlite3.OperationalError, match="no such column"):
            attacker.db.execute(f"SELECT {hidden} FROM {subject.table}")
        with pytest.raises(sqlite3.OperationalError, match="no column named"):
            attacker.db.execute(inserting(subject, (hidden, *row), "REPLACE"), row | {hidden: 1})


def test_tables_of_the_attackers_own_do_not_stand_in_for_the_stores(attacker: Attacker) -> None:
    """A temporary table is found before one of the store, but not by the store's triggers."""
    for table in ("audit", "arrows", "recoveries"):
        attacker.db.execute(f"CREATE TEMP TABLE {table} AS SELECT * FROM main.{table}")
    for subject in SUBJECTS:
        source, target = subject.illegal[1]
        row = attacker.row(subject, source)
        attacker.db.execute(
            "INSERT INTO temp.arrows VALUES (999, ?, ?, 'x', ?, 'normal', 'failed')",
            (subject.name, source, target),
        )
        attacker.forge(subject.ref(source), row["version"] + 1, 999)
        step = row | {"to": target}
        told = attacker.refused(changing(subject, "state = :to, version = version + 1"), step)
        assert tells_the_way(told, subject.name)
        assert attacker.row(subject, source) == row


# ---- moves that a machine has


def step(subject: Subject, row: Values, target: str, version: int) -> tuple[str, Values]:
    key = {column: row[column] for column in subject.key}
    return changing(subject, "state = :to, version = :next"), key | {"to": target, "next": version}


@every_subject
def test_a_documented_move_needs_its_row_in_the_trail_and_one_step_of_the_version(
    subject: Subject, attacker: Attacker
) -> None:
    for (source, target), arrows in subject.legal.items():
        row, ref = attacker.row(subject, source), subject.ref(source)
        version = row["version"]
        assert tells_the_way(attacker.refused(*step(subject, row, target, version + 1)), subject.name)
        with attacker.undone():
            for at in range(version - 1, version + 3):
                record(attacker, subject.name, ref, at, arrows)
            for jump in (version, version + 2, version - 1):
                told = attacker.refused(*step(subject, row, target, jump))
                assert tells_the_way(told, subject.name, "advances the version by one")
            assert attacker.refused(changing(subject, "state = :to"), row | {"to": target}) is not None
        assert attacker.row(subject, source) == row
    assert attacker.tried == 5 * len(subject.legal) + 4 * _records(subject)


@every_subject
def test_a_row_of_the_trail_that_tells_of_something_else_opens_no_way(
    subject: Subject, attacker: Attacker
) -> None:
    for (source, target), arrows in subject.legal.items():
        row, ref = attacker.row(subject, source), subject.ref(source)
        version = row["version"]
        with attacker.undone():
            for other in subject.states:
                if other != source:
                    record(attacker, subject.name, subject.ref(other), version + 1, arrows)
            for akin in _akin(ref):
                record(attacker, subject.name, akin, version + 1, arrows)
            for at in (version, version + 2):
                record(attacker, subject.name, ref, at, arrows)
            for name, machine in MACHINES.items():
                for arrow in machine.arrows:
                    if name != subject.name or (arrow.source, arrow.target) != (source, target):
                        record(attacker, name, ref, version + 1, (arrow,))
            told = attacker.refused(*step(subject, row, target, version + 1))
            assert tells_the_way(told, subject.name, "the trail has no row")
        assert attacker.row(subject, source) == row


@every_subject
def test_a_recovery_needs_its_record(subject: Subject, attacker: Attacker) -> None:
    for (source, target), arrows in subject.legal.items():
        if any(arrow.kind is not Kind.RECOVERY for arrow in arrows):
            continue
        row = attacker.row(subject, source)
        with attacker.undone():
            for arrow in arrows:
                seq = attacker.forge(
                    subject.ref(source), row["version"] + 1, attacker.arrow(subject.name, arrow)
                )
                wrong = attacker.forge_recovery(seq, subject.name, arrow.event, actor="alice")
                assert wrong is not None
                assert wrong.startswith("recoveries: ")
                assert attacker.forge_recovery(seq, "execution", "START") is not None
            told = attacker.refused(*step(subject, row, target, row["version"] + 1))
            assert tells_the_way(told, subject.name, "no record of its recovery")
    assert attacker.tried == 3 * _records(subject)


@every_subject
def test_a_documented_move_with_a_forged_row_breaks_the_chain(subject: Subject, attacker: Attacker) -> None:
    assert broken_link(attacker.db) is None
    for (source, target), arrows in subject.legal.items():
        row = attacker.row(subject, source)
        for arrow in arrows:
            with attacker.undone():
                seq = record(attacker, subject.name, subject.ref(source), row["version"] + 1, (arrow,))
                assert attacker.refused(*step(subject, row, target, row["version"] + 1)) is None
                assert broken_link(attacker.db) == seq
        assert attacker.row(subject, source) == row


@every_subject
def test_verify_finds_a_forged_move(subject: Subject, place: Place, tmp_path: Path) -> None:
    copy = Place(tmp_path / "interlock.db")
    shutil.copy(place.file, copy.file)
    assert verify(copy).sound
    (source, target), arrows = next(iter(subject.legal.items()))
    with closing(Attacker(copy.file, pragmas=False)) as attacker:
        row = attacker.row(subject, source)
        seq = record(attacker, subject.name, subject.ref(source), row["version"] + 1, arrows[:1])
        assert attacker.refused(*step(subject, row, target, row["version"] + 1)) is None
        attacker.db.execute("COMMIT")
        attacker.db.execute("BEGIN")
    verdict = verify(copy)
    assert verdict.broken is not None
    assert verdict.broken.seq == seq


def _akin(ref: Ref) -> list[Ref]:
    """The entities whose keys hold a part of this one's."""
    if isinstance(ref.key, tuple):
        return [Ref(Entity.RUN, ref.key[0]), Ref(Entity.TASK, (ref.key[0], 2)), Ref(Entity.TASK, (2, 1))]
    return [Ref(Entity.TASK, (ref.key, 1))] if isinstance(ref.key, int) else [Ref(ref.kind, f"{ref.key}!")]


def _records(subject: Subject) -> int:
    return [arrow.kind for arrow in subject.machine.arrows].count(Kind.RECOVERY)


# ---- births


@every_subject
def test_an_entity_is_born_once_in_its_initial_state_with_its_row_in_the_trail(
    subject: Subject, attacker: Attacker
) -> None:
    first = subject.machine.initial
    row = attacker.row(subject, first)
    fresh = row | _another(subject, row)
    ref = _ref(subject, fresh)
    columns = tuple(row)
    before = attacker.rows(subject.table)
    verbs = ("INSERT", "REPLACE", "INSERT OR IGNORE")
    for verb in verbs:
        assert tells_the_way(attacker.refused(inserting(subject, columns, verb), fresh), subject.name)
    with attacker.undone():
        attacker.forge(ref, 1, attacker.birth(subject.name))
        attacker.forge(ref, 2, attacker.birth(subject.name))
        wrong = [fresh | {"version": version} for version in (0, 2, None)]
        wrong += [fresh | {"state": state} for state in subject.states if state != first]
        for verb in verbs:
            for values in wrong:
                told = attacker.refused(inserting(subject, columns, verb), values)
                assert tells_the_way(told, subject.name)
        assert attacker.rows(subject.table) == before
        if subject.entity is not Entity.WORKER:
            assert attacker.refused(inserting(subject, columns), fresh) is None
            assert broken_link(attacker.db) is not None
    for verb in verbs:
        assert tells_the_way(attacker.refused(inserting(subject, columns, verb), row), subject.name)
    assert attacker.rows(subject.table) == before
    assert attacker.tried == 3 * (len(subject.states) + 4) + (subject.entity is not Entity.WORKER)


def test_the_birth_of_something_else_is_no_birth(attacker: Attacker) -> None:
    for subject in SUBJECTS:
        row = attacker.row(subject, subject.machine.initial)
        fresh = row | _another(subject, row)
        with attacker.undone():
            for name in MACHINES:
                if name != subject.name:
                    attacker.forge(_ref(subject, fresh), 1, attacker.birth(name))
            attacker.forge(_ref(subject, fresh), 2, attacker.birth(subject.name))
            told = attacker.refused(inserting(subject, tuple(row)), fresh)
            assert tells_the_way(told, subject.name)


def test_no_task_lives_on_the_trail_of_its_run(attacker: Attacker) -> None:
    subject = next(s for s in SUBJECTS if str(s) == "task execution")
    row = attacker.row(subject, subject.machine.initial) | {"number": 0}
    told = attacker.refused(inserting(subject, tuple(row)), row)
    assert tells_the_way(told, "execution")


def test_an_unknown_machine_drives_nothing(attacker: Attacker) -> None:
    for subject in SUBJECTS:
        row = attacker.row(subject, subject.machine.initial)
        for name in ("", "no such machine", None):
            fresh = row | _another(subject, row) | {"machine": name}
            told = attacker.refused(inserting(subject, tuple(row)), fresh)
            assert told is not None
            assert f"does not drive {subject.table}" in told
            assert "`interlock machines`" in told


def _another(subject: Subject, row: Values) -> Values:
    column = subject.key[0] if subject.entity is not Entity.TASK else "number"
    return {column: f"{row[column]}!" if isinstance(row[column], str) else row[column] + 50}


def _ref(subject: Subject, row: Values) -> Ref:
    key: Any = (row["run"], row["number"]) if subject.entity is Entity.TASK else row[subject.key[0]]
    return Ref(subject.entity, key)


# ---- the trail, and what is told with it

APPENDED = ("audit", "recoveries", "decisions", "arrows")


@pytest.mark.parametrize("table", APPENDED)
def test_no_row_of_the_trail_is_changed_removed_or_replaced(table: str, attacker: Attacker) -> None:
    _vote(attacker)
    before = attacker.rows(table)
    assert before
    key = "id" if table == "arrows" else "seq"
    columns = [row[1] for row in attacker.db.execute(f"PRAGMA table_info({table})")]
    marks = ", ".join("?" * len(columns))
    for verb in ("UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE"):
        for column in columns:
            for value in (column, f"(SELECT max({column}) FROM {table})"):
                told = attacker.refused(f"{verb} {table} SET {column} = {value}")
                assert told is not None, (verb, column, value)
                assert told.startswith(f"{table}: "), told
    reached = attacker.tried
    assert reached == 3 * 2 * len(columns)
    for where in ("", f"WHERE {key} = (SELECT max({key}) FROM {table})"):
        assert (attacker.refused(f"DELETE FROM {table} {where}") or "").startswith(f"{table}: ")
    upsert = f"ON CONFLICT ({key}) DO UPDATE SET {columns[1]} = excluded.{columns[1]}"
    for row in (before[0], before[len(before) // 2], before[-1]):
        for verb, tail in (("INSERT", ""), ("REPLACE", ""), ("INSERT OR IGNORE", ""), ("INSERT", upsert)):
            told = attacker.refused(f"{verb} INTO {table} VALUES ({marks}) {tail}", row)
            assert (told or "").startswith(f"{table}: "), (verb, told)
    assert attacker.tried == reached + 2 + 12
    assert attacker.rows(table) == before


def test_a_row_of_the_trail_is_added_at_the_end_and_nowhere_else(attacker: Attacker) -> None:
    (last,) = attacker.db.execute("SELECT max(seq) FROM audit").fetchone()
    values = (START, 1, 0, None, 2, 1, 1, bytes(32), bytes(32))
    rowid = FORGED.replace("(seq,", "(seq, rowid,", 1).replace("(?,", "(?, ?,", 1)
    for seq in (None, -1, 0, 1, last // 2, last, last + 2, 2**62):
        for verb in ("INSERT", "REPLACE", "INSERT OR IGNORE"):
            assert attacker.refused(FORGED.replace("INSERT", verb, 1), (seq, *values)), seq
        assert attacker.refused(FORGED.replace("(seq,", "(rowid,", 1), (seq, *values)), seq
        assert attacker.refused(rowid, (last + 1, seq, *values)), seq
    assert attacker.tried == 8 * 5
    assert attacker.db.execute("SELECT max(seq), count(*) FROM audit").fetchone() == (last, last)
    assert broken_link(attacker.db) is None


def test_the_only_arrow_that_can_be_added_is_the_name_of_a_fact(attacker: Attacker) -> None:
    kinds = ("normal", "recovery", "cascade", "created", "fact", "retired")
    for source, target, kind in product((None, "success"), (None, "running"), kinds):
        with attacker.undone():
            told = attacker.refused(NEW_ARROW, (9000, "execution", source, target, kind))
        assert (told is None) == ((source, target, kind) == (None, None, "fact"))
    assert attacker.tried == 24


def test_a_vote_is_for_the_entity_and_the_verdict_of_its_row(attacker: Attacker) -> None:
    _vote(attacker)
    seq = attacker.forge(Ref(Entity.RUN, 1), 1, 9000)
    for run, task, verdict in ((2, 0, "approved"), (1, 1, "approved"), (1, 0, "rejected")):
        assert attacker.refused(VOTE, (seq, run, task, "mallory", verdict, START))


def test_no_record_is_added_to_a_row_that_does_not_tell_of_it(attacker: Attacker) -> None:
    """A forged vote would count towards the quorum after a restart, and no hash covers it."""
    (last,) = attacker.db.execute("SELECT max(seq) FROM audit").fetchone()
    recovered = {seq for (seq,) in attacker.db.execute("SELECT seq FROM recoveries")}
    assert recovered
    for seq in range(last + 2):
        told = attacker.db.execute(
            "SELECT coalesce(a.run, 1), coalesce(a.task, 0), a.actor, r.machine, r.event FROM audit AS a"
            " JOIN arrows AS r ON r.id = a.arrow WHERE a.seq = ? AND r.event NOT IN ('APPROVE', 'REJECT')",
            (seq,),
        ).fetchone() or (1, 0, "fabricator", "execution", "START")
        for verdict in ("approved", "rejected"):
            assert attacker.refused(VOTE, (seq, *told[:3], verdict, START))
        assert attacker.forge_recovery(seq, *told[3:], actor=told[2])
    assert attacker.tried == 3 * (last + 2)


def _vote(attacker: Attacker) -> None:
    """One honest vote, as the gate writes it: the fabricated store has none."""
    arrow = "INSERT INTO arrows VALUES (9000, 'execution', NULL, 'approved', NULL, 'fact', NULL)"
    assert attacker.db.execute(arrow).rowcount == 1
    seq = attacker.forge(Ref(Entity.RUN, 1), 1, 9000)
    assert attacker.refused(VOTE, (seq, 1, 0, "mallory", "approved", START)) is None
    attacker.tried = 0


@pytest.mark.parametrize("table", interlock.KEPT)
def test_what_entities_rest_on_is_not_removed(table: str, attacker: Attacker) -> None:
    if not attacker.rows(table):
        attacker.db.execute(
            "INSERT INTO attempts (run, task, attempt, purpose, round, sent) VALUES (1, 0, 1, 'check', 1, 1)"
        )
    before = attacker.rows(table)
    told = attacker.refused(f"DELETE FROM {table}")
    assert "`interlock machines`" in (told or "")
    assert attacker.rows(table) == before
