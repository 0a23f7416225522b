"""Plans: stored without their defaults, and read back exactly as they were, as long as the store lives."""

from dataclasses import MISSING, fields
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
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
    TaskPlan,
    Test,
    WhenOpen,
)
from engine.machines import RUN_MACHINES, TASK_MACHINES, Lifecycle
from engine.store.plans import parse_plan, plan_text, version_id
from tests.core.any_plan import plans
from tests.simulator.telling import plan_id
from tests.simulator.workflows import Author
from tests.store.conformance.drivers import Driver
from tests.store.conformance.stage import created, decision, new_run, new_task

DEFAULTS: dict[type, dict[str, object]] = {
    Plan: {
        "lifecycle": Lifecycle("execution", "toolchain.task"), "digest": "", "description": "",
        "concurrency": None, "priority": 0, "timeout": None, "on_failure": None, "approval": None,
        "wait": None, "checks": 0, "worker_count": 1, "grace": 30 * SECOND, "hook_timeout": 300 * SECOND,
        "abandon_after": 86_400 * SECOND, "checkpoint": True,
    },
    TaskPlan: {
        "needs": (), "tool": None, "capabilities": frozenset(), "retry": None, "timeout": None,
        "expected_exits": frozenset({0}), "errors": (), "checks": 0, "has_cancel_hook": False,
        "critical": True, "optional": False, "when": (), "on_lost": OnLost.RETRY,
        "when_circuit_open": WhenOpen.FAIL, "max_probes": 1, "approval": None, "wait": None, "uses": None,
    },
    Retry: {
        "max_attempts": 5, "base": 2 * SECOND, "cap": 60 * SECOND, "jitter": 0.25, "max_repeats": 2,
    },
    ErrorRule: {"exit_codes": frozenset(), "pattern": None},
    Clause: {"users": frozenset(), "teams": frozenset(), "count": 1},
    Approval: {"expires": 86_400 * SECOND},
    Test: {"equal": True},
}  # fmt: skip
"""What a stored plan means where it says nothing. A default that changes changes plans stored long ago."""

WORDS = {
    Category: {"transient", "permanent", "unknown"},
    OnFailure: {"finish", "continue", "cancel"},
    OnLost: {"retry", "ask", "fail"},
    WhenOpen: {"fail", "wait"},
}

FULL_APPROVAL = Approval((Clause(frozenset({"b", "a"}), frozenset({"ops"}), 3), Clause()), 5)
INNER = Plan(
    "inner",
    (
        TaskPlan(
            "deep",
            uses=Plan("deepest", (TaskPlan("x"), TaskPlan("y", (1,)))),
        ),
    ),
)
FULL = Plan(
    "full", (
        TaskPlan("first"),
        TaskPlan(
            "every field", (1,), "make", frozenset({"net", "gpu"}), Retry(2, 3, 4, 0.125, 5), 6,
            frozenset({0, 3, -1}),
            (ErrorRule(Category.PERMANENT, frozenset({2, 1}), "no \\s+ space"), ErrorRule(Category.UNKNOWN)),
            7, True, False, True, (Test("params.env", "prod", False), Test("needs.first", "succeeded")),
            OnLost.ASK, WhenOpen.WAIT, 8, FULL_APPROVAL, 9, INNER,
        ),
        TaskPlan("empty", expected_exits=frozenset(), retry=Retry(), approval=Approval(())),
    ),
    Lifecycle("supervision.job", "orchestration.task"), "digest", "what it is for", 10, -11, 12,
    OnFailure.CONTINUE, FULL_APPROVAL, 13, 14, 2, 15, 16, 17, False,
)  # fmt: skip


# ---- the text


@pytest.mark.parametrize("kind", DEFAULTS, ids=lambda kind: kind.__name__)
def test_the_defaults_of_a_plan_are_these_for_ever(kind: Any) -> None:
    own = [spec for spec in fields(kind) if spec.init]
    assert {spec.name: spec.default for spec in own if spec.default is not MISSING} == DEFAULTS[kind]
    assert all(spec.default_factory is MISSING for spec in own)


@pytest.mark.parametrize("kind", WORDS, ids=lambda kind: kind.__name__)
def test_the_words_of_a_plan_are_these_for_ever(kind: Any) -> None:
    assert {member.value for member in kind} == WORDS[kind]


def test_the_full_plan_leaves_no_field_at_its_default() -> None:
    parts = (FULL, FULL.tasks[1], FULL.tasks[1].retry, FULL.tasks[1].errors[0], FULL.tasks[1].when[0])
    for part in (*parts, FULL_APPROVAL, FULL_APPROVAL.clauses[0]):
        usual = DEFAULTS[type(part)]
        assert [name for name, value in usual.items() if getattr(part, name) == value] == []


def test_a_plan_of_defaults_says_only_what_it_must() -> None:
    assert plan_text(Plan("p", (TaskPlan("a"),))) == '{"name":"p","tasks":[{"name":"a"}]}'


