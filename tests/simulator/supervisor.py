"""What keeps engine and workers in step: the weather over the workers, and the telling again."""

from random import Random

from engine.core.model import Model
from engine.core.records import Worker
from engine.core.signals import (
    WorkerBack,
    WorkerBroken,
    WorkerCreated,
    WorkerExhausted,
    WorkerQuiet,
)
from engine.machines import Phase
from tests.simulator.executor import Executor
from tests.simulator.faults import Fault, Faults
from tests.simulator.violation import Violation
from tests.simulator.wire import Wire
from tests.simulator.worker import SimulatedWorker
from tests.simulator.workflows import CAPABILITIES

PATIENCE = 40
"""How often an end is told again, with nothing going wrong, before somebody must have forgotten it."""


class Supervisor:
    """Watches the workers for the engine."""

    def __init__(self, random: Random, faults: Faults, wire: Wire, executor: Executor) -> None:
        self._random = random
        self._faults = faults
        self._wire = wire
        self._executor = executor
        self.calm = False

    def weather(self) -> None:
        """Let the faults of the moment strike the workers."""
        executor, faults = self._executor, self._faults
        alive = [worker for worker in executor.workers.values() if worker.alive]
        for worker in alive:
            if faults.strikes(Fault.WORKER_KILLED):
                executor.kill(worker)
            elif not worker.frozen and faults.strikes(Fault.WORKER_FROZEN):
                executor.freeze(worker)
            elif faults.strikes(Fault.WORKER_BROKEN):
                self._wire.tell(WorkerBroken(id=self._wire.next_id(), worker=worker.id))
            elif faults.strikes(Fault.WORKER_EXHAUSTED):
                self._wire.tell(WorkerExhausted(id=self._wire.next_id(), worker=worker.id))
        if len(alive) < 2 and self._random.random() < 0.4:
            executor.hire_random()

    def heal(self) -> None:
        """All that lives is well again, and there is a worker for every task."""
        executor = self._executor
        self.calm = True
        for worker in list(executor.workers.values()):
            worker.registers = True
            executor.thaw(worker)
        executor.hire(frozenset(CAPABILITIES), 3, sure=True)
        for execution in executor.executions.values():
            execution.told = 0

    @property
    def restless(self) -> bool:
        """Whether there is anything that the engine may have to be told again."""
        executor = self._executor
        return executor.unsettled or bool(executor.unforgotten) or bool(executor.owed)

    def resync(self, model: Model) -> None:
        """Tell again what the engine does not seem to know."""
        executor = self._executor
        told = [self._resync_worker(model, worker) for worker in list(executor.workers.values())]
        executor.unsettled = any(told)
        for token, execution in list(executor.unforgotten.items()):
            if not execution.owner.alive:
                # Its journal is read by an heir, or by whoever reaps the worker.
                del executor.unforgotten[token]
            elif not execution.owner.frozen:
                execution.told += 1
                if self.calm and execution.told > PATIENCE:
                    raise Violation(f"the end of {token} was told {PATIENCE} times and nobody forgot it")
                executor.tell_end(execution)
        for token, execution in list(executor.owed.items()):
            if model.attempt(token) is None:
                del executor.owed[token]
            else:
                executor.tell_end(execution)

    def _resync_worker(self, model: Model, worker: SimulatedWorker) -> bool:
        """Tell how a worker is, if the engine believes otherwise."""
        known = model.worker(worker.id)
        wire, executor = self._wire, self._executor
        if known is None:
            if worker.alive:
                wire.tell(WorkerCreated(id=wire.next_id(), worker=worker.id))
            return worker.alive
        if known.health_phase is Phase.CANCELLED:
            return False
        if not worker.alive:
            executor.bury(worker)
            return True
        if worker.frozen:
            if not _silent(known):
                wire.tell(WorkerQuiet(id=wire.next_id(), worker=worker.id))
            return True
        told = self._resync_adopted(model, worker)
        if known.health_phase is Phase.IDLE and worker.registers:
            executor.register(worker)
            return True
        if _silent(known):
            wire.tell(WorkerBack(id=wire.next_id(), worker=worker.id))
            return True
        return told

    def _resync_adopted(self, model: Model, worker: SimulatedWorker) -> bool:
        told = False
        for execution in worker.running():
            attempt = model.attempt(execution.token)
            if execution.adopted and attempt is not None and attempt.worker != worker.id:
                self._executor.adopt(execution)
                told = True
        return told


def _silent(known: Worker) -> bool:
    return known.frozen or known.health_phase is Phase.RECOVERING
