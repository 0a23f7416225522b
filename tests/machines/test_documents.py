"""The five documents, restated by hand sentence by sentence, and the readings that settle them.

Nothing here is derived from the tables: whoever changes a machine has to find the sentence it breaks.
"""

import pytest

import engine.machines
from engine.machines import (
    MACHINES,
    InvalidTransitionError,
    Kind,
    Phase,
    can_transition,
    is_terminal,
    transition,
    valid_events,
)

Row = tuple[str, str, str]

NOTHING_LEFT = {"retry_count": 4, "max_retries": 4}
ONE_LEFT = {"retry_count": 3, "max_retries": 4}

# 000, workstream: "Valid Transitions"
WORKSTREAM_000 = {
    ("S_PENDING", "start_execution", "S_RUNNING"),
    ("S_RUNNING", "all_steps_succeed", "S_SUCCESS"),
    ("S_RUNNING", "step_fails", "S_FAILED"),
    ("S_RUNNING", "abandon", "S_ABANDONED"),
    ("S_FAILED", "retry_eligible", "S_RETRYING"),
    ("S_FAILED", "max_retries_exceeded", "S_ABANDONED"),
    ("S_RETRYING", "retry_attempt", "S_RUNNING"),
}

# 000, step: "Valid Transitions"
STEP_000 = {
    ("S_PENDING", "dependencies_met", "S_RUNNING"),
    ("S_RUNNING", "success", "S_SUCCESS"),
    ("S_RUNNING", "failure", "S_FAILED"),
    ("S_FAILED", "retry_eligible", "S_RETRYING"),
    ("S_RETRYING", "retry_attempt", "S_RUNNING"),
}

# 000, circuit breaker: the drawing
BREAKER_000 = {
    ("CLOSED", "failure_threshold_exceeded", "OPEN"),
    ("OPEN", "cooldown_expires", "HALF_OPEN"),
    ("HALF_OPEN", "success", "CLOSED"),
    ("HALF_OPEN", "failure", "OPEN"),
}

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

# 002, worker: "1.3 Transition Rules", the star read as IDLE, RUNNING and PAUSED
WORKER_002 = {
    ("IDLE", "start_task", "RUNNING"),
    ("RUNNING", "pause", "PAUSED"),
    ("PAUSED", "resume", "RUNNING"),
    ("RUNNING", "complete_tasks", "COMPLETED"),
    ("RUNNING", "error_unrecoverable", "FAILED"),
    ("IDLE", "terminate", "TERMINATED"),
    ("RUNNING", "terminate", "TERMINATED"),
    ("PAUSED", "terminate", "TERMINATED"),
}

# 002, job: "2.3 Transition Rules", and SUBMITTED to CANCELED of the code map
JOB_002 = {
    ("SUBMITTED", "validate", "PENDING"),
    ("PENDING", "allocate_resources", "RUNNING"),
    ("PENDING", "cancel", "CANCELED"),
    ("RUNNING", "success", "COMPLETED"),
    ("RUNNING", "error", "FAILED"),
    ("RUNNING", "cancel", "CANCELED"),
    ("SUBMITTED", "cancel", "CANCELED"),
}

# 003: the drawing, its labels in snake_case
TASK_003 = {
    ("PENDING", "executor_starts", "IN_PROGRESS"),
    ("PENDING", "dependency_failed", "SKIPPED"),
    ("PENDING", "user_cancels", "CANCELLED"),
    ("IN_PROGRESS", "tool_execution_complete", "VALIDATING"),
    ("IN_PROGRESS", "tool_execution_error", "FAILED"),
    ("IN_PROGRESS", "execution_timeout", "TIMEOUT"),
    ("IN_PROGRESS", "user_interrupt", "CANCELLED"),
    ("VALIDATING", "tests_pass", "COMPLETED"),
    ("VALIDATING", "tests_fail", "FAILED"),
    ("FAILED", "max_retries_reached", "CIRCUIT_OPEN"),
    ("FAILED", "retry_available", "RETRYING"),
    ("RETRYING", "backoff_complete", "IN_PROGRESS"),
    ("RETRYING", "circuit_opens", "CIRCUIT_OPEN"),
    ("CIRCUIT_OPEN", "cooldown_expires", "HALF_OPEN"),
    ("HALF_OPEN", "test_retry", "IN_PROGRESS"),
    ("HALF_OPEN", "test_fails", "CIRCUIT_OPEN"),
    ("TIMEOUT", "retry_available", "RETRYING"),
    ("TIMEOUT", "no_retries_left", "FAILED"),
}

