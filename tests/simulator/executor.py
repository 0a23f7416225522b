"""The simulated world of processes: carries out instructions, and tells what happens.

It keeps the promises of a real executor: a token runs at most once however often it is told, what was
told to end before it came is never started, an end is told until it is forgotten, `Reap` ends a worker
and all it runs. And it watches the engine's: never two live processes of one task.
"""

from collections.abc import Callable
from functools import partial
from random import Random

from engine.core.decision import Ask, Dismiss, Forget, Halt, Instruction, Reap, Start
from engine.core.plan import SECOND, TaskPlan
from engine.core.records import Purpose, TaskKey, Token
from engine.core.signals import (
    AttemptAdopted,
    AttemptEnded,
    AttemptFound,
    AttemptLost,
    AttemptMissing,
    AttemptStarted,
    WorkerCreated,
    WorkerGone,
    WorkerQuiet,
    WorkerRegistered,
)
from tests.simulator.agenda import Agenda, Happening
from tests.simulator.clock import Clock
from tests.simulator.faults import Fault, Faults
from tests.simulator.violation import Violation
from tests.simulator.wire import Wire
from tests.simulator.worker import Execution, Life, SimulatedWorker
from tests.simulator.workflows import CAPABILITIES, FAILING_EXITS

TERMINATED, KILLED = 143, 137


