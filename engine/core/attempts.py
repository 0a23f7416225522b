"""Opening executions: work, checks, cancel hooks, health commands. Each commits with its instruction."""

from typing import TypeGuard

from engine.core.breakers import take_probe
from engine.core.decision import Closing, Start
from engine.core.draft import Draft
from engine.core.records import Attempt, Circuit, Purpose, Run, Task, TimerKind, Token, Worker
from engine.machines import ControlCue, HealthCue, Phase, RunCue, TaskCue


def occupy(draft: Draft, worker: Worker) -> None:
    """A worker gets something to do: both its regions say so."""
    if worker.health_phase is Phase.QUEUED:
        worker = draft.move_worker(worker, HealthCue.ASSIGNED)
    if worker.control_phase is Phase.IDLE:
        draft.move_worker(worker, ControlCue.ASSIGNED)


def able(worker: Worker | None) -> TypeGuard[Worker]:
    """Whether a worker can go on with what it has begun: a check or a hook after the work."""
    return (
        worker is not None
        and worker.health_phase in (Phase.QUEUED, Phase.ACTIVE)
        and worker.control_phase in (Phase.IDLE, Phase.ACTIVE, Phase.WAITING)
        and not worker.frozen
    )


def begin_run(draft: Draft, run: Run, reason: str | None = None) -> Run:
    """The run's start arrow goes with its first task, or with the reason why none has to start."""
    if run.started is not None:
        return run
    run = draft.move_run(run, RunCue.START, reason=reason, started=draft.now)
    if run.plan.timeout is not None:
        draft.arm(run.ref, TimerKind.TIMEOUT, run.plan.timeout)
    return run


def start_work(draft: Draft, task: Task, worker: Worker) -> None:
    """Give a ready task to a worker; from an open circuit perhaps a health command first."""
    tool = draft.settings.tool(task.plan.tool)
    guarded = task.plan.tool is not None and _half_open(draft, task.plan.tool)
    own_circuit = task.phase is Phase.PARKED and task.circuit is Circuit.OWN
    if task.phase is Phase.PARKED and tool.has_health_command and (own_circuit or guarded):
        _start_health(draft, task, worker, own_circuit)
        return
    probing = own_circuit or (guarded and TaskCue.PROBE in draft.run(task.run).plan.task_machine.cues)
    open_work(draft, task, worker, probing=probing, probes=task.probes + (1 if own_circuit else 0))


def _half_open(draft: Draft, tool: str) -> bool:
    breaker = draft.breaker(tool)
    return breaker is not None and breaker.phase is Phase.PROBING


def open_work(draft: Draft, task: Task, worker: Worker, **sets: object) -> None:
    """The start arrow and the start instruction, together."""
    number = task.attempt + 1
    token = Token(task.run, task.number, number)
    begin_run(draft, draft.run(task.run))
    occupy(draft, worker)
    draft.disarm(task.ref, TimerKind.PROBE)
    task = draft.move_task(
        task,
        TaskCue.START,
        sets,
        opens=Attempt(token, worker.id, draft.now, task.plan.tool),
        attempt=number,
        started=task.started if task.started is not None else draft.now,
        circuit=None,
    )
    draft.arm(task.ref, TimerKind.DEADLINE, draft.settings.timeout_of(task.plan))
    draft.tell(Start(token, worker.id))
    take_probe(draft, task.plan.tool, token)


def _start_health(draft: Draft, task: Task, worker: Worker, own_circuit: bool) -> None:
    token = Token(task.run, task.number, task.attempt, Purpose.HEALTH, task.health_checks + 1)
    occupy(draft, worker)
    task = draft.move_task(
        task,
        TaskCue.PROBE,
        opens=Attempt(token, worker.id, draft.now, task.plan.tool),
        probes=task.probes + (1 if own_circuit else 0),
        health_checks=task.health_checks + 1,
        probing=True,
    )
    draft.arm(task.ref, TimerKind.DEADLINE, draft.settings.check_timeout)
    draft.tell(Start(token, worker.id))
    take_probe(draft, task.plan.tool, token)


def open_check(draft: Draft, task: Task, worker: Worker) -> None:
    """Run a task's acceptance checks."""
    token = Token(task.run, task.number, task.attempt, Purpose.CHECK, task.check_losses)
    occupy(draft, worker)
    attempt = Attempt(token, worker.id, draft.now)
    task = draft.note(task, "checks_started", opens=attempt)
    draft.arm(task.ref, TimerKind.DEADLINE, draft.settings.check_timeout * task.plan.checks)
    draft.tell(Start(token, worker.id))


def open_final_checks(draft: Draft, run: Run, worker: Worker) -> None:
    """Run the run's own checks."""
    token = Token(run.number, 0, run.attempt + 1, Purpose.CHECK, run.losses)
    occupy(draft, worker)
    attempt = Attempt(token, worker.id, draft.now)
    run = draft.note(run, "checks_started", opens=attempt, attempt=run.attempt + 1)
    draft.arm(run.ref, TimerKind.DEADLINE, draft.settings.check_timeout * run.plan.checks)
    draft.tell(Start(token, worker.id))


def open_hook(draft: Draft, task: Task, worker: Worker, closes: Closing) -> None:
    """The work was stopped; its cancel hook runs before the task is cancelled."""
    token = Token(task.run, task.number, task.attempt, Purpose.HOOK, 1)
    task = draft.note(task, "hook_started", closes=closes, opens=Attempt(token, worker.id, draft.now))
    occupy(draft, worker)
    draft.disarm(task.ref, TimerKind.GRACE)
    draft.arm(task.ref, TimerKind.DEADLINE, draft.run(task.run).plan.hook_timeout)
    draft.tell(Start(token, worker.id))