# 004: "All 25 valid transitions"
EXECUTION_004 = {
    ("pending", "ENQUEUE", "queued"),
    ("pending", "CANCEL", "cancelled"),
    ("pending", "SKIP", "skipped"),
    ("pending", "HOLD", "held"),
    ("pending", "WAIT", "waiting"),
    ("held", "APPROVE", "queued"),
    ("held", "REJECT", "cancelled"),
    ("held", "EXPIRE", "cancelled"),
    ("held", "CANCEL", "cancelled"),
    ("waiting", "TIMER_DONE", "queued"),
    ("waiting", "CANCEL", "cancelled"),
    ("queued", "START", "running"),
    ("queued", "FAIL", "failed"),
    ("queued", "CANCEL", "cancelled"),
    ("running", "SUCCEED", "success"),
    ("running", "FAIL", "failed"),
    ("running", "CANCEL", "cancelled"),
    ("running", "CANCEL_GRACEFUL", "cancelling"),
    ("running", "RECOVER", "recovering"),
    ("cancelling", "CANCEL_FORCE", "cancelled"),
    ("cancelling", "COMPLETE", "cancelled"),
    ("cancelling", "FAIL", "failed"),
    ("recovering", "START", "running"),
    ("recovering", "FAIL", "failed"),
    ("recovering", "CANCEL", "cancelled"),
}


def ordinary(machine: str) -> set[Row]:
    """Every arrow that needs neither a recovery procedure nor the end of a run."""
    return {(a.source, a.event, a.target) for a in MACHINES[machine].arrows if a.kind is Kind.NORMAL}


def any_way(machine: str, source: str, target: str) -> bool:
    return any((a.source, a.target) == (source, target) for a in MACHINES[machine].arrows)


def ordinary_targets(machine: str, source: str) -> set[str]:
    return {target for start, _, target in ordinary(machine) if start == source}


def targets(machine: str, source: str, kind: Kind) -> set[str]:
    return {a.target for a in MACHINES[machine].arrows if a.source == source and a.kind is kind}


def sources(machine: str, event: str) -> set[str]:
    return {state for state in MACHINES[machine].state if event in valid_events(machine, state)}


def terminal_states(machine: str) -> set[str]:
    return {state for state in MACHINES[machine].state if is_terminal(machine, state)}


def walk(machine: str, state: str, *events: str) -> str:
    for event in events:
        state = transition(machine, state, event)
    return state


