"""Random plans over all sixteen lifecycle pairs, none of which the core refuses."""

from hypothesis import strategies as st

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
from engine.machines import MACHINES, RUN_MACHINES, TASK_MACHINES, Lifecycle, RunCue, TaskCue

PEOPLE = ("dev", "ann", "bob", "eve")
TOOLS = ("aider", "deploy")
CAPABILITIES = (frozenset[str](), frozenset[str](), frozenset({"gpu"}))

SETTINGS = Settings(
    tools={
        "aider": Tool("aider", failure_threshold=2, has_health_command=True, retry=Retry(max_attempts=3)),
        "deploy": Tool("deploy", retry_on_failure=False, concurrency=1, failure_threshold=3),
    },
    teams={"ops": frozenset({"ann", "bob"})},
)

APPROVALS = (
    Approval((Clause(users=frozenset({"ann"})),), 600 * SECOND),
    Approval((Clause(teams=frozenset({"ops"}), count=2),), 600 * SECOND),
)


def _rarely(draw: st.DrawFn, value: object) -> bool:
    """Once in five, a wish is granted."""
    return value is not None and draw(st.integers(0, 4)) == 4


@st.composite
def task_plans(draw: st.DrawFn, number: int, machine: str, depth: int) -> TaskPlan:
    cues = MACHINES[machine].cues
    earlier = st.sets(st.integers(1, number - 1), max_size=2) if number > 1 else st.just(set[int]())
    needs = tuple(sorted(draw(earlier)))
    uses = draw(plans(depth + 1)) if depth < 2 and _rarely(draw, True) else None
    holds = TaskCue.HOLD in cues
    when: tuple[Test, ...] = ()
    if _rarely(draw, True):
        when = (Test("params.env", "prod", equal=draw(st.booleans())),)
    elif needs and _rarely(draw, True):
        when = (Test(f"needs.t{needs[0]}", "succeeded"),)
    return TaskPlan(
        f"t{number}",
        needs,
        None if uses else draw(st.sampled_from((None, *TOOLS))),
        draw(st.sampled_from(CAPABILITIES)),
        draw(st.sampled_from((None, Retry(max_attempts=1), Retry(max_attempts=2)))),
        draw(st.sampled_from((None, 40 * SECOND))),
        errors=draw(st.sampled_from(((), (ErrorRule(Category.PERMANENT, frozenset({2})),)))),
        checks=draw(st.integers(0, 1)),
        has_cancel_hook=uses is None and draw(st.booleans()),
        critical=draw(st.integers(0, 3)) != 3,
        optional=draw(st.integers(0, 4)) == 4,
        when=when,
        on_lost=draw(st.sampled_from(OnLost)),
        when_circuit_open=draw(st.sampled_from(WhenOpen)) if TaskCue.PROBE in cues else WhenOpen.FAIL,
        approval=APPROVALS[0] if holds and _rarely(draw, True) else None,
        wait=30 * SECOND if holds and _rarely(draw, True) else None,
        uses=uses,
    )


@st.composite
def plans(draw: st.DrawFn, depth: int = 0) -> Plan:
    pair = Lifecycle(draw(st.sampled_from(RUN_MACHINES)), draw(st.sampled_from(TASK_MACHINES)))
    run = MACHINES[pair.run]
    size = draw(st.integers(1, 4 if depth == 0 else 2))
    holds = RunCue.HOLD in run.cues
    policies: list[OnFailure | None] = [None, OnFailure.FINISH, OnFailure.CANCEL]
    if RunCue.TASK_FAILED not in run.cues:
        policies.append(OnFailure.CONTINUE)
    return Plan(
        "p",
        tuple(draw(task_plans(number, pair.task, depth)) for number in range(1, size + 1)),
        pair,
        concurrency=draw(st.sampled_from((None, None, 1))),
        priority=draw(st.integers(0, 1)),
        timeout=draw(st.sampled_from((None, None, 90 * SECOND))),
        on_failure=draw(st.sampled_from(policies)),
        approval=draw(st.sampled_from(APPROVALS)) if holds and _rarely(draw, True) else None,
        wait=20 * SECOND if holds and _rarely(draw, True) else None,
        checks=draw(st.integers(0, 1)),
    )
