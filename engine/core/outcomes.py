"""How a task's attempt comes out: it worked, it failed, it was stopped, or nobody knows."""

from engine.core import breakers
from engine.core.attempts import able, open_check, open_hook
from engine.core.book import probe_left
from engine.core.decision import Closing
from engine.core.draft import Draft
from engine.core.plan import Category, OnLost, WhenOpen
from engine.core.records import Attempt, Circuit, Purpose, Task, TimerKind
from engine.core.retry import backoff, loss_left, repeats_of, retry_left
from engine.machines import MACHINES, Phase, TaskCue

FAILED = (TaskCue.FAILED_RETRY, TaskCue.FAILED)
TIMED_OUT = (TaskCue.TIMED_OUT_RETRY, TaskCue.TIMED_OUT)
CHECKS_FAILED = (TaskCue.CHECKS_FAILED_RETRY, TaskCue.CHECKS_FAILED)


def worked(draft: Draft, task: Task, closing: Closing, worker: str | None) -> None:
    """The work exited as expected: its checks come next, or it has succeeded."""
    unwatch(draft, task)
    code = closing.exit_code
    if task.plan.checks:
        task = draft.move_task(
            task, TaskCue.EXITED_OK, closes=closing, checking=True, check_losses=0, exit_code=code
        )
        host = draft.worker(worker) if worker is not None else None
        if able(host):
            open_check(draft, task, host)
        return
    if draft.run(task.run).plan.task_machine.steps(TaskCue.EXITED_OK, task.state):
        task = draft.move_task(task, TaskCue.EXITED_OK, closes=closing, exit_code=code)
        succeeded(draft, task, None)
    else:
        succeeded(draft, task, closing, exit_code=code)


def succeeded(draft: Draft, task: Task, closing: Closing | None, **sets: object) -> None:
    unwatch(draft, task)
    draft.move_task(
        task,
        TaskCue.CHECKS_PASSED,
        sets,
        closes=closing,
        checking=False,
        probing=False,
        fingerprint=None,
        repeats=0,
    )


def failed(
    draft: Draft,
    task: Task,
    closing: Closing | None,
    error: str,
    *,
    cues: tuple[TaskCue, TaskCue] = FAILED,
    category: Category = Category.UNKNOWN,
    fingerprint: str | None = None,
) -> None:
    """An attempt failed: it is tried again later, or that was its last."""
    repeats = repeats_of(task, fingerprint)
    left = retry_left(draft.settings, task, category, repeats)
    if cues is CHECKS_FAILED and _checks_are_final(draft, task):
        left = False
    _fail(
        draft,
        task,
        closing,
        cues,
        left,
        error=error,
        category=category,
        fingerprint=fingerprint,
        repeats=repeats,
        retries=task.retries + 1 if left else task.retries,
        exit_code=closing.exit_code if closing else None,
    )


def _checks_are_final(draft: Draft, task: Task) -> bool:
    """Whether the machine knows no retry after a failed check."""
    machine = draft.run(task.run).plan.task_machine
    again, final = (machine.steps(cue, task.state) for cue in CHECKS_FAILED)
    return again == final


def lost(draft: Draft, task: Task, closing: Closing, evidence: str, ran: bool) -> None:
    """Nobody knows how the work ended; the task's own policy says what to do.

    What never ran is no loss: it is simply tried again.
    """
    memory = (*task.lost, closing.token)
    policy = task.plan.on_lost if ran else OnLost.RETRY
    if policy is OnLost.ASK:
        unwatch(draft, task)
        if draft.answers(task, TaskCue.REGAINED):
            task = draft.move_task(task, TaskCue.REGAINED)
        draft.note(task, "lost", evidence, closes=closing, asking=True, lost=memory, probing=False)
        return
    left = not ran or (policy is OnLost.RETRY and loss_left(draft.settings, task))
    _fail(
        draft,
        task,
        closing,
        FAILED,
        left,
        error=f"lost: {evidence}",
        category=Category.TRANSIENT,
        fingerprint=None,
        repeats=0,
        losses=task.losses + (1 if ran else 0),
        lost=memory,
    )


def answered(draft: Draft, task: Task, retry: bool) -> None:
    """A person has decided about a lost attempt."""
    error = "lost: a person tries it again" if retry else "lost: a person let it fail"
    _fail(draft, task, None, FAILED, retry, error=error, category=Category.TRANSIENT)