class TestDocument000:
    """Workstreams, steps and circuit breakers."""

    def test_a_workstream_has_the_six_states_of_the_table_and_starts_in_s_pending(self) -> None:
        assert set(MACHINES["pipeline.workstream"].state) == {
            "S_PENDING",
            "S_RUNNING",
            "S_SUCCESS",
            "S_FAILED",
            "S_RETRYING",
            "S_ABANDONED",
        }
        assert MACHINES["pipeline.workstream"].initial == "S_PENDING"

    def test_a_workstream_moves_as_its_table_of_valid_transitions_says(self) -> None:
        assert ordinary("pipeline.workstream") == WORKSTREAM_000

    def test_success_and_abandoned_are_terminal_and_failed_can_retry(self) -> None:
        assert terminal_states("pipeline.workstream") == {"S_SUCCESS", "S_ABANDONED"}
        assert can_transition("pipeline.workstream", "S_FAILED", "retry_eligible")

    def test_a_successful_workstream_cannot_change(self) -> None:
        assert ordinary_targets("pipeline.workstream", "S_SUCCESS") == set()

    def test_an_abandoned_workstream_cannot_change_not_even_by_recovery(self) -> None:
        assert valid_events("pipeline.workstream", "S_ABANDONED") == ()

    def test_a_workstream_must_run_before_it_succeeds(self) -> None:
        assert not any_way("pipeline.workstream", "S_PENDING", "S_SUCCESS")

    def test_a_workstream_must_run_before_it_fails(self) -> None:
        assert not any_way("pipeline.workstream", "S_PENDING", "S_FAILED")

    def test_a_running_workstream_cannot_go_back_to_pending(self) -> None:
        assert not any_way("pipeline.workstream", "S_RUNNING", "S_PENDING")

    def test_a_completed_workstream_cannot_be_restarted(self) -> None:
        assert not any_way("pipeline.workstream", "S_SUCCESS", "S_RUNNING")

    def test_an_invalid_transition_raises_the_error_that_the_document_names(self) -> None:
        for state, event in [
            ("S_SUCCESS", "start_execution"),
            ("S_ABANDONED", "retry_eligible"),
            ("S_PENDING", "all_steps_succeed"),
            ("S_PENDING", "step_fails"),
        ]:
            with pytest.raises(InvalidTransitionError) as refused:
                transition("pipeline.workstream", state, event)
            assert (refused.value.state, refused.value.event) == (state, event)

    def test_the_code_example_allows_the_same_targets(self) -> None:
        assert {
            state: ordinary_targets("pipeline.workstream", state)
            for state in ("S_PENDING", "S_RUNNING", "S_FAILED", "S_RETRYING", "S_SUCCESS", "S_ABANDONED")
        } == {
            "S_PENDING": {"S_RUNNING"},
            "S_RUNNING": {"S_SUCCESS", "S_FAILED", "S_ABANDONED"},
            "S_FAILED": {"S_RETRYING", "S_ABANDONED"},
            "S_RETRYING": {"S_RUNNING"},
            "S_SUCCESS": set(),
            "S_ABANDONED": set(),
        }

    def test_a_failed_workstream_retries_only_below_its_limit(self) -> None:
        assert transition("pipeline.workstream", "S_FAILED", "retry_eligible", ONE_LEFT) == "S_RETRYING"
        assert not can_transition("pipeline.workstream", "S_FAILED", "retry_eligible", NOTHING_LEFT)

    def test_the_sample_history_walks_from_pending_to_success(self) -> None:
        events = ["start_execution", "step_fails", "retry_eligible", "retry_attempt", "all_steps_succeed"]
        assert walk("pipeline.workstream", "S_PENDING", *events) == "S_SUCCESS"

    def test_a_step_has_the_five_states_of_the_table_and_starts_in_s_pending(self) -> None:
        assert set(MACHINES["pipeline.step"].state) == {
            "S_PENDING",
            "S_RUNNING",
            "S_SUCCESS",
            "S_FAILED",
            "S_RETRYING",
        }
        assert MACHINES["pipeline.step"].initial == "S_PENDING"

    def test_a_step_moves_as_its_table_of_valid_transitions_says(self) -> None:
        assert ordinary("pipeline.step") == STEP_000

    def test_only_a_successful_step_stops_blocking_its_dependents(self) -> None:
        phases = MACHINES["pipeline.step"].phase
        assert {state for state, phase in phases.items() if phase is Phase.SUCCEEDED} == {"S_SUCCESS"}

    def test_a_failed_step_retries_only_below_its_limit(self) -> None:
        assert transition("pipeline.step", "S_FAILED", "retry_eligible", ONE_LEFT) == "S_RETRYING"
        assert not can_transition("pipeline.step", "S_FAILED", "retry_eligible", NOTHING_LEFT)

    def test_a_breaker_starts_closed_and_moves_as_drawn(self) -> None:
        assert MACHINES["pipeline.breaker"].initial == "CLOSED"
        assert set(MACHINES["pipeline.breaker"].state) == {"CLOSED", "OPEN", "HALF_OPEN"}
        assert ordinary("pipeline.breaker") >= BREAKER_000

    def test_a_breaker_is_never_finished(self) -> None:
        assert terminal_states("pipeline.breaker") == set()

    def test_an_open_breaker_must_be_tested_before_it_closes_by_itself(self) -> None:
        assert ordinary_targets("pipeline.breaker", "OPEN") == {"HALF_OPEN"}

    def test_a_closed_breaker_does_not_go_half_open(self) -> None:
        assert not any_way("pipeline.breaker", "CLOSED", "HALF_OPEN")

    def test_recovery_1_a_stuck_workstream_whose_steps_all_succeeded_takes_the_ordinary_arrow(self) -> None:
        assert transition("pipeline.workstream", "S_RUNNING", "all_steps_succeed") == "S_SUCCESS"

    def test_recovery_2_an_exhausted_step_goes_back_to_pending_with_its_count_at_0(self) -> None:
        reset = ("pipeline.step", "S_FAILED", "reset_by_operator")
        assert transition(*reset, {"retries_zeroed": True}) == "S_PENDING"
        assert not can_transition(*reset, {"retries_zeroed": False})

    def test_recovery_3_an_open_breaker_closes_by_hand_once_the_tool_is_healthy(self) -> None:
        reset = ("pipeline.breaker", "OPEN", "reset_by_operator")
        assert transition(*reset, {"healthy_or_overridden": True}) == "CLOSED"
        assert not can_transition(*reset, {"healthy_or_overridden": False})

    def test_recovery_4_a_success_with_an_unfinished_step_becomes_failed(self) -> None:
        correct = ("pipeline.workstream", "S_SUCCESS", "corrected_by_operator")
        assert transition(*correct, {"steps_unfinished": True}) == "S_FAILED"
        assert not can_transition(*correct, {"steps_unfinished": False})

    def test_recovery_4_a_step_that_did_succeed_becomes_success_on_evidence(self) -> None:
        attest = ("pipeline.step", "S_FAILED", "attested_by_operator")
        assert transition(*attest, {"evidence_given": True}) == "S_SUCCESS"
        assert not can_transition(*attest, {"evidence_given": False})


