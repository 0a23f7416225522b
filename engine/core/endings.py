"""What becomes of an execution: it ended, is lost, was found, or never started.

A word about an attempt that is no longer the task's own changes nothing; it is kept as evidence.
"""

from engine.core import breakers, outcomes
from engine.core.attempts import able, occupy, open_work
from engine.core.book import DOUBT
from engine.core.decision import Closing, Forget, Halt, Start
from engine.core.draft import Draft
from engine.core.plan import Category
from engine.core.ready import draining
from engine.core.records import Attempt, Circuit, Purpose, Run, Stop, Task, TimerKind, Token, Worker
from engine.core.retry import categorise, rules_of
from engine.core.runs import final_checks_ended
from engine.core.signals import (
    AttemptAdopted,
    AttemptEnded,
    AttemptFound,
    AttemptLost,
    AttemptMissing,
    AttemptStarted,
)
from engine.machines import Phase, RunCue, TaskCue

MAX_CHECK_LOSSES = 3
CANCELLED = (Stop.CANCEL, Stop.KILLED)


# ---- words about an attempt


def started(draft: Draft, signal: AttemptStarted) -> None:
    attempt = draft.attempt(signal.token)
    if attempt is not None and attempt.started is None:
        draft.note_attempt(attempt, started=draft.now, pid=signal.pid)


def ended(draft: Draft, signal: AttemptEnded) -> None:
    attempt = draft.attempt(signal.token)
    draft.tell(Forget(signal.token))
    if attempt is None or attempt.fenced:
        _late(draft, signal.token, attempt, f"exit {signal.exit_code}", signal.exit_code)
        return
    _resume_contact(draft, signal.token.run)
    closing = Closing(signal.token, "exited", signal.exit_code)
    passed = signal.exit_code == 0 and attempt.stopping is None
    if not _meant(draft, attempt, signal.exit_code):
        _lose(
            draft, attempt, "its worker was stopped and took it along", ran=True, exit_code=signal.exit_code
        )
        return
    if signal.token.task == 0:
        final_checks_ended(draft, draft.run(signal.token.run), closing, passed)
        return
    task = draft.task(signal.token.key)
    if draft.answers(task, TaskCue.REGAINED):
        task = draft.move_task(task, TaskCue.REGAINED)
    if _halted(draft, task, attempt):
        breakers.free_probe(draft, attempt.tool, attempt.token)
        outcomes.halted(draft, task, attempt, closing)
        return
    match signal.token.purpose:
        case Purpose.WORK:
            _work_ended(draft, task, attempt, signal, closing)
        case Purpose.CHECK:
            _check_ended(draft, task, closing, passed)
        case Purpose.HOOK:
            _hook_ended(draft, task, closing, passed)
        case Purpose.HEALTH:
            _health_ended(draft, task, attempt, closing, passed)


def lost(draft: Draft, signal: AttemptLost) -> None:
    attempt = draft.attempt(signal.token)
    draft.tell(Forget(signal.token))
    if attempt is None or attempt.fenced:
        _late(draft, signal.token, attempt, "lost", None)
        return
    _lose(draft, attempt, signal.evidence or "nobody could know how it ended", signal.ran)


def missing(draft: Draft, signal: AttemptMissing) -> None:
    """The worker never had it, so it never ran: it is sent again.

    Anything more would be a guess: this word may be old, and the start already on its way. An attempt
    that was halted, or whose worker was reaped, is answered for by that.
    """
    attempt = draft.attempt(signal.token)
    if attempt is None or attempt.worker is None or attempt.fenced:
        return
    if (
        attempt.started is not None
        or attempt.stopping is not None
        or _out_of_pool(draft.worker(attempt.worker))
    ):
        return
    if attempt.doubt:
        _regain(draft, draft.note_attempt(attempt, doubt=False))
    draft.tell(Start(signal.token, attempt.worker))


def _out_of_pool(worker: Worker | None) -> bool:
    """Whether a worker is out of the pool, so that nothing more may be sent to it."""
    return worker is None or Phase.CANCELLED in (worker.health_phase, worker.control_phase)


def found(draft: Draft, signal: AttemptFound) -> None:
    attempt = draft.attempt(signal.token)
    if attempt is None or attempt.worker is None:
        return
    if attempt.fenced:
        draft.tell(Halt(signal.token, attempt.worker, 0, Stop.KILLED))
        return
    if attempt.doubt or attempt.started is None:
        pid = signal.pid if signal.pid is not None else attempt.pid
        began = attempt.started if attempt.started is not None else draft.now
        _regain(draft, draft.note_attempt(attempt, doubt=False, started=began, pid=pid))
    if attempt.stopping is not None:
        draft.tell(Halt(signal.token, attempt.worker, 0, attempt.stopping))


