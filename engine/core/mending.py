"""What a person may do to what is stuck: the arrows of the documented recoveries, with their guards."""

from engine.core import cancel, outcomes
from engine.core.book import LIVE, Standing, satisfies
from engine.core.draft import Draft
from engine.core.errors import Refused
from engine.core.holds import admit
from engine.core.records import Ending, Pardon, Run, Task, TimerKind
from engine.core.signals import AbandonRun, AnswerLost, AttestTask, CorrectRun, ResetTask, WaiveTask
from engine.machines import MACHINES, InvalidTransitionError, Phase, RunCue, TaskCue


def answer_lost(draft: Draft, signal: AnswerLost) -> None:
    task, _ = _open_task(draft, signal.run, signal.task, "answer")
    if not task.asking:
        raise Refused(f"answer {task.ref}", "nothing is asked about it", "see `interlock explain`")
    outcomes.answered(draft, task, signal.retry)


def reset_task(draft: Draft, signal: ResetTask) -> None:
    """Recovery 2, and the manual reset of an open circuit: its retries start anew."""
    task, run = _open_task(draft, signal.run, signal.task, "reset")
    if not draft.answers(task, TaskCue.RESET):
        raise _refused(task, "reset")
    if satisfies(task):
        raise Refused(f"reset {task.label}", "it is optional, and what needs it has gone on without it")
    run = _reopened(draft, run)
    draft.disarm(task.ref, TimerKind.PROBE)
    draft.move_task(
        task,
        TaskCue.RESET,
        values={"retries_zeroed": True, "run_open_retries_zeroed": not run.terminal},
        retries=0,
        failures=0,
        losses=0,
        probes=0,
        repeats=0,
        fingerprint=None,
        category=None,
        final=False,
        circuit=None,
        pardon=None,
    )
    _go_on(draft, run)


def waive_task(draft: Draft, signal: WaiveTask) -> None:
    """It keeps its state; what depends on it, and the run's success, accept that."""
    task, run = _open_task(draft, signal.run, signal.task, "waive")
    settled = task.phase is Phase.FAILED or task.phase is Phase.CANCELLED or task.phase is Phase.PARKED
    if not settled or task.live is not None or task.pardon is not None:
        raise Refused(
            f"waive {task.ref}", f"only a failed task can be waived, it is in {task.state}", "cancel the run"
        )
    run = _reopened(draft, run)
    draft.disarm(task.ref, TimerKind.PROBE)
    draft.note(task, "waived", signal.reason, pardon=Pardon.WAIVED)
    _go_on(draft, run)


def attest_task(draft: Draft, signal: AttestTask) -> None:
    """Recovery 4: it did succeed, and the operator vouches for it."""
    task, run = _open_task(draft, signal.run, signal.task, "attest")
    if not draft.answers(task, TaskCue.ATTESTED):
        raise _refused(task, "attest")
    run = _reopened(draft, run)
    draft.move_task(
        task,
        TaskCue.ATTESTED,
        values={"evidence_given": bool(signal.evidence.strip())},
        error=None,
        final=False,
    )
    draft.note(draft.task(task.key), "evidence", data={"evidence": signal.evidence})
    _go_on(draft, run)


def correct_run(draft: Draft, signal: CorrectRun) -> None:
    """Recovery 4, the other way: it was called a success while a task is not."""
    run = _run(draft, signal.run, "correct")
    if not draft.answers(run, RunCue.CORRECTED):
        machine = MACHINES[run.machine]
        raise InvalidTransitionError(
            machine.name, run.state, "correct", machine.valid_events(run.state), str(run.number)
        )
    unfinished = any(draft.standing(task.key) is not Standing.DONE for task in draft.tasks_of(run))
    draft.move_run(run, RunCue.CORRECTED, values={"steps_unfinished": unfinished}, ended=None)


def abandon_run(draft: Draft, signal: AbandonRun) -> None:
    """Give up a workstream that rests failed."""
    run = _run(draft, signal.run, "abandon")
    if not draft.answers(run, RunCue.ABANDONED):
        machine = MACHINES[run.machine]
        raise InvalidTransitionError(
            machine.name, run.state, "abandon", machine.valid_events(run.state), str(run.number)
        )
    if run.ending is Ending.CANCEL:
        raise Refused(f"abandon {run.number}", "it is being ended already", "cancel --force ends it at once")
    cancel.stop_run(draft, run, Ending.CANCEL, signal.reason or "abandoned")


def _go_on(draft: Draft, run: Run) -> None:
    """A mended run need not wait any longer."""
    draft.due_in.add(run.number)
    draft.touched_runs[run.number] = None


def _reopened(draft: Draft, run: Run) -> Run:
    """A run that rests failed after its timeout or its final checks may go on when it is mended."""
    if run.phase is not Phase.FAILED or run.ending is None:
        return run
    run = draft.note(run, "reopened", ending=None, ending_reason=None)
    if run.plan.timeout is not None:
        draft.arm(run.ref, TimerKind.TIMEOUT, run.plan.timeout)
    for task in draft.tasks_of(run):
        if task.phase is Phase.BACKOFF and draft.timer(task.ref, TimerKind.RETRY) is None:
            draft.arm(task.ref, TimerKind.RETRY, 0)
        elif task.phase is Phase.PROBING and task.live is None:
            draft.move_task(task, TaskCue.PROBE_REFUSED, reason="its run was ended meanwhile")
    admit(draft, run)
    return run


def _run(draft: Draft, number: int, verb: str) -> Run:
    run = draft.find_run(number)
    if run is None:
        raise Refused(f"{verb} {number}", "there is no such run", "see `interlock runs`")
    return run


def _open_task(draft: Draft, number: int, part: int, verb: str) -> tuple[Task, Run]:
    run = _run(draft, number, verb)
    task = draft.find_task((number, part))
    if task is None:
        raise Refused(f"{verb} {number}/{part}", "there is no such task", f"see `interlock show {number}`")
    if run.terminal:
        raise Refused(
            f"{verb} {task.label}",
            f"its run is over ({run.state})",
            f"`interlock resume {number}`",
        )
    rests = run.phase is Phase.FAILED and run.ending is not Ending.CANCEL
    if run.ending is not None and (not rests or draft.tally(number)[LIVE]):
        left = f"{draft.tally(number)[LIVE]} of its tasks still end"
        raise Refused(f"{verb} {task.label}", f"its run is ending ({run.ending}), {left}", "wait for that")
    if run.checking or task.pardon is not None:
        why = "its run is past it, the final checks run" if run.checking else f"it is {task.pardon} already"
        raise Refused(f"{verb} {task.label}", why)
    return task, run


def _refused(task: Task, verb: str) -> InvalidTransitionError:
    machine = MACHINES[task.machine]
    return InvalidTransitionError(
        machine.name, task.state, verb, machine.valid_events(task.state), str(task.ref)
    )
