"""The fold of a trail: what an entity is, and what it was, from its rows alone."""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from engine.core import signals as s
from engine.core.plan import Approval, Clause, Plan, Settings, TaskPlan, Tool
from engine.core.records import Entity, Ref, TimerKind
from engine.machines import LIFECYCLES
from engine.store.connections import connect_reader
from engine.store.fold import Folded, fold
from engine.store.gate import AuditRow
from engine.store.loading import TRAIL, audit_row
from tests.core.scene import run_ref, task_ref, tool_ref, worker_ref
from tests.store.conformance.drivers import SqliteDriver
from tests.store.conformance.stage import CONTROL, HEALTH, Stage
from tests.store.tables import Tables, stored

ONE = Approval((Clause(frozenset({"ann"})),))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    driver = SqliteDriver(tmp_path)
    settings = Settings(tools={"make": Tool("make", failure_threshold=1)})
    yield Stage(driver, settings, slots=2)
    driver.close()


def read(stage: Stage) -> sqlite3.Connection:
    driver = stage.driver
    assert isinstance(driver, SqliteDriver)
    return connect_reader(driver.place)


def rows(stage: Stage) -> list[AuditRow]:
    with closing(read(stage)) as db:
        return [audit_row(row) for row in db.execute(f"{TRAIL} ORDER BY a.seq")]


def tables(stage: Stage) -> Tables:
    with closing(read(stage)) as db:
        return stored(db)


def columns(folded: Mapping[Ref, Folded]) -> Tables:
    return {ref: (one.columns, one.regions) for ref, one in folded.items()}


def live(stage: Stage) -> Iterator[None]:
    """A life with everything in it that a row can tell; it pauses after each step."""
    stage.tell(s.WorkerCreated, worker="v", workspace="north", metadata={"os": "linux"})
    yield
    stage.worker("v", 2, "gpu")
    run = stage.submit(Plan("p", (TaskPlan("a", tool="make", checks=1), TaskPlan("b"))), env="prod")
    yield
    stage.pass_time(1)
    stage.end(run, 1, 1)
    yield
    stage.tell(s.AttemptLost, token=stage.live(run, 2), evidence="gone")
    stage.tell(s.WorkerQuiet, worker="v")
    yield
    stage.due(tool_ref("make"), TimerKind.COOLDOWN)
    yield
    held = stage.submit(Plan("q", (TaskPlan("a"),), LIFECYCLES["execution"], approval=ONE))
    stage.pass_time(1)
    yield
    stage.tell(s.Approve, target=run_ref(held), actor="ann", reason="good")
    stage.tell(s.WorkerBack, worker="v")
    yield
    stage.pass_time(1)
    stage.tell(s.Cancel, run=run, actor="ops", reason="enough \udcff")
    stage.tell(s.DrainWorker, worker="w", actor="ops", reason="\udcff")
    yield


def test_nothing_folds_to_nothing() -> None:
    assert fold([]) == {}


def test_the_fold_is_the_row_column_by_column_after_every_step(stage: Stage) -> None:
    for _ in live(stage):
        assert columns(fold(rows(stage))) == tables(stage)
    assert {ref.kind for ref in fold(rows(stage))} == set(Entity)


def test_the_fold_until_a_moment_is_the_row_of_that_moment(stage: Stage) -> None:
    seen: list[tuple[int, int, Tables]] = []
    for _ in live(stage):
        stage.now += 1
        seen.append((stage.now, len(rows(stage)), tables(stage)))
    every = rows(stage)
    for now, last, then in seen:
        assert columns(fold(every, last=last)) == then
        assert columns(fold(every, until=now)) == then
    assert len({last for _, last, _ in seen}) == len(seen)


def test_the_moment_itself_no_longer_counts(stage: Stage) -> None:
    for _ in live(stage):
        pass
    every = rows(stage)
    for moment in sorted({row.at for row in every}):
        before = fold([row for row in every if row.at < moment])
        assert fold(every, until=moment) == before
    assert fold(every, until=0) == {}
    assert fold(every, last=0) == {}


def test_an_entity_folds_the_same_alone_as_among_all(stage: Stage) -> None:
    for _ in live(stage):
        pass
    together = fold(rows(stage))
    for ref, one in together.items():
        assert fold(stage.driver.gate.history(ref)) == {ref: one}


def test_a_worker_folds_with_both_its_regions(stage: Stage) -> None:
    for _ in live(stage):
        pass
    worker = fold(stage.driver.gate.history(worker_ref("v")))[worker_ref("v")]
    assert set(worker.regions) == {HEALTH, CONTROL}
    assert worker.regions[HEALTH]["state"] == stage.the_worker("v").health
    assert worker.columns["capabilities"] == '["gpu"]'
    assert worker.columns["slots"] == 2


def test_a_hold_folds_with_its_votes(stage: Stage) -> None:
    for _ in live(stage):
        pass
    hold = fold(rows(stage))[run_ref(2)].hold
    assert hold is not None
    assert hold["met"] is True
    assert [vote[0] for vote in json.loads(json.dumps(hold["votes"]))] == ["ann"]


def test_what_is_not_of_an_entity_is_no_column_of_it(stage: Stage) -> None:
    """Attempts, timers, evidence and holds are told beside, and are rows of their own."""
    for _ in live(stage):
        pass
    told = {name for row in rows(stage) for name in row.metadata}
    assert {"opens", "closes", "timers", "hold"} <= told
    task = fold(rows(stage))[task_ref(1, 1)]
    assert not {"opens", "closes", "timers", "hold", "data"} & task.columns.keys()


def test_the_fold_knows_which_row_it_ends_with(stage: Stage) -> None:
    for _ in live(stage):
        pass
    for ref, one in fold(rows(stage)).items():
        assert one.seq == stage.driver.gate.history(ref)[-1].seq


def test_folding_changes_no_row(stage: Stage) -> None:
    for _ in live(stage):
        pass
    every, again = rows(stage), rows(stage)
    fold(every)
    assert every == again
    assert fold(every) == fold(again)


def test_the_fold_is_the_row_also_when_the_clock_has_gone_back(stage: Stage) -> None:
    stage.pass_time(10)
    run = stage.submit(Plan("p", (TaskPlan("a"),)))
    stage.pass_time(-5)
    stage.end(run, 1)
    assert columns(fold(rows(stage))) == tables(stage)