class TestReadingsOf000:
    def test_its_tables_hold_14_states_and_16_transitions_not_12_and_15(self) -> None:
        machines = ("pipeline.workstream", "pipeline.step", "pipeline.breaker")
        assert sum(len(MACHINES[machine].states) for machine in machines) == 14
        assert len(WORKSTREAM_000) + len(STEP_000) + len(BREAKER_000) == 16

    def test_recoveries_are_transitions_of_kind_recovery(self) -> None:
        assert targets("pipeline.workstream", "S_SUCCESS", Kind.RECOVERY) == {"S_FAILED"}
        assert targets("pipeline.step", "S_FAILED", Kind.RECOVERY) == {"S_PENDING", "S_SUCCESS"}
        assert targets("pipeline.breaker", "OPEN", Kind.RECOVERY) == {"CLOSED"}

    def test_an_exhausted_workstream_rests_in_failed_and_can_be_repaired_or_abandoned(self) -> None:
        assert not is_terminal("pipeline.workstream", "S_FAILED")
        assert set(valid_events("pipeline.workstream", "S_FAILED")) == {
            "retry_eligible",
            "max_retries_exceeded",
        }

    def test_there_is_no_skipped_state_for_steps(self) -> None:
        assert Phase.SKIPPED not in MACHINES["pipeline.step"].phase.values()

    def test_a_step_has_no_cancel_and_a_running_one_ends_by_failure(self) -> None:
        assert Phase.CANCELLED not in MACHINES["pipeline.step"].phase.values()
        assert transition("pipeline.step", "S_RUNNING", "failure") == "S_FAILED"

    def test_an_operator_may_trip_a_breaker_and_ask_for_a_probe(self) -> None:
        assert transition("pipeline.breaker", "CLOSED", "tripped_by_operator") == "OPEN"
        assert transition("pipeline.breaker", "OPEN", "probe_requested") == "HALF_OPEN"
        assert ordinary("pipeline.breaker") == BREAKER_000 | {
            ("CLOSED", "tripped_by_operator", "OPEN"),
            ("OPEN", "probe_requested", "HALF_OPEN"),
        }

    def test_a_pending_or_retrying_workstream_is_cancelled_through_running(self) -> None:
        assert walk("pipeline.workstream", "S_PENDING", "start_execution", "abandon") == "S_ABANDONED"
        assert walk("pipeline.workstream", "S_RETRYING", "retry_attempt", "abandon") == "S_ABANDONED"
        assert sources("pipeline.workstream", "abandon") == {"S_RUNNING"}

    def test_a_workstream_in_backoff_fails_through_running_when_another_step_exhausts(self) -> None:
        assert walk("pipeline.workstream", "S_RETRYING", "retry_attempt", "step_fails") == "S_FAILED"


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


