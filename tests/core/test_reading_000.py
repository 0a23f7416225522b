"""The rows of READING.md on document 000: workstreams that mirror their steps, steps, breakers.

Decided elsewhere: the finding and exit code 1 of a workstream that rests in `S_FAILED` (recovery, command
line); its `retry_count` as a shown figure (queries); that raw SQL is refused (store).
"""

import pytest

from engine.core import signals
from engine.core.plan import SECOND, Retry, Settings, Tool
from engine.core.records import Entity, Pardon, Ref, TimerKind
from engine.machines import MACHINES, InvalidTransitionError, Kind, Lifecycle, Phase

from .driver import HOUR, Driver, every_task_machine, task, tasks_follow, workflow

ONCE = Retry(max_attempts=1)
TWICE = Retry(max_attempts=2)


def mirroring(machine: str) -> Lifecycle:
    return Lifecycle("pipeline.workstream", machine)


# ---- totals


def test_the_tables_of_000_hold_14_states_and_16_transitions() -> None:
    machines = [machine for machine in MACHINES.values() if machine.document == "000"]
    assert sum(len(machine.states) for machine in machines) == 14
    drawn = {
        (machine.name, arrow.source, arrow.target)
        for machine in machines
        for arrow in machine.arrows
        if arrow.kind is Kind.NORMAL
    }
    assert len(drawn) == 16


# ---- one budget: the workstream mirrors its steps


@every_task_machine
def test_the_workstream_mirrors_its_steps_failed_retrying_running(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("s1"), lifecycle=mirroring(machine)))
    drive.exits("s1", 1)
    assert drive.history() == ["S_PENDING", "S_RUNNING", "S_FAILED", "S_RETRYING"]
    drive.advance(2)
    assert drive.state() == "S_RUNNING"
    drive.play()
    assert drive.history()[-3:] == ["S_RETRYING", "S_RUNNING", "S_SUCCESS"]


def test_the_sample_history_of_000_is_what_a_flaky_step_leads_to() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1"), task("s2", "s1"), lifecycle="pipeline"))
    drive.play({"s2": [1]})
    assert drive.path() == [
        ("S_PENDING", "start_execution", "S_RUNNING"),
        ("S_RUNNING", "step_fails", "S_FAILED"),
        ("S_FAILED", "retry_eligible", "S_RETRYING"),
        ("S_RETRYING", "retry_attempt", "S_RUNNING"),
        ("S_RUNNING", "all_steps_succeed", "S_SUCCESS"),
    ]


@every_task_machine
def test_any_failing_step_fails_the_workstream_at_once(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("s1"), task("s2"), lifecycle=mirroring(machine)))
    drive.fails_for_good("s1")
    assert drive.state() == "S_FAILED"
    assert drive.phase("s2") is Phase.ACTIVE


def test_there_is_one_budget_the_steps_own() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=TWICE), task("s2", "s1", retry=TWICE), lifecycle="pipeline"))
    drive.play({"s1": [1], "s2": [1]})
    assert drive.state() == "S_SUCCESS"
    assert drive.events().count("retry_eligible") == 2


@every_task_machine
def test_while_the_workstream_is_retrying_running_steps_finish_and_none_start(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("s1"), task("s2"), task("s3", "s2"), lifecycle=mirroring(machine)))
    drive.exits("s1", 1)
    drive.exits("s2")
    assert drive.state() == "S_RETRYING"
    assert drive.phase("s2") is Phase.SUCCEEDED
    assert drive.started() == ["s1", "s2"]
    drive.advance(2)
    assert sorted(drive.started()[2:]) == ["s1", "s3"]


@every_task_machine
def test_while_the_workstream_is_failed_running_steps_finish_and_none_start(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("s1"), task("s2"), task("s3", "s2"), lifecycle=mirroring(machine)))
    drive.fails_for_good("s1")
    drive.exits("s2")
    drive.advance(HOUR)
    assert drive.state() == "S_FAILED"
    assert drive.phase("s2") is Phase.SUCCEEDED
    assert drive.started() == ["s1", "s2"]


# ---- retries exceeded


