"""READING.md, "How the engine meets the arrows": start, `retry_left`, lost, no state for it, carried over.

Cancel and recovering are in `test_reading_arrows_cancel.py`; breakers, run timeout, sub-runs, parallel steps,
workers and pairs in `test_reading_arrows_rest.py`. Decided elsewhere: the findings themselves (recovery).
"""

import pytest

from engine.core import signals
from engine.core.decision import AttemptNoted, Start
from engine.core.plan import OnLost, Retry, Settings, Test, Tool
from engine.core.records import Origin, Pardon, Purpose, TimerKind
from engine.machines import MACHINES, Lifecycle, Phase, TaskCue

from .driver import HOUR, Driver, every_pair, every_task_machine, task, tasks_follow, workflow

ONCE = Retry(max_attempts=1)
NEVER = (Test("params.go", "yes"),)
START_ARROWS = {
    "toolchain.task": {"executor_starts", "backoff_complete", "test_retry"},
    "pipeline.step": {"dependencies_met", "retry_attempt"},
    "orchestration.task": {"worker_started"},
    "execution": {"START"},
}


def can_skip(machine: str) -> bool:
    return TaskCue.SKIP in MACHINES[machine].cues


# ---- start


@every_task_machine
def test_a_start_arrow_commits_together_with_the_start_instruction(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), task("b", "a"), lifecycle=tasks_follow(machine)))
    drive.play({"a": [1, 1], "b": [1]})
    moves = [
        move
        for name in ("a", "b")
        for move in drive.moves_of(name)
        if move.event in START_ARROWS[machine] and move.source != "recovering"
    ]
    assert {move.event for move in moves} <= START_ARROWS[machine]
    assert len(moves) == (2 if machine == "execution" else 5)
    for move in moves:
        sent = [i.token.key for i in drive.decisions[move.decision].instructions if isinstance(i, Start)]
        assert move.ref.key in sent


@every_task_machine
def test_the_signal_started_only_adds_pid_and_time(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=tasks_follow(machine)))
    drive.advance(3)
    decision = drive.feed(signals.AttemptStarted, token=drive.live("a"), pid=42)
    assert [type(change) for change in decision.changes] == [AttemptNoted]
    assert (decision.instructions, decision.timers) == ((), ())
    assert (drive.attempt("a").pid, drive.attempt("a").started) == (42, drive.now)


@every_pair
def test_without_a_free_slot_the_task_keeps_its_state(pair: Lifecycle) -> None:
    drive = Driver(slots=1)
    drive.submit(workflow(task("a"), task("b"), lifecycle=pair))
    assert drive.started() == ["a"]
    before = drive.state("b")
    assert drive.phase("b") in (Phase.IDLE, Phase.QUEUED)
    drive.advance(200)
    assert drive.state("b") == before
    drive.exits("a")
    assert drive.phase("b") is Phase.ACTIVE


@pytest.mark.parametrize("machine", ["toolchain.task", "pipeline.step"])
def test_without_a_free_slot_a_retrying_task_keeps_its_state_after_its_backoff(machine: str) -> None:
    drive = Driver(slots=1)
    drive.submit(workflow(task("a"), lifecycle=tasks_follow(machine)))
    drive.exits("a", 1)
    before = drive.state("a")
    drive.submit(workflow(task("x")))
    drive.run = 1
    drive.advance(100)
    assert drive.state("a") == before
    assert drive.due(TimerKind.RETRY, "a") is None


@every_pair
def test_without_a_free_slot_the_run_does_not_start_either(pair: Lifecycle) -> None:
    drive = Driver(slots=0)
    drive.submit(workflow(task("a"), lifecycle=pair))
    assert drive.phase() in (Phase.IDLE, Phase.QUEUED)
    assert drive.record().started is None


# ---- retry_left


@every_task_machine
def test_retry_left_needs_a_budget_that_is_not_used_up(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", retry=Retry(max_attempts=2)), lifecycle=tasks_follow(machine)))
    drive.play({"a": [1, 1, 0]})
    assert drive.started() == ["a"] * 2
    assert drive.phase() is Phase.FAILED


@every_task_machine
def test_retry_left_needs_an_error_that_is_not_permanent(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=tasks_follow(machine)))
    drive.play({"a": [127, 0]})
    assert drive.started() == ["a"]
    assert drive.phase() is Phase.FAILED


@every_task_machine
def test_retry_left_needs_an_error_that_is_not_repeated(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=tasks_follow(machine)))
    for _ in range(3):
        drive.exits("a", 1, error="the same")
        drive.advance(60)
    assert drive.started() == ["a"] * 3
    assert drive.phase() is Phase.FAILED


@every_task_machine
def test_retry_left_needs_a_tool_that_is_retried_on_failure(machine: str) -> None:
    drive = Driver(Settings(tools={"rm": Tool("rm", retry_on_failure=False)}))
    drive.submit(workflow(task("a", tool="rm"), lifecycle=tasks_follow(machine)))
    drive.play({"a": [1, 0]})
    assert drive.started() == ["a"]
    assert drive.phase() is Phase.FAILED


