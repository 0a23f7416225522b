"""Retries: when, how often, and after which errors."""

import pytest

from engine.core import signals as s
from engine.core.plan import SECOND, Category, ErrorRule, Plan, Retry, Settings, TaskPlan, Tool
from engine.core.ready import Why
from engine.core.records import TimerKind, Token
from engine.core.retry import backoff, categorise
from engine.machines import TASK_MACHINES, Lifecycle
from tests.core.scene import Scene, once, task_ref


def task_only(machine: str) -> Lifecycle:
    """A task machine under a run that does not mirror its tasks."""
    return Lifecycle("execution", machine)


def fail(scene: Scene, code: int = 1, error: str | None = None, tail: str = "") -> None:
    """The live attempt of task 1/1 fails, and its backoff passes."""
    scene.end(1, 1, code, error=error, tail=tail)
    if scene.timer(task_ref(1, 1), TimerKind.RETRY) is not None:
        scene.due(task_ref(1, 1), TimerKind.RETRY)


# ---- the wait


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 60), (7, 60), (400, 60)]
)
def test_the_backoff_doubles_from_two_seconds_up_to_its_cap(failures: int, seconds: int) -> None:
    assert backoff(Retry(), failures, 0.5) == seconds * SECOND


@pytest.mark.parametrize(
    ("failures", "rand", "microseconds"),
    [
        (1, 0.0, 1_500_000),
        (1, 0.5, 2_000_000),
        (1, 0.999, 2_499_000),
        (2, 0.0, 3_000_000),
        (2, 0.999, 4_998_000),
        (3, 0.0, 6_000_000),
        (4, 0.0, 12_000_000),
        (9, 0.0, 45_000_000),
        (9, 0.5, 60_000_000),
        (9, 0.999, 74_970_000),
    ],
)
def test_the_jitter_is_a_quarter_either_way_of_the_capped_wait(
    failures: int, rand: float, microseconds: int
) -> None:
    assert backoff(Retry(), failures, rand) == microseconds


def test_base_cap_and_jitter_can_be_chosen() -> None:
    mine = Retry(base=10 * SECOND, cap=25 * SECOND, jitter=0.0)
    assert [backoff(mine, n, 0.9) for n in (1, 2, 3)] == [10 * SECOND, 20 * SECOND, 25 * SECOND]


@pytest.mark.parametrize("machine", TASK_MACHINES)
@pytest.mark.parametrize(("rand", "share"), [(0.0, 0.75), (0.5, 1.0), (0.999, 1.2495)])
def test_every_task_machine_waits_by_the_same_rule(machine: str, rand: float, share: float) -> None:
    scene = Scene(slots=1)
    scene.rand = rand
    scene.run_tasks(TaskPlan("a"), lifecycle=task_only(machine))
    for attempt, seconds in enumerate((2, 4, 8, 16), 1):
        assert scene.live(1, 1) == Token(1, 1, attempt)
        began = scene.now
        scene.end(1, 1, 1)
        assert scene.timer(task_ref(1, 1), TimerKind.RETRY) == began + round(seconds * SECOND * share)
        scene.due(task_ref(1, 1), TimerKind.RETRY)


def test_a_timer_that_is_told_too_early_starts_nothing() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"))
    scene.end(1, 1, 1)
    scene.pass_time(1.9)
    scene.tell(s.TimerDue, ref=task_ref(1, 1), kind=TimerKind.RETRY)
    assert scene.task(1, 1).live is None
    scene.pass_time(0.1)
    scene.tell(s.TimerDue, ref=task_ref(1, 1), kind=TimerKind.RETRY)
    assert scene.live(1, 1) == Token(1, 1, 2)


def test_a_timer_told_twice_starts_one_attempt() -> None:
    scene = Scene(slots=2)
    scene.run_tasks(TaskPlan("a"))
    scene.end(1, 1, 1)
    scene.due(task_ref(1, 1), TimerKind.RETRY)
    scene.tell(s.TimerDue, ref=task_ref(1, 1), kind=TimerKind.RETRY)
    assert scene.started() == [Token(1, 1, 1), Token(1, 1, 2)]


def test_without_a_free_slot_a_task_whose_wait_is_over_keeps_its_state() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"), TaskPlan("b"))
    scene.end(1, 1, 1)
    scene.due(task_ref(1, 1), TimerKind.RETRY)
    assert scene.state(1, 1) == "RETRYING"
    assert scene.why(1, 1).what is Why.SLOT
    scene.end(1, 2)
    assert scene.state(1, 1) == "IN_PROGRESS"


# ---- the budget


