"""What a signal must have done once it was taken, whatever else it led to."""

from collections.abc import Callable
from typing import Any

from engine.core.decision import Decision, Reap, Start
from engine.core.model import Model
from engine.core.records import Ending, Pardon, Run, Task
from engine.core.signals import (
    AbandonRun,
    AnswerLost,
    Approve,
    AttemptMissing,
    AttemptStarted,
    AttestTask,
    Cancel,
    DrainWorker,
    EngineStarted,
    PauseWorker,
    ProbeBreaker,
    Reject,
    Rerun,
    ResetBreaker,
    ResetTask,
    Resume,
    ResumeWorker,
    Signal,
    Submit,
    TerminateWorker,
    TripBreaker,
    WaiveTask,
    WorkerBack,
    WorkerBroken,
    WorkerGone,
    WorkerQuiet,
    WorkerRegistered,
)
from engine.machines import Phase

Effect = Callable[[Model, Any], bool]


def _cancelled(model: Model, signal: Cancel) -> bool:
    run = model.run(signal.run)
    return run.terminal or (run.ending is Ending.CANCEL and not signal.force)


def _abandoned(model: Model, signal: AbandonRun) -> bool:
    run = model.run(signal.run)
    return run.terminal or run.ending is Ending.CANCEL


def _begun(model: Model, signal: Submit) -> bool:
    run = model.run(_last_of_people(model))
    return run.plan is signal.plan and run.requester == (signal.actor or None)


def _taken_up(model: Model, signal: Resume | Rerun) -> bool:
    run = model.run(_last_of_people(model))
    return run.origin is not None and run.origin.run == signal.run


def _last_of_people(model: Model) -> int:
    """The newest run that is no sub-run."""
    return max(run.number for run in model.runs() if run.parent is None)


def _target(model: Model, signal: Approve | Reject) -> Run | Task:
    key = signal.target.key
    return model.task(key) if isinstance(key, tuple) else model.run(int(key))


def _voted(model: Model, signal: Approve) -> bool:
    hold = _target(model, signal).hold
    return hold is not None and any(vote.actor == signal.actor for vote in hold.votes)


def _task(model: Model, signal: ResetTask | WaiveTask | AttestTask | AnswerLost) -> Task:
    return model.task((signal.run, signal.task))


def _fresh(model: Model, signal: ResetTask) -> bool:
    task = _task(model, signal)
    counts = (task.retries, task.failures, task.losses, task.probes)
    return task.phase in (Phase.IDLE, Phase.QUEUED) and not any(counts) and not task.final


def _control(model: Model, name: str) -> Phase:
    worker = model.worker(name)
    assert worker is not None
    return worker.control_phase


def _drained(model: Model, signal: DrainWorker) -> bool:
    worker = model.worker(signal.worker)
    return worker is not None and worker.draining


def _breaker(model: Model, tool: str) -> Phase:
    breaker = model.breaker(tool)
    assert breaker is not None
    return breaker.phase


def _health(model: Model, name: str) -> Phase | None:
    worker = model.worker(name)
    return None if worker is None else worker.health_phase


def _silent(model: Model, signal: WorkerQuiet) -> bool:
    worker = model.worker(signal.worker)
    if worker is None or worker.health_phase not in (Phase.RECOVERING, Phase.QUEUED, Phase.ACTIVE):
        return True
    return worker.frozen or worker.health_phase is Phase.RECOVERING


def _heard(model: Model, signal: WorkerBack) -> bool:
    worker = model.worker(signal.worker)
    return worker is None or (worker.health_phase is not Phase.RECOVERING and not worker.frozen)


def _stopped(model: Model, signal: WorkerBroken | TerminateWorker) -> bool:
    worker = model.worker(signal.worker)
    return worker is None or worker.control_phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)


def _noticed(model: Model, signal: AttemptStarted) -> bool:
    attempt = model.attempt(signal.token)
    return attempt is None or attempt.started is not None


def _doubtful(model: Model, signal: EngineStarted) -> bool:
    """After a restart everything on a worker is asked for, so nothing is believed."""
    return all(one.doubt or one.fenced for one in model.attempts() if one.worker is not None)


EFFECTS: dict[type[Signal], Effect] = {
    EngineStarted: _doubtful,
    Submit: _begun,
    Resume: _taken_up,
    Rerun: _taken_up,
    Cancel: _cancelled,
    AbandonRun: _abandoned,
    Approve: _voted,
    Reject: lambda model, signal: _target(model, signal).phase is Phase.CANCELLED,
    AnswerLost: lambda model, signal: not _task(model, signal).asking,
    ResetTask: _fresh,
    WaiveTask: lambda model, signal: _task(model, signal).pardon is Pardon.WAIVED,
    AttestTask: lambda model, signal: _task(model, signal).phase is Phase.SUCCEEDED,
    PauseWorker: lambda model, signal: _control(model, signal.worker) is Phase.WAITING,
    ResumeWorker: lambda model, signal: _control(model, signal.worker) is Phase.ACTIVE,
    TerminateWorker: lambda model, signal: _control(model, signal.worker) is Phase.CANCELLED,
    WorkerRegistered: lambda model, signal: _health(model, signal.worker) is not Phase.IDLE,
    WorkerQuiet: _silent,
    WorkerBack: _heard,
    WorkerBroken: _stopped,
    WorkerGone: lambda model, signal: _health(model, signal.worker) in (None, Phase.CANCELLED),
    AttemptStarted: _noticed,
    DrainWorker: _drained,
    TripBreaker: lambda model, signal: _breaker(model, signal.tool) is Phase.PARKED,
    ProbeBreaker: lambda model, signal: _breaker(model, signal.tool) is Phase.PROBING,
    ResetBreaker: lambda model, signal: _breaker(model, signal.tool) is Phase.ACTIVE,
}


def missed(model: Model, signal: Signal, decision: Decision) -> bool:
    """Whether a signal that was taken did not do what it is for."""
    effect = EFFECTS.get(type(signal))
    if effect is not None and not effect(model, signal):
        return True
    if isinstance(signal, WorkerBroken | WorkerGone | TerminateWorker) and decision:
        return not _reaped(model, signal.worker, decision)
    if isinstance(signal, WorkerQuiet) and decision:
        held = [model.attempt(token) for token in model.holds(signal.worker)]
        return not all(one is None or one.doubt or one.fenced for one in held)
    return isinstance(signal, AttemptMissing) and not _sent_again(model, signal, decision)


def _reaped(model: Model, worker: str, decision: Decision) -> bool:
    """Whoever stops a worker asks what becomes of everything that it has."""
    told = {token for one in decision.instructions if isinstance(one, Reap) for token in one.tokens}
    return told.issuperset(model.holds(worker))


def _sent_again(model: Model, signal: AttemptMissing, decision: Decision) -> bool:
    """What never came to a worker that is there is sent once more."""
    attempt = model.attempt(signal.token)
    if attempt is None or attempt.started is not None or attempt.stopping is not None or attempt.fenced:
        return True
    worker = model.worker(attempt.worker or "")
    if worker is None or Phase.CANCELLED in (worker.health_phase, worker.control_phase):
        return True
    return any(isinstance(one, Start) and one.token == signal.token for one in decision.instructions)