@every_task_machine
def test_an_exhausted_workstream_rests_in_failed(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=TWICE), lifecycle=mirroring(machine)))
    drive.play({"s1": [1, 1]})
    drive.advance(23 * HOUR)
    assert drive.state() == "S_FAILED"
    assert not drive.record().terminal
    assert "max_retries_exceeded" not in drive.events()


def test_max_retries_exceeded_fires_when_the_operator_abandons_it() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=ONCE), lifecycle="pipeline"))
    drive.exits("s1", 1)
    drive.feed(signals.AbandonRun, run=drive.run, reason="not worth it")
    assert drive.path()[-1] == ("S_FAILED", "max_retries_exceeded", "S_ABANDONED")
    assert drive.reason("max_retries_exceeded") == "not worth it"


def test_max_retries_exceeded_fires_after_24_hours() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=ONCE), lifecycle="pipeline"))
    drive.exits("s1", 1)
    drive.advance(24 * HOUR - 1)
    assert drive.state() == "S_FAILED"
    drive.advance(1)
    assert drive.path()[-1] == ("S_FAILED", "max_retries_exceeded", "S_ABANDONED")


def test_max_retries_exceeded_fires_after_the_workflows_own_abandon_after() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=ONCE), lifecycle="pipeline", abandon_after=90 * SECOND))
    drive.exits("s1", 1)
    drive.advance(90)
    assert drive.state() == "S_ABANDONED"


def test_a_workstream_that_still_has_retries_cannot_be_abandoned_as_exhausted() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1"), lifecycle="pipeline"))
    drive.exits("s1", 1)
    with pytest.raises(InvalidTransitionError):
        drive.feed(signals.AbandonRun, run=drive.run)


def test_resetting_the_step_makes_retry_eligible_legal_again() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=ONCE), lifecycle="pipeline"))
    drive.exits("s1", 1)
    drive.mend(signals.ResetTask, "s1")
    assert drive.together(None, "retry_eligible", "retry_attempt")
    assert drive.due(TimerKind.ABANDON) is None
    drive.play()
    assert drive.state() == "S_SUCCESS"


def test_waiving_the_step_makes_retry_eligible_legal_again() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=ONCE), task("s2", "s1"), lifecycle="pipeline"))
    drive.exits("s1", 1)
    drive.mend(signals.WaiveTask, "s1", reason="known")
    assert drive.events()[-2:] == ["retry_eligible", "retry_attempt"]
    assert drive.started() == ["s1", "s2"]


def test_a_workstream_mended_twice_rests_again_after_it_failed_again() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=ONCE), lifecycle="pipeline"))
    drive.exits("s1", 1)
    drive.mend(signals.ResetTask, "s1")
    drive.exits("s1", 1)
    assert drive.state() == "S_FAILED"
    assert drive.due(TimerKind.ABANDON) == 24 * HOUR


# ---- skipping a failed step


def test_a_skipped_failed_step_stays_failed_with_a_recorded_waiver() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=ONCE), task("s2", "s1"), lifecycle="pipeline"))
    drive.exits("s1", 1)
    drive.mend(signals.WaiveTask, "s1", reason="known")
    assert drive.state("s1") == "S_FAILED"
    assert drive.task("s1").pardon is Pardon.WAIVED
    assert "waived" in drive.facts("s1")


def test_dependents_and_the_success_of_the_workstream_accept_a_waived_step() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=ONCE), task("s2", "s1"), lifecycle="pipeline"))
    drive.exits("s1", 1)
    drive.mend(signals.WaiveTask, "s1")
    drive.exits("s2")
    assert drive.states("s1", "s2") == ["S_FAILED", "S_SUCCESS"]
    assert drive.state() == "S_SUCCESS"


def test_only_waived_steps_are_accepted_another_failed_one_keeps_the_workstream_failed() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", retry=ONCE), task("s2", retry=ONCE), lifecycle="pipeline"))
    drive.exits("s1", 1)
    drive.exits("s2", 1)
    drive.mend(signals.WaiveTask, "s1")
    assert drive.state() == "S_FAILED"


# ---- a breaker that is open