class TestDocument002:
    """Jobs, and workers under a supervisor."""

    def test_a_worker_has_six_states_of_which_three_are_terminal(self) -> None:
        assert set(MACHINES["supervision.worker"].state) == {
            "IDLE",
            "RUNNING",
            "PAUSED",
            "COMPLETED",
            "FAILED",
            "TERMINATED",
        }
        assert terminal_states("supervision.worker") == {"COMPLETED", "FAILED", "TERMINATED"}
        assert MACHINES["supervision.worker"].initial == "IDLE"

    def test_a_worker_moves_as_its_transition_rules_say(self) -> None:
        assert ordinary("supervision.worker") == WORKER_002

    def test_a_worker_that_has_not_started_cannot_be_paused(self) -> None:
        assert not any_way("supervision.worker", "IDLE", "PAUSED")
        assert not can_transition("supervision.worker", "IDLE", "pause")

    def test_a_worker_cannot_complete_without_running(self) -> None:
        assert not any_way("supervision.worker", "IDLE", "COMPLETED")
        assert not can_transition("supervision.worker", "IDLE", "complete_tasks")

    def test_a_completed_worker_cannot_be_restarted(self) -> None:
        assert not any_way("supervision.worker", "COMPLETED", "RUNNING")

    def test_a_completed_worker_cannot_be_paused(self) -> None:
        assert not any_way("supervision.worker", "COMPLETED", "PAUSED")

    def test_a_failed_worker_cannot_run_again(self) -> None:
        assert not any_way("supervision.worker", "FAILED", "RUNNING")

    def test_a_terminated_worker_does_nothing_any_more(self) -> None:
        assert valid_events("supervision.worker", "TERMINATED") == ()

    def test_the_workers_code_map_allows_the_same_targets(self) -> None:
        assert {
            s: ordinary_targets("supervision.worker", s)
            for s in ("IDLE", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "TERMINATED")
        } == {
            "IDLE": {"RUNNING", "TERMINATED"},
            "RUNNING": {"PAUSED", "COMPLETED", "FAILED", "TERMINATED"},
            "PAUSED": {"RUNNING", "TERMINATED"},
            "COMPLETED": set(),
            "FAILED": set(),
            "TERMINATED": set(),
        }

    def test_its_unit_test_terminated_can_be_reached_from_any_other_state(self) -> None:
        for state in ("IDLE", "RUNNING", "PAUSED", "COMPLETED", "FAILED"):
            assert transition("supervision.worker", state, "terminate") == "TERMINATED"

    def test_exhausted_resources_pause_a_running_worker(self) -> None:
        assert transition("supervision.worker", "RUNNING", "pause") == "PAUSED"

    def test_a_job_has_six_states_of_which_three_are_terminal(self) -> None:
        assert set(MACHINES["supervision.job"].state) == {
            "SUBMITTED",
            "PENDING",
            "RUNNING",
            "COMPLETED",
            "FAILED",
            "CANCELED",
        }
        assert terminal_states("supervision.job") == {"COMPLETED", "FAILED", "CANCELED"}
        assert MACHINES["supervision.job"].initial == "SUBMITTED"

    def test_a_job_moves_as_its_transition_rules_say(self) -> None:
        assert ordinary("supervision.job") == JOB_002

    def test_a_submitted_job_must_go_through_pending(self) -> None:
        assert not any_way("supervision.job", "SUBMITTED", "RUNNING")

    def test_a_finished_job_does_nothing_any_more(self) -> None:
        for state in ("COMPLETED", "FAILED", "CANCELED"):
            assert valid_events("supervision.job", state) == ()

    def test_a_failed_or_canceled_job_does_not_run_again(self) -> None:
        assert not any_way("supervision.job", "FAILED", "RUNNING")
        assert not any_way("supervision.job", "CANCELED", "RUNNING")

    def test_the_jobs_code_map_allows_the_same_targets(self) -> None:
        assert {s: ordinary_targets("supervision.job", s) for s in ("SUBMITTED", "PENDING", "RUNNING")} == {
            "SUBMITTED": {"PENDING", "CANCELED"},
            "PENDING": {"RUNNING", "CANCELED"},
            "RUNNING": {"COMPLETED", "FAILED", "CANCELED"},
        }

    def test_no_event_leads_from_a_state_of_002_to_itself(self) -> None:
        for machine in ("supervision.worker", "supervision.job"):
            assert [state for state in MACHINES[machine].state if any_way(machine, state, state)] == []


class TestReadingsOf002:
    def test_terminating_a_completed_or_failed_worker_is_a_recovery(self) -> None:
        for state in ("COMPLETED", "FAILED"):
            assert targets("supervision.worker", state, Kind.RECOVERY) == {"TERMINATED"}
            terminate = ("supervision.worker", state, "terminate")
            assert transition(*terminate, {"still_holds": True}) == "TERMINATED"
            assert not can_transition(*terminate, {"still_holds": False})

    def test_terminating_an_idle_running_or_paused_worker_is_ordinary(self) -> None:
        assert {s for s, event, _ in ordinary("supervision.worker") if event == "terminate"} == {
            "IDLE",
            "RUNNING",
            "PAUSED",
        }

    def test_a_submitted_job_can_be_canceled(self) -> None:
        assert transition("supervision.job", "SUBMITTED", "cancel") == "CANCELED"

    def test_a_validation_error_has_no_arrow_before_the_job_runs(self) -> None:
        assert sources("supervision.job", "error") == {"RUNNING"}


