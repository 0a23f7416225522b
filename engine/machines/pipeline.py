"""Document 000: workstreams that mirror their steps, steps that retry, one breaker per tool."""

from engine.machines.cues import STAY, BreakerCue, Phase, RunCue, TaskCue
from engine.machines.machine import Arrow, Kind, Machine, State

WORKSTREAM = Machine(
    name="pipeline.workstream",
    document="000",
    entity="run",
    initial="S_PENDING",
    states=(
        State("S_PENDING", Phase.IDLE, "Created, not started."),
        State("S_RUNNING", Phase.ACTIVE, "Executing its steps."),
        State("S_SUCCESS", Phase.SUCCEEDED, "Every step worked.", terminal=True),
        State("S_FAILED", Phase.FAILED, "A step failed; it may be retried or repaired."),
        State("S_RETRYING", Phase.BACKOFF, "Waits before a step is tried again."),
        State(
            "S_ABANDONED", Phase.CANCELLED, "Stopped by hand, or given up after its retries.", terminal=True
        ),
    ),
    arrows=(
        Arrow("S_PENDING", "start_execution", "S_RUNNING", "The first step starts."),
        Arrow("S_RUNNING", "all_steps_succeed", "S_SUCCESS", "Every step succeeded or was waived."),
        Arrow("S_RUNNING", "step_fails", "S_FAILED", "A step failed."),
        Arrow("S_RUNNING", "abandon", "S_ABANDONED", "A person cancels it."),
        Arrow(
            "S_FAILED",
            "retry_eligible",
            "S_RETRYING",
            "Every failed step may be tried again, or none is failed any more.",
            guard="retry_left",
        ),
        Arrow(
            "S_FAILED",
            "max_retries_exceeded",
            "S_ABANDONED",
            "Its retries are used up and it is given up, by a person or after its time.",
            guard="no_retry_left",
        ),
        Arrow("S_RETRYING", "retry_attempt", "S_RUNNING", "The earliest backoff is over."),
        Arrow(
            "S_SUCCESS",
            "corrected_by_operator",
            "S_FAILED",
            "Recovery 4: it was called a success while a step is not.",
            guard="steps_unfinished",
            kind=Kind.RECOVERY,
        ),
    ),
    cues={
        RunCue.START: {"S_PENDING": "start_execution"},
        RunCue.TASK_FAILED: {
            "S_RUNNING": "step_fails",
            "S_RETRYING": "retry_attempt > step_fails",
            "S_FAILED": STAY,
        },
        RunCue.RETRY_ELIGIBLE: {"S_FAILED": "retry_eligible"},
        RunCue.RETRY_DUE: {"S_RETRYING": "retry_attempt"},
        RunCue.ABANDONED: {"S_FAILED": "max_retries_exceeded"},
        RunCue.DONE: {"S_RUNNING": STAY},
        RunCue.CHECKS_PASSED: {"S_RUNNING": "all_steps_succeed"},
        RunCue.CHECKS_FAILED: {"S_RUNNING": "step_fails"},
        RunCue.FAILED: {
            "S_RUNNING": "step_fails",
            "S_RETRYING": "retry_attempt > step_fails",
            "S_FAILED": STAY,
        },
        RunCue.TIMED_OUT: {
            "S_RUNNING": "step_fails",
            "S_RETRYING": "retry_attempt > step_fails",
            "S_FAILED": STAY,
        },
        RunCue.STOPPED: {
            "S_PENDING": "start_execution > abandon",
            "S_RUNNING": "abandon",
            "S_RETRYING": "retry_attempt > abandon",
            "S_FAILED": "max_retries_exceeded",
        },
        RunCue.FORCED: {
            "S_PENDING": "start_execution > abandon",
            "S_RUNNING": "abandon",
            "S_RETRYING": "retry_attempt > abandon",
            "S_FAILED": "max_retries_exceeded",
        },
        RunCue.CORRECTED: {"S_SUCCESS": "corrected_by_operator"},
    },
)