@every_task_machine
def test_retry_left_needs_losses_below_3(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", retry=ONCE), lifecycle=tasks_follow(machine)))
    drive.lost("a")
    drive.advance(2)
    drive.lost("a")
    drive.advance(4)
    assert drive.started() == ["a"] * 3
    drive.lost("a")
    drive.advance(HOUR)
    assert drive.started() == ["a"] * 3
    assert drive.phase() is Phase.FAILED


def test_a_workstream_of_000_is_eligible_only_when_every_failed_step_has_a_retry_left() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=ONCE), task("s2"), lifecycle="pipeline"))
    drive.exits("s1", 1)
    drive.exits("s2", 1)
    drive.advance(HOUR)
    assert drive.state() == "S_FAILED"
    assert "retry_eligible" not in drive.events()
    assert drive.started() == ["s1", "s2"]


def test_a_workstream_of_000_is_eligible_when_none_is_failed_any_more() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=ONCE), lifecycle="pipeline"))
    drive.exits("s1", 1)
    drive.mend(signals.AttestTask, "s1", evidence="the file is there")
    assert drive.events()[-3:] == ["retry_eligible", "retry_attempt", "all_steps_succeed"]


def test_a_workstream_of_000_with_an_exhausted_non_critical_step_is_eligible_once_it_is_waived() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=ONCE, critical=False), task("s2"), lifecycle="pipeline"))
    drive.exits("s1", 1)
    assert "step_fails" in drive.events()
    waived = drive.task("s1").pardon is not None
    assert ("retry_eligible" in drive.events()) is waived
    drive.exits("s2")
    assert drive.state() == "S_SUCCESS"


# ---- lost


