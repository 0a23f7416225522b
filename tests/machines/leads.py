"""Where each cue leads, written down by hand."""

from engine.machines import BreakerCue, ControlCue, Cue, HealthCue, RunCue, TaskCue

# For each machine and cue, `from>to` by state. A cue or a state that is not here has no meaning there.
LEADS: dict[str, dict[Cue, str]] = {
    "execution": {
        TaskCue.READY: "pending>queued",
        TaskCue.HOLD: "pending>held",
        TaskCue.WAIT: "pending>waiting",
        TaskCue.RELEASED: "held>queued waiting>queued",
        TaskCue.REJECTED: "held>cancelled",
        TaskCue.EXPIRED: "held>cancelled",
        TaskCue.START: "queued>running running>running",
        TaskCue.EXITED_OK: "running>running recovering>running",
        TaskCue.CHECKS_PASSED: "running>success recovering>success",
        TaskCue.CHECKS_FAILED_RETRY: "running>running recovering>running",
        TaskCue.CHECKS_FAILED: "running>failed recovering>failed",
        TaskCue.FAILED_RETRY: "running>running recovering>running",
        TaskCue.FAILED: "running>failed recovering>failed queued>failed",
        TaskCue.TIMED_OUT_RETRY: "running>running recovering>running",
        TaskCue.TIMED_OUT: "running>failed recovering>failed",
        TaskCue.SKIP: "pending>skipped",
        TaskCue.STOPPING: "running>cancelling recovering>cancelling cancelling>cancelling",
        TaskCue.STOPPED: "running>cancelled recovering>cancelled cancelling>cancelled",
        TaskCue.FORCED: "running>cancelled recovering>cancelled cancelling>cancelled",
        TaskCue.HOOK_FAILED: "running>failed cancelling>failed",
        TaskCue.RUN_CANCELLED: (
            "pending>cancelled queued>cancelled held>cancelled "
            "waiting>cancelled running>cancelled recovering>cancelled"
        ),
        TaskCue.RUN_FAILED: (
            "pending>skipped queued>cancelled held>cancelled "
            "waiting>cancelled running>cancelled recovering>cancelled"
        ),
        TaskCue.DOUBT: "running>recovering",
        TaskCue.REGAINED: "recovering>running",
        RunCue.ADMIT: "pending>queued",
        RunCue.HOLD: "pending>held",
        RunCue.WAIT: "pending>waiting",
        RunCue.RELEASED: "held>queued waiting>queued",
        RunCue.REJECTED: "held>cancelled",
        RunCue.EXPIRED: "held>cancelled",
        RunCue.START: "queued>running",
        RunCue.DONE: "running>running recovering>running",
        RunCue.CHECKS_PASSED: "running>success recovering>success",
        RunCue.CHECKS_FAILED: "running>failed recovering>failed",
        RunCue.FAILED: "running>failed recovering>failed queued>failed",
        RunCue.TIMED_OUT: "running>failed recovering>failed",
        RunCue.STOPPING: "running>cancelling recovering>cancelling",
        RunCue.STOPPED: (
            "pending>cancelled queued>cancelled held>cancelled waiting>cancelled cancelling>cancelled"
        ),
        RunCue.FORCED: (
            "pending>cancelled queued>cancelled held>cancelled waiting>cancelled "
            "running>cancelled recovering>cancelled cancelling>cancelled"
        ),
        RunCue.DOUBT: "running>recovering",
        RunCue.REGAINED: "recovering>running",
    },
    "pipeline.workstream": {
        RunCue.START: "S_PENDING>S_RUNNING",
        RunCue.TASK_FAILED: "S_RUNNING>S_FAILED S_RETRYING>S_FAILED S_FAILED>S_FAILED",
        RunCue.RETRY_ELIGIBLE: "S_FAILED>S_RETRYING",
        RunCue.RETRY_DUE: "S_RETRYING>S_RUNNING",
        RunCue.ABANDONED: "S_FAILED>S_ABANDONED",
        RunCue.DONE: "S_RUNNING>S_RUNNING",
        RunCue.CHECKS_PASSED: "S_RUNNING>S_SUCCESS",
        RunCue.CHECKS_FAILED: "S_RUNNING>S_FAILED",
        RunCue.FAILED: "S_RUNNING>S_FAILED S_RETRYING>S_FAILED S_FAILED>S_FAILED",
        RunCue.TIMED_OUT: "S_RUNNING>S_FAILED S_RETRYING>S_FAILED S_FAILED>S_FAILED",
        RunCue.STOPPED: (
            "S_PENDING>S_ABANDONED S_RUNNING>S_ABANDONED S_RETRYING>S_ABANDONED S_FAILED>S_ABANDONED"
        ),
        RunCue.FORCED: (
            "S_PENDING>S_ABANDONED S_RUNNING>S_ABANDONED S_RETRYING>S_ABANDONED S_FAILED>S_ABANDONED"
        ),
        RunCue.CORRECTED: "S_SUCCESS>S_FAILED",
    },
    "pipeline.step": {
        TaskCue.START: "S_PENDING>S_RUNNING S_RETRYING>S_RUNNING",
        TaskCue.EXITED_OK: "S_RUNNING>S_RUNNING",
        TaskCue.CHECKS_PASSED: "S_RUNNING>S_SUCCESS",
        TaskCue.CHECKS_FAILED_RETRY: "S_RUNNING>S_RETRYING",
        TaskCue.CHECKS_FAILED: "S_RUNNING>S_FAILED",
        TaskCue.FAILED_RETRY: "S_RUNNING>S_RETRYING",
        TaskCue.FAILED: "S_RUNNING>S_FAILED",
        TaskCue.TIMED_OUT_RETRY: "S_RUNNING>S_RETRYING",
        TaskCue.TIMED_OUT: "S_RUNNING>S_FAILED",
        TaskCue.STOPPING: "S_RUNNING>S_RUNNING",
        TaskCue.STOPPED: "S_RUNNING>S_FAILED",
        TaskCue.FORCED: "S_RUNNING>S_FAILED",
        TaskCue.HOOK_FAILED: "S_RUNNING>S_FAILED",
        TaskCue.RUN_CANCELLED: "S_PENDING>S_PENDING S_RETRYING>S_RETRYING S_FAILED>S_FAILED",
        TaskCue.RUN_FAILED: "S_PENDING>S_PENDING S_RETRYING>S_RETRYING S_FAILED>S_FAILED",
        TaskCue.RESET: "S_FAILED>S_PENDING",
        TaskCue.ATTESTED: "S_FAILED>S_SUCCESS",
    },
    "pipeline.breaker": {
        BreakerCue.THRESHOLD: "CLOSED>OPEN",
        BreakerCue.COOLED: "OPEN>HALF_OPEN",
        BreakerCue.PROBE_OK: "HALF_OPEN>CLOSED",
        BreakerCue.PROBE_FAILED: "HALF_OPEN>OPEN",
        BreakerCue.TRIPPED: "CLOSED>OPEN",
        BreakerCue.PROBE_NOW: "OPEN>HALF_OPEN",
        BreakerCue.RESET: "OPEN>CLOSED",
    },
    "orchestration.task": {
        TaskCue.READY: "pending>queued",
        TaskCue.START: "queued>running",
        TaskCue.EXITED_OK: "running>validating",
        TaskCue.CHECKS_PASSED: "validating>completed",
        TaskCue.CHECKS_FAILED_RETRY: "validating>failed",
        TaskCue.CHECKS_FAILED: "validating>failed",
        TaskCue.FAILED_RETRY: "running>retrying",
        TaskCue.FAILED: "running>failed",
        TaskCue.TIMED_OUT_RETRY: "running>retrying",
        TaskCue.TIMED_OUT: "running>failed",
        TaskCue.RETRY_DUE: "retrying>queued",
        TaskCue.STOPPING: "running>running",
        TaskCue.STOPPED: "running>cancelled",
        TaskCue.FORCED: "running>cancelled validating>failed",
        TaskCue.HOOK_FAILED: "running>failed",
        TaskCue.RUN_CANCELLED: "pending>pending queued>queued retrying>retrying",
        TaskCue.RUN_FAILED: "pending>pending queued>queued retrying>retrying",
    },
    "orchestration.workstream": {
        RunCue.PLANNED: "planned>ready",
        RunCue.START: "ready>executing",
        RunCue.DONE: "executing>validating",
        RunCue.CHECKS_PASSED: "validating>completed",
        RunCue.CHECKS_FAILED: "validating>failed",
        RunCue.FAILED: "executing>failed ready>failed",
        RunCue.TIMED_OUT: "executing>failed validating>failed",
        RunCue.STOPPED: "planned>cancelled ready>cancelled executing>cancelled",
        RunCue.FORCED: "planned>cancelled ready>cancelled executing>cancelled validating>failed",
    },
    "orchestration.worker": {
        HealthCue.REGISTERED: "initializing>idle",
        HealthCue.ASSIGNED: "idle>busy busy>busy",
        HealthCue.EMPTIED: "busy>idle",
        HealthCue.QUIET: "busy>unresponsive",
        HealthCue.BACK: "unresponsive>idle",
        HealthCue.SHUTDOWN: "initializing>shutdown idle>shutdown busy>shutdown unresponsive>shutdown",
    },
    "supervision.worker": {
        ControlCue.ASSIGNED: "IDLE>RUNNING RUNNING>RUNNING",
        ControlCue.PAUSE: "RUNNING>PAUSED",
        ControlCue.RESUME: "PAUSED>RUNNING",
        ControlCue.DRAINED: "RUNNING>COMPLETED IDLE>TERMINATED PAUSED>TERMINATED",
        ControlCue.BROKEN: "RUNNING>FAILED IDLE>TERMINATED PAUSED>TERMINATED",
        ControlCue.TERMINATE: (
            "IDLE>TERMINATED RUNNING>TERMINATED PAUSED>TERMINATED COMPLETED>TERMINATED FAILED>TERMINATED"
        ),
    },
    "supervision.job": {
        RunCue.PLANNED: "SUBMITTED>PENDING",
        RunCue.START: "PENDING>RUNNING",
        RunCue.DONE: "RUNNING>RUNNING",
        RunCue.CHECKS_PASSED: "RUNNING>COMPLETED",
        RunCue.CHECKS_FAILED: "RUNNING>FAILED",
        RunCue.FAILED: "RUNNING>FAILED PENDING>FAILED",
        RunCue.TIMED_OUT: "RUNNING>CANCELED",
        RunCue.STOPPED: "SUBMITTED>CANCELED PENDING>CANCELED RUNNING>CANCELED",
        RunCue.FORCED: "SUBMITTED>CANCELED PENDING>CANCELED RUNNING>CANCELED",
    },
    "toolchain.task": {
        TaskCue.START: (
            "PENDING>IN_PROGRESS RETRYING>IN_PROGRESS CIRCUIT_OPEN>IN_PROGRESS HALF_OPEN>IN_PROGRESS"
        ),
        TaskCue.EXITED_OK: "IN_PROGRESS>VALIDATING",
        TaskCue.CHECKS_PASSED: "VALIDATING>COMPLETED",
        TaskCue.CHECKS_FAILED_RETRY: "VALIDATING>RETRYING",
        TaskCue.CHECKS_FAILED: "VALIDATING>CIRCUIT_OPEN",
        TaskCue.FAILED_RETRY: "IN_PROGRESS>RETRYING",
        TaskCue.FAILED: "IN_PROGRESS>CIRCUIT_OPEN",
        TaskCue.TIMED_OUT_RETRY: "IN_PROGRESS>RETRYING",
        TaskCue.TIMED_OUT: "IN_PROGRESS>CIRCUIT_OPEN",
        TaskCue.SKIP: "PENDING>SKIPPED",
        TaskCue.STOPPING: "IN_PROGRESS>IN_PROGRESS VALIDATING>VALIDATING HALF_OPEN>HALF_OPEN",
        TaskCue.STOPPED: "IN_PROGRESS>CANCELLED VALIDATING>VALIDATING HALF_OPEN>HALF_OPEN",
        TaskCue.FORCED: "IN_PROGRESS>CANCELLED VALIDATING>VALIDATING HALF_OPEN>HALF_OPEN",
        TaskCue.HOOK_FAILED: "IN_PROGRESS>CIRCUIT_OPEN VALIDATING>CIRCUIT_OPEN",
        TaskCue.RUN_CANCELLED: (
            "PENDING>CANCELLED RETRYING>CANCELLED VALIDATING>CANCELLED HALF_OPEN>CANCELLED"
            " CIRCUIT_OPEN>CANCELLED"
        ),
        TaskCue.RUN_FAILED: (
            "PENDING>SKIPPED RETRYING>CANCELLED VALIDATING>CANCELLED HALF_OPEN>CANCELLED"
            " CIRCUIT_OPEN>CIRCUIT_OPEN"
        ),
        TaskCue.PARK: "RETRYING>CIRCUIT_OPEN",
        TaskCue.PROBE: "CIRCUIT_OPEN>HALF_OPEN",
        TaskCue.PROBE_REFUSED: "HALF_OPEN>CIRCUIT_OPEN",
        TaskCue.RESET: "CIRCUIT_OPEN>PENDING",
    },
}
