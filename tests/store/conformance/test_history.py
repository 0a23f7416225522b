"""The trail of one entity, and what a store must load and what it must not."""

from itertools import pairwise

from engine.core import signals as s
from engine.core.model import Model
from engine.core.plan import Plan, Settings, TaskPlan, Tool
from engine.core.records import Entity, Ref, TimerKind, Token
from engine.machines import LIFECYCLES, Kind
from tests.core.scene import run_ref, task_ref, tool_ref, worker_ref
from tests.store.conformance.drivers import Driver
from tests.store.conformance.stage import (
    CONTROL,
    HEALTH,
    Stage,
    created,
    decision,
    fact,
    new_breaker,
    new_run,
    new_task,
    new_worker,
)

PLAN = Plan("p", (TaskPlan("build"), TaskPlan("test", needs=(1,))))


def same(stage: Stage) -> None:
    """What another engine would load is what this one has, without what is over."""
    stage.driver.reopen()
    loaded = stage.driver.gate.load()
    fresh = Model.load(loaded, stage.model.settings)
    for run in list(stage.model.runs()):
        if run.terminal and not any(one.token.run == run.number for one in stage.model.attempts()):
            stage.model.retire(run.number)
    assert fresh.snapshot() == stage.model.snapshot()


# ---- rows


def test_a_birth_is_the_first_row_of_its_entity(driver: Driver) -> None:
    run = new_run()
    made = decision(created(run), created(new_task(run)), at=7, signal=3, actor="ann", source="cli")
    driver.gate.apply([made])
    (row,) = driver.gate.history(run.ref)
    assert (row.seq, row.at, row.cause, row.actor, row.source) == (1, 7, 3, "ann", "cli")
    assert (row.ref, row.label, row.machine, row.version) == (run.ref, "1", "execution", 1)
    assert (row.from_state, row.event, row.to_state, row.reason) == (None, "created", "pending", None)
    assert (row.request_id, row.since) == (None, None)
    (task,) = driver.gate.history(task_ref(1, 1))
    assert (task.seq, task.label) == (2, "1/t1")
    assert task.metadata == {"name": "t1", "created": new_task(run).created}


def test_every_kind_of_entity_has_a_history_of_its_own(driver: Driver) -> None:
    """Also where a run, a worker and a tool have the same name."""
    run, worker, breaker = new_run(), new_worker("1"), new_breaker("1")
    task = new_task(run)
    born = [created(run), created(task), created(worker, HEALTH), created(worker, CONTROL), created(breaker)]
    facts = [fact(record, f"of {record.ref.kind}") for record in (run, task, worker, breaker)]
    driver.gate.apply([decision(*born, *facts)])
    for ref, label, count in (
        (run.ref, "1", 1),
        (task.ref, "1/t1", 1),
        (worker.ref, "1", 2),
        (breaker.ref, "1", 1),
    ):
        rows = driver.gate.history(ref)
        assert [row.event for row in rows] == ["created"] * count + [f"of {ref.kind}"]
        assert {(row.ref, row.label) for row in rows} == {(ref, label)}


def test_what_does_not_exist_has_no_history(driver: Driver) -> None:
    for ref in (run_ref(9), task_ref(9, 1), worker_ref("nobody"), tool_ref("nothing")):
        assert list(driver.gate.history(ref)) == []


def test_a_fact_has_no_states_and_does_not_advance_the_version(driver: Driver) -> None:
    stage = Stage(driver, slots=1)
    run = stage.submit(PLAN)
    stage.tell(s.AttemptLost, token=stage.live(run, 1), evidence="gone", reason="pulled")
    rows = driver.gate.history(task_ref(run, 1))
    for before, row in pairwise(rows):
        is_fact = row.to_state is None
        assert (row.from_state is None, row.since is None) == (is_fact, is_fact)
        assert row.version == before.version + (0 if is_fact else 1)


def test_a_row_tells_since_when_its_entity_was_where_it_came_from(driver: Driver) -> None:
    stage = Stage(driver, slots=1)
    run = stage.submit(PLAN)
    stage.pass_time(5)
    stage.end(run, 1)
    moves = [row for row in driver.gate.history(task_ref(run, 1)) if row.from_state is not None]
    entered = {row.to_state: row.at for row in driver.gate.history(task_ref(run, 1))}
    assert moves
    assert all(row.since == entered[row.from_state] for row in moves)


def test_rows_carry_the_signal_the_person_and_the_request_that_they_come_from(driver: Driver) -> None:
    stage = Stage(driver, slots=1)
    run = stage.submit(PLAN)
    made = stage.tell(s.Cancel, run=run, actor="ops", reason="too late", request_id="r-1")
    row = next(row for row in driver.gate.history(run_ref(run)) if row.request_id == "r-1")
    assert (row.cause, row.actor, row.source, row.reason) == (made[0].signal, "ops", "cli", "too late")


