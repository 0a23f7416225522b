"""READING.md, "How the engine meets the arrows": breakers, run timeout, sub-runs, parallel steps of 000,
001 with nothing to start, workers, and every pair of machines.
"""

import pytest

from engine.core import signals
from engine.core.errors import Refused
from engine.core.plan import SECOND, Approval, Clause, OnFailure, Plan, Retry, Settings, Test, Tool
from engine.core.records import Entity, Ref, TimerKind
from engine.machines import Lifecycle, Phase

from .driver import Driver, every_pair, every_task_machine, task, tasks_follow, workflow

ONCE = Retry(max_attempts=1)
NEVER = (Test("params.go", "yes"),)
AIDER = Ref(Entity.BREAKER, "aider")
WORKER = Ref(Entity.WORKER, "w")
TOUCHY = Settings(tools={"aider": Tool("aider", failure_threshold=1)})


# ---- breakers


def guarded(machine: str, settings: Settings = TOUCHY, **wishes: object) -> Driver:
    drive = Driver(settings)
    drive.submit(workflow(task("a", tool="aider", **wishes), task("b"), lifecycle=tasks_follow(machine)))
    return drive


@every_task_machine
def test_breakers_count_unexpected_exits(machine: str) -> None:
    drive = guarded(machine)
    drive.exits("a", 1)
    assert drive.breaker("aider") == "OPEN"


@every_task_machine
def test_breakers_count_timeouts(machine: str) -> None:
    drive = guarded(machine)
    drive.advance(300)
    drive.exits("a", 143)
    assert drive.breaker("aider") == "OPEN"


@every_task_machine
def test_breakers_do_not_count_losses(machine: str) -> None:
    drive = guarded(machine)
    drive.lost("a")
    assert drive.breaker("aider") == "CLOSED"


@every_task_machine
def test_breakers_do_not_count_cancels(machine: str) -> None:
    drive = guarded(machine)
    drive.cancel()
    drive.exits("a", 143)
    assert drive.breaker("aider") == "CLOSED"


@every_task_machine
def test_breakers_do_not_count_failed_checks(machine: str) -> None:
    drive = guarded(machine, checks=1)
    drive.exits("a")
    drive.exits("a", 1)
    assert drive.breaker("aider") == "CLOSED"


def several(count: int, settings: Settings | None = None) -> Driver:
    """Tasks a, b, c... that all use aider and run at once."""
    drive = Driver(settings)
    names = "abcdef"[:count]
    drive.submit(workflow(*(task(name, tool="aider") for name in names), lifecycle="orchestration"))
    return drive


@pytest.mark.parametrize("code", [0, 1])
def test_while_open_the_outcomes_of_older_attempts_are_ignored(code: int) -> None:
    drive = several(2)
    drive.feed(signals.TripBreaker, tool="aider")
    drive.advance(30)
    drive.exits("a", code)
    assert drive.events(ref=AIDER) == ["tripped_by_operator"]
    assert drive.due(TimerKind.COOLDOWN, ref=AIDER) == 30


@pytest.mark.parametrize("code", [0, 1])
def test_in_half_open_only_the_outcome_of_the_probe_counts(code: int) -> None:
    drive = several(2)
    drive.feed(signals.TripBreaker, tool="aider")
    drive.advance(60)
    assert drive.breaker("aider") == "HALF_OPEN"
    drive.exits("a", code)
    assert drive.breaker("aider") == "HALF_OPEN"


def probed() -> Driver:
    """Half open; one task of each of two runs wants the tool, and the first is the probe."""
    drive = Driver()
    drive.feed(signals.TripBreaker, tool="aider")
    for _ in range(2):
        drive.submit(workflow(task("a", tool="aider")))
    drive.advance(60)
    assert drive.started() == ["a"]
    drive.run = 1
    return drive


@pytest.mark.parametrize(("code", "state"), [(0, "CLOSED"), (1, "OPEN")])
def test_in_half_open_the_outcome_of_the_probe_decides(code: int, state: str) -> None:
    drive = probed()
    drive.exits("a", code)
    assert drive.breaker("aider") == state


def test_a_lost_probe_frees_its_place() -> None:
    drive = probed()
    drive.lost("a")
    assert drive.breaker("aider") == "HALF_OPEN"
    assert drive.started() == ["a", "a"]
    assert drive.model.task((2, 1)).live is not None


@pytest.mark.parametrize("force", [False, True])
def test_a_cancelled_probe_frees_its_place(force: bool) -> None:
    drive = probed()
    probe = drive.live("a")
    drive.cancel(force=force)
    if not force:
        drive.ends(probe, 143)
    assert drive.breaker("aider") == "HALF_OPEN"
    assert drive.model.task((2, 1)).live is not None


# ---- run timeout


