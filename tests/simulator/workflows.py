"""Random workflows: plans under every pair of machines, the operator's settings, and refused plans."""

from random import Random

from engine.core.plan import (
    SECOND,
    Approval,
    Category,
    Clause,
    ErrorRule,
    OnFailure,
    OnLost,
    Plan,
    Retry,
    Settings,
    TaskPlan,
    Test,
    Tool,
    WhenOpen,
)
from engine.core.refusals import refusals
from engine.machines import RUN_MACHINES, TASK_MACHINES, Lifecycle, RunCue, TaskCue, named

TOOLS = ("aider", "make", "pytest", "scp")
CAPABILITIES = ("gpu", "net")
PEOPLE = ("ada", "ben", "cyd", "dee")
TEAMS = {"ops": frozenset({"ada", "ben"}), "leads": frozenset({"cyd"})}
FAILING_EXITS = (1, 1, 2, 3, 75, 126, 127)
PAIRS = tuple((run, task) for run in RUN_MACHINES for task in TASK_MACHINES)


class Author:
    """Writes the workflows of one world."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._written = 0
        self.pair = random.choice(PAIRS)
        self.mixed = random.random() < 0.3
        """Whether each workflow takes a pair of machines of its own."""
        self.rich = random.choice((0.05, 0.2, 0.4))
        """How likely a task has each of the rarer wishes."""

    def _maybe(self, factor: float = 1.0) -> bool:
        return self._random.random() < self.rich * factor

    # ---- the operator's side

    def settings(self) -> Settings:
        random = self._random
        return Settings(
            tools={name: self._tool(name) for name in TOOLS if random.random() < 0.7},
            teams=TEAMS,
            policy=(Clause(),) if self._maybe(0.5) else (),
            self_approval=random.random() < 0.3,
            retry=self._retry(),
            task_timeout=random.choice((20, 60, 300)) * SECOND,
            check_timeout=random.choice((5, 30)) * SECOND,
            max_losses=random.choice((1, 2, 3)),
            give_up_after=random.choice((10, 60)) * SECOND,
            register_within=random.choice((20, 60)) * SECOND,
        )

    def _tool(self, name: str) -> Tool:
        random = self._random
        return Tool(
            name,
            retry_on_failure=random.random() < 0.9,
            retry=self._retry() if self._maybe() else None,
            timeout=random.choice((5, 30)) * SECOND if self._maybe() else None,
            concurrency=random.choice((1, 2)) if self._maybe() else None,
            has_health_command=random.random() < 0.5,
            errors=(self._rule(),) if self._maybe() else (),
            failure_threshold=random.choice((1, 2, 3, 5)),
            cooldown=random.choice((5, 20, 60)) * SECOND,
            success_threshold=random.choice((1, 1, 2)),
        )

    def _retry(self) -> Retry:
        random = self._random
        return Retry(
            max_attempts=random.choice((1, 2, 2, 3, 5)),
            base=random.choice((1, 2)) * SECOND,
            cap=random.choice((4, 60)) * SECOND,
            max_repeats=random.choice((1, 2, 4)),
        )

    def _rule(self) -> ErrorRule:
        random = self._random
        return ErrorRule(
            random.choice(tuple(Category)),
            exit_codes=frozenset({random.choice((1, 2, 3))}) if random.random() < 0.7 else frozenset(),
            pattern=random.choice(("refused", "no space")) if random.random() < 0.4 else None,
        )

    # ---- the workflow author's side

    def plan(self, depth: int = 0) -> Plan:
        """A plan that its lifecycle can grant."""
        while True:
            plan = self._plan(depth)
            if depth or not refusals(plan):
                return plan

    def refused_plan(self) -> Plan:
        """A plan that must be refused when it is submitted."""
        random = self._random
        approval = Approval((Clause(),))
        options = [
            Plan(self._name(), (TaskPlan("a", needs=(2,)), TaskPlan("b", needs=(1,)))),
            Plan(self._name(), (TaskPlan("a"),), worker_count=random.choice((0, 11))),
            Plan(self._name(), (TaskPlan("a", approval=approval),)),
            Plan(
                self._name(), (TaskPlan("a"),), Lifecycle("pipeline.workstream", "execution"),
                on_failure=OnFailure.CONTINUE,
            ),
            Plan(
                self._name(), (TaskPlan("a", when_circuit_open=WhenOpen.WAIT),),
                Lifecycle("execution", "pipeline.step"),
            ),
            Plan(
                self._name(), (TaskPlan("a"),), Lifecycle("supervision.job", "execution"), approval=approval
            ),
        ]  # fmt: skip
        plan = random.choice(options)
        assert refusals(plan)
        return plan

    def _name(self) -> str:
        self._written += 1
        return f"flow{self._written}"

    def _plan(self, depth: int) -> Plan:
        random = self._random
        run, task = random.choice(PAIRS) if self.mixed or (depth and self._maybe()) else self.pair
        holds = RunCue.HOLD in named(run).cues
        mirrors = RunCue.TASK_FAILED in named(run).cues
        name = self._name()
        policies = [None, OnFailure.FINISH, OnFailure.CANCEL, *(() if mirrors else (OnFailure.CONTINUE,))]
        return Plan(
            name,
            self._tasks(task, depth),
            Lifecycle(run, task),
            digest=name,
            concurrency=random.choice((1, 2, 3)) if self._maybe() else None,
            priority=random.choice((-1, 0, 0, 1)),
            timeout=random.choice((10, 60, 600)) * SECOND if self._maybe() else None,
            on_failure=random.choice(policies),
            approval=self._approval() if holds and self._maybe() else None,
            wait=random.choice((1, 30, 3600)) * SECOND if holds and self._maybe() else None,
            checks=random.choice((1, 2)) if self._maybe() else 0,
            grace=random.choice((0, 5, 30)) * SECOND,
            hook_timeout=random.choice((5, 300)) * SECOND,
            abandon_after=random.choice((30, 24 * 3600)) * SECOND,
            checkpoint=random.random() < 0.8,
        )

    def _tasks(self, machine: str, depth: int) -> tuple[TaskPlan, ...]:
        random = self._random
        if random.random() < 0.02 and not depth:
            count = 30
        else:
            count = random.choice((1, 1, 2, 3)) if depth else random.choice((1, 2, 3, 3, 4, 5, 6, 8, 12))
        density = random.choice((0.0, 0.3, 0.6, 0.9))
        tasks: list[TaskPlan] = []
        for number in range(1, count + 1):
            needs = tuple(
                sorted({random.randint(1, number - 1) for _ in range(3) if random.random() < density})
            ) if number > 1 else ()  # fmt: skip
            tasks.append(self._task(machine, f"t{number}", needs, depth))
        return tuple(tasks)

    def _task(self, machine: str, name: str, needs: tuple[int, ...], depth: int) -> TaskPlan:
        random = self._random
        cues = named(machine).cues
        holds = TaskCue.HOLD in cues
        uses = self._plan(depth + 1) if depth < 2 and self._maybe(0.3) else None
        return TaskPlan(
            name,
            needs=needs,
            tool=random.choice(TOOLS) if uses is None and random.random() < 0.7 else None,
            capabilities=frozenset({random.choice(CAPABILITIES)}) if self._maybe(0.5) else frozenset(),
            retry=self._retry() if self._maybe() else None,
            timeout=random.choice((2, 10, 60)) * SECOND if self._maybe() else None,
            expected_exits=frozenset({0, 3}) if self._maybe(0.5) else frozenset({0}),
            errors=(self._rule(),) if self._maybe(0.5) else (),
            checks=random.choice((1, 1, 2)) if self._maybe() else 0,
            has_cancel_hook=uses is None and self._maybe(),
            critical=not self._maybe(),
            optional=self._maybe(0.5),
            when=self._when(needs) if self._maybe() else (),
            on_lost=random.choice(tuple(OnLost)),
            when_circuit_open=WhenOpen.WAIT if TaskCue.PROBE in cues and self._maybe(2) else WhenOpen.FAIL,
            max_probes=random.choice((0, 1, 1, 2)),
            approval=self._approval() if holds and self._maybe(0.5) else None,
            wait=random.choice((1, 30)) * SECOND if holds and self._maybe(0.5) else None,
            uses=uses,
        )

    def _when(self, needs: tuple[int, ...]) -> tuple[Test, ...]:
        random = self._random
        if needs and random.random() < 0.5:
            return (Test(f"needs.t{random.choice(needs)}", "succeeded", random.random() < 0.7),)
        return (Test("params.mode", random.choice(("fast", "full")), random.random() < 0.6),)

    def params(self) -> dict[str, str]:
        return {"mode": self._random.choice(("fast", "full"))} if self._random.random() < 0.7 else {}

    def _approval(self) -> Approval:
        random = self._random
        clauses = (
            Clause(users=frozenset({"ada", "dee"})),
            Clause(teams=frozenset({"ops"}), count=random.choice((1, 2))),
            Clause(teams=frozenset({"leads"}), count=random.choice((1, 1, 2))),
            Clause(count=random.choice((1, 2))),
        )
        return Approval(
            tuple(random.sample(clauses, random.choice((1, 1, 2)))),
            expires=random.choice((60, 24 * 3600)) * SECOND,
        )
