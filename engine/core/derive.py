"""Document 001's derivation: what a workstream's state must be, told from its tasks alone.

The core never derives over a terminal state; this is the second opinion that `check` and the simulator
hold against what the core decided.
"""

from collections.abc import Sequence

from engine.core.records import Task
from engine.machines import Phase

_BUSY = (Phase.ACTIVE, Phase.CHECKING, Phase.RECOVERING, Phase.CANCELLING, Phase.PROBING)


def derive_workstream(tasks: Sequence[Task]) -> str:
    """The rules in the order in which they are tested."""
    if not tasks:
        return "planned"
    if any(task.phase in _BUSY for task in tasks):
        return "executing"
    if any(_failed(task) and task.plan.fails_run for task in tasks):
        return "failed"
    if all(task.phase is Phase.SUCCEEDED or task.pardon is not None for task in tasks):
        return "validating"
    if all(task.started is None for task in tasks):
        return "ready"
    return "executing"


def _failed(task: Task) -> bool:
    return task.pardon is None and (task.phase is Phase.FAILED or task.final)