def adopted(draft: Draft, signal: AttemptAdopted) -> None:
    attempt = draft.attempt(signal.token)
    worker = draft.worker(signal.worker)
    if attempt is None or attempt.worker in (None, signal.worker) or not able(worker):
        return
    attempt = draft.note_attempt(attempt, worker=signal.worker, doubt=False)
    occupy(draft, worker)
    if attempt.fenced:
        draft.tell(Halt(signal.token, signal.worker, 0, Stop.KILLED))
        return
    _regain(draft, attempt)
    if attempt.stopping is not None:
        draft.tell(Halt(signal.token, signal.worker, 0, attempt.stopping))


# ---- by purpose


def _halted(draft: Draft, task: Task, attempt: Attempt) -> bool:
    """Whether it ended because it was cancelled, in a machine that has a word for that."""
    if attempt.token.purpose is Purpose.HOOK or attempt.stopping not in CANCELLED:
        return False
    return draft.answers(task, TaskCue.STOPPED)


def _work_ended(draft: Draft, task: Task, attempt: Attempt, signal: AttemptEnded, closing: Closing) -> None:
    tool, token, code = task.plan.tool, attempt.token, signal.exit_code
    if attempt.stopping is Stop.TIMEOUT:
        breakers.count_failure(draft, tool, token, "timed out")
        outcomes.failed(
            draft, task, closing, "timed out", cues=outcomes.TIMED_OUT, category=Category.TRANSIENT
        )
    elif code in task.plan.expected_exits:
        breakers.count_success(draft, tool, token)
        outcomes.worked(draft, task, closing, attempt.worker)
    else:
        category = categorise(rules_of(draft.settings, task), code, signal.matched)
        breakers.count_failure(draft, tool, token, f"exit {code}")
        outcomes.failed(
            draft, task, closing, f"exit {code}", category=category, fingerprint=signal.fingerprint
        )


def _meant(draft: Draft, attempt: Attempt, exit_code: int) -> bool:
    """Whether an exit says something of the command, or only that its worker was stopped under it."""
    worker = draft.worker(attempt.worker) if attempt.worker is not None else None
    if worker is None or worker.control_phase not in (Phase.CANCELLED, Phase.FAILED):
        return True
    if attempt.stopping is not None:
        return True
    task = draft.find_task(attempt.token.key)
    work = task is not None and attempt.token.purpose is Purpose.WORK
    return exit_code in (task.plan.expected_exits if work and task is not None else (0,))


def _check_ended(draft: Draft, task: Task, closing: Closing, passed: bool) -> None:
    if passed:
        outcomes.succeeded(draft, task, closing)
    else:
        outcomes.failed(draft, task, closing, "a check failed", cues=outcomes.CHECKS_FAILED)


def _hook_ended(draft: Draft, task: Task, closing: Closing, passed: bool) -> None:
    if passed:
        outcomes.stopped(draft, task, closing)
    else:
        outcomes.hook_failed(draft, task, closing, "its cancel hook failed")


def _health_ended(draft: Draft, task: Task, attempt: Attempt, closing: Closing, passed: bool) -> None:
    """The tool's health command decides whether the probe goes ahead."""
    outcomes.unwatch(draft, task)
    if not passed:
        breaker = draft.breaker(attempt.tool) if attempt.tool is not None else None
        if breaker is not None and breaker.probe == attempt.token:
            breakers.count_failure(draft, attempt.tool, attempt.token, "its health command failed")
        _refuse_probe(draft, task, closing, "the tool's health command failed", unused=False)
        return
    worker = draft.worker(attempt.worker) if attempt.worker is not None else None
    if _probe_wanted(draft, task, attempt) and able(worker):
        task = draft.note(task, "tool_healthy", closes=closing)
        open_work(draft, task, worker, probing=True)
        return
    breakers.free_probe(draft, attempt.tool, attempt.token)
    why = "the tool is healthy, but its run, breaker or worker no longer allows a probe"
    _refuse_probe(draft, task, closing, why, unused=True)


def _probe_wanted(draft: Draft, task: Task, attempt: Attempt) -> bool:
    """Much may have changed while the health command ran."""
    run = draft.run(task.run)
    if run.ending is not None or draining(draft, run) or run.phase is not Phase.ACTIVE:
        return False
    breaker = draft.breaker(attempt.tool) if attempt.tool is not None else None
    return breaker is None or breaker.phase is Phase.ACTIVE or breaker.probe == attempt.token