class TestDocument003:
    """The lifecycle of a task."""

    def test_a_task_has_the_eleven_states_of_the_drawing_and_starts_pending(self) -> None:
        assert set(MACHINES["toolchain.task"].state) == {
            "PENDING",
            "IN_PROGRESS",
            "VALIDATING",
            "COMPLETED",
            "FAILED",
            "RETRYING",
            "CIRCUIT_OPEN",
            "HALF_OPEN",
            "TIMEOUT",
            "SKIPPED",
            "CANCELLED",
        }
        assert MACHINES["toolchain.task"].initial == "PENDING"

    def test_a_task_moves_as_drawn(self) -> None:
        assert ordinary("toolchain.task") == TASK_003

    def test_completed_skipped_and_cancelled_have_no_exit(self) -> None:
        assert terminal_states("toolchain.task") == {"COMPLETED", "SKIPPED", "CANCELLED"}
        for state in ("COMPLETED", "SKIPPED", "CANCELLED"):
            assert valid_events("toolchain.task", state) == ()

    def test_exit_conditions_of_pending(self) -> None:
        assert ordinary_targets("toolchain.task", "PENDING") == {"IN_PROGRESS", "SKIPPED", "CANCELLED"}

    def test_exit_conditions_of_in_progress(self) -> None:
        assert ordinary_targets("toolchain.task", "IN_PROGRESS") == {
            "VALIDATING",
            "FAILED",
            "TIMEOUT",
            "CANCELLED",
        }

    def test_exit_conditions_of_validating(self) -> None:
        assert ordinary_targets("toolchain.task", "VALIDATING") == {"COMPLETED", "FAILED"}

    def test_exit_conditions_of_failed(self) -> None:
        assert ordinary_targets("toolchain.task", "FAILED") == {"RETRYING", "CIRCUIT_OPEN"}

    def test_exit_conditions_of_retrying(self) -> None:
        assert ordinary_targets("toolchain.task", "RETRYING") == {"IN_PROGRESS", "CIRCUIT_OPEN"}

    def test_exit_conditions_of_circuit_open(self) -> None:
        assert ordinary_targets("toolchain.task", "CIRCUIT_OPEN") == {"HALF_OPEN"}
        assert targets("toolchain.task", "CIRCUIT_OPEN", Kind.RECOVERY) == {"PENDING"}
        assert targets("toolchain.task", "CIRCUIT_OPEN", Kind.CASCADE) == {"CANCELLED"}

    def test_exit_conditions_of_half_open(self) -> None:
        assert ordinary_targets("toolchain.task", "HALF_OPEN") == {"IN_PROGRESS", "CIRCUIT_OPEN"}

    def test_exit_conditions_of_timeout(self) -> None:
        assert ordinary_targets("toolchain.task", "TIMEOUT") == {"RETRYING", "FAILED"}

    def test_a_task_completes_only_when_its_acceptance_tests_pass(self) -> None:
        assert {s for s, _, target in TASK_003 if target == "COMPLETED"} == {"VALIDATING"}

    def test_a_failed_task_retries_while_attempts_are_left(self) -> None:
        assert transition("toolchain.task", "FAILED", "retry_available", ONE_LEFT) == "RETRYING"
        assert not can_transition("toolchain.task", "FAILED", "max_retries_reached", ONE_LEFT)

    def test_a_failed_task_opens_its_circuit_when_attempts_are_used_up(self) -> None:
        assert transition("toolchain.task", "FAILED", "max_retries_reached", NOTHING_LEFT) == "CIRCUIT_OPEN"
        assert not can_transition("toolchain.task", "FAILED", "retry_available", NOTHING_LEFT)

    def test_a_permanent_error_opens_the_circuit_with_attempts_to_spare(self) -> None:
        permanent = {**ONE_LEFT, "retry_left": False}
        assert transition("toolchain.task", "FAILED", "max_retries_reached", permanent) == "CIRCUIT_OPEN"

    def test_a_task_that_timed_out_retries_or_fails(self) -> None:
        assert transition("toolchain.task", "TIMEOUT", "retry_available", ONE_LEFT) == "RETRYING"
        assert transition("toolchain.task", "TIMEOUT", "no_retries_left", NOTHING_LEFT) == "FAILED"
        assert not can_transition("toolchain.task", "TIMEOUT", "retry_available", NOTHING_LEFT)
        assert not can_transition("toolchain.task", "TIMEOUT", "no_retries_left", ONE_LEFT)

    def test_the_sequence_of_a_retry_is_failed_retrying_in_progress(self) -> None:
        events = ("tool_execution_error", "retry_available", "backoff_complete")
        assert walk("toolchain.task", "IN_PROGRESS", *events) == "IN_PROGRESS"

    def test_the_sequence_of_an_open_circuit_ends_half_open(self) -> None:
        assert walk("toolchain.task", "FAILED", "max_retries_reached", "cooldown_expires") == "HALF_OPEN"


