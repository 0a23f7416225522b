"""A run from its creation to its end.

`settle` is the one place where the state of a run follows from how its tasks stand. It reads standings
and phases, never the names of states, so every run machine goes with every task machine.
"""

from collections.abc import Mapping

from engine.core import holds
from engine.core.attempts import begin_run
from engine.core.book import ARMED, LIVE, Standing
from engine.core.cancel import halt_task, quell
from engine.core.conclude import end_run
from engine.core.conditions import holds_true
from engine.core.decision import Closing
from engine.core.draft import Draft
from engine.core.errors import Refused
from engine.core.plan import OnFailure, Plan
from engine.core.ready import bad
from engine.core.records import (
    Attempt,
    Circuit,
    Ending,
    Origin,
    Pardon,
    Purpose,
    Run,
    Task,
    TaskKey,
    TimerKind,
    Token,
)
from engine.core.refusals import refusals
from engine.core.signals import Submit
from engine.machines import Phase, RunCue, TaskCue

_ENDINGS = {Ending.CANCEL: RunCue.STOPPED, Ending.TIMEOUT: RunCue.TIMED_OUT, Ending.FAILURE: RunCue.FAILED}


# ---- beginning


def submit(draft: Draft, signal: Submit) -> None:
    wishes = refusals(signal.plan)
    if wishes:
        raise Refused("submit", "; ".join(wishes))
    create_run(draft, signal.plan, signal.actor, signal.params)


def create_run(
    draft: Draft,
    plan: Plan,
    requester: str | None,
    params: Mapping[str, str],
    *,
    parent: TaskKey | None = None,
    depth: int = 0,
    origin: Origin | None = None,
    pardons: Mapping[int, Pardon] | None = None,
) -> Run:
    """A new run with all its tasks, taken as far as its approval, its timer or the queue."""
    machine, now = plan.run_machine, draft.now
    run = Run(
        number=draft.next_run,
        plan=plan,
        requester=requester or None,
        params=params,
        state=machine.initial,
        phase=machine.phase[machine.initial],
        version=1,
        created=now,
        entered=now,
        parent=parent,
        depth=depth,
        origin=origin,
    )
    draft.create(run, machine.name, machine.initial)
    tasks = plan.task_machine
    first, phase = tasks.initial, tasks.phase[tasks.initial]
    for number, part in enumerate(plan.tasks, 1):
        task = Task(run.number, number, part, tasks.name, first, phase, version=1, created=now, entered=now)
        draft.create(task, tasks.name, first)
    for number, pardon in (pardons or {}).items():
        pass_over(draft, draft.task((run.number, number)), pardon)
    if draft.answers(run, RunCue.PLANNED):
        run = draft.move_run(run, RunCue.PLANNED)
    if holds.place(draft, run):
        return draft.run(run.number)
    if draft.answers(run, RunCue.ADMIT):
        run = draft.move_run(run, RunCue.ADMIT)
    holds.admit(draft, run)
    return run


def make_ready(draft: Draft, key: TaskKey) -> None:
    """The needs of a task are met: it is skipped by its condition, held, or lined up."""
    task, run = draft.task(key), draft.run(key[0])
    if run.terminal or run.ending is not None or run.phase in (Phase.HELD, Phase.WAITING):
        return
    if task.phase is not Phase.IDLE or task.pardon is not None or task.blocked is not None:
        return
    if not holds_true(draft, run, task):
        pass_over(draft, task, Pardon.CONDITION)
    elif not holds.place(draft, task) and draft.answers(task, TaskCue.READY):
        draft.move_task(task, TaskCue.READY)


def pass_over(draft: Draft, task: Task, pardon: Pardon, reason: str | None = None) -> None:
    """Count a task that never started as done: skipped where the machine can, else on record."""
    if pardon is Pardon.CARRIED:
        task = draft.note(task, pardon.value, reason, pardon=pardon)
    if draft.answers(task, TaskCue.SKIP):
        draft.move_task(task, TaskCue.SKIP, reason=reason or pardon.value, pardon=pardon)
    elif pardon is not Pardon.CARRIED:
        draft.note(task, pardon.value, reason, pardon=pardon)