@pytest.mark.parametrize("machine", TASK_MACHINES)
def test_five_attempts_and_four_waits_then_the_task_has_failed(machine: str) -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"), lifecycle=task_only(machine))
    for number in range(5):
        fail(scene, error=f"e{number}")
    assert scene.started() == [Token(1, 1, n) for n in range(1, 6)]
    assert scene.task(1, 1).retries == 4
    assert scene.state(1) == "failed"


@pytest.mark.parametrize("machine", TASK_MACHINES)
def test_one_attempt_means_no_retry(machine: str) -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", retry=once()), lifecycle=task_only(machine))
    fail(scene)
    assert scene.task(1, 1).retries == 0
    assert scene.state(1) == "failed"


@pytest.mark.parametrize(
    ("own", "of_tool", "attempts"),
    [(None, None, 3), (None, Retry(max_attempts=2), 2), (Retry(max_attempts=4), Retry(max_attempts=2), 4)],
    ids=["the operator's", "the tool's", "the task's own"],
)
def test_the_task_overrides_the_tool_and_the_tool_the_operator(
    own: Retry | None, of_tool: Retry | None, attempts: int
) -> None:
    tools = {"aider": Tool("aider", retry=of_tool, failure_threshold=99)}
    scene = Scene(Settings(tools=tools, retry=Retry(max_attempts=3)), slots=1)
    scene.run_tasks(TaskPlan("a", tool="aider", retry=own))
    for number in range(attempts):
        fail(scene, error=f"e{number}")
    assert len(scene.started()) == attempts
    assert scene.state(1, 1) == "CIRCUIT_OPEN"


def test_the_wait_of_an_override_is_used_too() -> None:
    tools = {"aider": Tool("aider", retry=Retry(base=7 * SECOND))}
    scene = Scene(Settings(tools=tools), slots=2)
    scene.run_tasks(TaskPlan("a", tool="aider"), TaskPlan("b", tool="aider", retry=Retry(base=9 * SECOND)))
    scene.end(1, 1, 1)
    scene.end(1, 2, 1)
    assert scene.timer(task_ref(1, 1), TimerKind.RETRY) == 7 * SECOND
    assert scene.timer(task_ref(1, 2), TimerKind.RETRY) == 9 * SECOND


@pytest.mark.parametrize("machine", TASK_MACHINES)
def test_a_tool_that_is_not_retried_fails_at_once(machine: str) -> None:
    tools = {"deploy": Tool("deploy", retry_on_failure=False)}
    scene = Scene(Settings(tools=tools), slots=1)
    scene.run_tasks(TaskPlan("a", tool="deploy"), lifecycle=task_only(machine))
    fail(scene)
    assert scene.state(1) == "failed"


def test_a_timeout_uses_a_retry_like_any_failure() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", timeout=9 * SECOND, retry=Retry(max_attempts=2)))
    scene.due(task_ref(1, 1), TimerKind.DEADLINE)
    fail(scene, -15)
    assert scene.task(1, 1).retries == 1
    scene.due(task_ref(1, 1), TimerKind.DEADLINE)
    fail(scene, 0)
    assert scene.events(task_ref(1, 1))[-3:] == [
        "execution_timeout",
        "no_retries_left",
        "max_retries_reached",
    ], "an exit code that was expected does not undo a timeout"


def test_a_success_after_failures_leaves_the_count_of_retries_on_record() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"))
    fail(scene)
    fail(scene)
    scene.end(1, 1)
    assert scene.task(1, 1).retries == 2
    assert scene.state(1) == "success"


# ---- what an error means


@pytest.mark.parametrize("code", [126, 127])
@pytest.mark.parametrize("machine", TASK_MACHINES)
def test_a_command_that_cannot_be_executed_is_not_tried_again(machine: str, code: int) -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"), lifecycle=task_only(machine))
    fail(scene, code)
    assert scene.task(1, 1).category is Category.PERMANENT
    assert scene.state(1) == "failed"


def test_an_exit_code_that_is_expected_is_a_success() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", expected_exits=frozenset({0, 3})), TaskPlan("b", needs=(1,)))
    scene.end(1, 1, 3)
    assert scene.states(1) == ["COMPLETED", "IN_PROGRESS"]


def test_zero_is_a_failure_where_it_is_not_expected() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", expected_exits=frozenset({3})))
    scene.end(1, 1, 0)
    assert scene.state(1, 1) == "RETRYING"


def test_a_rule_by_exit_code_makes_an_error_permanent() -> None:
    scene = Scene(slots=1)
    rule = ErrorRule(Category.PERMANENT, frozenset({42}))
    scene.run_tasks(TaskPlan("a", errors=(rule,)))
    fail(scene, 1)
    assert scene.live(1, 1).attempt == 2
    fail(scene, 42)
    assert scene.state(1) == "failed"


