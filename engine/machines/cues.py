"""The engine's own words: what an entity is doing (`Phase`) and what just happened to it (a cue).

The engine decides in these words only. Each machine says, as rows beside its table, which of its
documented events a cue is in which state; nothing outside `engine.machines` names a documented state.
"""

from enum import Enum, StrEnum


class Phase(Enum):
    """What a state means to the engine. Several states of one machine may share a phase."""

    IDLE = "not started"
    HELD = "waits for people"
    WAITING = "waits for its timer"
    QUEUED = "waits for a worker"
    ACTIVE = "working"
    CHECKING = "being checked"
    FAILING = "just failed, decided in the same transaction"
    BACKOFF = "waits before a retry"
    PARKED = "behind an open circuit"
    PROBING = "about to be tried again"
    CANCELLING = "being cancelled"
    RECOVERING = "out of contact"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class TaskCue(StrEnum):
    """What can happen to a task."""

    READY = "task.ready"
    HOLD = "task.hold"
    WAIT = "task.wait"
    RELEASED = "task.released"
    REJECTED = "task.rejected"
    EXPIRED = "task.expired"
    START = "task.start"
    EXITED_OK = "task.exited_ok"
    CHECKS_PASSED = "task.checks_passed"
    CHECKS_FAILED_RETRY = "task.checks_failed_retry"
    CHECKS_FAILED = "task.checks_failed"
    FAILED_RETRY = "task.failed_retry"
    FAILED = "task.failed"
    TIMED_OUT_RETRY = "task.timed_out_retry"
    TIMED_OUT = "task.timed_out"
    RETRY_DUE = "task.retry_due"
    SKIP = "task.skip"
    STOPPING = "task.stopping"
    STOPPED = "task.stopped"
    FORCED = "task.forced"
    HOOK_FAILED = "task.hook_failed"
    RUN_CANCELLED = "task.run_cancelled"
    RUN_FAILED = "task.run_failed"
    DOUBT = "task.doubt"
    REGAINED = "task.regained"
    PARK = "task.park"
    PROBE = "task.probe"
    PROBE_REFUSED = "task.probe_refused"
    RESET = "task.reset"
    ATTESTED = "task.attested"


class RunCue(StrEnum):
    """What can happen to a run."""

    PLANNED = "run.planned"
    ADMIT = "run.admit"
    HOLD = "run.hold"
    WAIT = "run.wait"
    RELEASED = "run.released"
    REJECTED = "run.rejected"
    EXPIRED = "run.expired"
    START = "run.start"
    TASK_FAILED = "run.task_failed"
    RETRY_ELIGIBLE = "run.retry_eligible"
    RETRY_DUE = "run.retry_due"
    ABANDONED = "run.abandoned"
    DONE = "run.done"
    CHECKS_PASSED = "run.checks_passed"
    CHECKS_FAILED = "run.checks_failed"
    FAILED = "run.failed"
    TIMED_OUT = "run.timed_out"
    STOPPING = "run.stopping"
    STOPPED = "run.stopped"
    FORCED = "run.forced"
    DOUBT = "run.doubt"
    REGAINED = "run.regained"
    CORRECTED = "run.corrected"


class HealthCue(StrEnum):
    """What can happen to a worker's health region."""

    REGISTERED = "health.registered"
    ASSIGNED = "health.assigned"
    EMPTIED = "health.emptied"
    QUIET = "health.quiet"
    BACK = "health.back"
    SHUTDOWN = "health.shutdown"


class ControlCue(StrEnum):
    """What can happen to a worker's control region."""

    ASSIGNED = "control.assigned"
    PAUSE = "control.pause"
    RESUME = "control.resume"
    DRAINED = "control.drained"
    BROKEN = "control.broken"
    TERMINATE = "control.terminate"


class BreakerCue(StrEnum):
    """What can happen to a breaker."""

    THRESHOLD = "breaker.threshold"
    COOLED = "breaker.cooled"
    PROBE_OK = "breaker.probe_ok"
    PROBE_FAILED = "breaker.probe_failed"
    TRIPPED = "breaker.tripped"
    PROBE_NOW = "breaker.probe_now"
    RESET = "breaker.reset"


Cue = TaskCue | RunCue | HealthCue | ControlCue | BreakerCue

STAY = ""
"""A row that says: the machine has a state for this, and it is the one it is in."""
