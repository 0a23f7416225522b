"""Document 001, restated by hand sentence by sentence: tasks, workstreams and a worker's health.

Nothing here is derived from the tables: whoever changes a machine has to find the sentence it breaks.
"""

from engine.machines import MACHINES, Kind, can_transition, is_terminal, transition, valid_events
from tests.machines.arrows import (
    NOTHING_LEFT,
    ONE_LEFT,
    any_way,
    ordinary,
    ordinary_targets,
    sources,
    targets,
    terminal_states,
    walk,
)

# 001, task: the drawing
TASK_001 = {
    ("pending", "scheduler_assigned", "queued"),
    ("queued", "worker_started", "running"),
    ("running", "execution_completed", "validating"),
    ("running", "execution_failed", "retrying"),
    ("running", "execution_failed", "failed"),
    ("running", "user_cancelled", "cancelled"),
    ("retrying", "retry_delay_elapsed", "queued"),
    ("validating", "validation_passed", "completed"),
    ("validating", "validation_failed", "failed"),
}

# 001, workstream: the drawing
WORKSTREAM_001 = {
    ("planned", "all_tasks_created", "ready"),
    ("ready", "first_task_started", "executing"),
    ("executing", "all_tasks_completed", "validating"),
    ("executing", "critical_task_failed", "failed"),
    ("validating", "validation_passed", "completed"),
    ("validating", "validation_failed", "failed"),
    ("planned", "user_cancelled", "cancelled"),
    ("ready", "user_cancelled", "cancelled"),
    ("executing", "user_cancelled", "cancelled"),
}

# 001, worker: the drawing
WORKER_001 = {
    ("initializing", "registration_complete", "idle"),
    ("idle", "task_assigned", "busy"),
    ("busy", "task_completed", "idle"),
    ("busy", "health_check_timeout", "unresponsive"),
    ("unresponsive", "health_check_recovered", "idle"),
    ("unresponsive", "max_timeout_exceeded", "shutdown"),
    ("idle", "shutdown_requested", "shutdown"),
    ("busy", "shutdown_requested", "shutdown"),
}


class TestDocument001:
    """Tasks, workstreams and workers of the orchestration system."""

    def test_a_task_has_eight_states_of_which_three_are_terminal(self) -> None:
        assert set(MACHINES["orchestration.task"].state) == {
            "pending",
            "queued",
            "running",
            "validating",
            "completed",
            "failed",
            "retrying",
            "cancelled",
        }
        assert terminal_states("orchestration.task") == {"completed", "failed", "cancelled"}
        assert MACHINES["orchestration.task"].initial == "pending"

    def test_a_task_moves_as_drawn(self) -> None:
        assert ordinary("orchestration.task") == TASK_001

    def test_a_failed_execution_is_retried_while_retry_count_is_below_max_retries(self) -> None:
        assert transition("orchestration.task", "running", "execution_failed", ONE_LEFT) == "retrying"

    def test_a_failed_execution_is_final_once_retry_count_reaches_max_retries(self) -> None:
        assert transition("orchestration.task", "running", "execution_failed", NOTHING_LEFT) == "failed"

    def test_terminal_states_of_001_have_no_way_out_at_all(self) -> None:
        for machine in ("orchestration.task", "orchestration.workstream", "orchestration.worker"):
            for state in terminal_states(machine):
                assert valid_events(machine, state) == ()

    def test_a_task_completes_only_through_validation(self) -> None:
        assert {s for s, _, target in TASK_001 if target == "completed"} == {"validating"}
        assert not any_way("orchestration.task", "running", "completed")

    def test_a_retry_goes_through_the_queue(self) -> None:
        assert ordinary_targets("orchestration.task", "retrying") == {"queued"}

    def test_a_workstream_has_seven_states_of_which_three_are_terminal(self) -> None:
        assert set(MACHINES["orchestration.workstream"].state) == {
            "planned",
            "ready",
            "executing",
            "validating",
            "completed",
            "failed",
            "cancelled",
        }
        assert terminal_states("orchestration.workstream") == {"completed", "failed", "cancelled"}
        assert MACHINES["orchestration.workstream"].initial == "planned"

    def test_a_workstream_moves_as_drawn(self) -> None:
        assert ordinary("orchestration.workstream") == WORKSTREAM_001

    def test_a_workstream_completes_only_after_its_final_validation(self) -> None:
        assert {s for s, _, target in WORKSTREAM_001 if target == "completed"} == {"validating"}

    def test_a_critical_task_fails_the_workstream_while_it_executes(self) -> None:
        assert sources("orchestration.workstream", "critical_task_failed") == {"executing"}

    def test_a_worker_has_five_states_of_which_shutdown_is_terminal(self) -> None:
        assert set(MACHINES["orchestration.worker"].state) == {
            "initializing",
            "idle",
            "busy",
            "unresponsive",
            "shutdown",
        }
        assert terminal_states("orchestration.worker") == {"shutdown"}
        assert MACHINES["orchestration.worker"].initial == "initializing"

    def test_a_worker_moves_as_drawn(self) -> None:
        assert ordinary("orchestration.worker") == WORKER_001

    def test_a_worker_cannot_take_a_task_before_it_is_registered(self) -> None:
        assert sources("orchestration.worker", "task_assigned") == {"idle"}

    def test_only_a_busy_worker_becomes_unresponsive(self) -> None:
        assert sources("orchestration.worker", "health_check_timeout") == {"busy"}