def start_sub_run(draft: Draft, task: Task) -> None:
    """A task that uses another workflow: its attempt is a run of its own."""
    plan = task.plan.uses
    assert plan is not None
    parent = begin_run(draft, draft.run(task.run))
    number = draft.next_run
    own_circuit = task.phase is Phase.PARKED and task.circuit is Circuit.OWN
    token = Token(task.run, task.number, task.attempt + 1)
    task = draft.move_task(
        task,
        TaskCue.START,
        opens=Attempt(token, None, draft.now, sub_run=number),
        attempt=token.attempt,
        started=task.started if task.started is not None else draft.now,
        circuit=None,
        probing=own_circuit,
        probes=task.probes + (1 if own_circuit else 0),
    )
    if task.plan.timeout is not None:
        draft.arm(task.ref, TimerKind.DEADLINE, task.plan.timeout)
    create_run(draft, plan, parent.requester, parent.params, parent=task.key, depth=parent.depth + 1)


# ---- settling


def settle(draft: Draft, number: int) -> None:
    """Let a run follow from how its tasks stand."""
    run = draft.run(number)
    if run.terminal:
        return
    if run.ending is not None:
        if not _alive(draft, run):
            _finish_ending(draft, run)
        return
    if run.checking or run.phase in (Phase.HELD, Phase.WAITING):
        return
    if run.plan.mirrors_tasks:
        if _mirror(draft, run):
            return
        run = draft.run(number)
    failed = bad(draft, number)
    policy = run.plan.failure_policy
    if failed and policy is OnFailure.CANCEL and draft.tally(number)[LIVE]:
        why = _culprit(draft, run)
        quell(draft, draft.note(run, "ending", why, ending=Ending.FAILURE, ending_reason=why))
        return
    if _can_move(draft, number, drain=bool(failed) and policy is not OnFailure.CONTINUE):
        return
    if failed:
        end_run(draft, run, RunCue.FAILED, _culprit(draft, run))
    else:
        _all_done(draft, run)


def _alive(draft: Draft, run: Run) -> bool:
    """Whether something of an ending run still has to end by itself."""
    tally = draft.tally(run.number)
    finishing = tally[Standing.ACTIVE] if run.plan.finishes_checks else 0
    return run.live is not None or tally[LIVE] + finishing > 0


def _culprit(draft: Draft, run: Run) -> str:
    """Which task failed the run, in a sentence."""
    for task in draft.tasks_of(run):
        if draft.standing(task.key) is Standing.FAILED:
            return f"{task.plan.name} failed" + (f": {task.error}" if task.error else "")
    return "a critical task is blocked behind a failed one"


def _can_move(draft: Draft, number: int, drain: bool) -> bool:
    tally = draft.tally(number)
    moving = tally[Standing.ACTIVE] + tally[Standing.ASKING] + tally[LIVE]
    if not drain:
        moving += tally[Standing.WAITING] + tally[Standing.HELD] + tally[Standing.RETRYING]
        moving += tally[Standing.PARKED] + tally[Standing.STRANDED]
    return moving > 0


