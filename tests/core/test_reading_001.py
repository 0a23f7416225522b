"""The rows of READING.md on document 001: workstreams derived from their tasks, tasks, a worker's health.

Decided elsewhere: `log validate` and the `event_type` names (log); worktree and merge (later);
the archive of finished runs (`prune`).
"""

import pytest

from engine.core import signals
from engine.core.decision import Transition
from engine.core.derive import derive_workstream
from engine.core.plan import OnFailure, Retry, TaskPlan
from engine.core.records import Entity, Pardon, Purpose, Ref, TimerKind, evolve
from engine.machines import MACHINES, Lifecycle, Phase, transition

from .driver import Driver, Part, every_pair, every_task_machine, task, tasks_follow, workflow

ONCE = Retry(max_attempts=1)
WORKER = Ref(Entity.WORKER, "w")


def orchestrated(
    *parts: Part, slots: int = 8, task_machine: str = "orchestration.task", **wishes: object
) -> Driver:
    drive = Driver(slots=slots)
    pair = Lifecycle("orchestration.workstream", task_machine)
    drive.submit(workflow(*parts, lifecycle=pair, **wishes))
    return drive


# ---- cancel the remaining tasks


def test_a_pending_task_keeps_its_state_and_is_marked_blocked() -> None:
    drive = orchestrated(task("a"), task("b", "a"))
    drive.cancel()
    drive.exits("a", 143)
    assert drive.state("b") == "pending"
    assert drive.task("b").blocked


def test_a_queued_task_keeps_its_state_and_is_marked_blocked() -> None:
    drive = orchestrated(task("a"), task("b"), slots=1)
    drive.cancel()
    drive.exits("a", 143)
    assert drive.state("b") == "queued"
    assert drive.task("b").blocked


def test_a_retrying_task_keeps_its_state_loses_its_timer_and_is_marked_blocked() -> None:
    drive = orchestrated(task("a"), task("b"))
    drive.exits("b", 1)
    drive.cancel()
    drive.exits("a", 143)
    assert drive.state("b") == "retrying"
    assert drive.task("b").blocked
    assert drive.due(TimerKind.RETRY, "b") is None
    assert drive.state() == "cancelled"


def test_a_running_task_is_cancelled_by_its_arrow() -> None:
    drive = orchestrated(task("a"))
    drive.cancel()
    drive.exits("a", 143)
    assert drive.path("a")[-1] == ("running", "user_cancelled", "cancelled")
    assert drive.path()[-1] == ("executing", "user_cancelled", "cancelled")


@pytest.mark.parametrize(("code", "end"), [(0, "completed"), (1, "failed")])
def test_a_validating_task_finishes(code: int, end: str) -> None:
    drive = orchestrated(task("a", checks=1))
    drive.exits("a")
    drive.cancel()
    assert (drive.state("a"), drive.state()) == ("validating", "executing")
    drive.exits("a", code)
    assert drive.state("a") == end
    assert drive.state() == "cancelled"


def test_blocked_is_a_mark_and_not_a_state() -> None:
    drive = orchestrated(task("a"), task("b", "a"))
    drive.cancel()
    drive.exits("a", 143)
    assert "blocked" in drive.facts("b")
    assert drive.path("b") == []


def test_a_failed_critical_task_cancels_the_remaining_ones_as_001_documents() -> None:
    drive = orchestrated(task("a"), task("b"), task("c", "a"))
    drive.fails_for_good("a")
    assert drive.state() == "executing"
    drive.exits("b", 143)
    assert drive.states("a", "b", "c") == ["failed", "cancelled", "pending"]
    assert drive.task("c").blocked
    assert drive.path()[-1] == ("executing", "critical_task_failed", "failed")


# ---- the derivation of the workstream's state


def test_without_tasks_it_is_planned() -> None:
    drive = orchestrated(task("a"))
    first = next(change for change in drive.created if change.ref == drive.ref())
    assert first.state == "planned"
    assert drive.path()[0] == ("planned", "all_tasks_created", "ready")


def test_all_pending_or_queued_and_none_ever_started_is_ready() -> None:
    drive = orchestrated(task("a"), task("b", "a"), slots=0)
    assert drive.states("a", "b") == ["queued", "pending"]
    assert drive.state() == "ready"


@every_task_machine
def test_any_running_is_executing(machine: str) -> None:
    drive = orchestrated(task("a"), task("b", "a"), task_machine=machine)
    assert drive.phase("a") is Phase.ACTIVE
    assert drive.state() == "executing"


@every_task_machine
def test_any_validating_is_executing(machine: str) -> None:
    drive = orchestrated(task("a", checks=1), task_machine=machine)
    drive.exits("a")
    assert drive.state() == "executing"


@every_task_machine
def test_running_goes_before_a_failed_critical_task(machine: str) -> None:
    drive = orchestrated(task("a"), task("b"), task_machine=machine)
    drive.fails_for_good("a")
    assert drive.state() == "executing"
    drive.exits("b", 143)
    assert drive.state() == "failed"