class TestReadingsOf003:
    def test_failed_and_timeout_are_moments_and_not_terminal(self) -> None:
        for state in ("FAILED", "TIMEOUT"):
            assert not is_terminal("toolchain.task", state)
            assert MACHINES["toolchain.task"].phase[state] is Phase.FAILING

    def test_manual_intervention_resets_the_task_with_its_attempts_at_0_while_its_run_is_open(
        self,
    ) -> None:
        reset = ("toolchain.task", "CIRCUIT_OPEN", "manual_reset")
        assert transition(*reset, {"run_open_retries_zeroed": True}) == "PENDING"
        assert not can_transition(*reset, {"run_open_retries_zeroed": False})

    def test_a_failed_health_command_sends_the_task_back_before_the_probe(self) -> None:
        assert transition("toolchain.task", "HALF_OPEN", "test_fails") == "CIRCUIT_OPEN"

    def test_a_failed_probe_goes_from_failed_to_circuit_open(self) -> None:
        events = ("test_retry", "tool_execution_error", "max_retries_reached")
        assert walk("toolchain.task", "HALF_OPEN", *events) == "CIRCUIT_OPEN"

    def test_a_cancelled_run_takes_a_parked_task_with_it(self) -> None:
        parked = ("toolchain.task", "CIRCUIT_OPEN", "run_cancelled")
        assert transition(*parked, {"run_cancelled": True}) == "CANCELLED"
        assert not can_transition(*parked, {"run_cancelled": False})

    def test_a_failed_run_leaves_a_parked_task_where_it_is(self) -> None:
        assert not can_transition("toolchain.task", "CIRCUIT_OPEN", "run_ended")

    def test_the_end_of_a_run_cancels_what_retries_validates_or_is_half_open(self) -> None:
        for state in ("RETRYING", "VALIDATING", "HALF_OPEN"):
            assert targets("toolchain.task", state, Kind.CASCADE) == {"CANCELLED"}
            assert transition("toolchain.task", state, "run_ended", {"run_ended": True}) == "CANCELLED"
            assert not can_transition("toolchain.task", state, "run_ended", {"run_ended": False})

    def test_a_task_whose_tests_fail_may_be_tried_again(self) -> None:
        assert walk("toolchain.task", "VALIDATING", "tests_fail", "retry_available") == "RETRYING"

    def test_five_attempts_are_four_retries(self) -> None:
        state, tries = "IN_PROGRESS", 1
        while True:
            state = transition("toolchain.task", state, "tool_execution_error")
            budget = {"retry_count": tries - 1, "max_retries": 5 - 1}
            if not can_transition("toolchain.task", state, "retry_available", budget):
                break
            state = walk("toolchain.task", state, "retry_available", "backoff_complete")
            tries += 1
        assert tries == 5
        assert transition("toolchain.task", state, "max_retries_reached", budget) == "CIRCUIT_OPEN"