def _mirror(draft: Draft, run: Run) -> bool:
    """A workstream that follows each failure at once. True when nothing more is to be settled."""
    number = run.number
    failed_now, due_now = number in draft.failed_in, number in draft.due_in
    draft.failed_in.discard(number)
    draft.due_in.discard(number)
    exhausted = bad(draft, number) + draft.tally(number)[Standing.STRANDED]
    if exhausted and run.plan.failure_policy is OnFailure.CANCEL and run.phase is not Phase.FAILED:
        for task in draft.live_tasks(number):
            if task.live is not None and task.live.purpose is Purpose.WORK:
                halt_task(draft, task)
    if run.started is None:
        if not exhausted:
            return False
        run = begin_run(draft, run, "a task failed before any started")
    if (run.phase is Phase.ACTIVE and (failed_now or exhausted)) or (
        run.phase is Phase.BACKOFF and exhausted
    ):
        run = draft.move_run(run, RunCue.TASK_FAILED)
    if run.phase is Phase.FAILED and not exhausted:
        draft.disarm(run.ref, TimerKind.ABANDON)
        _tolerate_failures(draft, run)
        run = draft.move_run(run, RunCue.RETRY_ELIGIBLE, values={"retry_left": True})
    tally = draft.tally(number)
    if run.phase is Phase.BACKOFF and (due_now or not 0 < tally[Standing.RETRYING] <= tally[ARMED]):
        run = draft.move_run(run, RunCue.RETRY_DUE)
    if run.phase is Phase.FAILED:
        _rest(draft, run)
    return run.phase is not Phase.ACTIVE


def _rest(draft: Draft, run: Run) -> None:
    """A failed workstream rests until a person mends or abandons it, or its time is over."""
    tally = draft.tally(run.number)
    if run.parent is not None and tally[LIVE] + tally[Standing.ACTIVE] == 0:
        end_run(draft, run, RunCue.ABANDONED, "its parent task fails with it")
    elif draft.timer(run.ref, TimerKind.ABANDON) is None:
        draft.arm(run.ref, TimerKind.ABANDON, run.plan.abandon_after)


def _finish_ending(draft: Draft, run: Run) -> None:
    """The last attempt has ended: the run may take its own arrow."""
    assert run.ending is not None
    if run.phase is Phase.FAILED and run.ending is not Ending.CANCEL:
        _rest(draft, run)
        return
    end_run(draft, run, _ENDINGS[run.ending], run.ending_reason)
    run = draft.run(run.number)
    if run.phase is Phase.FAILED and not run.terminal:
        _rest(draft, run)


def _all_done(draft: Draft, run: Run) -> None:
    """Nothing can move and nothing critical failed: what was tolerated is put on record."""
    _tolerate_failures(draft, run)
    tally = draft.tally(run.number)
    if tally[Standing.DOOMED_SOFT] + tally[Standing.DOOMED]:
        for task in draft.tasks_of(run):
            if draft.standing(task.key) in (Standing.DOOMED_SOFT, Standing.DOOMED):
                pass_over(draft, task, Pardon.TOLERATED, "a task that it needs failed, and is not critical")
    run = begin_run(draft, run, "every task was waived, skipped or carried over")
    run = draft.move_run(run, RunCue.DONE)
    if run.plan.checks:
        draft.note(run, "checks_due", checking=True)
    else:
        end_run(draft, run, RunCue.CHECKS_PASSED)


def _tolerate_failures(draft: Draft, run: Run) -> None:
    """Waive on record what failed for good without the run minding it: mostly what failed just now."""
    if draft.tally(run.number)[Standing.SHRUGGED]:
        _waive(draft, [task for task in draft.touched({}) if task.run == run.number])
    if draft.tally(run.number)[Standing.SHRUGGED]:
        _waive(draft, draft.tasks_of(run))


def _waive(draft: Draft, tasks: list[Task]) -> None:
    for task in tasks:
        if draft.standing(task.key) is Standing.SHRUGGED:
            draft.note(task, "waived", "it is not critical", pardon=Pardon.TOLERATED)


def final_checks_ended(draft: Draft, run: Run, closing: Closing, passed: bool) -> None:
    draft.disarm(run.ref, TimerKind.DEADLINE)
    draft.disarm(run.ref, TimerKind.GRACE)
    run = draft.note(run, "checks_passed" if passed else "checks_failed", closes=closing, checking=False)
    if run.ending is None:
        cue = RunCue.CHECKS_PASSED if passed else RunCue.CHECKS_FAILED
        end_run(draft, run, cue, None if passed else "a final check failed")