@every_task_machine
def test_a_failed_critical_task_is_failed(machine: str) -> None:
    drive = orchestrated(task("a"), task("b", "a"), task_machine=machine)
    drive.fails_for_good("a")
    assert drive.path()[-1] == ("executing", "critical_task_failed", "failed")


@every_task_machine
def test_all_completed_is_validating(machine: str) -> None:
    drive = orchestrated(task("a"), task("b"), checks=1, task_machine=machine)
    drive.exits("a")
    drive.exits("b")
    assert drive.path()[-1] == ("executing", "all_tasks_completed", "validating")


def test_all_completed_or_waived_is_validating() -> None:
    drive = orchestrated(task("a"), task("b", critical=False, retry=ONCE), checks=1)
    drive.exits("b", 1)
    drive.exits("a")
    assert drive.state() == "validating"
    assert "waived" in drive.facts("b")


def test_a_waiver_counts_while_a_task_still_runs() -> None:
    drive = orchestrated(task("a", retry=ONCE), task("b"), checks=1, on_failure=OnFailure.FINISH)
    drive.exits("a", 1)
    drive.mend(signals.WaiveTask, "a", reason="known")
    drive.exits("b")
    assert drive.state() == "validating"


@every_task_machine
def test_anything_else_is_executing(machine: str) -> None:
    drive = orchestrated(task("a"), task("b", "a"), slots=1, task_machine=machine)
    drive.exits("a", 1)
    assert drive.record().live is None
    assert drive.task("a").live is None
    assert drive.state() == "executing"


def test_completed_and_queued_is_executing() -> None:
    drive = orchestrated(task("a"), task("b", "a", capabilities=frozenset({"gpu"})))
    drive.exits("a")
    assert drive.states("a", "b") == ["completed", "queued"]
    assert drive.state() == "executing"


@every_task_machine
def test_the_state_is_never_derived_over_a_terminal_one(machine: str) -> None:
    drive = orchestrated(task("a"), task("b"), task_machine=machine)
    old = drive.live("a")
    drive.cancel(force=True)
    assert drive.state() == "cancelled"
    drive.ends(old, 0)
    drive.advance(100)
    assert drive.state() == "cancelled"


def derived(*kinds: str) -> str:
    """What follows from tasks that stand like this."""
    drive = orchestrated(task("a"))
    machine = MACHINES["orchestration.task"]
    fresh = ("pending", "queued")
    return derive_workstream(
        [
            evolve(
                drive.task("a"),
                {
                    "state": kind.removesuffix("!").removesuffix("~"),
                    "phase": machine.phase[kind.removesuffix("!").removesuffix("~")],
                    "started": None if kind in fresh else 0,
                    "plan": TaskPlan("a", critical=not kind.endswith("!")),
                    "pardon": Pardon.WAIVED if kind.endswith("~") else None,
                },
            )
            for kind in kinds
        ]
    )


@pytest.mark.parametrize(
    ("tasks", "state"),
    [
        ("", "planned"),
        ("running failed completed", "executing"),
        ("validating failed", "executing"),
        ("failed completed", "failed"),
        ("failed queued", "failed"),
        ("failed! queued", "executing"),
        ("completed completed", "validating"),
        ("completed failed~", "validating"),
        ("pending queued", "ready"),
        ("completed queued", "executing"),
        ("retrying pending", "executing"),
    ],
)
def test_the_derivation_is_tested_in_this_order(tasks: str, state: str) -> None:
    """`!` is a task that is not critical, `~` one that was waived."""
    assert derived(*tasks.split()) == state


# ---- a failed task that is not critical


def test_when_nothing_can_move_a_failed_non_critical_task_is_waived_and_all_tasks_completed_fires() -> None:
    drive = orchestrated(task("a", critical=False, retry=ONCE), task("b"))
    drive.exits("a", 1)
    assert drive.task("a").pardon is None
    drive.exits("b")
    assert drive.task("a").pardon is Pardon.TOLERATED
    assert drive.facts("a")[-1] == "waived"
    assert drive.state("a") == "failed"
    assert ("executing", "all_tasks_completed", "validating") in drive.path()
    assert drive.state() == "completed"


def test_its_blocked_non_critical_dependents_are_waived_on_record_too() -> None:
    drive = orchestrated(
        task("a", critical=False, retry=ONCE),
        task("b", "a", critical=False),
        task("c", "b", critical=False),
        task("d"),
    )
    drive.exits("a", 1)
    drive.exits("d")
    assert drive.states("b", "c") == ["pending", "pending"]
    assert all(drive.task(name).pardon is not None for name in "abc")
    assert drive.started() == ["a", "d"]
    assert drive.state() == "completed"


def test_a_critical_task_blocked_behind_it_means_critical_task_failed() -> None:
    drive = orchestrated(task("a", critical=False, retry=ONCE), task("b", "a"))
    drive.exits("a", 1)
    assert drive.path()[-1] == ("executing", "critical_task_failed", "failed")


# ---- a lost worker