class TestReadingsOf001:
    def test_its_own_sample_event_running_to_completed_by_execution_completed_is_illegal(self) -> None:
        assert transition("orchestration.task", "running", "execution_completed") != "completed"
        assert not any_way("orchestration.task", "running", "completed")

    def test_only_a_running_task_has_a_cancel_arrow(self) -> None:
        assert sources("orchestration.task", "user_cancelled") == {"running"}
        assert {s for s, _, target in ordinary("orchestration.task") if target == "cancelled"} == {"running"}

    def test_a_lost_task_reaches_the_queue_through_retrying(self) -> None:
        assert not any_way("orchestration.task", "running", "queued")
        lost = transition("orchestration.task", "running", "execution_failed", {"retry_left": True})
        assert walk("orchestration.task", lost, "retry_delay_elapsed") == "queued"

    def test_a_failed_validation_is_final(self) -> None:
        failed = transition("orchestration.task", "validating", "validation_failed", {"retry_left": True})
        assert is_terminal("orchestration.task", failed)

    def test_a_workstream_in_validating_cannot_be_cancelled_only_failed(self) -> None:
        assert not can_transition("orchestration.workstream", "validating", "user_cancelled")
        assert transition("orchestration.workstream", "validating", "validation_failed") == "failed"

    def test_a_workstream_with_nothing_to_start_passes_through_executing(self) -> None:
        events = ("first_task_started", "all_tasks_completed")
        assert walk("orchestration.workstream", "ready", *events) == "validating"

    def test_a_worker_that_recovers_with_tasks_in_hand_is_busy_again_after_two_arrows(self) -> None:
        events = ("health_check_recovered", "task_assigned")
        assert walk("orchestration.worker", "unresponsive", *events) == "busy"

    def test_a_failed_critical_task_cancels_the_remaining_ones_only_here_by_default(self) -> None:
        cancelling = {name for name, machine in MACHINES.items() if machine.on_failure == "cancel"}
        assert cancelling == {"orchestration.workstream"}
        assert {machine.on_failure for machine in MACHINES.values()} == {"cancel", "finish"}

    def test_a_worker_that_never_registers_is_shut_down_by_recovery(self) -> None:
        assert targets("orchestration.worker", "initializing", Kind.RECOVERY) == {"shutdown"}
        late = ("orchestration.worker", "initializing", "registration_timed_out")
        assert transition(*late, {"never_registered": True}) == "shutdown"
        assert not can_transition(*late, {"never_registered": False})
