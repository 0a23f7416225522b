"""Document 002, restated by hand sentence by sentence: jobs, and a worker's control.

Nothing here is derived from the tables: whoever changes a machine has to find the sentence it breaks.
"""

from engine.machines import MACHINES, Kind, can_transition, transition, valid_events
from tests.machines.arrows import any_way, ordinary, ordinary_targets, sources, targets, terminal_states

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
