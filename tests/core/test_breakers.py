"""One breaker for each tool: closed, open, half open with a single probe, and closed again gradually."""

from typing import Any

import pytest

from engine.core import signals as s
from engine.core.plan import SECOND, OnLost, Plan, Retry, Settings, TaskPlan, Tool, WhenOpen
from engine.core.ready import Why
from engine.core.records import Purpose, TimerKind, Token
from engine.machines import TASK_MACHINES, Lifecycle
from tests.core.scene import Scene, once, task_ref, tool_ref

T = "aider"


def stage(slots: int = 10, **profile: Any) -> Scene:
    return Scene(Settings(tools={T: Tool(T, **profile)}), slots=slots)


def tasks(number: int, **fields: Any) -> tuple[TaskPlan, ...]:
    return tuple(TaskPlan(f"t{n}", tool=T, **fields) for n in range(1, number + 1))


def lenient(number: int, **fields: Any) -> Plan:
    """Tasks whose failure does not end the run, so that breakers can be watched alone."""
    return Plan("p", tasks(number, critical=False, retry=once(), **fields))


def open_by_failures(scene: Scene, more: int = 0) -> int:
    """Five failures open the breaker; `more` tasks of the same run are left."""
    run = scene.submit(lenient(5 + more))
    for number in range(1, 6):
        scene.end(run, number, 1)
    assert scene.breaker(T).state == "OPEN"
    return run


def cool(scene: Scene) -> None:
    scene.due(tool_ref(T), TimerKind.COOLDOWN)


# ---- closed to open


def test_five_failures_in_a_row_open_the_breaker() -> None:
    scene = stage()
    run = scene.submit(lenient(6))
    for number in range(1, 5):
        scene.end(run, number, 1)
        assert (scene.breaker(T).state, scene.breaker(T).failures) == ("CLOSED", number)
    scene.end(run, 5, 1)
    assert scene.breaker(T).state == "OPEN"
    assert scene.events(tool_ref(T)) == ["failure_threshold_exceeded"]
    assert scene.timer(tool_ref(T), TimerKind.COOLDOWN) == 60 * SECOND


def test_a_success_sets_the_count_to_nothing() -> None:
    scene = stage()
    run = scene.submit(lenient(10))
    for number in range(1, 5):
        scene.end(run, number, 1)
    scene.end(run, 5, 0)
    assert scene.breaker(T).failures == 0
    for number in range(6, 10):
        scene.end(run, number, 1)
    assert scene.breaker(T).state == "CLOSED"


def test_failures_of_all_runs_count_together() -> None:
    scene = stage()
    for _ in range(5):
        run = scene.submit(lenient(1))
        scene.end(run, 1, 1)
    assert scene.breaker(T).state == "OPEN"


def test_threshold_and_cooldown_belong_to_the_tool() -> None:
    scene = stage(failure_threshold=2, cooldown=7 * SECOND)
    run = scene.submit(lenient(3))
    scene.end(run, 1, 1)
    scene.end(run, 2, 1)
    assert scene.timer(tool_ref(T), TimerKind.COOLDOWN) == 7 * SECOND


def test_a_timeout_counts() -> None:
    scene = stage(failure_threshold=1)
    run = scene.submit(lenient(1))
    scene.due(task_ref(run, 1), TimerKind.DEADLINE)
    scene.end(run, 1, -9)
    assert scene.breaker(T).state == "OPEN"


@pytest.mark.parametrize("machine", TASK_MACHINES)
def test_a_lost_attempt_a_failed_check_and_a_cancel_do_not_count(machine: str) -> None:
    scene = stage(failure_threshold=1)
    parts = (
        TaskPlan("lost", tool=T, critical=False, on_lost=OnLost.FAIL),
        TaskPlan("checked", tool=T, checks=1, critical=False, retry=once()),
        TaskPlan("cancelled", tool=T),
    )
    run = scene.submit(Plan("p", parts, Lifecycle("execution", machine)))
    scene.tell(s.AttemptLost, token=scene.live(run, 1))
    scene.end(run, 2)
    scene.end(run, 2, 1)
    scene.tell(s.Cancel, run=run)
    scene.end(run, 3, 1)
    assert scene.state(run) == "cancelled"
    found = scene.model.breaker(T)
    assert found is None or (found.state, found.failures) == ("CLOSED", 0)


def test_a_tool_without_a_name_has_no_breaker() -> None:
    scene = Scene(slots=9)
    run = scene.run_tasks(*(TaskPlan(f"t{n}", critical=False, retry=once()) for n in range(9)))
    for number in range(1, 10):
        scene.end(run, number, 1)
    assert list(scene.model.breakers()) == []


# ---- open


def test_while_it_is_open_nothing_with_the_tool_starts_and_the_rest_goes_on() -> None:
    scene = stage()
    open_by_failures(scene)
    run = scene.run_tasks(TaskPlan("a", tool=T), TaskPlan("b", tool="other"))
    assert scene.states(run) == ["PENDING", "IN_PROGRESS"]
    scene.pass_time(2)
    why = scene.why(run, 1)
    assert (why.what, why.blocked_by, why.due) == (Why.BREAKER, tool_ref(T), 60 * SECOND)
    assert "breaker aider open" in why.sentence
    assert "58 s" in why.sentence