STEP = Machine(
    name="pipeline.step",
    document="000",
    entity="task",
    initial="S_PENDING",
    states=(
        State("S_PENDING", Phase.IDLE, "Created; waits for the steps it depends on."),
        State("S_RUNNING", Phase.ACTIVE, "Its tool is executing."),
        State("S_SUCCESS", Phase.SUCCEEDED, "Its tool exited as expected.", terminal=True),
        State("S_FAILED", Phase.FAILED, "Its tool failed; what depends on it is blocked."),
        State("S_RETRYING", Phase.BACKOFF, "Waits before it is tried again."),
    ),
    arrows=(
        Arrow("S_PENDING", "dependencies_met", "S_RUNNING", "Every step it depends on succeeded."),
        Arrow("S_RUNNING", "success", "S_SUCCESS", "The exit code is an expected one."),
        Arrow("S_RUNNING", "failure", "S_FAILED", "The exit code is not an expected one."),
        Arrow(
            "S_FAILED", "retry_eligible", "S_RETRYING", "It may be tried again, later.", guard="retry_left"
        ),
        Arrow("S_RETRYING", "retry_attempt", "S_RUNNING", "The exponential backoff is over."),
        Arrow(
            "S_FAILED",
            "reset_by_operator",
            "S_PENDING",
            "Recovery 2: its retries start anew.",
            guard="retries_zeroed",
            kind=Kind.RECOVERY,
        ),
        Arrow(
            "S_FAILED",
            "attested_by_operator",
            "S_SUCCESS",
            "Recovery 4: it did succeed, and the operator vouches for it.",
            guard="evidence_given",
            kind=Kind.RECOVERY,
        ),
    ),
    cues={
        TaskCue.START: {"S_PENDING": "dependencies_met", "S_RETRYING": "retry_attempt"},
        TaskCue.EXITED_OK: {"S_RUNNING": STAY},
        TaskCue.CHECKS_PASSED: {"S_RUNNING": "success"},
        TaskCue.CHECKS_FAILED_RETRY: {"S_RUNNING": "failure > retry_eligible"},
        TaskCue.CHECKS_FAILED: {"S_RUNNING": "failure"},
        TaskCue.FAILED_RETRY: {"S_RUNNING": "failure > retry_eligible"},
        TaskCue.FAILED: {"S_RUNNING": "failure"},
        TaskCue.TIMED_OUT_RETRY: {"S_RUNNING": "failure > retry_eligible"},
        TaskCue.TIMED_OUT: {"S_RUNNING": "failure"},
        TaskCue.STOPPING: {"S_RUNNING": STAY},
        TaskCue.STOPPED: {"S_RUNNING": "failure"},
        TaskCue.FORCED: {"S_RUNNING": "failure"},
        TaskCue.HOOK_FAILED: {"S_RUNNING": "failure"},
        TaskCue.RUN_CANCELLED: {"S_PENDING": STAY, "S_RETRYING": STAY, "S_FAILED": STAY},
        TaskCue.RUN_FAILED: {"S_PENDING": STAY, "S_RETRYING": STAY, "S_FAILED": STAY},
        TaskCue.RESET: {"S_FAILED": "reset_by_operator"},
        TaskCue.ATTESTED: {"S_FAILED": "attested_by_operator"},
    },
)

BREAKER = Machine(
    name="pipeline.breaker",
    document="000",
    entity="breaker",
    initial="CLOSED",
    states=(
        State("CLOSED", Phase.ACTIVE, "Healthy: the tool may be used; a success sets the count to 0."),
        State("OPEN", Phase.PARKED, "Unhealthy: what needs the tool is parked."),
        State("HALF_OPEN", Phase.PROBING, "One probe is let through to see whether it recovered."),
    ),
    arrows=(
        Arrow("CLOSED", "failure_threshold_exceeded", "OPEN", "Too many failures in a row."),
        Arrow("CLOSED", "tripped_by_operator", "OPEN", "A person takes the tool out of use."),
        Arrow("OPEN", "cooldown_expires", "HALF_OPEN", "It has been open for its time."),
        Arrow("OPEN", "probe_requested", "HALF_OPEN", "A person lets one probe through now."),
        Arrow("HALF_OPEN", "success", "CLOSED", "The probe worked."),
        Arrow("HALF_OPEN", "failure", "OPEN", "The probe failed."),
        Arrow(
            "OPEN",
            "reset_by_operator",
            "CLOSED",
            "Recovery 3: the tool is known to be healthy.",
            guard="healthy_or_overridden",
            kind=Kind.RECOVERY,
        ),
    ),
    cues={
        BreakerCue.THRESHOLD: {"CLOSED": "failure_threshold_exceeded"},
        BreakerCue.COOLED: {"OPEN": "cooldown_expires"},
        BreakerCue.PROBE_OK: {"HALF_OPEN": "success"},
        BreakerCue.PROBE_FAILED: {"HALF_OPEN": "failure"},
        BreakerCue.TRIPPED: {"CLOSED": "tripped_by_operator"},
        BreakerCue.PROBE_NOW: {"OPEN": "probe_requested"},
        BreakerCue.RESET: {"OPEN": "reset_by_operator"},
    },
)