def _refuse_probe(draft: Draft, task: Task, closing: Closing, why: str, unused: bool) -> None:
    """Back behind the circuit; a probe that could not be made is not used up."""
    probes = task.probes - (1 if unused and task.circuit is Circuit.OWN else 0)
    task = draft.move_task(
        draft.task(task.key),
        TaskCue.PROBE_REFUSED,
        reason=why,
        closes=closing,
        probing=False,
        probes=probes,
    )
    outcomes.await_probe(draft, task)
    draft.failed_in.add(task.run)


# ---- nobody knows


def _lose(draft: Draft, attempt: Attempt, evidence: str, ran: bool, exit_code: int | None = None) -> None:
    token = attempt.token
    _resume_contact(draft, token.run)
    closing = Closing(token, "lost" if ran else "never_started", exit_code)
    if token.task == 0:
        _final_checks_lost(draft, draft.run(token.run), closing, evidence)
        return
    task = draft.task(token.key)
    if attempt.stopping is Stop.TIMEOUT and token.purpose is Purpose.WORK:
        breakers.count_failure(draft, attempt.tool, token, "timed out")
        outcomes.failed(
            draft, task, closing, "timed out", cues=outcomes.TIMED_OUT, category=Category.TRANSIENT
        )
        return
    breakers.free_probe(draft, attempt.tool, token)
    if token.purpose is Purpose.HOOK:
        outcomes.hook_failed(draft, task, closing, f"its cancel hook was lost: {evidence}")
    elif _halted(draft, task, attempt):
        outcomes.halted(draft, task, attempt, closing)
    elif token.purpose is Purpose.WORK:
        outcomes.lost(draft, task, closing, evidence, ran)
    elif token.purpose is Purpose.HEALTH:
        outcomes.unwatch(draft, task)
        _refuse_probe(draft, task, closing, f"its health command was lost: {evidence}", unused=True)
    elif task.check_losses < MAX_CHECK_LOSSES and attempt.stopping is None:
        outcomes.unwatch(draft, task)
        if draft.answers(task, TaskCue.REGAINED):
            task = draft.move_task(task, TaskCue.REGAINED)
        draft.note(task, "check_lost", evidence, closes=closing, check_losses=task.check_losses + 1)
    else:
        outcomes.failed(draft, task, closing, "its checks came to no verdict", cues=outcomes.CHECKS_FAILED)


def _final_checks_lost(draft: Draft, run: Run, closing: Closing, evidence: str) -> None:
    draft.disarm(run.ref, TimerKind.DEADLINE)
    draft.disarm(run.ref, TimerKind.GRACE)
    if run.losses < MAX_CHECK_LOSSES and run.ending is None:
        draft.note(run, "check_lost", evidence, closes=closing, losses=run.losses + 1)
    else:
        final_checks_ended(draft, run, closing, passed=False)


def _late(draft: Draft, token: Token, attempt: Attempt | None, what: str, code: int | None) -> None:
    """A word about an attempt that was given up: refused by its token, kept as evidence."""
    data = {"token": str(token), "result": what, "exit_code": code}
    closing = Closing(token, "late", code) if attempt is not None else None
    if token.task == 0:
        run = draft.find_run(token.run)
        if run is not None and closing is not None:
            draft.note(run, "late_result", closes=closing, data=data)
        return
    task = draft.find_task(token.key)
    if task is None:
        return
    if closing is not None:
        draft.note(task, "late_result", closes=closing, data=data, fenced=None)
    elif token in task.lost:
        draft.note(task, "late_result", data=data, lost=tuple(old for old in task.lost if old != token))


# ---- contact


def _resume_contact(draft: Draft, number: int) -> None:
    """A result that reaches a run that is asking for its attempts takes it up again first."""
    run = draft.run(number)
    if run.phase is Phase.RECOVERING:
        draft.move_run(run, RunCue.REGAINED)


def _regain(draft: Draft, attempt: Attempt) -> None:
    """It is alive: so is its task, and its run once no other attempt is in doubt."""
    if attempt.token.task:
        task = draft.task(attempt.token.key)
        if task.live == attempt.token and draft.answers(task, TaskCue.REGAINED):
            draft.move_task(task, TaskCue.REGAINED)
    run = draft.run(attempt.token.run)
    if run.phase is Phase.RECOVERING and draft.tally(run.number)[DOUBT] == 0:
        draft.move_run(run, RunCue.REGAINED)
