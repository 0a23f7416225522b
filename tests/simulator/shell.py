"""The simulated engine process: the real core between an inbox and a store, with crashes.

It is the loop of the real runtime without its threads: decide what was told, dispatch, commit all of
it at once, and only then let instructions out.
"""

from functools import partial
from heapq import heapify, heappop, heappush
from random import Random

from engine.core.decide import decide
from engine.core.decision import Decision, Instruction, Start, TimerSet
from engine.core.dispatch import dispatch
from engine.core.errors import Refused
from engine.core.model import Model, Snapshot
from engine.core.plan import SECOND, Settings
from engine.core.records import Ref, TimerKind
from engine.core.signals import EngineStarted, Signal, TimerDue
from engine.machines import InvalidTransitionError
from engine.store.gate import Conflict
from tests.simulator.agenda import Agenda
from tests.simulator.clock import Clock
from tests.simulator.effects import missed
from tests.simulator.executor import Executor
from tests.simulator.faults import Fault, Faults
from tests.simulator.people import People
from tests.simulator.store import EngineLost, SimulatedStore, Trouble
from tests.simulator.violation import Violation
from tests.simulator.wire import Wire

BATCH = 8
"""The most signals that one transaction takes."""


class Shell:
    """One engine after another over the same store."""

    def __init__(
        self,
        random: Random,
        clock: Clock,
        agenda: Agenda,
        faults: Faults,
        wire: Wire,
        store: SimulatedStore,
        settings: Settings,
    ) -> None:
        self._random = random
        self._clock = clock
        self._agenda = agenda
        self._faults = faults
        self._wire = wire
        self._store = store
        self._settings = settings
        self.executor: Executor | None = None
        self.people: People | None = None
        self.model = Model.load(store.load(), settings)
        self.alarms: list[tuple[int, str, str, Ref, TimerKind]] = []
        self._arrivals: dict[str, int] = {}
        self._lean = random.random() < 0.5
        """Whether this engine lets go of runs that are over."""
        self.refused = 0
        self.signals = 0
        self.committed: list[Decision] = []
        """What the last step stored."""
        self.reloaded = False
        """The last step ended with a model rebuilt from the store."""

    @property
    def survivor(self) -> Model | None:
        """The model, unless the engine that held it is dead."""
        return self.model if self._wire.up else None

    # ---- timers

    @property
    def next_alarm(self) -> int | None:
        """When the earliest timer is due that is still set."""
        alarms, timers = self.alarms, self._store.timers
        while alarms and timers.get((alarms[0][3], alarms[0][4])) != alarms[0][0]:
            heappop(alarms)
        return alarms[0][0] if alarms else None

    def _due_timers(self) -> list[Signal]:
        due: list[Signal] = []
        now = self._clock.now
        while (at := self.next_alarm) is not None and at <= now:
            _, _, _, ref, kind = heappop(self.alarms)
            due.append(TimerDue(id=self._wire.next_id(), ref=ref, kind=kind))
            if self._faults.strikes(Fault.TIMER_TWICE):
                due.append(TimerDue(id=self._wire.next_id(), ref=ref, kind=kind))
        return due

    def _set_alarms(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            for timer in decision.timers:
                if isinstance(timer, TimerSet):
                    heappush(self.alarms, (timer.due, str(timer.ref), timer.kind, timer.ref, timer.kind))

    # ---- one step

    def step(self) -> None:
        """Decide some of what was told, and store it."""
        timers, inbox = self._due_timers(), self._wire.inbox
        told = [inbox.popleft() for _ in range(min(len(inbox), self._random.randint(1, BATCH)))]
        batch = timers + told if self._random.random() < 0.5 else told + timers
        if not batch:
            self.committed = []
            return
        self.signals += len(batch)
        self._transact(batch)

    def _transact(self, batch: list[Signal]) -> None:
        self.reloaded = False
        decisions = self._decide(batch)
        self._store.trouble = trouble = self._trouble()
        try:
            self._store.apply(decisions)
        except EngineLost:
            self.committed = decisions if trouble is Trouble.LOST_AFTER else []
            self._die()
            return
        except Conflict as conflict:
            if trouble is not Trouble.CONFLICT:
                raise Violation(str(conflict)) from conflict
            self._reload()
            self._transact(batch)
            self.reloaded = True
            return
        self.committed = decisions
        self._set_alarms(decisions)
        self._check_fired(batch)
        if self._lean:
            self._let_go()
        self.deliver()

    def _decide(self, batch: list[Signal]) -> list[Decision]:
        model, now, random = self.model, self._clock.now, self._random
        decisions: list[Decision] = []
        for signal in batch:
            self._recall(signal)
            try:
                decision = self._decide_one(signal, now, random.random())
            except (Refused, InvalidTransitionError) as refusal:
                if signal.source != "cli":
                    raise Violation(
                        f"{signal} was answered by {type(refusal).__name__}: {refusal}"
                    ) from refusal
                self.refused += 1
                continue
            if self.people is not None and signal.id in self.people.nonsense:
                raise Violation(f"nonsense was granted: {signal}")
            if decision:
                model.apply(decision)
                decisions.append(decision)
            if missed(model, signal, decision):
                raise Violation(f"{signal} was taken and did not do what it is for")
        decision = dispatch(model, now, batch[-1].id)
        if decision:
            model.apply(decision)
            decisions.append(decision)
        return decisions

    def _decide_one(self, signal: Signal, now: int, rand: float) -> Decision:
        """Decide, and now and then prove that deciding changes nothing and always answers the same."""
        if self._random.random() > 0.02:
            return decide(self.model, signal, now, rand)
        before = self.model.snapshot(), self.model.derived()
        try:
            decision = decide(self.model, signal, now, rand)
        finally:
            if (self.model.snapshot(), self.model.derived()) != before:
                raise Violation(f"deciding {signal} changed the model")
        if decide(self.model, signal, now, rand) != decision:
            raise Violation(f"deciding {signal} twice gave two answers")
        return decision

    def _let_go(self) -> None:
        """What is over leaves the model; it stays in the store."""
        busy = {attempt.token.run for attempt in self.model.attempts()}
        for run in list(self.model.runs()):
            if run.terminal and run.number not in busy:
                self.model.retire(run.number)

    def _recall(self, signal: Signal) -> None:
        """A command about a run that has left the model brings it back first."""
        number = getattr(signal, "run", None)
        if number is None or self.model.find_run(number) is not None:
            return
        found = self._store.run(number)
        if found is not None:
            tasks = tuple(self._store.task((number, place)) for place in found.plan.numbers.values())
            self.model.recall(Snapshot(runs=(found,), tasks=tasks))

    def _trouble(self) -> Trouble | None:
        if self._faults.strikes(Fault.ENGINE_LOST_BEFORE_COMMIT):
            return Trouble.LOST_BEFORE
        if self._faults.strikes(Fault.ENGINE_LOST_AFTER_COMMIT):
            return Trouble.LOST_AFTER
        if self._faults.strikes(Fault.COMMIT_CONFLICT):
            return Trouble.CONFLICT
        return None

    def _check_fired(self, batch: list[Signal]) -> None:
        """A timer that has fired must be gone, or set anew: else it would never fire again."""
        for signal in batch:
            if isinstance(signal, TimerDue):
                due = self._store.timers.get((signal.ref, signal.kind))
                if due is not None and due <= self._clock.now:
                    raise Violation(f"the timer {signal.kind} of {signal.ref} fired and is still set")

    # ---- the outbox

    def deliver(self) -> None:
        """Hand out instructions, to each worker in their order; what is not confirmed is handed out again."""
        if not self._store.waiting:
            return
        confirmed: list[int] = []
        unreachable: set[str] = set()
        for row in self._store.outbox():
            address = getattr(row.instruction, "worker", "")
            if address in unreachable:
                continue
            if self._faults.strikes(Fault.INSTRUCTION_LOST):
                unreachable.add(address)
                continue
            twice = self._faults.strikes(Fault.INSTRUCTION_TWICE)
            if not twice:
                confirmed.append(row.seq)
                if isinstance(row.instruction, Start) and self._faults.strikes(Fault.START_DROPPED):
                    continue
            self._send(address, row.instruction)
        self._store.delivered(confirmed)
        if self._store.waiting:
            self._agenda.at(self._clock.now + SECOND, self._deliver_again)

    def _send(self, address: str, instruction: Instruction) -> None:
        """One connection to each worker: what is late there makes late what follows."""
        assert self.executor is not None
        now = self._clock.now
        arrives = max(now, self._arrivals.get(address, now))
        if self._faults.strikes(Fault.INSTRUCTION_LATE):
            arrives += round(self._random.expovariate(1 / (4 * SECOND)))
        if arrives > now:
            self._arrivals[address] = arrives
            self._agenda.at(arrives, partial(self.executor.receive, instruction))
        else:
            self.executor.receive(instruction)

    def _deliver_again(self) -> None:
        if self._wire.up:
            self.deliver()

    # ---- death and return

    def _die(self) -> None:
        self._wire.down()
        down = round(self._random.expovariate(1 / (15 * SECOND)))
        self._agenda.at(self._clock.now + down, self.start)

    def start(self) -> None:
        """An engine begins: what the store holds is all it knows."""
        self._wire.up = True
        self._reload()
        self._wire.inbox.append(EngineStarted(id=self._wire.next_id()))
        if self.executor is not None:
            self.executor.unsettled = True
        self.deliver()

    def _reload(self) -> None:
        self.model = Model.load(self._store.load(), self._settings)
        self.alarms = [(due, str(ref), kind, ref, kind) for (ref, kind), due in self._store.timers.items()]
        heapify(self.alarms)
        self.reloaded = True