@every_task_machine
def test_a_task_that_has_not_started_is_parked_in_its_state_while_the_breaker_is_open(machine: str) -> None:
    drive = Driver()
    drive.feed(signals.TripBreaker, tool="aider")
    drive.submit(workflow(task("s1", tool="aider"), lifecycle=tasks_follow(machine)))
    before = drive.state("s1")
    drive.advance(59)
    assert drive.started() == []
    assert drive.state("s1") == before
    assert drive.phase("s1") in (Phase.IDLE, Phase.QUEUED)


@every_task_machine
def test_explain_says_breaker_aider_open_retry_in_58_s(machine: str) -> None:
    drive = Driver()
    drive.feed(signals.TripBreaker, tool="aider")
    drive.submit(workflow(task("s1", tool="aider"), lifecycle=tasks_follow(machine)))
    drive.advance(2)
    assert "breaker aider open, retry in 58 s" in drive.explain("s1")


def test_a_retrying_task_of_003_goes_to_circuit_open_when_the_breaker_opens() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", tool="aider")))
    drive.exits("s1", 1)
    assert drive.state("s1") == "RETRYING"
    drive.feed(signals.TripBreaker, tool="aider")
    assert drive.path("s1")[-1] == ("RETRYING", "circuit_opens", "CIRCUIT_OPEN")
    assert drive.due(TimerKind.RETRY, "s1") is None


def test_a_retrying_step_of_000_keeps_its_state_when_the_breaker_opens() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1", tool="aider"), lifecycle=tasks_follow("pipeline.step")))
    drive.exits("s1", 1)
    drive.feed(signals.TripBreaker, tool="aider")
    drive.advance(30)
    assert drive.state("s1") == "S_RETRYING"
    assert "breaker aider open" in drive.explain("s1")
    drive.advance(30)
    assert drive.state("s1") == "S_RUNNING"


def test_an_open_breaker_lets_other_tools_through() -> None:
    drive = Driver()
    drive.feed(signals.TripBreaker, tool="aider")
    drive.submit(workflow(task("s1", tool="aider"), task("s2", tool="git"), lifecycle="pipeline"))
    assert drive.started() == ["s2"]


# ---- no cancel for steps


def test_a_cancelled_pending_step_keeps_its_state_and_is_marked_blocked() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1"), task("s2", "s1"), lifecycle="pipeline"))
    drive.cancel()
    drive.exits("s1", 143)
    assert drive.state("s2") == "S_PENDING"
    assert drive.task("s2").blocked
    assert "blocked" in drive.facts("s2")


def test_a_cancelled_retrying_step_keeps_its_state_loses_its_timer_and_is_marked_blocked() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1"), lifecycle="pipeline"))
    drive.exits("s1", 1)
    assert drive.due(TimerKind.RETRY, "s1") == 2
    drive.cancel()
    assert drive.state("s1") == "S_RETRYING"
    assert drive.task("s1").blocked
    assert not [timer for timer in drive.model.timers() if timer.ref.kind is Entity.TASK]


def test_a_cancelled_running_step_is_stopped_and_ends_by_failure() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1"), lifecycle="pipeline"))
    drive.cancel()
    assert drive.state("s1") == "S_RUNNING"
    drive.exits("s1", 143)
    assert drive.path("s1")[-1] == ("S_RUNNING", "failure", "S_FAILED")
    assert drive.path()[-1] == ("S_RUNNING", "abandon", "S_ABANDONED")


def test_a_step_that_exits_well_after_its_cancel_still_ends_by_failure() -> None:
    drive = Driver()
    drive.submit(workflow(task("s1"), lifecycle="pipeline"))
    drive.cancel()
    drive.exits("s1", 0)
    assert drive.path("s1")[-1] == ("S_RUNNING", "failure", "S_FAILED")


# ---- breakers belong to the engine


def test_one_breaker_guards_one_tool_across_runs() -> None:
    drive = Driver(Settings(tools={"aider": Tool("aider", failure_threshold=2)}))
    for _ in range(2):
        drive.submit(workflow(task("s1", tool="aider", retry=ONCE), lifecycle="pipeline"))
        drive.exits("s1", 1)
    assert drive.events(ref=Ref(Entity.BREAKER, "aider")) == ["failure_threshold_exceeded"]
