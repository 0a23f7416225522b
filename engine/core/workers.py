"""Workers: registered, heard, missed, given up; and what their supervisor tells them.

A worker's health and its control are two machines that move side by side.
"""

from engine.core.decision import Ask, Dismiss, Reap
from engine.core.draft import CONTROL, HEALTH, Draft
from engine.core.errors import Refused
from engine.core.records import TimerKind, Token, Worker
from engine.core.signals import (
    DrainWorker,
    PauseWorker,
    ResumeWorker,
    TerminateWorker,
    WorkerBack,
    WorkerBroken,
    WorkerCreated,
    WorkerExhausted,
    WorkerGone,
    WorkerQuiet,
    WorkerRegistered,
)
from engine.machines import ControlCue, HealthCue, InvalidTransitionError, Machine, Phase, TaskCue


def created(draft: Draft, signal: WorkerCreated) -> None:
    if draft.worker(signal.worker) is None:
        worker = _make(draft, signal, 0, frozenset())
        draft.arm(worker.ref, TimerKind.GIVE_UP, draft.settings.register_within)


def registered(draft: Draft, signal: WorkerRegistered) -> None:
    if signal.slots < 1:
        raise Refused(f"register {signal.worker}", "a worker has at least one slot")
    worker = draft.worker(signal.worker) or _make(draft, signal, signal.slots, signal.capabilities)
    if _left(worker):
        draft.tell(Dismiss(worker.id))
        return
    if worker.health_phase is not Phase.IDLE:
        if draft.load_of(worker.id):
            draft.tell(Ask(worker.id, draft.holds(worker.id)))
        return
    draft.disarm(worker.ref, TimerKind.GIVE_UP)
    draft.move_worker(
        worker,
        HealthCue.REGISTERED,
        slots=signal.slots,
        capabilities=signal.capabilities,
        workspace=signal.workspace or worker.workspace,
        metadata=signal.metadata or worker.metadata,
    )


def _make(
    draft: Draft, signal: WorkerCreated | WorkerRegistered, slots: int, capabilities: frozenset[str]
) -> Worker:
    worker = Worker(
        id=signal.worker,
        slots=slots,
        capabilities=capabilities,
        health=HEALTH.initial,
        health_phase=HEALTH.phase[HEALTH.initial],
        health_version=1,
        control=CONTROL.initial,
        control_phase=CONTROL.phase[CONTROL.initial],
        control_version=1,
        created=draft.now,
        health_entered=draft.now,
        control_entered=draft.now,
        workspace=signal.workspace,
        metadata=signal.metadata,
    )
    draft.create(worker, HEALTH.name, HEALTH.initial)
    draft.create(worker, CONTROL.name, CONTROL.initial)
    return worker


# ---- heard and missed


def quiet(draft: Draft, signal: WorkerQuiet) -> None:
    """Its heartbeats are missing: what it runs is in doubt, and it gets nothing new."""
    worker = draft.worker(signal.worker)
    if worker is None or worker.frozen:
        return
    if worker.health_phase is Phase.ACTIVE:
        draft.move_worker(worker, HealthCue.QUIET, reason=signal.reason or "it missed its heartbeats")
        doubt(draft, draft.holds(worker.id))
    elif worker.health_phase is Phase.QUEUED:
        draft.note(worker, "quiet", "it missed its heartbeats", frozen=True)
    else:
        return
    draft.arm(worker.ref, TimerKind.GIVE_UP, draft.settings.give_up_after)


def doubt(draft: Draft, tokens: tuple[Token, ...]) -> None:
    """These attempts are believed alive, and nobody has seen them."""
    for token in tokens:
        attempt = draft.attempt(token)
        if attempt is None or attempt.fenced or attempt.doubt:
            continue
        draft.note_attempt(attempt, doubt=True)
        if token.task:
            task = draft.task(token.key)
            if task.live == token and draft.answers(task, TaskCue.DOUBT):
                draft.move_task(task, TaskCue.DOUBT)


def back(draft: Draft, signal: WorkerBack) -> None:
    """It is heard again, and is asked what became of what it holds."""
    worker = draft.worker(signal.worker)
    if worker is None:
        return
    if worker.frozen:
        worker = draft.note(worker, "heard", frozen=False)
    elif worker.health_phase is Phase.RECOVERING:
        worker = draft.move_worker(worker, HealthCue.BACK)
        if draft.load_of(worker.id):
            worker = draft.move_worker(worker, HealthCue.ASSIGNED, reason="it still holds tasks")
    else:
        return
    draft.disarm(worker.ref, TimerKind.GIVE_UP)
    if draft.load_of(worker.id):
        draft.tell(Ask(worker.id, draft.holds(worker.id)))


def gone(draft: Draft, signal: WorkerGone) -> None:
    """Its process is dead. What it ran may live on: each attempt is accounted for by itself."""
    worker = draft.worker(signal.worker)
    if worker is not None and not _left(worker):
        give_up(draft, worker, signal.reason or "its process is gone")


