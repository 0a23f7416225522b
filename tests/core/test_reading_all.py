"""READING.md, "All": what a failure for good does to the rest, the first audit row, and terminal runs.

Decided elsewhere: that the creation is not exported to the JSON lines (log); `acknowledged` and `check`
(store).
"""

import pytest

from engine.core import signals
from engine.core.errors import Refused
from engine.core.plan import OnFailure, Retry, WhenOpen
from engine.core.records import Entity, TimerKind
from engine.machines import MACHINES, InvalidTransitionError, Lifecycle, MachineError, Phase, TaskCue

from .driver import HOUR, PAIRS, Driver, every_pair, every_task_machine, task, workflow

ONCE = Retry(max_attempts=1)
FINISH, CONTINUE, CANCEL = OnFailure.FINISH, OnFailure.CONTINUE, OnFailure.CANCEL

NOT_MIRRORING = [pair for pair in PAIRS if pair.run != "pipeline.workstream"]
waiting_pairs = pytest.mark.parametrize("pair", NOT_MIRRORING, ids=str)
"""Pairs whose run waits for the last attempt before it fails; 000 mirrors at once."""

FORK = (task("a"), task("b"), task("c", "b"), task("d", "a"))
"""a fails; b runs beside it; c needs b; d needs a."""


def forked(pair: Lifecycle, policy: OnFailure | None) -> Driver:
    drive = Driver()
    drive.submit(workflow(*FORK, lifecycle=pair, on_failure=policy))
    drive.fails_for_good("a")
    return drive


# ---- finish


@every_pair
def test_finish_lets_what_already_runs_finish_and_starts_nothing_new(pair: Lifecycle) -> None:
    drive = forked(pair, FINISH)
    assert drive.phase("b") is Phase.ACTIVE
    drive.exits("b")
    assert drive.phase("b") is Phase.SUCCEEDED
    assert drive.started() == ["a", "b"]
    assert drive.phase() is Phase.FAILED


@pytest.mark.parametrize("pair", [p for p in PAIRS if p.run in ("execution", "supervision.job")], ids=str)
def test_finish_is_the_default(pair: Lifecycle) -> None:
    drive = forked(pair, None)
    drive.exits("b")
    assert drive.phase("b") is Phase.SUCCEEDED
    assert drive.started() == ["a", "b"]


@every_task_machine
def test_finish_is_the_default_of_000(machine: str) -> None:
    drive = forked(Lifecycle("pipeline.workstream", machine), None)
    drive.exits("b")
    assert drive.phase("b") is Phase.SUCCEEDED


@every_pair
def test_finish_counts_a_retry_as_new(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), task("b"), lifecycle=pair, on_failure=FINISH))
    drive.exits("b", 1)
    drive.fails_for_good("a")
    drive.advance(HOUR)
    assert drive.started() == ["a", "b"]
    assert drive.phase() is Phase.FAILED


@every_pair
def test_finish_does_not_retry_what_fails_after_the_failure(pair: Lifecycle) -> None:
    drive = forked(pair, FINISH)
    drive.exits("b", 1)
    drive.advance(HOUR)
    assert drive.started() == ["a", "b"]
    assert drive.phase() is Phase.FAILED


@every_pair
def test_finish_lets_the_checks_of_what_already_runs_finish(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), task("b", checks=1), lifecycle=pair, on_failure=FINISH))
    drive.fails_for_good("a")
    drive.exits("b")
    drive.exits("b")
    assert drive.phase("b") is Phase.SUCCEEDED


# ---- continue


@waiting_pairs
def test_continue_also_runs_the_branches_that_do_not_depend_on_it(pair: Lifecycle) -> None:
    drive = forked(pair, CONTINUE)
    drive.exits("b")
    assert drive.started() == ["a", "b", "c"]
    assert not drive.record().terminal
    drive.exits("c")
    assert drive.phase() is Phase.FAILED
    assert "d" not in drive.started()


@waiting_pairs
def test_continue_retries_the_other_branches(pair: Lifecycle) -> None:
    drive = forked(pair, CONTINUE)
    drive.play({"b": [1]})
    assert drive.started() == ["a", "b", "b", "c"]
    assert drive.phase() is Phase.FAILED


# ---- cancel


@waiting_pairs
def test_cancel_cancels_what_runs(pair: Lifecycle) -> None:
    drive = forked(pair, CANCEL)
    drive.exits("b", 143)
    assert drive.started() == ["a", "b"]
    assert drive.phase("b") in (Phase.CANCELLED, Phase.FAILED)
    assert drive.phase() is Phase.FAILED


@every_task_machine
def test_cancel_in_000_stops_what_runs_too(machine: str) -> None:
    drive = forked(Lifecycle("pipeline.workstream", machine), CANCEL)
    drive.exits("b", 143)
    assert drive.phase("b") in (Phase.CANCELLED, Phase.FAILED)
    drive.advance(HOUR)
    assert drive.started() == ["a", "b"]
    assert drive.state() == "S_FAILED"


@every_task_machine
def test_cancel_is_001s_default(machine: str) -> None:
    drive = forked(Lifecycle("orchestration.workstream", machine), None)
    drive.exits("b", 143)
    assert drive.phase("b") in (Phase.CANCELLED, Phase.FAILED)
    assert drive.state() == "failed"


# ---- the run's own failing transition


@waiting_pairs
@pytest.mark.parametrize("policy", [FINISH, CONTINUE, CANCEL])
def test_the_runs_failing_transition_comes_when_the_last_attempt_has_ended(
    pair: Lifecycle, policy: OnFailure
) -> None:
    drive = forked(pair, policy)
    assert drive.phase() is Phase.ACTIVE
    drive.exits("b", 127)
    assert drive.phase() is Phase.FAILED


