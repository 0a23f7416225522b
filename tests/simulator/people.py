"""Random people: operators who decide well, badly, too late or about things that do not exist."""

from collections.abc import Callable
from random import Random

from engine.core.book import Standing
from engine.core.model import Model
from engine.core.plan import Plan
from engine.core.records import Entity, Ref, Run, Task
from engine.core.signals import (
    AbandonRun,
    AnswerLost,
    Approve,
    AttestTask,
    Cancel,
    CorrectRun,
    DrainWorker,
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
)
from engine.machines import Phase
from tests.simulator.wire import Wire
from tests.simulator.workflows import PEOPLE, TOOLS, Author

MAX_RUNS = 8
"""No more runs of their own are begun by people in one world."""


class People:
    """Everyone who may type a command."""

    def __init__(self, random: Random, wire: Wire, author: Author) -> None:
        self._random = random
        self._wire = wire
        self._author = author
        self._begun = 0
        self._mended: dict[Ref, int] = {}
        """How often a thing was mended by hand; at some point people give up."""
        self.nonsense: set[int] = set()
        """Commands that must be refused, whatever has happened meanwhile."""

    def _say(self, signal: Signal) -> None:
        self._wire.command(signal)

    # ---- beginning

    def submit(self) -> None:
        random = self._random
        self._begun += 1
        requester = random.choice((*PEOPLE, ""))
        self._say(
            Submit(
                id=self._wire.next_id(),
                actor=requester,
                plan=self._author.plan(),
                params=self._author.params(),
            )
        )

    # ---- meddling

    def meddle(self, model: Model, runs: list[Run]) -> None:
        """One random command, sensible or not, about one of these runs or about the rest."""
        random = self._random
        if random.random() < 0.12:
            self._say_nonsense(runs)
            return
        kind = random.random()
        if kind < 0.6:
            self._on_run(model, runs)
        elif kind < 0.8:
            self._on_worker(model)
        else:
            self._on_breaker()

    def _on_run(self, model: Model, runs: list[Run]) -> None:
        if not runs:
            return
        run = self._random.choice(runs)
        if run.terminal:
            self._say(self._on_ended(run))
            return
        if run.hold is not None and not run.hold.met and run.phase is Phase.HELD:
            self._vote(run.ref, run.plan)
            return
        if self._random.random() < 0.2:
            self._say(
                Cancel(
                    id=self._wire.next_id(), actor="ada", run=run.number, force=self._random.random() < 0.4
                )
            )
            return
        self._on_task(run, self._random.choice(list(model.tasks_of(run))))

    def _on_ended(self, run: Run) -> Signal:
        random, name = self._random, self._wire.next_id()
        kind = random.random()
        if kind < 0.2:
            return CorrectRun(id=name, actor="ada", run=run.number, reason="a step is not done")
        if self._begun >= MAX_RUNS or run.parent is not None:
            return Cancel(id=name, actor="ben", run=run.number, force=True)
        self._begun += 1
        if kind < 0.6:
            return Resume(id=name, actor="ada", run=run.number)
        task = random.randint(1, len(run.plan.tasks)) if random.random() < 0.6 else None
        return Rerun(id=name, actor="ben", run=run.number, task=task, dependents=random.random() < 0.5)

    def _on_task(self, run: Run, task: Task) -> None:
        random = self._random
        name, (number, place) = self._wire.next_id(), task.key
        if task.phase is Phase.HELD:
            self._vote(task.ref, run.plan)
            return
        if task.asking and random.random() < 0.8:
            self._say(AnswerLost(id=name, actor="cyd", run=number, task=place, retry=random.random() < 0.6))
            return
        choices: tuple[Signal, ...] = (
            ResetTask(id=name, actor="dee", run=number, task=place),
            WaiveTask(id=name, actor="dee", run=number, task=place, reason="not needed today"),
            AttestTask(id=name, actor="ada", run=number, task=place, evidence="the artefact is there"),
            AnswerLost(id=name, actor="cyd", run=number, task=place, retry=False),
            AbandonRun(id=name, actor="ben", run=run.number),
        )
        self._say(random.choice(choices))

    def _vote(self, ref: Ref, plan: Plan) -> None:
        random = self._random
        voter = random.choice((*PEOPLE, "mallory"))
        name = self._wire.next_id()
        if random.random() < 0.75:
            digest = random.choice((None, plan.digest, "another"))
            if digest == "another":
                self.nonsense.add(name)
            self._say(Approve(id=name, actor=voter, target=ref, digest=digest))
        else:
            reason = random.choice((None, "too risky", "too risky"))
            if reason is None:
                self.nonsense.add(name)
            self._say(Reject(id=name, actor=voter, target=ref, reason=reason))

    def _on_worker(self, model: Model) -> None:
        workers = list(model.workers())
        if not workers:
            return
        worker, name = self._random.choice(workers).id, self._wire.next_id()
        commands: tuple[Callable[..., Signal], ...] = (
            PauseWorker,
            ResumeWorker,
            ResumeWorker,
            DrainWorker,
            TerminateWorker,
        )
        self._say(self._random.choice(commands)(id=name, actor="ben", worker=worker))

    def _on_breaker(self) -> None:
        random, name = self._random, self._wire.next_id()
        tool = random.choice(TOOLS)
        choices: tuple[Signal, ...] = (
            TripBreaker(id=name, actor="cyd", tool=tool, reason="it eats money"),
            ProbeBreaker(id=name, actor="cyd", tool=tool),
            ResetBreaker(id=name, actor="cyd", tool=tool, healthy=random.random() < 0.5),
            ResetBreaker(id=name, actor="cyd", tool=tool, override=random.choice((tool, "other"))),
        )
        self._say(random.choice(choices))

    def _say_nonsense(self, runs: list[Run]) -> None:
        """Something that is wrong now and stays wrong."""
        name, actor = self._wire.next_id(), "mallory"
        choices: list[Signal] = [
            Cancel(id=name, actor=actor, run=9999),
            Approve(id=name, actor=actor, target=Ref(Entity.RUN, 9999)),
            Resume(id=name, actor=actor, run=9999),
            Rerun(id=name, actor=actor, run=9999),
            ResetTask(id=name, actor=actor, run=9999, task=1),
            WaiveTask(id=name, actor=actor, run=9999, task=1),
            AnswerLost(id=name, actor=actor, run=9999, task=1, retry=True),
            AbandonRun(id=name, actor=actor, run=9999),
            PauseWorker(id=name, actor=actor, worker="nobody"),
            DrainWorker(id=name, actor=actor, worker="nobody"),
            Submit(id=name, actor="ada", plan=self._author.refused_plan()),
        ]
        # A success of 000 may be corrected, so it is not over for ever.
        over = [run for run in runs if run.terminal and run.machine != "pipeline.workstream"]
        if over:
            run = self._random.choice(over)
            choices += [
                Approve(id=name, actor="ada", target=run.ref),
                Reject(id=name, actor="ada", target=run.ref, reason="no"),
                Cancel(id=name, actor="ada", run=run.number),
                AbandonRun(id=name, actor="ada", run=run.number),
                ResetTask(id=name, actor="ada", run=run.number, task=1),
                Rerun(id=name, actor="ada", run=run.number, task=len(run.plan.tasks) + 1),
            ]
        self.nonsense.add(name)
        self._say(self._random.choice(choices))

    # ---- helping

    def attend(self, model: Model) -> None:
        """Answer everything that waits for a person; what was answered often enough is given up."""
        for run in list(model.runs()):
            if not run.terminal:
                self._attend_run(model, run)
        for worker in list(model.workers()):
            if worker.control_phase is Phase.WAITING and self._again(worker.ref, 3):
                self._say(ResumeWorker(id=self._wire.next_id(), actor="ben", worker=worker.id))

    def _again(self, what: Ref, limit: int) -> int:
        """How many more times this may be mended, counting this one; 0 when people have given up."""
        count = self._mended.get(what, 0)
        self._mended[what] = count + 1
        return max(0, limit - count)

    def _attend_run(self, model: Model, run: Run) -> None:
        if run.phase is Phase.HELD:
            self._attend_hold(run.ref)
            return
        if run.phase is Phase.FAILED:
            self._attend_failed(model, run)
            return
        for task in model.tasks_of(run):
            if task.phase is Phase.HELD:
                self._attend_hold(task.ref)
            elif task.asking and (left := self._again(task.ref, 6)):
                retry = left > 4
                self._say(
                    AnswerLost(
                        id=self._wire.next_id(), actor="cyd", run=run.number, task=task.number, retry=retry
                    )
                )
            elif model.standing(task.key) is Standing.STRANDED:
                self._attend_stranded(run, task)

    def _attend_hold(self, ref: Ref) -> None:
        left, name = self._again(ref, 5), self._wire.next_id()
        if left > 1:
            self._say(Approve(id=name, actor=PEOPLE[left % len(PEOPLE)], target=ref))
        elif left == 1:
            self._say(Reject(id=name, actor="ada", target=ref, reason="nobody else is there"))

    def _attend_stranded(self, run: Run, task: Task) -> None:
        left, name = self._again(task.ref, 5), self._wire.next_id()
        if left > 3:
            self._say(ResetTask(id=name, actor="dee", run=run.number, task=task.number))
        elif left:
            self._say(Cancel(id=name, actor="dee", run=run.number, force=left == 1))

    def _attend_failed(self, model: Model, run: Run) -> None:
        """A workstream that rests in its failure: mend its steps, or abandon it, or let it be."""
        if run.live is not None or any(task.live is not None for task in model.tasks_of(run)):
            return
        left = self._again(run.ref, 3)
        if left > 1:
            for task in model.tasks_of(run):
                if (
                    model.standing(task.key) in (Standing.FAILED, Standing.DOOMED)
                    and task.phase is Phase.FAILED
                ):
                    self._mend(task)
        elif left == 1 and self._random.random() < 0.5:
            self._say(AbandonRun(id=self._wire.next_id(), actor="ben", run=run.number))

    def _mend(self, task: Task) -> None:
        name, (run, number) = self._wire.next_id(), task.key
        choices: tuple[Signal, ...] = (
            ResetTask(id=name, actor="dee", run=run, task=number),
            WaiveTask(id=name, actor="dee", run=run, task=number, reason="not needed today"),
            AttestTask(id=name, actor="ada", run=run, task=number, evidence="the artefact is there"),
        )
        self._say(self._random.choice(choices))
