"""The end of a run: its last arrow, the cascade to its tasks, and the word to whoever waits for it."""

from engine.core import outcomes
from engine.core.decision import Closing
from engine.core.draft import Draft
from engine.core.plan import Category
from engine.core.records import Ending, Run, Stop, Task
from engine.machines import MACHINES, Phase, RunCue, TaskCue

BY_PEOPLE = (RunCue.REJECTED, RunCue.EXPIRED, RunCue.STOPPED, RunCue.FORCED)
"""Ends that people decided, or did not decide: asking them again would not help."""
ENDED_BADLY = (Phase.CANCELLED, Phase.FAILED)


def end_run(draft: Draft, run: Run, cue: RunCue, reason: str | None = None) -> None:
    """The run takes its last arrow, its tasks follow, and whoever waits for it is told."""
    run = _close(draft, run, cue, reason)
    if run.parent is not None and run.terminal:
        _tell_parent(draft, run, cue)
    elif cue is RunCue.CHECKS_FAILED and not run.terminal:
        draft.note(run, "ending", "a final check failed", ending=Ending.FAILURE)


def _tell_parent(draft: Draft, run: Run, cue: RunCue) -> None:
    assert run.parent is not None
    task = draft.find_task(run.parent)
    attempt = draft.attempt(task.live) if task is not None and task.live is not None else None
    if task is None or attempt is None or attempt.sub_run != run.number:
        return
    closing = Closing(attempt.token, f"sub-run {run.number} {run.phase.value}")
    if attempt.stopping in (Stop.CANCEL, Stop.KILLED):
        outcomes.stopped(draft, task, closing)
    elif attempt.stopping is Stop.TIMEOUT:
        outcomes.failed(
            draft, task, closing, "timed out", cues=outcomes.TIMED_OUT, category=Category.TRANSIENT
        )
    elif run.phase is Phase.SUCCEEDED:
        outcomes.worked(draft, task, closing, None)
    else:
        category = Category.PERMANENT if cue in BY_PEOPLE else Category.UNKNOWN
        outcomes.failed(draft, task, closing, f"sub-run {run.number}: {run.state}", category=category)


def _close(draft: Draft, run: Run, cue: RunCue, reason: str | None) -> Run:
    """The run's own last arrow, and the cascade to the tasks that are not over."""
    run = draft.move_run(run, cue, reason=reason, values={"retry_left": False})
    if not run.terminal or run.phase is Phase.SUCCEEDED:
        return run
    why = f"its run is {run.phase.value}" + (f": {reason}" if reason else "")
    for task in draft.tasks_of(run):
        if not task.terminal and task.pardon is None and task.blocked is None:
            _follow(draft, task, run, why)
    return draft.run(run.number)


def _follow(draft: Draft, task: Task, run: Run, why: str) -> None:
    """A task takes the arrow that the end of its run is to it; without one it keeps its state, blocked."""
    draft.disarm_all(task.ref)
    cancelled = run.phase is Phase.CANCELLED
    values = {"run_cancelled": cancelled, "run_ended": run.phase in ENDED_BADLY, "retry_left": False}
    machine = MACHINES[task.machine]
    for cue in (TaskCue.RUN_CANCELLED if cancelled else TaskCue.RUN_FAILED, TaskCue.STOPPED, TaskCue.FORCED):
        path = machine.steps(cue, task.state)
        if path:
            draft.move_task(task, cue, reason=why, values=values, asking=False, checking=False)
            return
        if path is not None:
            break
    if task.phase not in (Phase.PARKED, Phase.FAILED):
        draft.note(task, "blocked", why, blocked=why)
