"""Stopping: gracefully with hooks and a grace, by force at once, and the end of everything below a run."""

from engine.core import outcomes
from engine.core.conclude import end_run
from engine.core.decision import Halt
from engine.core.draft import Draft
from engine.core.errors import Refused
from engine.core.records import Ending, Purpose, Run, Stop, Task, TimerKind
from engine.core.signals import Cancel
from engine.machines import MACHINES, InvalidTransitionError, Phase, RunCue, TaskCue


def cancel(draft: Draft, signal: Cancel) -> None:
    run = draft.find_run(signal.run)
    if run is None:
        raise Refused(f"cancel {signal.run}", "there is no such run that is not over", "see `interlock runs`")
    if signal.force:
        _refuse_unless(draft, run, RunCue.FORCED)
        force_run(draft, run, signal.reason)
        return
    rests = run.phase is Phase.FAILED and run.ending is not Ending.CANCEL
    if run.ending is not None and not run.terminal and not rests:
        why = f"it is ending already ({run.ending})"
        raise Refused(f"cancel {run.number}", why, "--force ends it at once")
    _refuse_unless(draft, run, RunCue.STOPPING, RunCue.STOPPED)
    stop_run(draft, run, Ending.CANCEL, signal.reason or "cancelled")


def _refuse_unless(draft: Draft, run: Run, *cues: RunCue) -> None:
    if not any(draft.answers(run, cue) for cue in cues):
        machine = MACHINES[run.machine]
        raise InvalidTransitionError(
            machine.name, run.state, "cancel", machine.valid_events(run.state), str(run.number)
        )


def stop_run(draft: Draft, run: Run, ending: Ending, reason: str) -> None:
    """Nothing new starts; what runs is asked to stop; the run's own arrow comes after the last of it."""
    if ending is Ending.CANCEL and draft.answers(run, RunCue.STOPPING):
        run = draft.move_run(run, RunCue.STOPPING, reason=reason, ending=ending, ending_reason=reason)
    else:
        run = draft.note(run, "ending", reason, ending=ending, ending_reason=reason)
    quell(draft, run)
    if run.live is not None:
        attempt = draft.attempt(run.live)
        if attempt is not None and attempt.worker is not None:
            draft.note_attempt(attempt, stopping=Stop.CANCEL)
            draft.disarm(run.ref, TimerKind.DEADLINE)
            draft.tell(Halt(run.live, attempt.worker, run.plan.grace, Stop.CANCEL))
            draft.arm(run.ref, TimerKind.GRACE, run.plan.grace + draft.settings.kill_margin)


def quell(draft: Draft, run: Run) -> None:
    """What runs is asked to stop; what waits to be tried again no longer does."""
    for task in draft.tasks_of(run):
        halt_task(draft, task)
        draft.disarm(task.ref, TimerKind.RETRY)
        draft.disarm(task.ref, TimerKind.PROBE)


def halt_task(draft: Draft, task: Task) -> None:
    """Ask what a task runs to stop. A task whose machine has no word for that finishes."""
    attempt = draft.attempt(task.live) if task.live is not None else None
    if attempt is None or attempt.stopping in (Stop.CANCEL, Stop.KILLED):
        return
    if attempt.token.purpose is Purpose.HOOK or not draft.answers(task, TaskCue.STOPPING):
        return
    if MACHINES[task.machine].steps(TaskCue.STOPPING, task.state):
        task = draft.move_task(task, TaskCue.STOPPING)
    attempt = draft.note_attempt(attempt, stopping=Stop.CANCEL)
    plan = draft.run(task.run).plan
    if attempt.sub_run is not None:
        child = draft.run(attempt.sub_run)
        if child.ending is not Ending.CANCEL:
            stop_child(draft, child, "its parent is being ended")
        return
    assert attempt.worker is not None
    draft.disarm(task.ref, TimerKind.DEADLINE)
    draft.tell(Halt(attempt.token, attempt.worker, plan.grace, Stop.CANCEL))
    draft.arm(task.ref, TimerKind.GRACE, plan.grace + draft.settings.kill_margin)


def stop_child(draft: Draft, child: Run, reason: str) -> None:
    """A sub-run is stopped with its parent; where its machine cannot stop any more, it is forced."""
    if draft.answers(child, RunCue.STOPPING) or draft.answers(child, RunCue.STOPPED):
        stop_run(draft, child, Ending.CANCEL, reason)
    elif draft.answers(child, RunCue.FORCED):
        force_run(draft, child, reason)


def force_run(draft: Draft, run: Run, reason: str | None) -> None:
    """Over at once: what still runs is fenced off and killed."""
    for task in draft.tasks_of(run):
        if task.live is None:
            continue
        attempt = draft.attempt(task.live)
        if attempt is not None and attempt.sub_run is not None:
            draft.note_attempt(attempt, stopping=Stop.KILLED)
            child = draft.run(attempt.sub_run)
            if not child.terminal:
                force_run(draft, child, reason)
            continue
        if attempt is not None and attempt.worker is not None:
            draft.tell(Halt(attempt.token, attempt.worker, 0, Stop.KILLED))
        outcomes.forced(draft, task, reason)
    run = draft.run(run.number)
    if run.live is not None:
        attempt = draft.attempt(run.live)
        if attempt is not None and attempt.worker is not None:
            draft.note_attempt(attempt, fenced=True, doubt=False)
            draft.tell(Halt(run.live, attempt.worker, 0, Stop.KILLED))
        run = draft.note(run, "fenced", live=None, checking=False)
    run = draft.note(run, "ending", reason, ending=Ending.CANCEL)
    end_run(draft, run, RunCue.FORCED, reason)