@every_pair
def test_the_run_timeout_counts_from_the_runs_start_arrow(pair: Lifecycle) -> None:
    drive = Driver(slots=0)
    drive.submit(workflow(task("a", timeout=1000 * SECOND), lifecycle=pair, timeout=100 * SECOND))
    drive.advance(500)
    assert drive.due(TimerKind.TIMEOUT) is None
    drive.register("w")
    assert drive.due(TimerKind.TIMEOUT) == 100
    drive.advance(99)
    assert drive.record().ending is None
    drive.advance(1)
    drive.exits("a", 143)
    assert drive.phase() in (Phase.FAILED, Phase.CANCELLED)


def test_the_run_timeout_does_not_count_while_it_is_held() -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), approval=Approval((Clause(),)), timeout=100 * SECOND))
    drive.advance(500)
    drive.approve()
    drive.advance(99)
    assert drive.state() == "running"


@every_task_machine
def test_the_run_timeout_of_001_fires_critical_task_failed(machine: str) -> None:
    drive = Driver()
    pair = Lifecycle("orchestration.workstream", machine)
    drive.submit(workflow(task("a"), lifecycle=pair, timeout=100 * SECOND))
    drive.advance(100)
    drive.exits("a", 143)
    assert drive.path()[-1] == ("executing", "critical_task_failed", "failed")


@every_task_machine
def test_the_run_timeout_of_001_in_validating_fires_validation_failed(machine: str) -> None:
    drive = Driver()
    pair = Lifecycle("orchestration.workstream", machine)
    drive.submit(workflow(task("a"), lifecycle=pair, timeout=20 * SECOND, checks=1))
    drive.exits("a")
    drive.advance(20)
    drive.exits(code=143)
    assert drive.path()[-1] == ("validating", "validation_failed", "failed")


# ---- sub-runs


def nested(pair: Lifecycle, child: Plan) -> Driver:
    drive = Driver()
    drive.submit(workflow(task("sub", uses=child, retry=ONCE), lifecycle=pair))
    return drive


@every_pair
def test_a_sub_run_resting_in_failed_is_abandoned_in_the_transaction_that_fails_its_parent(
    pair: Lifecycle,
) -> None:
    drive = nested(pair, workflow(task("s1", retry=ONCE), lifecycle="pipeline"))
    child = Ref(Entity.RUN, 2)
    drive.ends(drive.model.task((2, 1)).live or pytest.fail("it does not run"), 1)
    assert drive.path(ref=child)[-1] == ("S_FAILED", "max_retries_exceeded", "S_ABANDONED")
    assert drive.phase() is Phase.FAILED
    assert drive.moves_of(ref=child)[-1].decision == drive.moves_of("sub")[-1].decision


@every_pair
def test_a_sub_run_in_failed_is_not_abandoned_while_a_step_of_it_runs(pair: Lifecycle) -> None:
    drive = nested(pair, workflow(task("s1", retry=ONCE), task("s2"), lifecycle="pipeline"))
    first, second = (drive.model.task((2, number)).live for number in (1, 2))
    assert first is not None
    assert second is not None
    drive.ends(first, 1)
    assert drive.model.run(2).state == "S_FAILED"
    assert drive.phase() is not Phase.FAILED
    drive.ends(second, 0)
    assert drive.model.run(2).state == "S_ABANDONED"
    assert drive.phase() is Phase.FAILED


@every_pair
def test_a_sub_run_that_succeeds_succeeds_its_parent_task(pair: Lifecycle) -> None:
    drive = nested(pair, workflow(task("s1"), lifecycle="pipeline"))
    drive.play({"s1": [1]})
    assert drive.phase("sub") is Phase.SUCCEEDED
    assert drive.phase() is Phase.SUCCEEDED


# ---- 000, parallel steps


@every_task_machine
def test_a_step_that_exhausts_during_anothers_backoff_is_retry_attempt_and_step_fails_together(
    machine: str,
) -> None:
    drive = Driver()
    pair = Lifecycle("pipeline.workstream", machine)
    drive.submit(workflow(task("s1"), task("s2"), lifecycle=pair))
    drive.exits("s1", 1)
    assert drive.state() == "S_RETRYING"
    drive.fails_for_good("s2")
    assert drive.together(None, "retry_attempt", "step_fails")
    assert drive.state() == "S_FAILED"


@every_task_machine
def test_of_several_backoffs_the_workstream_leaves_at_the_earliest(machine: str) -> None:
    slow = Retry(base=20 * SECOND)
    drive = Driver()
    pair = Lifecycle("pipeline.workstream", machine)
    drive.submit(workflow(task("s1", retry=slow), task("s2"), lifecycle=pair))
    drive.exits("s1", 1)
    drive.exits("s2", 1)
    drive.advance(1)
    assert drive.state() == "S_RETRYING"
    drive.advance(1)
    assert drive.state() == "S_RUNNING"
    assert drive.started() == ["s1", "s2", "s2"]
    drive.play()
    assert drive.state() == "S_SUCCESS"


