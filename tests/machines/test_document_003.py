"""Document 003, restated by hand sentence by sentence: a task with checks, retries and a circuit.

Nothing here is derived from the tables: whoever changes a machine has to find the sentence it breaks.
"""

from engine.machines import MACHINES, Kind, Phase, can_transition, is_terminal, transition, valid_events
from tests.machines.arrows import (
    NOTHING_LEFT,
    ONE_LEFT,
    ordinary,
    ordinary_targets,
    targets,
    terminal_states,
    walk,
)

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
