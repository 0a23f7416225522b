"""Document 002: jobs, and a worker's control by its supervisor."""

from engine.machines.cues import STAY, ControlCue, Phase, RunCue
from engine.machines.machine import Arrow, Kind, Machine, State

WORKER = Machine(
    name="supervision.worker",
    document="002",
    entity="worker control",
    initial="IDLE",
    states=(
        State("IDLE", Phase.IDLE, "Created; no task was assigned yet."),
        State("RUNNING", Phase.ACTIVE, "Takes tasks and executes them."),
        State("PAUSED", Phase.WAITING, "Suspended by its supervisor: it takes no new task."),
        State("COMPLETED", Phase.SUCCEEDED, "Did all it had to do.", terminal=True),
        State("FAILED", Phase.FAILED, "Met an error that it cannot recover from.", terminal=True),
        State("TERMINATED", Phase.CANCELLED, "Stopped by its supervisor.", terminal=True),
    ),
    arrows=(
        Arrow("IDLE", "start_task", "RUNNING", "It gets its first task."),
        Arrow("RUNNING", "pause", "PAUSED", "The supervisor suspends it."),
        Arrow("PAUSED", "resume", "RUNNING", "The supervisor lets it go on."),
        Arrow("RUNNING", "complete_tasks", "COMPLETED", "It was drained and its last task ended."),
        Arrow("RUNNING", "error_unrecoverable", "FAILED", "An error that no retry can mend."),
        Arrow("IDLE", "terminate", "TERMINATED", "The supervisor stops it."),
        Arrow("RUNNING", "terminate", "TERMINATED", "The supervisor stops it."),
        Arrow("PAUSED", "terminate", "TERMINATED", "The supervisor stops it."),
        Arrow(
            "COMPLETED",
            "terminate",
            "TERMINATED",
            "It ended, and still holds something.",
            guard="still_holds",
            kind=Kind.RECOVERY,
        ),
        Arrow(
            "FAILED",
            "terminate",
            "TERMINATED",
            "It failed, and still holds something.",
            guard="still_holds",
            kind=Kind.RECOVERY,
        ),
    ),
    cues={
        ControlCue.ASSIGNED: {"IDLE": "start_task", "RUNNING": STAY},
        ControlCue.PAUSE: {"RUNNING": "pause"},
        ControlCue.RESUME: {"PAUSED": "resume"},
        ControlCue.DRAINED: {"RUNNING": "complete_tasks", "IDLE": "terminate", "PAUSED": "terminate"},
        ControlCue.BROKEN: {"RUNNING": "error_unrecoverable", "IDLE": "terminate", "PAUSED": "terminate"},
        ControlCue.TERMINATE: {
            "IDLE": "terminate",
            "RUNNING": "terminate",
            "PAUSED": "terminate",
            "COMPLETED": "terminate",
            "FAILED": "terminate",
        },
    },
)

JOB = Machine(
    name="supervision.job",
    document="002",
    entity="run",
    initial="SUBMITTED",
    states=(
        State("SUBMITTED", Phase.IDLE, "Received, not validated yet."),
        State("PENDING", Phase.QUEUED, "Valid; waits for resources."),
        State("RUNNING", Phase.ACTIVE, "Executing with the resources it was given."),
        State("COMPLETED", Phase.SUCCEEDED, "Finished, and it worked.", terminal=True),
        State("FAILED", Phase.FAILED, "Finished with an error.", terminal=True),
        State("CANCELED", Phase.CANCELLED, "Cancelled by a person or by the system.", terminal=True),
    ),
    arrows=(
        Arrow("SUBMITTED", "validate", "PENDING", "Its file is valid."),
        Arrow("SUBMITTED", "cancel", "CANCELED", "Cancelled before it was validated."),
        Arrow("PENDING", "allocate_resources", "RUNNING", "A worker is there for it."),
        Arrow("PENDING", "cancel", "CANCELED", "Cancelled while it waited for resources."),
        Arrow("RUNNING", "success", "COMPLETED", "Its tasks are finished."),
        Arrow("RUNNING", "error", "FAILED", "A task failed for good."),
        Arrow("RUNNING", "cancel", "CANCELED", "Cancelled; its attempts are stopped."),
    ),
    cues={
        RunCue.PLANNED: {"SUBMITTED": "validate"},
        RunCue.START: {"PENDING": "allocate_resources"},
        RunCue.DONE: {"RUNNING": STAY},
        RunCue.CHECKS_PASSED: {"RUNNING": "success"},
        RunCue.CHECKS_FAILED: {"RUNNING": "error"},
        RunCue.FAILED: {"RUNNING": "error", "PENDING": "allocate_resources > error"},
        RunCue.TIMED_OUT: {"RUNNING": "cancel"},
        RunCue.STOPPED: {"SUBMITTED": "cancel", "PENDING": "cancel", "RUNNING": "cancel"},
        RunCue.FORCED: {"SUBMITTED": "cancel", "PENDING": "cancel", "RUNNING": "cancel"},
    },
)