@every_task_machine
def test_on_failure_continue_is_refused_under_pipeline_workstream(machine: str) -> None:
    drive = Driver()
    pair = Lifecycle("pipeline.workstream", machine)
    with pytest.raises(Refused, match="finish"):
        drive.submit(workflow(task("a"), lifecycle=pair, on_failure=OnFailure.CONTINUE))


# ---- 001, nothing to start


@every_task_machine
def test_001_with_everything_waived_starts_and_completes_together_with_the_reason(machine: str) -> None:
    drive = Driver()
    pair = Lifecycle("orchestration.workstream", machine)
    drive.submit(workflow(task("a", when=NEVER), lifecycle=pair, checks=1), go="no")
    decision = {move.event: move.decision for move in drive.moves_of()}
    assert decision["first_task_started"] == decision["all_tasks_completed"]
    assert drive.reason("first_task_started")
    assert drive.state() == "validating"


@every_task_machine
def test_001_with_everything_carried_over_starts_and_completes_together(machine: str) -> None:
    drive = Driver()
    pair = Lifecycle("orchestration.workstream", machine)
    drive.submit(workflow(task("a"), lifecycle=pair, checks=1))
    drive.exits("a")
    drive.exits(code=1)
    drive.again(signals.Resume)
    decision = {move.event: move.decision for move in drive.moves_of()}
    assert decision["first_task_started"] == decision["all_tasks_completed"]
    assert "carried over" in drive.reason("first_task_started")
    drive.exits()
    assert drive.state() == "completed"
    assert drive.started() == ["a"]


@every_pair
def test_with_nothing_to_start_every_run_succeeds(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", when=NEVER), task("b", "a", when=NEVER), lifecycle=pair), go="no")
    assert drive.started() == []
    assert drive.phase() is Phase.SUCCEEDED


# ---- workers


def test_a_frozen_idle_worker_is_marked_and_gets_no_work() -> None:
    drive = Driver()
    drive.feed(signals.WorkerQuiet, worker="w")
    assert (drive.worker().health, drive.worker().frozen) == ("idle", True)
    drive.submit(workflow(task("a")))
    assert drive.started() == []
    drive.feed(signals.WorkerBack, worker="w")
    assert drive.started() == ["a"]


def test_a_frozen_idle_worker_goes_by_shutdown_requested_after_its_time() -> None:
    drive = Driver()
    drive.feed(signals.WorkerQuiet, worker="w")
    drive.advance(59)
    assert drive.worker().health == "idle"
    drive.advance(1)
    assert drive.health()[-1] == "shutdown_requested"
    assert (drive.worker().health, drive.worker().control) == ("shutdown", "TERMINATED")


def test_a_worker_drained_while_control_is_idle_is_terminated() -> None:
    drive = Driver()
    drive.feed(signals.DrainWorker, worker="w")
    assert drive.control() == ["terminate"]
    assert drive.health()[-1] == "shutdown_requested"


def test_a_worker_terminated_while_unresponsive_is_max_timeout_exceeded_with_the_reason() -> None:
    drive = Driver()
    drive.submit(workflow(task("a")))
    drive.feed(signals.WorkerQuiet, worker="w")
    drive.feed(signals.TerminateWorker, worker="w", reason="its machine burns")
    assert drive.health()[-1] == "max_timeout_exceeded"
    assert "its machine burns" in drive.reason("max_timeout_exceeded", ref=WORKER)
    assert drive.worker().control == "TERMINATED"


# ---- pairs


DIAMOND = (task("a"), task("b", "a", checks=1), task("c", "a"), task("d", "b", "c"))


@every_pair
def test_every_pair_runs_a_diamond_to_its_success(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(*DIAMOND, lifecycle=pair, checks=1))
    drive.play()
    assert drive.phase() is Phase.SUCCEEDED
    assert [drive.phase(name) for name in "abcd"] == [Phase.SUCCEEDED] * 4


@every_pair
def test_every_pair_retries_to_its_success(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(*DIAMOND, lifecycle=pair))
    drive.play({"a": [1], "c": [1, 1], "d": [1]})
    assert drive.phase() is Phase.SUCCEEDED
    assert sorted(drive.started()) == ["a", "a", "b", "c", "c", "c", "d", "d"]


@every_pair
def test_every_pair_fails_when_a_critical_task_has_failed_for_good(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(*DIAMOND, lifecycle=pair))
    drive.play({"b": [127]})
    assert drive.phase() is Phase.FAILED
    assert "d" not in drive.started()


@every_pair
def test_every_pair_recovers_from_a_lost_worker(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(*DIAMOND, lifecycle=pair))
    drive.register("v")
    drive.feed(signals.WorkerQuiet, worker="w")
    drive.advance(60)
    drive.lost("a")
    drive.play()
    assert drive.phase() is Phase.SUCCEEDED
    assert drive.started() == ["a", "a", "b", "c", "d"]
