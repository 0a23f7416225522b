"""Document 004, restated by hand sentence by sentence: one machine for runs and tasks.

Nothing here is derived from the tables: whoever changes a machine has to find the sentence it breaks.
"""

import pytest

import engine.machines
from engine.machines import MACHINES, InvalidTransitionError, Phase, can_transition, transition, valid_events
from tests.machines.arrows import any_way, ordinary, sources, terminal_states

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
