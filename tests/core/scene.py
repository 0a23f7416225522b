"""A scene for tests of the core: a model, a clock that tests move, and the record of what happened.

Signals are told in the words of the test; every decision is applied, and `dispatch` follows until it
has nothing more to say, as the engine's loop does.
"""

from collections.abc import Callable
from itertools import count

import pytest

from engine.core import signals as s
from engine.core.decide import decide
from engine.core.decision import Decision, Fact, Halt, Instruction, Start, Transition
from engine.core.dispatch import dispatch
from engine.core.errors import Refused
from engine.core.explain import Explanation, explain
from engine.core.model import Model
from engine.core.plan import SECOND, Approval, Clause, Plan, Retry, Settings, TaskPlan
from engine.core.records import Attempt, Breaker, Entity, Ref, Run, Task, TimerKind, Token, Worker
from engine.machines import LIFECYCLES, InvalidTransitionError, Lifecycle
from tests.core.worker_side import matched

ROUNDS = 20
"""Dispatches after one signal; one is usual, a sub-run needs one more for each level."""

EXECUTION = LIFECYCLES["execution"]
PIPELINE = LIFECYCLES["pipeline"]
ORCHESTRATION = LIFECYCLES["orchestration"]
SUPERVISION = LIFECYCLES["supervision"]


def task_ref(run: int, task: int) -> Ref:
    return Ref(Entity.TASK, (run, task))


def run_ref(run: int) -> Ref:
    return Ref(Entity.RUN, run)


def worker_ref(worker: str) -> Ref:
    return Ref(Entity.WORKER, worker)


def tool_ref(tool: str) -> Ref:
    return Ref(Entity.BREAKER, tool)


def approval(*clauses: Clause, expires: int = 3600 * SECOND) -> Approval:
    return Approval(clauses or (Clause(users=frozenset({"ann", "bob"})),), expires)


class Scene:
    """A model under test."""

    def __init__(self, settings: Settings | None = None, *, slots: int = 0) -> None:
        self.model = Model(settings)
        self.now = 0
        self.rand = 0.5
        self.decisions: list[Decision] = []
        self._ids = count(1)
        if slots:
            self.worker("w", slots)

    # ---- telling

    def tell(self, signal: Callable[..., s.Signal], /, **fields: object) -> list[Decision]:
        """Decide, apply, dispatch. What came of it is returned, and kept."""
        made = signal(id=next(self._ids), **fields)
        decisions = [decide(self.model, made, self.now, self.rand)]
        self.model.apply(decisions[0])
        for _ in range(ROUNDS):
            batch = dispatch(self.model, self.now, made.id)
            if not batch:
                break
            self.model.apply(batch)
            decisions.append(batch)
        else:
            raise AssertionError("dispatch does not come to an end")
        self.decisions += decisions
        return decisions

    def refused(self, signal: Callable[..., s.Signal], /, **fields: object) -> str:
        """The signal is refused in words, and nothing has changed."""
        before = self.model.snapshot(), self.model.derived()
        with pytest.raises((Refused, InvalidTransitionError)) as refusal:
            decide(self.model, signal(id=next(self._ids), **fields), self.now, self.rand)
        assert (self.model.snapshot(), self.model.derived()) == before
        return str(refusal.value)

    def worker(self, name: str = "w", slots: int = 1, *capabilities: str) -> None:
        self.tell(s.WorkerRegistered, worker=name, slots=slots, capabilities=frozenset(capabilities))

    def submit(self, plan: Plan, requester: str | None = "dev", **params: str) -> int:
        number = self.model.next_run
        self.tell(s.Submit, plan=plan, actor=requester or "", params=params)
        return number

    def run_tasks(self, *tasks: TaskPlan, lifecycle: Lifecycle = LIFECYCLES["standard"]) -> int:
        return self.submit(Plan("p", tasks, lifecycle))

    def end(self, run: int, task: int, code: int = 0, *, error: str | None = None, tail: str = "") -> Token:
        """The live execution of a task exits with a code."""
        token = self.live(run, task)
        self.tell(s.AttemptStarted, token=token, pid=1)
        found = matched(self.model, token, tail)
        self.tell(s.AttemptEnded, token=token, exit_code=code, fingerprint=error, matched=found)
        return token

    def pass_time(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)

    def due(self, ref: Ref, kind: TimerKind) -> None:
        """Move the clock to a timer that is armed, and tell that it is due."""
        when = self.model.timer(ref, kind)
        assert when is not None, f"no timer {kind} of {ref}"
        self.now = max(self.now, when)
        self.tell(s.TimerDue, ref=ref, kind=kind)

    def restart(self) -> list[Decision]:
        """The engine comes back with nothing but the snapshot."""
        self.model = Model.load(self.model.snapshot(), self.model.settings)
        return self.tell(s.EngineStarted)

    # ---- reading

    def run(self, number: int) -> Run:
        return self.model.run(number)

    def task(self, run: int, number: int) -> Task:
        return self.model.task((run, number))

    def state(self, run: int, task: int = 0) -> str:
        return self.task(run, task).state if task else self.run(run).state

    def states(self, run: int) -> list[str]:
        return [task.state for task in self.model.tasks_of(self.run(run))]

    def live(self, run: int, task: int = 0) -> Token:
        token = self.task(run, task).live if task else self.run(run).live
        assert token is not None, f"{run}/{task} has nothing alive"
        return token

    def attempt(self, run: int, task: int = 0) -> Attempt:
        found = self.model.attempt(self.live(run, task))
        assert found is not None
        return found

    def the_worker(self, name: str = "w") -> Worker:
        found = self.model.worker(name)
        assert found is not None
        return found

    def breaker(self, tool: str) -> Breaker:
        found = self.model.breaker(tool)
        assert found is not None
        return found

    def timer(self, ref: Ref, kind: TimerKind) -> int | None:
        return self.model.timer(ref, kind)

    def why(self, run: int, task: int = 0) -> Explanation:
        return explain(self.model, task_ref(run, task) if task else run_ref(run), self.now)

    def events(self, ref: Ref) -> list[str]:
        """The events that an entity has taken, in order."""
        return [change.event for change in self.transitions(ref)]

    def transitions(self, ref: Ref) -> list[Transition]:
        changes = [change for decision in self.decisions for change in decision.changes]
        return [change for change in changes if isinstance(change, Transition) and change.ref == ref]

    def facts(self, ref: Ref, name: str) -> list[Fact]:
        changes = [change for decision in self.decisions for change in decision.changes]
        return [c for c in changes if isinstance(c, Fact) and c.ref == ref and c.name == name]

    def started(self) -> list[Token]:
        """Every token that was told to start, in order."""
        return [told.token for told in self.instructions() if isinstance(told, Start)]

    def halts(self) -> list[Halt]:
        return [told for told in self.instructions() if isinstance(told, Halt)]

    def instructions(self) -> list[Instruction]:
        return [told for decision in self.decisions for told in decision.instructions]


def told(decisions: list[Decision]) -> list[Instruction]:
    return [instruction for decision in decisions for instruction in decision.instructions]


def once(**fields: int) -> Retry:
    """No retry at all."""
    return Retry(max_attempts=1, **fields)