@pytest.mark.parametrize("code", [0, 1])
def test_outcomes_of_older_attempts_are_ignored_while_it_is_open(code: int) -> None:
    scene = stage()
    run = open_by_failures(scene, more=2)
    before = scene.breaker(T)
    scene.end(run, 6, code)
    assert scene.breaker(T) == before
    cool(scene)
    scene.end(run, 7, code)
    assert scene.breaker(T).state == "HALF_OPEN", "in half open only the probe counts"


def test_a_retrying_task_of_003_is_parked_when_the_breaker_opens() -> None:
    scene = stage(failure_threshold=2)
    run = scene.run_tasks(*tasks(2))
    scene.end(run, 1, 1)
    assert scene.state(run, 1) == "RETRYING"
    scene.end(run, 2, 1)
    assert scene.states(run) == ["CIRCUIT_OPEN", "CIRCUIT_OPEN"]
    assert scene.timer(task_ref(run, 1), TimerKind.RETRY) is None
    assert scene.why(run, 1).what is Why.BREAKER


@pytest.mark.parametrize("machine", [name for name in TASK_MACHINES if name != "toolchain.task"])
def test_a_retrying_task_of_another_machine_keeps_its_state_behind_an_open_breaker(machine: str) -> None:
    scene = stage(failure_threshold=2)
    run = scene.submit(Plan("p", tasks(2), Lifecycle("execution", machine)))
    scene.end(run, 1, 1)
    states = scene.state(run, 1)
    scene.end(run, 2, 1)
    assert scene.state(run, 1) == states
    scene.due(task_ref(run, 1), TimerKind.RETRY)
    assert scene.task(run, 1).live is None
    assert scene.why(run, 1).what is Why.BREAKER


# ---- half open


def test_after_the_cooldown_one_probe_is_let_through() -> None:
    scene = stage()
    open_by_failures(scene)
    run = scene.submit(lenient(3))
    cool(scene)
    assert scene.breaker(T).state == "HALF_OPEN"
    assert [token for token in scene.started() if token.run == run] == [Token(run, 1, 1)]
    assert scene.breaker(T).probe == Token(run, 1, 1)
    assert scene.why(run, 2).what is Why.BREAKER


def test_a_probe_that_works_closes_the_breaker() -> None:
    scene = stage()
    open_by_failures(scene)
    run = scene.submit(lenient(3))
    cool(scene)
    scene.end(run, 1)
    assert scene.events(tool_ref(T))[-2:] == ["cooldown_expires", "success"]
    assert scene.breaker(T).failures == 0


def test_a_probe_that_fails_opens_the_breaker_for_another_cooldown() -> None:
    scene = stage()
    open_by_failures(scene)
    run = scene.submit(lenient(3))
    cool(scene)
    scene.end(run, 1, 1)
    assert scene.breaker(T).state == "OPEN"
    assert scene.timer(tool_ref(T), TimerKind.COOLDOWN) == scene.now + 60 * SECOND


def test_a_tool_may_ask_for_several_successes() -> None:
    scene = stage(success_threshold=2)
    open_by_failures(scene)
    run = scene.submit(lenient(3))
    cool(scene)
    scene.end(run, 1)
    assert scene.breaker(T).state == "HALF_OPEN"
    scene.end(run, 2)
    assert scene.breaker(T).state == "CLOSED"


def test_a_lost_probe_frees_its_place() -> None:
    scene = stage()
    open_by_failures(scene)
    run = scene.submit(lenient(2))
    cool(scene)
    scene.tell(s.AttemptLost, token=scene.live(run, 1))
    assert scene.breaker(T).state == "HALF_OPEN"
    assert scene.breaker(T).probe == scene.live(run, 2)


@pytest.mark.parametrize("force", [False, True])
def test_a_cancelled_probe_frees_its_place(force: bool) -> None:
    scene = stage()
    open_by_failures(scene)
    run, other = scene.submit(lenient(1)), scene.submit(lenient(1))
    cool(scene)
    scene.tell(s.Cancel, run=run, force=force)
    if not force:
        scene.end(run, 1, -15)
    assert scene.breaker(T).probe == scene.live(other, 1)


def test_a_parked_task_of_003_is_probed_through_half_open() -> None:
    scene = stage(failure_threshold=2)
    run = scene.run_tasks(*tasks(2))
    scene.end(run, 1, 1)
    scene.end(run, 2, 1)
    cool(scene)
    assert sorted(scene.states(run)) == ["CIRCUIT_OPEN", "IN_PROGRESS"]
    probe = scene.breaker(T).probe
    assert probe is not None
    assert scene.events(task_ref(*probe.key))[-2:] == ["cooldown_expires", "test_retry"]
    scene.end(*probe.key, 1)
    assert scene.events(task_ref(*probe.key))[-2:] == ["tool_execution_error", "max_retries_reached"]


# ---- the health command


