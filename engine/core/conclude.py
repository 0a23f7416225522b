"""The end of a run: its last arrow, the cascade to its tasks, and the word to whoever waits for it."""

from engine.core import outcomes
from engine.core.decision import Closing
from engine.core.draft import Draft
from engine.core.plan import Category
from engine.core.records import Ending, Run, Stop, Task
from engine.machines import MACHINES, Phase, RunCue, TaskCue


def end_run(draft: Draft, run: Run, cue: RunCue, reason: str | None = None) -> None:
    """The run takes its last arrow, its tasks follow, and whoever waits for it is told."""
    run = _close(draft, run, cue, reason)
    if run.parent is not None and run.terminal:
        _tell_parent(draft, run)
    elif cue is RunCue.CHECKS_FAILED and not run.terminal:
        draft.note(run, "ending", "a final check failed", ending=Ending.FAILURE)


def _tell_parent(draft: Draft, run: Run) -> None:
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
        by_hand = run.ending is Ending.CANCEL
        category = Category.PERMANENT if by_hand else Category.UNKNOWN
        outcomes.failed(draft, task, closing, f"sub-run {run.number}: {run.state}", category=category)


def _close(draft: Draft, run: Run, cue: RunCue, reason: str | None) -> Run:
    """The run's own last arrow, and the cascade to the tasks that are not over."""
    values = {"retry_left": False}
    run = draft.move_run(run, cue, reason=reason, values=values)
    if not run.terminal or run.phase is Phase.SUCCEEDED:
        return run
    follow = TaskCue.RUN_CANCELLED if run.phase is Phase.CANCELLED else TaskCue.RUN_FAILED
    why = f"its run is {run.phase.value}"
    for task in draft.tasks_of(run):
        if not task.terminal and task.pardon is None and task.blocked is None:
            _follow(draft, task, follow, why)
    return draft.run(run.number)


def _follow(draft: Draft, task: Task, cue: TaskCue, why: str) -> None:
    draft.disarm_all(task.ref)
    machine = MACHINES[task.machine]
    for word in (cue, TaskCue.STOPPED, TaskCue.FORCED):
        path = machine.steps(word, task.state)
        if path:
            draft.move_task(
                task,
                word,
                reason=why,
                values=outcomes.RUN_OVER | {"retry_left": False},
                asking=False,
                checking=False,
            )
            return
        if path is not None:
            break
    if task.phase not in (Phase.PARKED, Phase.FAILED):
        draft.note(task, "blocked", why, blocked=why)
