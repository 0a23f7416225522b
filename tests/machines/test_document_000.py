"""Document 000, restated by hand sentence by sentence: workstreams, steps and breakers.

Nothing here is derived from the tables: whoever changes a machine has to find the sentence it breaks.
"""

import pytest

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