def test_before_a_probe_out_of_an_open_circuit_the_health_command_runs() -> None:
    scene = stage(failure_threshold=2, has_health_command=True)
    run = scene.run_tasks(*tasks(2))
    scene.end(run, 1, 1)
    scene.end(run, 2, 1)
    cool(scene)
    token = scene.started()[-1]
    assert token.purpose is Purpose.HEALTH
    assert scene.state(*token.key) == "HALF_OPEN"
    scene.end(*token.key)
    assert scene.live(*token.key) == Token(*token.key, 2)
    scene.end(*token.key)
    assert scene.breaker(T).state == "CLOSED"


def test_a_health_command_that_fails_sends_task_and_breaker_back() -> None:
    scene = stage(failure_threshold=2, has_health_command=True)
    run = scene.run_tasks(*tasks(2))
    scene.end(run, 1, 1)
    scene.end(run, 2, 1)
    cool(scene)
    key = scene.started()[-1].key
    scene.end(*key, 1)
    assert scene.events(task_ref(*key))[-1] == "test_fails"
    assert scene.breaker(T).state == "OPEN"
    assert scene.states(run) == ["CIRCUIT_OPEN", "CIRCUIT_OPEN"]
    assert scene.state(run) == "running", "both may still be probed"


# ---- closing is gradual


def test_after_closing_the_parked_tasks_are_released_gradually() -> None:
    scene = stage(slots=40)
    open_by_failures(scene)
    run = scene.submit(lenient(30))
    cool(scene)
    widths = []
    for _ in range(6):
        widths.append(scene.model.tool_live(T))
        live = [task for task in scene.model.tasks_of(scene.run(run)) if task.live is not None]
        scene.end(*live[0].key)
    assert widths[:3] == [1, 1, 2]
    assert widths == sorted(widths)
    assert scene.breaker(T).ramp is None
    assert scene.model.tool_live(T) == 24


# ---- the operator


def test_an_operator_takes_a_tool_out_of_use() -> None:
    scene = stage()
    scene.tell(s.TripBreaker, tool=T)
    assert scene.events(tool_ref(T)) == ["tripped_by_operator"]
    run = scene.run_tasks(*tasks(1))
    assert scene.task(run, 1).live is None
    assert "OPEN" in scene.refused(s.TripBreaker, tool=T)


def test_an_operator_lets_a_probe_through_now() -> None:
    scene = stage()
    scene.refused(s.ProbeBreaker, tool=T)
    scene.tell(s.TripBreaker, tool=T)
    run = scene.run_tasks(*tasks(2))
    scene.tell(s.ProbeBreaker, tool=T)
    assert scene.events(tool_ref(T)) == ["tripped_by_operator", "probe_requested"]
    assert scene.breaker(T).probe == Token(run, 1, 1)
    assert scene.timer(tool_ref(T), TimerKind.COOLDOWN) is None


@pytest.mark.parametrize("proof", [{"healthy": True}, {"override": T}])
def test_an_operator_resets_a_breaker_whose_tool_is_healthy_or_overridden(proof: dict[str, Any]) -> None:
    scene = stage()
    scene.tell(s.TripBreaker, tool=T)
    scene.tell(s.ResetBreaker, tool=T, **proof)
    assert scene.breaker(T).state == "CLOSED"
    assert scene.transitions(tool_ref(T))[-1].kind == "recovery"
    assert scene.timer(tool_ref(T), TimerKind.COOLDOWN) is None


@pytest.mark.parametrize("proof", [{}, {"override": "zed"}, {"override": ""}])
def test_a_reset_without_a_healthy_tool_is_refused(proof: dict[str, Any]) -> None:
    scene = stage()
    scene.tell(s.TripBreaker, tool=T)
    assert "health" in scene.refused(s.ResetBreaker, tool=T, **proof)


def test_only_an_open_breaker_can_be_reset() -> None:
    scene = stage()
    scene.refused(s.ResetBreaker, tool=T, healthy=True)


def test_a_breaker_survives_a_restart() -> None:
    scene = stage()
    open_by_failures(scene)
    before = scene.breaker(T)
    scene.restart()
    assert scene.breaker(T) == before
    run = scene.submit(lenient(1))
    cool(scene)
    assert scene.breaker(T).probe == Token(run, 1, 1)


# ---- a task's own circuit


def test_a_task_whose_circuit_waits_is_probed_once_by_itself_and_then_waits_for_a_person() -> None:
    scene = stage(failure_threshold=99)
    run = scene.run_tasks(*tasks(1, retry=Retry(max_attempts=1), when_circuit_open=WhenOpen.WAIT))
    scene.end(run, 1, 1)
    assert (scene.state(run), scene.state(run, 1)) == ("running", "CIRCUIT_OPEN")
    scene.due(task_ref(run, 1), TimerKind.PROBE)
    assert scene.state(run, 1) == "IN_PROGRESS"
    scene.end(run, 1, 1)
    assert scene.why(run, 1).what is Why.PERSON
    assert scene.state(run) == "running"
    scene.tell(s.ResetTask, run=run, task=1)
    assert scene.state(run, 1) == "IN_PROGRESS"
