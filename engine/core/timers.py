"""What a timer means when it is due. One that is no longer armed, or not yet due, means nothing."""

from engine.core import breakers, cancel, holds, outcomes, workers
from engine.core.conclude import end_run
from engine.core.decision import Halt
from engine.core.draft import Draft
from engine.core.records import Attempt, Ending, Entity, Purpose, Run, Stop, Task, TimerKind
from engine.core.signals import TimerDue
from engine.machines import Phase, RunCue, TaskCue


def due(draft: Draft, signal: TimerDue) -> None:
    when = draft.timer(signal.ref, signal.kind)
    if when is None or when > draft.now:
        return
    draft.disarm(signal.ref, signal.kind)
    key = signal.ref.key
    match signal.ref.kind:
        case Entity.TASK:
            assert isinstance(key, tuple)
            _task_due(draft, draft.task(key), signal.kind)
        case Entity.RUN:
            assert isinstance(key, int)
            _run_due(draft, draft.run(key), signal.kind)
        case Entity.BREAKER:
            breakers.cooled(draft, str(key))
        case Entity.WORKER:
            worker = draft.worker(str(key))
            assert worker is not None
            reason = "it never registered" if worker.health_phase is Phase.IDLE else "it was not heard again"
            workers.give_up(draft, worker, reason)


def _task_due(draft: Draft, task: Task, kind: TimerKind) -> None:
    match kind:
        case TimerKind.RETRY:
            draft.due_in.add(task.run)
            draft.touched_runs[task.run] = None
            if draft.answers(task, TaskCue.RETRY_DUE):
                draft.move_task(task, TaskCue.RETRY_DUE)
        case TimerKind.PROBE:
            draft.due_in.add(task.run)
            draft.touched_runs[task.run] = None
        case TimerKind.EXPIRY:
            holds.expired(draft, task)
        case TimerKind.WAIT:
            holds.waited(draft, task)
        case TimerKind.DEADLINE:
            _deadline(draft, task)
        case TimerKind.GRACE:
            _grace_over(draft, task)
        case _:
            pass


def _run_due(draft: Draft, run: Run, kind: TimerKind) -> None:
    match kind:
        case TimerKind.EXPIRY:
            holds.expired(draft, run)
        case TimerKind.WAIT:
            holds.waited(draft, run)
        case TimerKind.TIMEOUT:
            if run.ending is None and draft.answers(run, RunCue.TIMED_OUT):
                cancel.stop_run(draft, run, Ending.TIMEOUT, "the run timed out")
        case TimerKind.ABANDON:
            if run.ending is not Ending.CANCEL:
                cancel.stop_run(draft, run, Ending.CANCEL, "it rested failed for its time")
        case TimerKind.DEADLINE | TimerKind.GRACE:
            _final_checks_due(draft, run, kind)
        case _:
            pass


def _deadline(draft: Draft, task: Task) -> None:
    """The execution takes too long: it is stopped, and judged when it has ended."""
    attempt = draft.attempt(task.live) if task.live is not None else None
    if attempt is None or attempt.stopping is not None:
        return
    draft.note_attempt(attempt, stopping=Stop.TIMEOUT)
    if attempt.sub_run is not None:
        cancel.stop_child(draft, draft.run(attempt.sub_run), "its parent task timed out")
        return
    grace = 0 if attempt.token.purpose is Purpose.HOOK else draft.run(task.run).plan.grace
    _halt(draft, attempt, grace, Stop.TIMEOUT)
    draft.arm(task.ref, TimerKind.GRACE, grace + draft.settings.kill_margin)


def _grace_over(draft: Draft, task: Task) -> None:
    """It has not ended yet: kill it, and in the end go on without it where that is safe."""
    attempt = draft.attempt(task.live) if task.live is not None else None
    if attempt is None or attempt.worker is None:
        return
    if attempt.token.purpose is Purpose.HOOK:
        draft.note_attempt(attempt, fenced=True, doubt=False)
        data = {"token": str(attempt.token)}
        task = draft.note(task, "not_proven_gone", data=data, live=None, fenced=attempt.token)
        outcomes.hook_failed(draft, task, None, "its cancel hook did not end")
        return
    ending = draft.run(task.run).ending is not None
    if attempt.stopping is Stop.CANCEL or (attempt.stopping is Stop.TIMEOUT and ending):
        attempt = draft.note_attempt(attempt, stopping=Stop.KILLED)
    elif attempt.stopping is Stop.KILLED and draft.answers(task, TaskCue.FORCED):
        draft.note(task, "not_proven_gone", data={"token": str(attempt.token)})
        outcomes.forced(draft, draft.task(task.key), "it is not proven gone")
        return
    _halt(draft, attempt, 0, attempt.stopping or Stop.KILLED)
    draft.arm(task.ref, TimerKind.GRACE, draft.settings.kill_margin)


def _final_checks_due(draft: Draft, run: Run, kind: TimerKind) -> None:
    """Final checks take too long: asked to end, then killed, then given up."""
    attempt = draft.attempt(run.live) if run.live is not None else None
    if attempt is None:
        return
    if kind is TimerKind.GRACE and attempt.stopping is Stop.KILLED:
        draft.note_attempt(attempt, fenced=True, doubt=False)
        data = {"token": str(attempt.token)}
        run = draft.note(run, "not_proven_gone", data=data, live=None, checking=False)
        if run.ending is None:
            end_run(draft, run, RunCue.CHECKS_FAILED, "its final checks did not end")
        return
    stage = Stop.TIMEOUT if kind is TimerKind.DEADLINE else Stop.KILLED
    grace = run.plan.grace if kind is TimerKind.DEADLINE else 0
    _halt(draft, draft.note_attempt(attempt, stopping=stage), grace, stage)
    draft.arm(run.ref, TimerKind.GRACE, grace + draft.settings.kill_margin)


def _halt(draft: Draft, attempt: Attempt, grace: int, why: Stop) -> None:
    if attempt.worker is not None:
        draft.tell(Halt(attempt.token, attempt.worker, grace, why))