class TestDocument004:
    """The execution state machine."""

    def test_there_are_eleven_states_seven_transient_and_four_terminal(self) -> None:
        terminal = {"success", "failed", "cancelled", "skipped"}
        transient = {"pending", "queued", "running", "recovering", "cancelling", "held", "waiting"}
        assert set(MACHINES["execution"].state) == terminal | transient
        assert terminal_states("execution") == terminal
        assert MACHINES["execution"].initial == "pending"

    def test_there_are_sixteen_events(self) -> None:
        assert {arrow.event for arrow in MACHINES["execution"].arrows} == {
            "ENQUEUE",
            "START",
            "SUCCEED",
            "FAIL",
            "CANCEL",
            "CANCEL_GRACEFUL",
            "CANCEL_FORCE",
            "COMPLETE",
            "SKIP",
            "RECOVER",
            "HOLD",
            "APPROVE",
            "REJECT",
            "EXPIRE",
            "WAIT",
            "TIMER_DONE",
        }

    def test_all_25_valid_transitions_and_no_other(self) -> None:
        assert len(EXECUTION_004) == 25
        assert ordinary("execution") == EXECUTION_004
        assert len(MACHINES["execution"].arrows) == 25

    def test_cancel_is_valid_from_six_transient_states(self) -> None:
        assert sources("execution", "CANCEL") == {
            "pending",
            "queued",
            "running",
            "recovering",
            "held",
            "waiting",
        }

    def test_the_cancelling_state_uses_cancel_force_instead(self) -> None:
        assert sources("execution", "CANCEL_FORCE") == {"cancelling"}
        assert not can_transition("execution", "cancelling", "CANCEL")

    def test_cancel_graceful_is_only_valid_from_running(self) -> None:
        assert sources("execution", "CANCEL_GRACEFUL") == {"running"}
        assert transition("execution", "running", "CANCEL_GRACEFUL") == "cancelling"

    def test_from_cancelling_force_and_complete_cancel_and_fail_fails(self) -> None:
        assert transition("execution", "cancelling", "CANCEL_FORCE") == "cancelled"
        assert transition("execution", "cancelling", "COMPLETE") == "cancelled"
        assert transition("execution", "cancelling", "FAIL") == "failed"

    def test_fail_is_valid_from_queued_running_cancelling_and_recovering(self) -> None:
        assert sources("execution", "FAIL") == {"queued", "running", "cancelling", "recovering"}

    def test_skip_is_only_valid_from_pending(self) -> None:
        assert sources("execution", "SKIP") == {"pending"}

    def test_succeed_is_only_valid_from_running(self) -> None:
        assert sources("execution", "SUCCEED") == {"running"}

    def test_recover_is_only_valid_from_running_and_start_resumes(self) -> None:
        assert sources("execution", "RECOVER") == {"running"}
        assert transition("execution", "recovering", "START") == "running"

    def test_hold_and_wait_are_only_valid_from_pending(self) -> None:
        assert sources("execution", "HOLD") == sources("execution", "WAIT") == {"pending"}

    def test_approve_reject_and_expire_are_only_valid_from_held(self) -> None:
        for event in ("APPROVE", "REJECT", "EXPIRE"):
            assert sources("execution", event) == {"held"}

    def test_timer_done_is_only_valid_from_waiting(self) -> None:
        assert sources("execution", "TIMER_DONE") == {"waiting"}

    def test_held_and_waiting_both_resolve_to_queued(self) -> None:
        assert transition("execution", "held", "APPROVE") == "queued"
        assert transition("execution", "waiting", "TIMER_DONE") == "queued"

    def test_terminal_states_are_immutable(self) -> None:
        for state in ("success", "failed", "cancelled", "skipped"):
            assert valid_events("execution", state) == ()

    def test_any_event_in_a_terminal_state_raises_the_error_with_state_and_event(self) -> None:
        for state in ("success", "failed", "cancelled", "skipped"):
            for event in sorted({arrow.event for arrow in MACHINES["execution"].arrows}):
                with pytest.raises(InvalidTransitionError) as refused:
                    transition("execution", state, event)
                error = refused.value
                assert (error.state, error.event, error.allowed) == (state, event, ())


class TestReadingsOf004:
    def test_there_is_no_retry_an_attempt_is_a_record_below_the_task(self) -> None:
        assert Phase.BACKOFF not in MACHINES["execution"].phase.values()

    def test_pending_reaches_running_always_through_queued(self) -> None:
        assert {source for source, _, target in EXECUTION_004 if target == "running"} == {
            "queued",
            "recovering",
        }
        assert not any_way("execution", "pending", "running")

    def test_approval_and_timer_at_once_are_held_because_held_and_waiting_do_not_meet(self) -> None:
        assert not any_way("execution", "held", "waiting")
        assert not any_way("execution", "waiting", "held")

    def test_expiry_means_cancelled(self) -> None:
        assert {target for _, event, target in EXECUTION_004 if event == "EXPIRE"} == {"cancelled"}

    def test_the_error_is_public_and_carries_what_was_asked_and_what_was_allowed(self) -> None:
        assert "InvalidTransitionError" in engine.machines.__all__
        with pytest.raises(InvalidTransitionError) as refused:
            MACHINES["execution"].arrow("held", "START", entity="182")
        error = refused.value
        assert (error.machine, error.entity, error.state, error.event) == (
            "execution",
            "182",
            "held",
            "START",
        )
        assert set(error.allowed) == {"APPROVE", "REJECT", "EXPIRE", "CANCEL"}