def _fail(
    draft: Draft,
    task: Task,
    closing: Closing | None,
    cues: tuple[TaskCue, TaskCue],
    left: bool,
    **sets: object,
) -> None:
    unwatch(draft, task)
    if not left and TaskCue.PROBE in draft.run(task.run).plan.task_machine.cues:
        sets["circuit"] = Circuit.OWN
        sets["final"] = task.plan.when_circuit_open is WhenOpen.FAIL
    task = draft.move_task(
        task,
        cues[0] if left else cues[1],
        sets,
        reason=str(sets["error"]),
        values={"retry_left": left},
        closes=closing,
        checking=False,
        probing=False,
        asking=False,
        failures=task.failures + 1,
    )
    draft.failed_in.add(task.run)
    if left and draft.run(task.run).ending is not None:
        return
    if left:
        retry = draft.settings.retry_of(task.plan)
        draft.arm(task.ref, TimerKind.RETRY, backoff(retry, task.failures, draft.rand))
        if breakers.is_open(draft, task.plan.tool) and draft.answers(task, TaskCue.PARK):
            breakers.park(draft, task.key)
    elif task.phase is Phase.PARKED:
        await_probe(draft, task)


def await_probe(draft: Draft, task: Task) -> None:
    """In its own open circuit a task waits for its cooldown, as long as a probe is left."""
    if task.circuit is Circuit.OWN and not task.final and probe_left(task):
        draft.arm(task.ref, TimerKind.PROBE, draft.settings.tool(task.plan.tool).cooldown)


def halted(draft: Draft, task: Task, attempt: Attempt, closing: Closing) -> None:
    """The work ended because it was cancelled: its hook runs, or it is over."""
    host = draft.worker(attempt.worker) if attempt.worker is not None else None
    ran = closing.outcome == "exited"
    if attempt.token.purpose is Purpose.WORK and task.plan.has_cancel_hook:
        if ran and able(host):
            open_hook(draft, task, host, closing)
            return
        task = draft.note(task, "hook_skipped", "the worker that ran it is not there any more")
    stopped(draft, task, closing)


def stopped(draft: Draft, task: Task, closing: Closing | None) -> None:
    """What it ran has ended by a cancel. Where only the end of its run has an arrow, it waits for that."""
    unwatch(draft, task)
    over = _has_arrow(task, TaskCue.STOPPED)
    sets = {"checking": False, "probing": False, "asking": False} if over else {}
    draft.move_task(task, TaskCue.STOPPED, sets, closes=closing)


def forced(draft: Draft, task: Task, reason: str | None = None) -> None:
    """It is over for the task at once, whatever its process still does."""
    unwatch(draft, task)
    if task.live is not None:
        attempt = draft.attempt(task.live)
        if attempt is not None:
            draft.note_attempt(attempt, fenced=True, doubt=False)
            breakers.free_probe(draft, attempt.tool, attempt.token)
    sets: dict[str, object] = {"live": None, "fenced": task.live}
    if _has_arrow(task, TaskCue.FORCED):
        sets |= {"checking": False, "probing": False, "asking": False}
    draft.move_task(task, TaskCue.FORCED, sets, reason=reason, values={"retry_left": False})


def _has_arrow(task: Task, cue: TaskCue) -> bool:
    return bool(MACHINES[task.machine].steps(cue, task.state))


def hook_failed(draft: Draft, task: Task, closing: Closing | None, error: str) -> None:
    """A failed cancel hook fails the task; the run still completes its cancel."""
    unwatch(draft, task)
    sets: dict[str, object] = {"error": error}
    if TaskCue.PROBE in draft.run(task.run).plan.task_machine.cues:
        sets |= {"circuit": Circuit.OWN, "final": True}
    draft.move_task(
        task,
        TaskCue.HOOK_FAILED,
        sets,
        reason=error,
        values={"retry_left": False},
        closes=closing,
        checking=False,
        probing=False,
    )


def unwatch(draft: Draft, task: Task) -> None:
    """The timers that belong to one execution end with it."""
    draft.disarm(task.ref, TimerKind.DEADLINE)
    draft.disarm(task.ref, TimerKind.GRACE)
