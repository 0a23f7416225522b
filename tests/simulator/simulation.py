"""One world from its seed: chaos for a while, then calm, and then everything must come to its end."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from random import Random

from engine.core.plan import SECOND, TaskPlan
from engine.core.records import Entity, Run, Token
from tests.simulator.agenda import Agenda
from tests.simulator.clock import Clock
from tests.simulator.executor import Executor
from tests.simulator.faults import Fault, Faults
from tests.simulator.invariants import Invariants
from tests.simulator.people import People
from tests.simulator.report import Report
from tests.simulator.shell import Shell
from tests.simulator.store import SimulatedStore
from tests.simulator.supervisor import Supervisor
from tests.simulator.violation import Violation, brief, story
from tests.simulator.wire import Wire
from tests.simulator.workflows import Author

LAST_STEP = 4000
"""Calm steps after which every run must have ended."""
QUIET = 400 * SECOND
"""So long after the last run everything else must have come to rest."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a world that a test may replace to see the simulator fail."""

    store: Callable[[], SimulatedStore] = SimulatedStore
    executor: Callable[..., Executor] = Executor
    shell: Callable[..., Shell] = Shell


class Simulation:
    """A world, and the hand that turns it."""

    def __init__(self, seed: int, parts: Parts) -> None:
        self.seed = seed
        self.steps = 0
        self.random = random = Random(seed)
        self.clock = clock = Clock()
        self.agenda = agenda = Agenda()
        self.faults = faults = Faults(random)
        author = Author(random)
        settings = author.settings()
        self.store = store = parts.store()
        self.wire = wire = Wire(random, clock, agenda, faults)
        self.shell = parts.shell(random, clock, agenda, faults, wire, store, settings)
        self.executor = parts.executor(random, clock, agenda, faults, wire, self._brief)
        self.supervisor = Supervisor(random, faults, wire, self.executor)
        self.people = People(random, wire, author)
        self.invariants = Invariants(store, settings)
        self.shell.executor = self.executor
        self.shell.people = self.people
        self._meddling = random.choice((0.0, 0.05, 0.15, 0.4))
        self._resync_planned = False
        self._chaos = True

    def _brief(self, token: Token) -> TaskPlan | None:
        return self.store.task(token.key).plan if token.task else None

    # ---- the course of a world

    def run(self) -> Report:
        try:
            self._begin()
            self._storm()
            self._calm()
            self._reckon()
        except Violation as violation:
            raise Violation(violation.what, violation.story, self.seed, self.steps) from violation
        except Exception as error:
            raise Violation(f"{type(error).__name__}: {error}", (), self.seed, self.steps) from error
        return self._report()

    def _begin(self) -> None:
        random = self.random
        self.shell.start()
        for _ in range(random.choice((1, 1, 2, 3))):
            self.executor.hire_random()
        for _ in range(random.choice((1, 1, 2, 3, 5))):
            self.agenda.at(self.clock.now + round(random.expovariate(1 / (8 * SECOND))), self.people.submit)
        self._plan_weather()

    def _storm(self) -> None:
        length = self.random.choice((30, 60, 120, 240))
        for _ in range(length):
            if not self._step():
                break
            if self.faults.strikes(Fault.CLOCK_JUMP):
                self.clock.jump(round(self.random.choice((30, 600, 90_000)) * SECOND * self.random.random()))
            if self.wire.up and self.random.random() < self._meddling:
                self.people.meddle(self.shell.model, self.store.runs())

    def _calm(self) -> None:
        """Nothing goes wrong any more: everything must end, also what begins only now."""
        self._chaos = False
        self.faults.stop()
        self.supervisor.heal()
        if not self.wire.up:
            self.shell.start()
        last = self.steps + LAST_STEP
        self._finish(last)
        until = self.clock.now + QUIET
        while (due := self._next_due()) is not None and due <= until:
            self._step()
            if self._open_runs():
                self._finish(last)
                until = self.clock.now + QUIET

    def _finish(self, last: int) -> None:
        while self._open_runs():
            if not self.wire.inbox:
                self.people.attend(self.shell.model)
            if not self._step():
                self._fail_open("nothing more happens and it has not ended")
            if self.steps > last:
                self._fail_open(f"it has not ended after {LAST_STEP} calm steps")

    def _reckon(self) -> None:
        """After the last run: no process lives, no result is untold, every version counts its rows."""
        self.invariants.rebuilt(self.shell.model)
        self.invariants.everything(self.shell.model, self.clock.now)
        self.invariants.trail()
        if self.executor.live:
            token = next(iter(self.executor.live.values()))
            owner = self.executor.executions[token].owner
            raise Violation(f"{token} lives on at {owner.id} after every run has ended")
        if open_ones := list(self.shell.model.attempts()):
            raise Violation(f"{open_ones[0]} is still open after every run has ended")
        if self.store.waiting:
            raise Violation(f"{self.store.waiting[0]} was never delivered")
        for worker in self.executor.workers.values():
            known = self.shell.model.worker(worker.id)
            if worker.alive and known is not None and known.health == "shutdown":
                raise Violation(f"{worker.id} is alive and the engine believes that it is gone")

    # ---- one step

    def _next_due(self) -> int | None:
        if self.wire.up and self.wire.inbox:
            return self.clock.now
        due = [self.agenda.next_due, self.shell.next_alarm if self.wire.up else None]
        known = [moment for moment in due if moment is not None]
        return max(self.clock.now, min(known)) if known else None

    def _step(self) -> bool:
        """Go on to the next moment at which something happens; False when there is none."""
        if self.wire.up and not self._resync_planned and self.supervisor.restless:
            self._resync_planned = True
            self.agenda.at(self.clock.now + self.random.randint(5, 15) * SECOND, self._resync)
        due = self._next_due()
        if due is None:
            return False
        self.steps += 1
        self.clock.advance(due)
        self.agenda.run_due(self.clock.now)
        if self.wire.up:
            self.shell.step()
            shell, now = self.shell, self.clock.now
            if shell.committed or shell.reloaded:
                self.invariants.after(shell.committed, shell.survivor, now, reloaded=shell.reloaded)
        return True

    def _resync(self) -> None:
        self._resync_planned = False
        if self.wire.up:
            self.supervisor.resync(self.shell.model)

    def _plan_weather(self) -> None:
        self.agenda.at(self.clock.now + self.random.randint(1, 10) * SECOND, self._weather)

    def _weather(self) -> None:
        if self._chaos:
            self.supervisor.weather()
            self._plan_weather()

    # ---- the end

    def _open_runs(self) -> list[Run]:
        return [run for run in self.shell.model.runs() if not run.terminal]

    def _fail_open(self, why: str) -> None:
        run = self._open_runs()[-1]
        told = story(self.store.history(run.ref))
        for task in self.shell.model.tasks_of(run):
            if not task.terminal:
                told += [brief(task), *story(self.store.history(task.ref), 6)]
        raise Violation(f"run {run.number} ({run.machine}, {run.state}): {why}", told)

    def _report(self) -> Report:
        report = Report(seeds=1, seed=self.seed, steps=self.steps, started=self.executor.started)
        report.signals, report.refused = self.shell.signals, self.shell.refused
        digest = blake2b(digest_size=8)
        for row in self.store.trail:
            digest.update(repr((row.at, row.cause, row.ref, row.version, row.event, row.to_state)).encode())
            if row.from_state is not None and row.to_state is not None:
                report.transitions += 1
                report.arrows[row.machine, row.from_state, row.event, row.to_state] += 1
            elif row.to_state is None:
                report.facts += 1
        report.digest = digest.hexdigest()
        for fault, count in self.faults.counts.items():
            report.faults[fault.value] = count
        for ref, record in self.store.records.items():
            if ref.kind is Entity.RUN and isinstance(record, Run):
                report.outcomes[f"{record.machine} {record.state}"] += 1
        return report


def simulate(seed: int, parts: Parts | None = None) -> Report:
    """Live through one world; raise `Violation` where a promise is broken."""
    return Simulation(seed, parts or Parts()).run()