def test_a_rule_by_pattern_looks_at_what_the_output_matched() -> None:
    scene = Scene(slots=1)
    rule = ErrorRule(Category.PERMANENT, pattern=r"no such (host|user)")
    scene.run_tasks(TaskPlan("a", errors=(rule,)))
    fail(scene, 1, tail="connection reset")
    assert scene.live(1, 1).attempt == 2
    fail(scene, 1, tail="fatal: no such host\n")
    assert scene.state(1) == "failed"


def test_a_rule_can_make_127_worth_another_try() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", errors=(ErrorRule(Category.TRANSIENT, frozenset({127})),)))
    fail(scene, 127)
    assert scene.live(1, 1).attempt == 2
    assert scene.task(1, 1).category is Category.TRANSIENT


def test_the_rules_of_the_task_go_before_those_of_its_tool() -> None:
    tools = {"aider": Tool("aider", errors=(ErrorRule(Category.PERMANENT, frozenset({1, 2})),))}
    scene = Scene(Settings(tools=tools), slots=1)
    scene.run_tasks(TaskPlan("a", tool="aider", errors=(ErrorRule(Category.TRANSIENT, frozenset({1})),)))
    fail(scene, 1)
    assert scene.live(1, 1).attempt == 2
    fail(scene, 2)
    assert scene.state(1) == "failed"


BOTH = ErrorRule(Category.PERMANENT, frozenset({1}), "quota")
EMPTY = ErrorRule(Category.PERMANENT)


@pytest.mark.parametrize(
    ("rules", "code", "pattern", "category"),
    [
        ((), 1, "", Category.UNKNOWN),
        ((), 126, "", Category.PERMANENT),
        ((BOTH,), 1, "quota", Category.PERMANENT),
        ((BOTH,), 1, "other", Category.UNKNOWN),
        ((BOTH,), 2, "quota", Category.UNKNOWN),
        ((EMPTY,), 1, "anything", Category.UNKNOWN),
        ((ErrorRule(Category.TRANSIENT, frozenset({1})), BOTH), 1, "quota", Category.TRANSIENT),
    ],
)
def test_the_first_rule_that_matches_wholly_decides(
    rules: tuple[ErrorRule, ...], code: int, pattern: str, category: Category
) -> None:
    assert categorise(rules, code, frozenset({pattern})) is category


# ---- the same error again


@pytest.mark.parametrize("machine", TASK_MACHINES)
def test_the_third_same_error_in_a_row_is_the_last(machine: str) -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"), lifecycle=task_only(machine))
    fail(scene, error="same")
    fail(scene, error="same")
    assert scene.live(1, 1).attempt == 3
    fail(scene, error="same")
    assert scene.state(1) == "failed"
    assert len(scene.started()) == 3


def test_another_error_in_between_starts_the_count_anew() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"))
    for error in ("same", "same", "other", "same"):
        fail(scene, error=error)
    assert scene.live(1, 1).attempt == 5


def test_errors_that_cannot_be_compared_are_never_the_same() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"))
    for _ in range(4):
        fail(scene)
    assert scene.live(1, 1).attempt == 5


def test_how_often_an_error_may_come_again_can_be_chosen() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", retry=Retry(max_repeats=1)))
    fail(scene, error="same")
    fail(scene, error="same")
    assert scene.state(1, 1) == "CIRCUIT_OPEN"


# ---- failed checks


@pytest.mark.parametrize("machine", TASK_MACHINES)
def test_a_failed_check_is_tried_again_unless_the_machine_calls_it_final(machine: str) -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", checks=1), lifecycle=task_only(machine))
    scene.end(1, 1)
    assert scene.live(1, 1).purpose == "check"
    scene.end(1, 1, 1)
    if machine == "orchestration.task":
        assert scene.state(1, 1) == "failed"
        return
    scene.due(task_ref(1, 1), TimerKind.RETRY)
    assert scene.live(1, 1) == Token(1, 1, 2), "the work itself is tried again, not the check"


def test_a_run_that_mirrors_its_steps_takes_up_its_own_retry_with_theirs() -> None:
    scene = Scene(slots=1)
    run = scene.submit(Plan("p", (TaskPlan("a"),), Lifecycle("pipeline.workstream", "pipeline.step")))
    scene.end(run, 1, 1)
    assert (scene.state(run), scene.state(run, 1)) == ("S_RETRYING", "S_RETRYING")
    scene.due(task_ref(run, 1), TimerKind.RETRY)
    assert (scene.state(run), scene.state(run, 1)) == ("S_RUNNING", "S_RUNNING")
