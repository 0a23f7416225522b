"""Hypothesis against the core: any signal at any time, and the promises hold after each.

Only commands may be refused. What the world outside reports is never refused, however late, doubled or
out of order it comes. Left in peace in the end, every run comes to its end.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.core import signals as s
from engine.core.decide import decide
from engine.core.decision import Decision
from engine.core.dispatch import dispatch
from engine.core.errors import Refused
from engine.core.explain import explain
from engine.core.model import Model
from engine.core.plan import SECOND, Plan
from engine.core.ready import Why
from engine.core.records import Entity, Ref, Run, Task, TaskKey, TimerKind, Token
from engine.machines import InvalidTransitionError, Phase
from tests.core.any_plan import PEOPLE, SETTINGS, TOOLS, plans
from tests.core.promises import Promises

MOST_RUNS = 6
DISPATCHES = 12
CALM_STEPS = 400
WORKERS = ("w1", "w2", "w3")

picks = st.integers(0, 40)
envs = st.sampled_from(("prod", "test"))
workers = st.sampled_from(WORKERS)
exits = st.sampled_from((0, 0, 1, 2, 127))


class Engine(RuleBasedStateMachine):
    """A core in the hands of chance."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(SETTINGS)
        self.now = 0
        self.rand = 0.5
        self.promises = Promises()
        self.told: list[s.Signal] = []

    # ---- telling

    def tell(self, make: Callable[..., s.Signal], **fields: Any) -> bool:
        return self.say(make(id=len(self.told) + 1, **fields))

    def say(self, signal: s.Signal) -> bool:
        """Whether the signal was granted."""
        self.told.append(signal)
        try:
            decision = self.purely(lambda: decide(self.model, signal, self.now, self.rand))
        except (Refused, InvalidTransitionError) as refusal:
            if signal.source != "cli":
                raise AssertionError(f"{signal} is no command and was refused") from refusal
            return False
        self.promises.hear(signal)
        self.apply(signal, decision)
        for _ in range(DISPATCHES):
            batch = self.purely(lambda: dispatch(self.model, self.now, signal.id))
            if not batch:
                return True
            self.apply(signal, batch)
        raise AssertionError("dispatch does not come to rest")

    def apply(self, signal: s.Signal, decision: Decision) -> None:
        self.model.apply(decision)
        self.promises.follow(self.model, signal, decision)

    def purely(self, ask: Callable[[], Decision]) -> Decision:
        before = self.model.snapshot(), self.model.derived()
        try:
            first = ask()
            assert ask() == first
            return first
        finally:
            assert (self.model.snapshot(), self.model.derived()) == before

    def a_run(self, pick: int) -> int:
        """One of the runs, and seldom one that there is not."""
        return pick % self.model.next_run

    def a_task(self, pick: int) -> TaskKey:
        known = [(0, 1), *sorted(task.key for task in self.model.tasks())]
        return known[pick % len(known)]

    def a_ref(self, pick: int, of_run: bool) -> Ref:
        return Ref(Entity.RUN, self.a_run(pick)) if of_run else Ref(Entity.TASK, self.a_task(pick))

    # ---- workers

    @initialize(first=plans(), second=plans(), env=envs)
    def a_worker_and_two_runs(self, first: Plan, second: Plan, env: str) -> None:
        self.tell(s.WorkerRegistered, worker="w1", slots=2, capabilities=frozenset({"gpu"}))
        for plan in (first, second):
            self.a_run_is_submitted(plan, env)

    @precondition(lambda self: not any(worker.willing for worker in self.model.workers()))
    @rule()
    def a_fresh_worker_registers(self) -> None:
        name = f"n{len(self.told)}"
        self.tell(s.WorkerRegistered, worker=name, slots=2, capabilities=frozenset({"gpu"}))

    @rule(worker=workers, slots=st.integers(1, 2), gpu=st.booleans())
    def worker_registers(self, worker: str, slots: int, gpu: bool) -> None:
        self.tell(
            s.WorkerRegistered, worker=worker, slots=slots, capabilities=frozenset({"gpu"} if gpu else ())
        )

    @rule(worker=workers, kind=st.sampled_from((s.WorkerQuiet, s.WorkerBack)))
    def worker_is_missed_or_heard(self, worker: str, kind: type[s.Signal]) -> None:
        self.tell(kind, worker=worker)

    @rule(
        worker=workers,
        kind=st.sampled_from((s.WorkerCreated, s.WorkerGone, s.WorkerExhausted, s.WorkerBroken)),
    )
    def worker_changes(self, worker: str, kind: type[s.Signal]) -> None:
        self.tell(kind, worker=worker)

    @rule(
        worker=workers,
        kind=st.sampled_from((s.PauseWorker, s.ResumeWorker, s.DrainWorker, s.TerminateWorker)),
    )
    def worker_is_told(self, worker: str, kind: type[s.Signal]) -> None:
        self.tell(kind, worker=worker)

    # ---- attempts

    def living(self, pick: int) -> Token | None:
        alive = sorted(token for tokens in self.promises.alive.values() for token in tokens)
        return alive[pick % len(alive)] if alive else None

    @precondition(lambda self: any(self.promises.alive.values()))
    @rule(pick=picks, code=exits, error=st.sampled_from((None, "e1", "e2")), rand=st.sampled_from((0.0, 0.9)))
    def attempt_ends(self, pick: int, code: int, error: str | None, rand: float) -> None:
        self.rand = rand
        token = self.living(pick)
        self.tell(s.AttemptEnded, token=token, exit_code=code, fingerprint=error)

    @precondition(lambda self: any(self.promises.alive.values()))
    @rule(
        pick=picks, kind=st.sampled_from((s.AttemptStarted, s.AttemptFound, s.AttemptLost, s.AttemptMissing))
    )
    def attempt_is_heard_of(self, pick: int, kind: type[s.Signal]) -> None:
        self.tell(kind, token=self.living(pick))

    @precondition(lambda self: any(self.promises.alive.values()))
    @rule(pick=picks)
    def attempt_will_never_start(self, pick: int) -> None:
        self.tell(s.AttemptLost, token=self.living(pick), ran=False)

    @precondition(lambda self: any(self.promises.alive.values()))
    @rule(pick=picks, worker=workers)
    def attempt_is_adopted(self, pick: int, worker: str) -> None:
        self.tell(s.AttemptAdopted, token=self.living(pick), worker=worker)

    @precondition(lambda self: self.promises.started)
    @rule(pick=picks, kind=st.sampled_from((s.AttemptFound, s.AttemptLost, s.AttemptStarted)), code=exits)
    def a_stale_word_comes(self, pick: int, kind: type[s.Signal], code: int) -> None:
        token = self.promises.started[pick % len(self.promises.started)]
        if kind is s.AttemptStarted:
            self.tell(s.AttemptEnded, token=token, exit_code=code)
        else:
            self.tell(kind, token=token)

    # ---- time

    @precondition(lambda self: any(self.model.timers()))
    @rule(pick=picks)
    def a_timer_is_due(self, pick: int) -> None:
        armed = sorted(self.model.timers(), key=lambda timer: (timer.due, str(timer)))
        timer = armed[pick % min(3, len(armed))]
        self.now = max(self.now, timer.due)
        self.tell(s.TimerDue, ref=timer.ref, kind=timer.kind)

    @rule(seconds=st.sampled_from((1, 30, 100, 7200)))
    def time_jumps(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @rule(pick=picks, kind=st.sampled_from(TimerKind), of_run=st.booleans())
    def a_timer_that_nobody_armed_is_due(self, pick: int, kind: TimerKind, of_run: bool) -> None:
        self.tell(s.TimerDue, ref=self.a_ref(pick, of_run), kind=kind)

    @rule()
    def the_engine_restarts(self) -> None:
        self.model = Model.load(self.model.snapshot(), SETTINGS)
        self.tell(s.EngineStarted)

    def leavers(self) -> list[int]:
        """Runs that are over, and of which nothing is left anywhere."""
        busy = {attempt.token.run for attempt in self.model.attempts()}
        parents = {run.parent[0] for run in self.model.runs() if run.parent and not run.terminal}
        return [r.number for r in self.model.runs() if r.terminal and r.number not in busy | parents]

    @precondition(lambda self: self.leavers())
    @rule(pick=picks)
    def a_run_that_is_over_leaves_the_model(self, pick: int) -> None:
        leavers = self.leavers()
        self.model.retire(leavers[pick % len(leavers)])

    @precondition(lambda self: self.told)
    @rule(pick=picks)
    def a_signal_comes_again(self, pick: int) -> None:
        old = self.told[-1 - pick % len(self.told)]
        if not isinstance(old, s.Submit | s.Resume | s.Rerun):
            self.say(old)

    # ---- people

    @precondition(lambda self: self.model.next_run <= MOST_RUNS)
    @rule(plan=plans(), env=envs)
    def a_run_is_submitted(self, plan: Plan, env: str) -> None:
        assert self.tell(s.Submit, plan=plan, actor="dev", params={"env": env})

    def held(self) -> list[Ref]:
        records: list[Run | Task] = [*self.model.runs(), *self.model.tasks()]
        return [record.ref for record in records if record.phase is Phase.HELD]

    @precondition(lambda self: self.held())
    @rule(pick=picks, who=st.sampled_from(PEOPLE), verb=st.sampled_from((s.Approve, s.Approve, s.Reject)))
    def someone_votes(self, pick: int, who: str, verb: type[s.Signal]) -> None:
        held = sorted(self.held())
        self.tell(verb, target=held[pick % len(held)], actor=who, reason="because")

    @rule(pick=picks, of_run=st.booleans(), verb=st.sampled_from((s.Approve, s.Reject)))
    def someone_votes_at_random(self, pick: int, of_run: bool, verb: type[s.Signal]) -> None:
        self.tell(verb, target=self.a_ref(pick, of_run), actor="ann", reason="because")

    @rule(pick=picks, force=st.booleans())
    def someone_cancels(self, pick: int, force: bool) -> None:
        self.tell(s.Cancel, run=self.a_run(pick), force=force)

    @precondition(lambda self: self.model.next_run <= MOST_RUNS)
    @rule(pick=picks, whole=st.booleans(), dependents=st.booleans())
    def someone_runs_again(self, pick: int, whole: bool, dependents: bool) -> None:
        run, task = self.a_task(pick)
        part = None if whole else task
        self.tell(s.Rerun, run=run, task=part, dependents=dependents, actor="dev")

    @precondition(lambda self: self.model.next_run <= MOST_RUNS)
    @rule(pick=picks)
    def someone_resumes(self, pick: int) -> None:
        self.tell(s.Resume, run=self.a_run(pick), actor="dev")

    @precondition(lambda self: any(task.asking for task in self.model.tasks()))
    @rule(pick=picks, retry=st.booleans())
    def someone_answers(self, pick: int, retry: bool) -> None:
        asking = sorted(task.key for task in self.model.tasks() if task.asking)
        run, task = asking[pick % len(asking)]
        self.tell(s.AnswerLost, run=run, task=task, retry=retry)

    @rule(pick=picks, kind=st.sampled_from((s.ResetTask, s.WaiveTask, s.AnswerLost)))
    def someone_mends_a_task(self, pick: int, kind: type[s.Signal]) -> None:
        run, task = self.a_task(pick)
        self.tell(kind, run=run, task=task, **({"retry": True} if kind is s.AnswerLost else {}))

    @rule(pick=picks, evidence=st.sampled_from(("", "saw it")))
    def someone_attests(self, pick: int, evidence: str) -> None:
        run, task = self.a_task(pick)
        self.tell(s.AttestTask, run=run, task=task, evidence=evidence)

    @rule(pick=picks, kind=st.sampled_from((s.CorrectRun, s.AbandonRun)))
    def someone_corrects_or_abandons(self, pick: int, kind: type[s.Signal]) -> None:
        self.tell(kind, run=self.a_run(pick))

    @rule(tool=st.sampled_from(TOOLS), kind=st.sampled_from((s.TripBreaker, s.ProbeBreaker, s.ResetBreaker)))
    def someone_turns_a_breaker(self, tool: str, kind: type[s.Signal]) -> None:
        self.tell(kind, tool=tool, **({"healthy": True} if kind is s.ResetBreaker else {}))

    # ---- promises

    @invariant()
    def every_promise_holds(self) -> None:
        self.promises.check(self.model, self.now)

    def teardown(self) -> None:
        """No more faults, people answer: everything comes to its end."""
        self.tell(s.WorkerRegistered, worker="calm", slots=4, capabilities=frozenset({"gpu"}))
        for _ in range(CALM_STEPS):
            if all(run.terminal for run in self.model.runs()):
                return
            self.calm_step()
        left = [(run.number, run.machine, run.state) for run in self.model.runs() if not run.terminal]
        raise AssertionError(f"left in peace, these did not end: {left}")

    def calm_step(self) -> None:
        """The most natural next thing: a result, an answer, or the next timer."""
        if (token := self.living(0)) is not None:
            self.tell(s.AttemptEnded, token=token, exit_code=0)
            return
        for attempt in self.model.attempts():
            if attempt.worker is not None:
                self.tell(s.AttemptLost, token=attempt.token)
                return
        if self.people_answer():
            return
        armed = sorted(self.model.timers(), key=lambda timer: (timer.due, str(timer)))
        if not armed:
            stuck = [self.model.run(run.number) for run in self.model.runs() if not run.terminal]
            raise AssertionError(f"nothing can happen any more: {[(r.number, r.state) for r in stuck]}")
        self.now = max(self.now, armed[0].due)
        self.tell(s.TimerDue, ref=armed[0].ref, kind=armed[0].kind)

    def people_answer(self) -> bool:
        for ref in self.held():
            for who in ("ann", "bob"):
                if self.tell(s.Approve, target=ref, actor=who):
                    return True
        for run in list(self.model.runs()):
            if run.terminal:
                continue
            for task in self.model.tasks_of(run):
                if task.asking and self.tell(s.AnswerLost, run=run.number, task=task.number, retry=False):
                    return True
                stranded = task.phase is Phase.PARKED and self.why(task.ref) is Why.PERSON
                if stranded and self.tell(s.WaiveTask, run=run.number, task=task.number):
                    return True
        return False

    def why(self, ref: Ref) -> Why:
        return explain(self.model, ref, self.now).what


TestEngine = Engine.TestCase