@every_task_machine
def test_in_000_the_workstream_mirrors_its_steps_at_once(machine: str) -> None:
    drive = forked(Lifecycle("pipeline.workstream", machine), None)
    assert drive.state() == "S_FAILED"
    assert drive.phase("b") is Phase.ACTIVE


# ---- tasks that never started


@waiting_pairs
def test_tasks_that_never_started_are_skipped_where_the_machine_can_else_marked_blocked(
    pair: Lifecycle,
) -> None:
    drive = forked(pair, FINISH)
    assert drive.phase("d") is Phase.IDLE
    drive.exits("b", 127)
    for name in ("c", "d"):
        if TaskCue.SKIP in MACHINES[pair.task].cues:
            assert drive.phase(name) is Phase.SKIPPED
            assert "fail" in (drive.moves_of(name)[-1].reason or "")
        else:
            assert drive.state(name) == MACHINES[pair.task].initial
            assert "fail" in (drive.task(name).blocked or "")


def test_queued_ones_are_cancelled() -> None:
    drive = Driver(slots=1)
    drive.submit(workflow(task("a"), task("b"), lifecycle="execution"))
    drive.fails_for_good("a")
    assert drive.path("b")[-1] == ("queued", "CANCEL", "cancelled")
    assert "fail" in drive.reason("CANCEL", "b")


def test_a_queued_task_of_001_is_marked_blocked() -> None:
    drive = Driver(slots=1)
    drive.submit(workflow(task("a"), task("b"), lifecycle="orchestration"))
    drive.fails_for_good("a")
    assert drive.state("b") == "queued"
    assert "fail" in (drive.task("b").blocked or "")


@every_pair
def test_a_run_that_is_over_leaves_no_timers_of_its_own(pair: Lifecycle) -> None:
    drive = Driver()
    parts = (task("a"), task("b"), task("c", "b"))
    drive.submit(workflow(*parts, lifecycle=pair, timeout=9 * HOUR * 1_000_000))
    drive.exits("b", 1)
    drive.cancel()
    drive.exits("a", 143)
    assert drive.record().terminal
    assert not [timer for timer in drive.model.timers() if timer.ref.kind in (Entity.RUN, Entity.TASK)]


@pytest.mark.parametrize("machine", ["execution", "orchestration.workstream", "supervision.job"])
def test_a_task_left_in_circuit_open_by_a_failed_run_stays_there(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", retry=ONCE), lifecycle=Lifecycle(machine, "toolchain.task")))
    drive.exits("a", 1)
    assert drive.phase() is Phase.FAILED
    drive.advance(HOUR)
    assert drive.state("a") == "CIRCUIT_OPEN"


def test_a_task_that_waits_in_its_circuit_stays_there_when_another_fails_the_run() -> None:
    drive = Driver()
    drive.submit(workflow(task("a", retry=ONCE, when_circuit_open=WhenOpen.WAIT), task("b")))
    drive.exits("a", 1)
    drive.fails_for_good("b")
    assert (drive.state(), drive.state("a")) == ("failed", "CIRCUIT_OPEN")
    assert drive.due(TimerKind.PROBE, "a") is None


# ---- the first audit row


@every_pair
def test_the_first_audit_row_of_an_entity_is_its_creation_version_1(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", tool="t"), lifecycle=pair))
    drive.exits("a", 1)
    made = [(change.ref, change.machine) for change in drive.created]
    assert len(made) == len(set(made))
    assert {ref.kind for ref, _ in made} == set(Entity)
    for change in drive.created:
        assert change.version == 1
        assert change.state == MACHINES[change.machine].initial
    assert {(move.ref, move.machine) for move in drive.moves} <= set(made)


@every_pair
def test_every_transition_advances_the_version_by_one_and_a_fact_does_not(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", checks=1), lifecycle=pair))
    drive.play({"a": [1]})
    assert drive.task("a").version == 1 + len(drive.path("a"))
    assert drive.record().version == 1 + len(drive.path())


# ---- terminal runs


def ended(pair: Lifecycle) -> Driver:
    drive = Driver()
    drive.submit(workflow(task("a"), task("b", "a", retry=ONCE), lifecycle=pair))
    drive.exits("a")
    drive.exits("b", 1)
    if not drive.record().terminal:
        drive.feed(signals.AbandonRun, run=drive.run)
    return drive


@every_pair
def test_a_terminal_run_without_a_recovery_row_is_never_reopened(pair: Lifecycle) -> None:
    drive = ended(pair)
    before = drive.model.snapshot()
    for make, fields in (
        (signals.ResetTask, {}),
        (signals.WaiveTask, {}),
        (signals.AttestTask, {"evidence": "I saw it"}),
        (signals.AnswerLost, {"retry": True}),
    ):
        with pytest.raises((Refused, InvalidTransitionError), match="resume"):
            drive.mend(make, "b", **fields)
    for command in (signals.Cancel, signals.AbandonRun, signals.CorrectRun):
        with pytest.raises((Refused, MachineError)):
            drive.feed(command, run=drive.run)
    assert drive.model.snapshot() == before


@every_pair
def test_its_recovery_is_resume_a_new_run_linked_both_ways(pair: Lifecycle) -> None:
    drive = ended(pair)
    new = drive.again(signals.Resume)
    origin = drive.record().origin
    assert origin is not None
    assert origin.run == 1
    link = [fact for fact in drive.noted if fact.ref.key == 1 and fact.name == "resumed"]
    assert [fact.data["by_run"] for fact in link] == [new]


@every_pair
def test_a_run_that_is_not_over_cannot_be_resumed(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=pair))
    with pytest.raises(Refused, match="not over"):
        drive.feed(signals.Resume, run=drive.run, actor="dev")