@every_pair
def test_ask_keeps_the_active_state_until_a_person_answers(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", on_lost=OnLost.ASK), lifecycle=pair))
    before = drive.state("a"), drive.state()
    drive.lost("a")
    drive.advance(HOUR)
    assert (drive.state("a"), drive.state()) == before
    assert drive.task("a").asking
    assert "lost" in drive.facts("a")
    assert drive.started() == ["a"]


def test_ask_keeps_the_active_state_of_a_task_that_was_out_of_contact() -> None:
    drive = Driver()
    drive.submit(workflow(task("a", on_lost=OnLost.ASK), lifecycle="execution"))
    drive.feed(signals.WorkerQuiet, worker="w")
    drive.lost("a")
    assert drive.path("a")[-1] == ("recovering", "START", "running")
    assert drive.task("a").asking


@every_pair
def test_ask_answered_with_a_retry_tries_again(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", on_lost=OnLost.ASK), lifecycle=pair))
    drive.lost("a")
    drive.mend(signals.AnswerLost, "a", retry=True)
    drive.play()
    assert drive.started() == ["a", "a"]
    assert drive.phase() is Phase.SUCCEEDED


@every_pair
def test_ask_answered_with_no_fails_for_good(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", on_lost=OnLost.ASK), lifecycle=pair))
    drive.lost("a")
    drive.mend(signals.AnswerLost, "a", retry=False)
    drive.play()
    assert drive.started() == ["a"]
    assert drive.phase() is Phase.FAILED


@every_pair
def test_fail_on_lost_does_not_try_again(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", on_lost=OnLost.FAIL), lifecycle=pair))
    drive.lost("a")
    drive.advance(HOUR)
    assert drive.started() == ["a"]
    assert drive.phase() is Phase.FAILED


@every_pair
def test_a_check_that_was_lost_without_a_verdict_may_run_again_3_times(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", checks=1, retry=ONCE), lifecycle=pair))
    drive.exits("a")
    for _ in range(3):
        drive.lost("a")
    assert drive.started(Purpose.CHECK) == ["a"] * 4
    assert drive.started() == ["a"]
    drive.lost("a")
    assert drive.started(Purpose.CHECK) == ["a"] * 4
    assert drive.phase() is Phase.FAILED


@every_pair
def test_the_verdict_after_lost_checks_counts(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", checks=1), lifecycle=pair))
    drive.exits("a")
    drive.lost("a")
    drive.exits("a")
    assert drive.phase() is Phase.SUCCEEDED


@every_pair
def test_final_checks_that_were_lost_may_run_again_3_times(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=pair, checks=1))
    drive.exits("a")
    for _ in range(3):
        drive.lost()
    assert len(drive.started(Purpose.CHECK)) == 4
    drive.lost()
    assert drive.phase() is Phase.FAILED


# ---- no state for it


@pytest.mark.parametrize("machine", ["execution", "pipeline.step"])
def test_checks_without_a_validating_state_run_inside_the_active_state(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", checks=1), lifecycle=tasks_follow(machine)))
    before = drive.state("a")
    drive.exits("a")
    assert drive.state("a") == before
    assert drive.live("a").purpose is Purpose.CHECK


@pytest.mark.parametrize("machine", ["execution", "pipeline.step"])
def test_checks_without_a_validating_state_fail_the_attempt(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", checks=1), lifecycle=tasks_follow(machine)))
    drive.play({"a+check": [1]})
    assert drive.started() == ["a", "a"]
    assert drive.phase() is Phase.SUCCEEDED


@every_pair
def test_a_false_when_is_skipped_or_where_there_is_no_skip_waived_on_record(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", when=NEVER), task("b"), lifecycle=pair), go="no")
    drive.play()
    assert drive.started() == ["b"]
    if can_skip(pair.task):
        assert drive.phase("a") is Phase.SKIPPED
    else:
        assert drive.phase("a") is Phase.IDLE
        assert drive.task("a").pardon is Pardon.CONDITION
        assert drive.facts("a")
    assert drive.phase() is Phase.SUCCEEDED


@every_pair
def test_an_exhausted_non_critical_task_is_waived_on_record(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", critical=False, retry=ONCE), task("b"), lifecycle=pair))
    drive.exits("a", 1)
    drive.play()
    assert drive.task("a").pardon is not None
    assert "waived" in drive.facts("a")
    assert drive.phase() is Phase.SUCCEEDED


@every_pair
def test_the_dependents_of_a_failed_non_critical_task_are_skipped_or_blocked(pair: Lifecycle) -> None:
    drive = Driver()
    parts = (task("a", critical=False, retry=ONCE), task("b", "a", critical=False), task("c"))
    drive.submit(workflow(*parts, lifecycle=pair))
    drive.exits("a", 1)
    drive.play()
    assert drive.started() == ["a", "c"]
    if can_skip(pair.task):
        assert drive.phase("b") is Phase.SKIPPED
    assert drive.task("b").terminal or drive.task("b").blocked or drive.task("b").pardon
    assert drive.phase() is Phase.SUCCEEDED


@every_pair
def test_the_dependents_of_a_failed_optional_task_run_as_well(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", optional=True, retry=ONCE), task("b", "a"), lifecycle=pair))
    drive.exits("a", 1)
    drive.play()
    assert drive.started() == ["a", "b"]
    assert drive.phase() is Phase.SUCCEEDED


# ---- carried over


def failed_run(pair: Lifecycle) -> Driver:
    """A finished run: a succeeded, b failed, c never started."""
    drive = Driver()
    drive.submit(workflow(task("a"), task("b", "a", retry=ONCE), task("c", "b"), lifecycle=pair))
    drive.exits("a")
    drive.exits("b", 1)
    if not drive.record().terminal:
        drive.feed(signals.AbandonRun, run=drive.run)
    assert drive.record().terminal
    return drive


@every_pair
def test_resume_and_rerun_are_always_a_new_run(pair: Lifecycle) -> None:
    drive = failed_run(pair)
    old = drive.model.run(1), drive.task("a")
    assert drive.again(signals.Resume) == 2
    assert drive.record().origin == Origin(1, "resume")
    drive.play()
    drive.run = 1
    assert drive.again(signals.Rerun) == 3
    assert drive.record().origin == Origin(1, "rerun")
    assert drive.model.run(1).version == old[0].version
    assert drive.model.task((1, 1)) == old[1]


@every_pair
def test_a_carried_over_task_starts_in_its_initial_state_with_a_carried_over_fact(pair: Lifecycle) -> None:
    drive = failed_run(pair)
    drive.again(signals.Resume)
    assert drive.history("a")[0] == MACHINES[pair.task].initial
    assert "carried_over" in drive.facts("a")


@every_pair
def test_a_carried_over_task_takes_the_skip_arrow_where_one_exists(pair: Lifecycle) -> None:
    drive = failed_run(pair)
    drive.again(signals.Resume)
    first = MACHINES[pair.task].initial
    assert len(drive.path("a")) == (1 if can_skip(pair.task) else 0)
    assert drive.phase("a") is (Phase.SKIPPED if can_skip(pair.task) else Phase.IDLE)
    assert all(source == first for source, _, _ in drive.path("a"))


@every_pair
def test_a_carried_over_task_counts_as_succeeded(pair: Lifecycle) -> None:
    drive = failed_run(pair)
    drive.again(signals.Resume)
    drive.play()
    assert drive.started() == ["a", "b", "b", "c"]
    assert drive.phase() is Phase.SUCCEEDED


@every_pair
def test_a_rerun_of_one_task_carries_over_the_others(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), task("b", "a"), task("c", "b"), lifecycle=pair))
    drive.play()
    drive.again(signals.Rerun, task=2)
    drive.play()
    assert drive.started() == ["a", "b", "c", "b", "c"]
    assert drive.phase() is Phase.SUCCEEDED