def test_a_text_stored_long_ago_still_means_the_same() -> None:
    told = (
        '{"approval":{"clauses":[{"users":["ann"]},{}]},"lifecycle":{"run":"pipeline.workstream","task":'
        '"pipeline.step"},"name":"p","on_failure":"cancel","tasks":[{"errors":[{"category":"transient",'
        '"exit_codes":[75],"pattern":"refused"}],"expected_exits":[0,3],"name":"a","on_lost":"fail",'
        '"retry":{"max_attempts":2}},{"name":"b","needs":[1],"uses":{"name":"q","tasks":[{"name":"c"}]},'
        '"when":[{"subject":"needs.a","value":"succeeded"}],"when_circuit_open":"wait"}]}'
    )
    plan = Plan(
        "p", (
            TaskPlan(
                "a", retry=Retry(2), expected_exits=frozenset({0, 3}), on_lost=OnLost.FAIL,
                errors=(ErrorRule(Category.TRANSIENT, frozenset({75}), "refused"),),
            ),
            TaskPlan(
                "b", (1,), when=(Test("needs.a", "succeeded"),), when_circuit_open=WhenOpen.WAIT,
                uses=Plan("q", (TaskPlan("c"),)),
            ),
        ),
        Lifecycle("pipeline.workstream", "pipeline.step"), on_failure=OnFailure.CANCEL,
        approval=Approval((Clause(frozenset({"ann"})), Clause())),
    )  # fmt: skip
    assert parse_plan(told) == plan
    assert plan_text(plan) == told
    assert version_id(told).startswith("64aebcff918572d2fabf00955bbd44d6")


def the_same(plan: Plan) -> None:
    told = plan_text(plan)
    read = parse_plan(told)
    assert read == plan
    assert plan_text(read) == told
    assert version_id(told) == plan_id(plan)
    assert (read.dependents, read.numbers) == (plan.dependents, plan.numbers)


def test_a_plan_with_every_field_set_is_read_back_exactly() -> None:
    the_same(FULL)


@given(plans())
def test_any_plan_that_the_core_takes_is_read_back_exactly(plan: Plan) -> None:
    the_same(plan)


amounts = st.one_of(st.none(), st.integers(0, 2**62))
names = st.frozensets(st.text(max_size=5), max_size=3)
approvals = st.builds(
    Approval,
    st.lists(st.builds(Clause, names, names, st.integers(0, 9)), max_size=3).map(tuple),
    st.integers(0, 2**62),
)
retries = st.builds(
    Retry, st.integers(), st.integers(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.integers(),
)  # fmt: skip
codes = st.frozensets(st.integers(-300, 300), max_size=3)
rules = st.builds(ErrorRule, st.sampled_from(Category), codes, st.one_of(st.none(), st.text(max_size=9)))
tests = st.builds(Test, st.text(max_size=5), st.text(max_size=5), st.booleans())


def few(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=2).map(tuple)


def whole(inner: st.SearchStrategy[Plan]) -> st.SearchStrategy[Plan]:
    """Plans with anything in any field, sensible or not."""
    maybe = st.one_of(st.none(), approvals)
    tasks = st.builds(
        TaskPlan, st.text(max_size=5), st.just(()), st.one_of(st.none(), st.text(max_size=5)), names,
        st.one_of(st.none(), retries), amounts, codes, few(rules), st.integers(0, 9), st.booleans(),
        st.booleans(), st.booleans(), few(tests), st.sampled_from(OnLost), st.sampled_from(WhenOpen),
        st.integers(0, 9), maybe, amounts, st.one_of(st.none(), inner),
    )  # fmt: skip
    return st.builds(
        Plan, st.text(max_size=5), few(tasks),
        st.builds(Lifecycle, st.sampled_from(RUN_MACHINES), st.sampled_from(TASK_MACHINES)),
        st.text(max_size=5), st.text(max_size=5), amounts, st.integers(-9, 9), amounts,
        st.one_of(st.none(), st.sampled_from(OnFailure)), maybe, amounts, st.integers(0, 9),
        st.integers(1, 10), st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**62),
        st.booleans(),
    )  # fmt: skip


@given(st.recursive(st.just(Plan("leaf", (TaskPlan("x"),))), whole, max_leaves=3))
@settings(max_examples=100)
def test_any_plan_at_all_is_read_back_exactly(plan: Plan) -> None:
    the_same(plan)


# ---- in a store


def test_plans_come_back_from_a_store_with_every_field(driver: Driver) -> None:
    author = Author(Random(7))
    author.mixed, author.rich = True, 0.5
    written = [FULL, *(author.plan() for _ in range(60))]
    runs = [new_run(number, plan) for number, plan in enumerate(written, 1)]
    tasks = [new_task(run, number) for run in runs for number in range(1, len(run.plan.tasks) + 1)]
    driver.gate.apply([decision(*map(created, runs), *map(created, tasks))])
    driver.reopen()
    loaded = driver.gate.load()
    assert loaded.runs == tuple(runs)
    assert loaded.tasks == tuple(sorted(tasks, key=lambda task: task.key))
    assert any(task.plan.uses is not None for task in loaded.tasks)