def give_up(draft: Draft, worker: Worker, reason: str) -> None:
    """It leaves the pool; what became of each of its attempts is asked for."""
    draft.disarm(worker.ref, TimerKind.GIVE_UP)
    values = {"never_registered": worker.health_phase is Phase.IDLE}
    if worker.health_phase is Phase.ACTIVE:
        worker = draft.move_worker(worker, HealthCue.QUIET, reason=reason)
    worker = draft.move_worker(worker, HealthCue.SHUTDOWN, reason=reason, values=values)
    if worker.control_phase in (Phase.IDLE, Phase.ACTIVE, Phase.WAITING):
        worker = draft.move_worker(worker, ControlCue.TERMINATE, reason=f"supervisor timeout: {reason}")
    doubt(draft, draft.holds(worker.id))
    draft.tell(Reap(worker.id, draft.holds(worker.id)))


def exhausted(draft: Draft, signal: WorkerExhausted) -> None:
    """It ran out of something: it takes no new work until it is resumed."""
    worker = draft.worker(signal.worker)
    if worker is not None and worker.control_phase is Phase.ACTIVE:
        draft.move_worker(worker, ControlCue.PAUSE, reason=signal.reason or "a resource is exhausted")


def broken(draft: Draft, signal: WorkerBroken) -> None:
    """It cannot go on; what it still runs is stopped and accounted for."""
    worker = draft.worker(signal.worker)
    if worker is None or worker.control_phase not in (Phase.IDLE, Phase.ACTIVE, Phase.WAITING):
        return
    reason = signal.reason or "an unrecoverable error"
    worker = draft.move_worker(worker, ControlCue.BROKEN, reason=reason)
    _send_off(draft, worker, reason)


def _send_off(draft: Draft, worker: Worker, reason: str) -> None:
    """Out of control already; its health follows when it holds nothing any more."""
    worker = draft.note(worker, "retired", reason, draining=True)
    held = draft.holds(worker.id)
    if held:
        draft.tell(Reap(worker.id, held))
    tidy(draft, worker)


# ---- at the end of every batch


def tidy(draft: Draft, worker: Worker) -> None:
    """A worker that holds nothing is idle; one that is to go, goes."""
    if draft.load_of(worker.id) or worker.health_phase not in (Phase.QUEUED, Phase.ACTIVE):
        return
    if not worker.draining:
        if worker.health_phase is Phase.ACTIVE:
            draft.move_worker(worker, HealthCue.EMPTIED)
        return
    if worker.control_phase in (Phase.IDLE, Phase.ACTIVE, Phase.WAITING):
        worker = draft.move_worker(worker, ControlCue.DRAINED, reason="drained")
    draft.disarm(worker.ref, TimerKind.GIVE_UP)
    worker = draft.move_worker(worker, HealthCue.SHUTDOWN, reason="it has nothing left to do")
    draft.tell(Dismiss(worker.id))


# ---- what its supervisor says


def pause(draft: Draft, signal: PauseWorker) -> None:
    worker = _known(draft, signal.worker, "pause")
    _control(draft, worker, ControlCue.PAUSE, "pause")


def resume(draft: Draft, signal: ResumeWorker) -> None:
    worker = _known(draft, signal.worker, "resume")
    _control(draft, worker, ControlCue.RESUME, "resume")


def drain(draft: Draft, signal: DrainWorker) -> None:
    """It finishes what it has, takes nothing new, and goes."""
    worker = _known(draft, signal.worker, "drain")
    if _left(worker) or worker.control_phase not in (Phase.IDLE, Phase.ACTIVE, Phase.WAITING):
        raise _refused(CONTROL, worker.control, "drain", worker)
    if worker.draining:
        raise Refused(f"drain {worker.id}", "it is being drained already", "terminate it to stop it at once")
    tidy(draft, draft.note(worker, "draining", draining=True))


def terminate(draft: Draft, signal: TerminateWorker) -> None:
    """It stops now; what it runs is stopped and accounted for."""
    worker = _known(draft, signal.worker, "terminate")
    holds = draft.load_of(worker.id) > 0
    worker = _control(draft, worker, ControlCue.TERMINATE, "terminate", {"still_holds": holds})
    reason = signal.reason or "terminated"
    if worker.health_phase is Phase.RECOVERING:
        give_up(draft, worker, reason)
    elif worker.health_phase is Phase.IDLE:
        draft.note(worker, "retired", reason, draining=True)
    elif not _left(worker):
        _send_off(draft, worker, reason)
    else:
        draft.tell(Reap(worker.id, draft.holds(worker.id)))


def _known(draft: Draft, name: str, verb: str) -> Worker:
    worker = draft.worker(name)
    if worker is None:
        raise Refused(f"{verb} {name}", "there is no such worker", "see `interlock workers`")
    return worker


def _left(worker: Worker) -> bool:
    return worker.health_phase is Phase.CANCELLED


def _control(
    draft: Draft, worker: Worker, cue: ControlCue, verb: str, values: dict[str, object] | None = None
) -> Worker:
    if CONTROL.steps(cue, worker.control) is None:
        raise _refused(CONTROL, worker.control, verb, worker)
    return draft.move_worker(worker, cue, values=values or {})


def _refused(machine: Machine, state: str, event: str, worker: Worker) -> InvalidTransitionError:
    return InvalidTransitionError(machine.name, state, event, machine.valid_events(state), worker.id)