class Executor:
    """All workers of a world, and the supervisor that starts and buries them."""

    def __init__(
        self,
        random: Random,
        clock: Clock,
        agenda: Agenda,
        faults: Faults,
        wire: Wire,
        brief: Callable[[Token], TaskPlan | None],
    ) -> None:
        self._random = random
        self._clock = clock
        self._agenda = agenda
        self._faults = faults
        self._wire = wire
        self._brief = brief
        self._luck = random.choice((0.3, 0.6, 0.8, 0.95))
        self._pace = random.choice((1, 1, 5))
        self._heirs = random.choice((0.0, 0.5, 1.0))
        self.workers: dict[str, SimulatedWorker] = {}
        self.executions: dict[Token, Execution] = {}
        self.live: dict[TaskKey, Token] = {}
        """The one live process of each task."""
        self.unforgotten: dict[Token, Execution] = {}
        self.owed: dict[Token, Execution] = {}
        """Whose fate is told until the engine has closed the attempt."""
        self.stale: set[Token] = set()
        """Forgotten before they came: they must not start any more."""
        self.unsettled = True
        """Something about the workers changed that the engine may not know."""
        self.started = 0

    # ---- instructions

    def receive(self, instruction: Instruction) -> None:
        """An instruction arrives: at the supervisor, or in the mailbox of a worker."""
        if isinstance(instruction, Reap):
            self._reap(instruction)
            return
        if isinstance(instruction, Forget):
            self._forget(instruction)
            return
        assert isinstance(instruction, Start | Halt | Ask | Dismiss)
        worker = self.workers.get(instruction.worker)
        if worker is None:
            raise Violation(f"{instruction} names a worker that was never there")
        if worker.frozen:
            worker.mailbox.append(instruction)
        elif worker.alive:
            self._obey(worker, instruction)
        else:
            self.unsettled = True

    def _obey(self, worker: SimulatedWorker, instruction: Start | Halt | Ask | Dismiss) -> None:
        match instruction:
            case Start():
                self._start(worker, instruction.token)
            case Halt():
                self._halt(worker, instruction)
            case Ask():
                for token in instruction.tokens:
                    self._answer(worker, token)
            case Dismiss():
                for execution in worker.running():
                    if not execution.adopted:
                        raise Violation(f"{worker.id} is dismissed while {execution.token} runs there")
                worker.dismissed = True
                self._leave(worker)

    def _leave(self, worker: SimulatedWorker) -> None:
        """A dismissed worker ends when it watches over nothing any more."""
        if worker.dismissed and not worker.running():
            worker.alive = False

    def _start(self, worker: SimulatedWorker, token: Token) -> None:
        if token in worker.journal or token in self.stale:
            return
        if token in self.executions:
            raise Violation(f"{token} was started on {self.executions[token].owner.id} and on {worker.id}")
        if self._faults.strikes(Fault.START_TORN):
            torn = Execution(token, worker, Life.LOST)
            worker.journal[token] = self.executions[token] = self.unforgotten[token] = torn
            self.kill(worker)
            return
        if token.key in self.live:
            raise Violation(f"two live processes of one task: {self.live[token.key]} and {token}")
        self.started += 1
        execution = self._spawn(worker, token)
        worker.journal[token] = self.executions[token] = execution
        self.live[token.key] = token
        self._wire.tell(AttemptStarted(id=self._wire.next_id(), token=token, pid=execution.pid))

    def _spawn(self, worker: SimulatedWorker, token: Token) -> Execution:
        """Decide, out of sight of the engine, how this execution is going to end."""
        random, plan = self._random, self._brief(token)
        execution = Execution(token, worker, Life.RUNNING, pid=1000 + self.started)
        execution.stubborn = random.random() < 0.2
        execution.unkillable = self._faults.strikes(Fault.UNKILLABLE)
        if token.purpose is not Purpose.WORK:
            execution.exit_code = 0 if random.random() < 0.5 + self._luck / 2 else 1
        elif random.random() < self._luck:
            execution.exit_code = random.choice(sorted(plan.expected_exits)) if plan is not None else 0
        else:
            execution.exit_code = random.choice(FAILING_EXITS)
            execution.matched = random.choice((frozenset(), frozenset({"refused"}), frozenset({"no space"})))
            execution.fingerprint = random.choice((None, "one", "one", "other"))
        if random.random() > 0.08:
            lasts = round(random.expovariate(1 / (3 * self._pace * SECOND)))
            self._agenda.at(self._clock.now + lasts, partial(self._end, execution))
        return execution

    def _halt(self, worker: SimulatedWorker, halt: Halt) -> None:
        execution = worker.journal.get(halt.token) or self._refuse(worker, halt.token)
        if execution.life is not Life.RUNNING:
            if execution.life is Life.REFUSED:
                self.owed[halt.token] = execution
            if not execution.forgotten:
                self.tell_end(execution)
            return
        if halt.grace <= 0:
            self._after(self._dying(execution), partial(self._end, execution, KILLED))
        elif execution.stubborn:
            self._after(halt.grace + self._dying(execution), partial(self._end, execution, KILLED))
        else:
            code = self._random.choice((TERMINATED, TERMINATED, 0, 1))
            self._after(round(halt.grace * self._random.random()), partial(self._end, execution, code))

    def _after(self, delay: int, happening: Happening) -> None:
        if delay:
            self._agenda.at(self._clock.now + delay, happening)
        else:
            happening()

    def _dying(self, execution: Execution) -> int:
        """How long a killed process takes to be gone."""
        return round(self._random.uniform(10, 120) * SECOND) if execution.unkillable else 0

    def _forget(self, forget: Forget) -> None:
        execution = self.executions.get(forget.token)
        if execution is None:
            self.stale.add(forget.token)
        elif execution.owner.frozen:
            execution.owner.mailbox.append(forget)
        else:
            execution.forgotten = True
            self.unforgotten.pop(forget.token, None)
            self.owed.pop(forget.token, None)

    def _refuse(self, worker: SimulatedWorker, token: Token) -> Execution:
        """Told to end what was never heard of: write down that it must not start any more."""
        if token in self.executions:
            raise Violation(f"{worker.id} is told to end {token}, which is not its own")
        refused = Execution(token, worker, Life.REFUSED)
        worker.journal[token] = self.executions[token] = refused
        return refused

    def _answer(self, worker: SimulatedWorker, token: Token) -> None:
        execution = worker.journal.get(token)
        if execution is None:
            self._wire.tell(AttemptMissing(id=self._wire.next_id(), token=token))
        elif execution.life is Life.RUNNING:
            self._wire.tell(AttemptFound(id=self._wire.next_id(), token=token, pid=execution.pid))
        else:
            self.tell_end(execution)

    def tell_end(self, execution: Execution) -> None:
        token, name = execution.token, self._wire.next_id()
        if execution.life in (Life.REFUSED, Life.LOST):
            evidence = "it never started" if execution.life is Life.REFUSED else "nobody saw its exit"
            ran = execution.life is Life.LOST
            self._wire.tell(AttemptLost(id=name, token=token, evidence=evidence, ran=ran))
            return
        self._wire.tell(
            AttemptEnded(
                id=name,
                token=token,
                exit_code=execution.exit_code,
                matched=execution.matched,
                fingerprint=execution.fingerprint,
            )
        )

    def _reap(self, reap: Reap) -> None:
        worker = self.workers.get(reap.worker)
        if worker is None:
            raise Violation(f"{reap} names a worker that was never there")
        worker.alive = worker.frozen = False
        worker.mailbox.clear()
        told = {token: self.executions.get(token) or self._refuse(worker, token) for token in reap.tokens}
        for execution in worker.running():
            if execution.token not in told:
                self._after(self._dying(execution), partial(self._vanish, execution))
        for execution in told.values():
            running = execution.life is Life.RUNNING
            self._after(self._dying(execution) if running else 0, partial(self._account, execution))

    def _account(self, execution: Execution) -> None:
        """It is certainly gone now: say what is known, until the engine has taken note."""
        if execution.life in (Life.RUNNING, Life.UNREAPED):
            self._vanish(execution)
        self.owed[execution.token] = execution
        self.tell_end(execution)

    # ---- what happens by itself

    def _end(self, execution: Execution, exit_code: int | None = None) -> None:
        """A process ends. Who learns its exit depends on how its worker is."""
        if execution.life is not Life.RUNNING:
            return
        owner = execution.owner
        del self.live[execution.token.key]
        if exit_code is not None:
            execution.exit_code = exit_code
        if not owner.alive or (execution.adopted and self._random.random() < 0.7):
            execution.life = Life.LOST
        elif owner.frozen:
            execution.life = Life.UNREAPED
        else:
            execution.life = Life.ENDED
        if execution.life is not Life.UNREAPED:
            self.unforgotten[execution.token] = execution
            if owner.alive and not owner.frozen:
                self.tell_end(execution)
        self._leave(owner)

    def _vanish(self, execution: Execution) -> None:
        """It is killed, and nobody was there to see how it ended."""
        if execution.life is Life.RUNNING:
            del self.live[execution.token.key]
        if execution.life in (Life.RUNNING, Life.UNREAPED):
            execution.life = Life.LOST
            self._leave(execution.owner)

    def hire(self, capabilities: frozenset[str], slots: int, sure: bool = False) -> SimulatedWorker:
        """Start a worker process; it registers soon, late or never."""
        worker = SimulatedWorker(f"w{len(self.workers) + 1:03}", slots, capabilities)
        self.workers[worker.id] = worker
        self.unsettled = True
        self._wire.tell(WorkerCreated(id=self._wire.next_id(), worker=worker.id))
        delay = SECOND // 2
        if not sure:
            worker.registers = not self._faults.strikes(Fault.WORKER_NEVER)
            if self._faults.strikes(Fault.WORKER_LATE):
                delay = round(self._random.uniform(5, 90) * SECOND)
        self._agenda.at(self._clock.now + delay, partial(self.register, worker))
        return worker

    def register(self, worker: SimulatedWorker) -> None:
        if worker.alive and worker.registers and not worker.frozen:
            self._wire.tell(
                WorkerRegistered(
                    id=self._wire.next_id(),
                    worker=worker.id,
                    slots=worker.slots,
                    capabilities=worker.capabilities,
                )
            )

    def kill(self, worker: SimulatedWorker) -> None:
        """The worker's process dies; what it started lives on, perhaps watched by an heir."""
        worker.alive = worker.frozen = False
        worker.mailbox.clear()
        self.unsettled = True
        for execution in worker.journal.values():
            if execution.life is Life.UNREAPED:
                execution.life = Life.LOST
        noticed = self._clock.now + round(self._random.uniform(0, 5) * SECOND)
        self._agenda.at(noticed, partial(self.bury, worker))
        if self._random.random() < self._heirs:
            came = self._clock.now + round(self._random.uniform(0, 10) * SECOND)
            self._agenda.at(came, partial(self._inherit, worker))

    def bury(self, worker: SimulatedWorker) -> None:
        self._wire.tell(WorkerGone(id=self._wire.next_id(), worker=worker.id))

    def _inherit(self, dead: SimulatedWorker) -> None:
        """A successor takes over the journal and the processes of a dead worker."""
        heir = self.hire(dead.capabilities, dead.slots, sure=True)
        for token, execution in dead.journal.items():
            if execution.owner is dead:
                execution.owner, heir.journal[token] = heir, execution
                if execution.life is Life.RUNNING:
                    execution.adopted = True
                    self.adopt(execution)
                elif not execution.forgotten and execution.life is not Life.REFUSED:
                    self.unforgotten[token] = execution

    def adopt(self, execution: Execution) -> None:
        owner = execution.owner.id
        self._wire.tell(AttemptAdopted(id=self._wire.next_id(), token=execution.token, worker=owner))

    def freeze(self, worker: SimulatedWorker) -> None:
        worker.frozen = self.unsettled = True
        missed = self._clock.now + 6 * SECOND
        self._agenda.at(missed, partial(self._miss, worker))
        lasts = round(self._random.expovariate(1 / (20 * SECOND)))
        self._agenda.at(self._clock.now + lasts, partial(self.thaw, worker))

    def _miss(self, worker: SimulatedWorker) -> None:
        if worker.frozen:
            self._wire.tell(WorkerQuiet(id=self._wire.next_id(), worker=worker.id))

    def thaw(self, worker: SimulatedWorker) -> None:
        """It goes on where it stopped: reaps what ended, reads its mail."""
        if not worker.frozen:
            return
        worker.frozen = False
        self.unsettled = True
        for execution in list(worker.journal.values()):
            if execution.life is Life.UNREAPED and execution.owner is worker:
                execution.life = Life.ENDED
                self.unforgotten[execution.token] = execution
                self.tell_end(execution)
        mail, worker.mailbox = worker.mailbox, []
        for instruction in mail:
            self.receive(instruction)

    def hire_random(self) -> None:
        random = self._random
        some = frozenset(capability for capability in CAPABILITIES if random.random() < 0.6)
        self.hire(some, random.choice((1, 1, 2, 4)))
