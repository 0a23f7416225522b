"""The one way in: a signal and the model go in, a decision comes out, and the model is not changed."""

from collections.abc import Callable
from typing import Any

from engine.core import (
    again,
    breakers,
    cancel,
    endings,
    holds,
    mending,
    restart,
    runs,
    signals,
    timers,
    workers,
)
from engine.core.decision import Decision
from engine.core.draft import Draft
from engine.core.errors import Refused
from engine.core.finish import finish
from engine.core.model import Model
from engine.core.signals import Signal

HANDLERS: dict[type[Signal], Callable[[Draft, Any], None]] = {
    signals.TimerDue: timers.due,
    signals.AttemptStarted: endings.started,
    signals.AttemptEnded: endings.ended,
    signals.AttemptLost: endings.lost,
    signals.AttemptFound: endings.found,
    signals.AttemptMissing: endings.missing,
    signals.AttemptAdopted: endings.adopted,
    signals.WorkerCreated: workers.created,
    signals.WorkerRegistered: workers.registered,
    signals.WorkerQuiet: workers.quiet,
    signals.WorkerBack: workers.back,
    signals.WorkerGone: workers.gone,
    signals.WorkerExhausted: workers.exhausted,
    signals.WorkerBroken: workers.broken,
    signals.EngineStarted: restart.engine_started,
    signals.Submit: runs.submit,
    signals.Approve: holds.approve,
    signals.Reject: holds.reject,
    signals.Cancel: cancel.cancel,
    signals.Resume: again.resume,
    signals.Rerun: again.rerun,
    signals.AnswerLost: mending.answer_lost,
    signals.ResetTask: mending.reset_task,
    signals.WaiveTask: mending.waive_task,
    signals.AttestTask: mending.attest_task,
    signals.CorrectRun: mending.correct_run,
    signals.AbandonRun: mending.abandon_run,
    signals.TripBreaker: breakers.trip,
    signals.ProbeBreaker: breakers.probe_now,
    signals.ResetBreaker: breakers.reset,
    signals.PauseWorker: workers.pause,
    signals.ResumeWorker: workers.resume,
    signals.DrainWorker: workers.drain,
    signals.TerminateWorker: workers.terminate,
}


def decide(model: Model, signal: Signal, now: int, rand: float) -> Decision:
    """All that a signal leads to. Raises `Refused` or `InvalidTransitionError` when it cannot be granted.

    `now` never goes back; `rand` is in [0, 1) and jitters the backoff of this decision.
    """
    handler = HANDLERS.get(type(signal))
    if handler is None:
        raise Refused(type(signal).__name__, "the core knows no such signal")
    draft = Draft(model, signal, now, rand)
    handler(draft, signal)
    finish(draft)
    return draft.done()