def test_the_trail_never_goes_back_in_time(driver: Driver) -> None:
    run = new_run()
    driver.gate.apply([decision(created(run), at=10)])
    driver.gate.apply([decision(fact(run), at=4)])
    driver.reopen()
    driver.gate.apply([decision(fact(run), at=7), decision(fact(run), at=12), decision(fact(run), at=3)])
    assert [row.at for row in driver.gate.history(run.ref)] == [10, 10, 10, 12, 12]
    assert driver.ask(lambda queries: queries.head()).at == 12


def test_the_head_counts_the_rows_and_has_the_time_of_the_last(driver: Driver) -> None:
    head = driver.ask(lambda queries: queries.head())
    assert (head.seq, head.at) == (0, 0)
    run = new_run()
    driver.gate.apply([decision(created(run), created(new_task(run)), at=9)])
    driver.reopen()
    head = driver.ask(lambda queries: queries.head())
    assert (head.seq, head.at) == (2, 9)


def test_a_decision_without_changes_leaves_no_row(driver: Driver) -> None:
    driver.gate.apply([])
    driver.gate.apply([decision()])
    assert driver.ask(lambda queries: queries.head()).seq == 0


def test_evidence_of_a_fact_is_in_its_row(driver: Driver) -> None:
    stage = Stage(driver, slots=1)
    run = stage.submit(PLAN)
    stage.finish(run, 127)
    stage.tell(s.Resume, run=run, actor="dev")
    row = next(row for row in driver.gate.history(run_ref(run)) if row.event == "resumed")
    assert row.metadata == {"resumed_by": run + 1, "data": {"by_run": run + 1}}


# ---- recoveries


def test_a_recovery_is_recorded_with_its_row_and_nothing_else_is(driver: Driver) -> None:
    stage = Stage(driver, slots=2)
    run = stage.submit(Plan("p", (TaskPlan("a"), TaskPlan("b"))))
    stage.end(run, 1, 127)
    assert driver.recoveries() == []
    stage.tell(s.ResetTask, run=run, task=1, actor="ops", reason="mended the host")
    driver.reopen()
    moves = [move for move in stage.transitions(task_ref(run, 1)) if move.kind is Kind.RECOVERY]
    assert len(moves) == 1
    row = next(row for row in driver.gate.history(task_ref(run, 1)) if row.event == moves[0].event)
    assert driver.recoveries() == [
        (row.seq, "toolchain.task", f"{run}/a", "manual_reset", "ops", "mended the host")
    ]


# ---- workers and breakers


def test_a_worker_moves_in_two_regions_that_do_not_disturb_each_other(driver: Driver) -> None:
    stage = Stage(driver)
    stage.tell(s.WorkerCreated, worker="w", workspace="north", metadata={"os": "linux"})
    same(stage)
    stage.worker("w", 3, "gpu")
    stage.submit(PLAN)
    stage.tell(s.PauseWorker, worker="w", actor="ops", reason="too hot")
    same(stage)
    stage.tell(s.ResumeWorker, worker="w", actor="ops")
    stage.tell(s.WorkerQuiet, worker="w")
    same(stage)
    stage.tell(s.WorkerBack, worker="w")
    stage.tell(s.DrainWorker, worker="w", actor="ops")
    same(stage)
    worker = {row.machine: row.version for row in driver.gate.history(worker_ref("w")) if row.to_state}
    final = [one for one in driver.gate.load().workers if one.id == "w"] or [stage.the_worker("w")]
    assert worker == {HEALTH: final[0].health_version, CONTROL: final[0].control_version}
    versions = [row.version for row in driver.gate.history(worker_ref("w")) if row.machine == CONTROL]
    assert versions == list(range(1, len(versions) + 1))


def test_a_breaker_is_loaded_in_every_state(driver: Driver) -> None:
    settings = Settings(tools={"make": Tool("make", failure_threshold=1)})
    stage = Stage(driver, settings, slots=1)
    run = stage.submit(Plan("p", (TaskPlan("a", tool="make"),)))
    stage.end(run, 1, 1)
    same(stage)
    assert stage.breaker("make").state == "OPEN"
    stage.due(tool_ref("make"), TimerKind.COOLDOWN)
    same(stage)
    assert stage.breaker("make").state == "HALF_OPEN"
    events = [row.event for row in driver.gate.history(tool_ref("make")) if row.to_state]
    assert events[0] == "created"


# ---- what is loaded


def test_a_run_that_is_over_is_not_loaded_and_the_next_number_goes_on(driver: Driver) -> None:
    stage = Stage(driver, slots=2)
    first, second = stage.submit(PLAN), stage.submit(PLAN)
    stage.finish(first)
    driver.reopen()
    loaded = driver.gate.load()
    assert [run.number for run in loaded.runs] == [second]
    assert {task.run for task in loaded.tasks} == {second}
    assert loaded.next_run == 3
    stage.finish(second)
    driver.reopen()
    loaded = driver.gate.load()
    assert (loaded.runs, loaded.tasks, loaded.attempts, loaded.next_run) == ((), (), (), 3)
    assert [worker.id for worker in loaded.workers] == ["w"]


