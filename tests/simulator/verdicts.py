"""What the end of an execution must make of its task or run: an oracle beside the core's own reading."""

from collections.abc import Callable

from engine.core.decision import Closing
from engine.core.records import Attempt, Purpose, Run, Stop, Task
from engine.machines import Phase

CANCELLED = (Stop.CANCEL, Stop.KILLED)


def accepted(task: Task) -> bool:
    """Whether an attempt's work was taken as done: it succeeded, or its checks are to say."""
    return task.phase is Phase.SUCCEEDED or task.checking


def misjudged(
    attempt: Attempt, closing: Closing, after: Task | Run, child: Callable[[int], Run]
) -> str | None:
    """What is wrong with a task, or with a run after its final checks, that an execution has ended for."""
    if attempt.fenced or attempt.stopping in CANCELLED:
        good: bool | None = False if isinstance(after, Task) and not attempt.fenced else None
    elif attempt.sub_run is not None:
        good = child(attempt.sub_run).phase is Phase.SUCCEEDED and attempt.stopping is None
    else:
        good = _worked(attempt, closing, after)
    if good is None:
        return None
    if isinstance(after, Run):
        taken = after.phase is Phase.SUCCEEDED
    elif attempt.token.purpose is Purpose.WORK:
        taken = accepted(after)
    elif attempt.token.purpose is Purpose.CHECK:
        taken = after.phase is Phase.SUCCEEDED
    else:
        return None
    if taken is good:
        return None
    words = "well" if good else "badly"
    return f"{attempt.token} ended {words} ({closing.outcome}, {closing.exit_code}) and it is {after.state}"


def _worked(attempt: Attempt, closing: Closing, after: Task | Run) -> bool | None:
    """Whether an execution on a worker did what it should; None when only its run's ending decides."""
    if isinstance(after, Run) and after.ending is not None:
        return None
    if attempt.stopping is not None or closing.outcome != "exited":
        return False
    if isinstance(after, Task) and attempt.token.purpose is Purpose.WORK:
        return closing.exit_code in after.plan.expected_exits
    return closing.exit_code == 0