def test_a_lost_task_is_reassigned_by_execution_failed_to_retrying_then_queued() -> None:
    drive = orchestrated(task("a"))
    drive.lost("a")
    assert drive.path("a")[-1] == ("running", "execution_failed", "retrying")
    drive.advance(2)
    assert drive.path("a")[-2:] == [
        ("retrying", "retry_delay_elapsed", "queued"),
        ("queued", "worker_started", "running"),
    ]


@every_task_machine
def test_losses_do_not_use_the_users_retries(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", retry=Retry(max_attempts=2)), lifecycle=tasks_follow(machine)))
    drive.lost("a")
    drive.advance(2)
    drive.lost("a")
    drive.advance(4)
    assert drive.task("a").retries == 0
    drive.exits("a", 1)
    drive.advance(8)
    drive.exits("a")
    assert drive.phase("a") is Phase.SUCCEEDED


@every_task_machine
def test_losses_have_a_bound_of_their_own(machine: str) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), lifecycle=tasks_follow(machine)))
    for _ in range(3):
        drive.lost("a")
        drive.advance(60)
    assert drive.started() == ["a"] * 3
    assert drive.phase() is Phase.FAILED


# ---- assigned workers, exit codes, the sample event


def test_the_assignment_is_cleared_on_leaving_running() -> None:
    drive = orchestrated(task("a", checks=1), slots=1)
    work = drive.live("a")
    drive.exits("a")
    leaving = next(
        change
        for decision in drive.decisions
        for change in decision.changes
        if isinstance(change, Transition) and change.event == "execution_completed"
    )
    assert leaving.closes is not None
    assert leaving.closes.token == work
    assert leaving.sets["live"] is None
    assert drive.model.attempt(work) is None


def test_checks_are_records_of_their_own() -> None:
    drive = orchestrated(task("a", checks=1))
    work = drive.live("a")
    drive.exits("a")
    assert drive.live("a") == work._replace(purpose=Purpose.CHECK)
    assert drive.state("a") == "validating"


@every_pair
def test_expected_exit_codes_count_everywhere(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", expected_exits=frozenset({0, 3})), lifecycle=pair))
    drive.exits("a", 3)
    assert drive.phase("a") is Phase.SUCCEEDED
    assert drive.phase() is Phase.SUCCEEDED


@every_pair
def test_zero_is_the_only_expected_exit_code_by_default(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", retry=ONCE), lifecycle=pair))
    drive.exits("a", 3)
    assert drive.phase("a") is not Phase.SUCCEEDED
    assert drive.phase() is Phase.FAILED


def test_zero_fails_where_it_is_not_expected() -> None:
    drive = orchestrated(task("a", expected_exits=frozenset({3}), retry=ONCE))
    drive.exits("a", 0)
    assert drive.state("a") == "failed"


def test_the_sample_event_running_to_completed_by_execution_completed_is_illegal() -> None:
    assert transition("orchestration.task", "running", "execution_completed") == "validating"


# ---- shutdown


def test_draining_is_a_mark_and_shutdown_fires_after_the_last_task() -> None:
    drive = orchestrated(task("a"), task("b"), task("c", "a"))
    drive.feed(signals.DrainWorker, worker="w")
    assert drive.worker().draining
    assert drive.worker().health == "busy"
    drive.exits("a")
    assert drive.worker().health == "busy"
    drive.exits("b")
    assert drive.worker().health == "shutdown"
    assert drive.health()[-1] == "shutdown_requested"


def test_a_draining_worker_gets_no_new_task() -> None:
    drive = orchestrated(task("a"), task("b"), task("c", "a"))
    drive.feed(signals.DrainWorker, worker="w")
    drive.exits("a")
    assert drive.started() == ["a", "b"]
    assert drive.state("c") == "queued"


def test_a_draining_worker_finishes_the_checks_of_what_it_has() -> None:
    drive = orchestrated(task("a", checks=1))
    drive.feed(signals.DrainWorker, worker="w")
    drive.exits("a")
    assert drive.worker().health == "busy"
    drive.exits("a")
    assert drive.state("a") == "completed"
    assert drive.worker().health == "shutdown"


# ---- until there is a worktree, the final checks are the validation


@pytest.mark.parametrize(
    ("code", "arrow"),
    [
        (0, ("validating", "validation_passed", "completed")),
        (1, ("validating", "validation_failed", "failed")),
    ],
)
def test_the_runs_final_checks_are_its_validation(code: int, arrow: tuple[str, str, str]) -> None:
    drive = orchestrated(task("a"), checks=1)
    drive.exits("a")
    assert drive.state() == "validating"
    drive.exits(code=code)
    assert drive.path()[-1] == arrow


@every_pair
def test_final_checks_decide_the_end_of_every_run(pair: Lifecycle) -> None:
    for code, end in ((0, Phase.SUCCEEDED), (1, Phase.FAILED)):
        drive = Driver()
        drive.submit(workflow(task("a"), lifecycle=pair, checks=1))
        drive.exits("a")
        assert not drive.record().terminal
        drive.exits(code=code)
        assert drive.phase() is end


# ---- archive on completion


def test_a_finished_run_stays_until_it_is_pruned() -> None:
    drive = orchestrated(task("a"))
    drive.exits("a")
    drive.advance(10_000_000)
    assert drive.state() == "completed"