def test_a_run_that_is_over_is_loaded_while_an_attempt_of_it_is_open(driver: Driver) -> None:
    stage = Stage(driver, slots=2)
    run = stage.submit(PLAN)
    token = stage.live(run, 1)
    stage.tell(s.Cancel, run=run, actor="ops", force=True)
    for kind in (TimerKind.GRACE, TimerKind.DEADLINE):
        if stage.timer(task_ref(run, 1), kind) is not None:
            stage.due(task_ref(run, 1), kind)
    assert stage.run(run).terminal
    loaded = driver.gate.load()
    assert [one.token for one in loaded.attempts] == [token]
    assert [one.number for one in loaded.runs] == [run]
    assert len(loaded.tasks) == 2
    stage.tell(s.AttemptEnded, token=token, exit_code=143)
    assert driver.gate.load().runs == ()


def test_a_worker_that_has_shut_down_is_loaded_only_while_it_holds_something(driver: Driver) -> None:
    stage = Stage(driver, slots=1)
    stage.worker("idle")
    run = stage.submit(PLAN)
    token = stage.live(run, 1)
    holder = stage.attempt(run, 1).worker
    assert holder is not None
    for name in ("idle", "w"):
        stage.tell(s.WorkerGone, worker=name)
    loaded = driver.gate.load()
    holding = {one.worker for one in loaded.attempts}
    gone = [worker.id for worker in stage.model.workers() if worker.health == "shutdown"]
    assert "idle" in gone or holder == "idle"
    assert {worker.id for worker in loaded.workers} & set(gone) <= holding
    for attempt in loaded.attempts:
        stage.tell(s.AttemptLost, token=attempt.token, evidence="its worker is gone")
    assert all(one.token != token for one in driver.gate.load().attempts)
    assert {worker.id for worker in driver.gate.load().workers} & set(gone) == set()


def test_a_sub_run_is_loaded_with_its_parent(driver: Driver) -> None:
    stage = Stage(driver, slots=1)
    inner = Plan("inner", (TaskPlan("deep", uses=Plan("deepest", (TaskPlan("work"),))),))
    run = stage.submit(Plan("outer", (TaskPlan("a", uses=inner), TaskPlan("b", needs=(1,)))))
    same(stage)
    runs = driver.gate.load().runs
    assert [(one.parent, one.depth) for one in runs] == [(None, 0), ((run, 1), 1), ((run + 1, 1), 2)]
    subs = [one.sub_run for one in driver.gate.load().attempts if one.sub_run is not None]
    assert subs == [run + 1, run + 2]
    stage.end(run + 2, 1)
    same(stage)
    assert [row.parent_run for row in driver.ask(lambda q: q.runs(descending=False)).rows] == [None, 1, 2]


def test_a_resumed_and_a_repeated_run_tell_where_they_come_from(driver: Driver) -> None:
    stage = Stage(driver, slots=1)
    run = stage.submit(PLAN, env="prod")
    stage.end(run, 1)
    stage.finish(run, 127)
    stage.tell(s.Resume, run=run, actor="dev")
    stage.finish(run + 1)
    stage.tell(s.Rerun, run=run + 1, actor="dev")
    same(stage)
    rows = driver.ask(lambda queries: queries.runs(descending=False)).rows
    assert [(row.origin_run, row.origin_verb, row.resumed_by) for row in rows] == [
        (None, None, 2), (1, "resume", None), (2, "rerun", None),
    ]  # fmt: skip
    detail = driver.ask(lambda queries: queries.run(2))
    assert detail is not None
    assert [task.pardon for task in detail.tasks] == ["carried_over", None]
    assert {row.params for row in rows} == {'{"env":"prod"}'}


def test_everything_that_is_loaded_builds_the_same_model(driver: Driver) -> None:
    """With retries, checks, timers, a lost attempt and a cancelled run in it."""
    stage = Stage(driver, slots=3)
    first = stage.submit(Plan("one", (TaskPlan("a", checks=1, tool="make"), TaskPlan("b"))))
    second = stage.submit(Plan("two", (TaskPlan("a", has_cancel_hook=True),), LIFECYCLES["execution"]))
    same(stage)
    stage.end(first, 1, 1)
    same(stage)
    stage.due(task_ref(first, 1), TimerKind.RETRY)
    stage.end(first, 1, 0)
    same(stage)
    stage.tell(s.AttemptLost, token=stage.live(first, 2), evidence="gone")
    same(stage)
    stage.tell(s.Cancel, run=second, actor="ops", reason="stop")
    same(stage)
    assert Ref(Entity.RUN, first) in {run.ref for run in driver.gate.load().runs}
    assert Token(first, 2, 1) in stage.task(first, 2).lost or stage.task(first, 2).losses == 1
