"""After a restart or a silence: what each kind of found or missing attempt means.

Every class of attempt (never started, running, finished while away, lost) with every policy for lost
ones, under every task machine.
"""

from itertools import product

import pytest

from engine.core import signals as s
from engine.core.decision import Ask, Reap, Start
from engine.core.plan import SECOND, OnLost, Plan, Retry, TaskPlan
from engine.core.ready import Why
from engine.core.records import Purpose, TimerKind, Token
from engine.machines import RUN_MACHINES, TASK_MACHINES, Lifecycle, Phase
from tests.core.scene import EXECUTION, PIPELINE, Scene, run_ref, task_ref, told, worker_ref

machines = pytest.mark.parametrize("machine", TASK_MACHINES)
policies = pytest.mark.parametrize("policy", list(OnLost))
PAIRS = [Lifecycle(run, task) for run, task in product(RUN_MACHINES, TASK_MACHINES)]
pairs = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.run}+{pair.task}")


def restarted(
    machine: str, policy: OnLost = OnLost.RETRY, *, began: bool = True, checks: int = 0
) -> tuple[Scene, Token]:
    """Task 1/1 was alive when the engine went down; the engine is back."""
    scene = Scene(slots=2)
    task = TaskPlan("a", on_lost=policy, checks=checks)
    scene.submit(Plan("p", (task, TaskPlan("b", needs=(1,))), Lifecycle("execution", machine)))
    token = scene.live(1, 1)
    if began:
        scene.tell(s.AttemptStarted, token=token, pid=77)
    asked = told(scene.restart())
    assert asked == [Ask("w", (token,))]
    return scene, token


# ---- the restart itself


@pairs
def test_a_restart_asks_for_what_is_believed_alive_and_starts_nothing(pair: Lifecycle) -> None:
    scene = Scene(slots=3)
    run = scene.run_tasks(TaskPlan("a"), TaskPlan("b"), lifecycle=pair)
    tokens = (scene.live(run, 1), scene.live(run, 2))
    assert told(scene.restart()) == [Ask("w", tokens)]
    assert all(attempt.doubt for attempt in scene.model.attempts())


def test_a_restart_with_nothing_alive_asks_for_nothing_and_moves_nothing() -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(TaskPlan("a"))
    scene.end(run, 1, 1)
    before = scene.model.snapshot()
    assert told(scene.restart()) == []
    assert scene.model.snapshot() == before


@machines
def test_a_run_of_004_recovers_only_after_a_restart_with_attempts_believed_alive(machine: str) -> None:
    scene, token = restarted(machine)
    assert scene.state(1) == "recovering"
    assert scene.why(1).what is Why.CONTACT
    scene.tell(s.AttemptFound, token=token)
    assert scene.state(1) == "running"


def test_a_silent_worker_makes_the_task_recover_and_not_the_run() -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(TaskPlan("a"), lifecycle=EXECUTION)
    scene.tell(s.WorkerQuiet, worker="w")
    assert (scene.state(run), scene.state(run, 1)) == ("running", "recovering")
    assert scene.why(run, 1).what is Why.CONTACT


def test_nothing_starts_in_a_recovering_run() -> None:
    scene, _ = restarted("toolchain.task")
    scene.tell(s.Submit, plan=Plan("q", (TaskPlan("z"),)), actor="dev")
    assert [token.run for token in scene.started()] == [1, 2], "another run goes on"
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"), TaskPlan("b"))
    scene.restart()
    scene.worker("w2", 4)
    assert len(scene.started()) == 1
    assert scene.why(1, 2).what is Why.CONTACT


def test_the_run_goes_on_when_the_last_attempt_is_accounted_for() -> None:
    scene = Scene(slots=2)
    run = scene.run_tasks(TaskPlan("a"), TaskPlan("b"))
    one, two = scene.live(run, 1), scene.live(run, 2)
    scene.restart()
    scene.tell(s.AttemptFound, token=one)
    assert scene.state(run) == "recovering"
    scene.tell(s.AttemptFound, token=two)
    assert scene.events(run_ref(run)) == ["ENQUEUE", "START", "RECOVER", "START"]


def test_a_task_between_two_attempts_does_not_recover() -> None:
    scene = Scene(slots=2)
    run = scene.run_tasks(TaskPlan("a"), lifecycle=EXECUTION)
    scene.end(run, 1, 1)
    scene.restart()
    assert (scene.state(run), scene.state(run, 1)) == ("running", "running")
    scene.due(task_ref(run, 1), TimerKind.RETRY)
    assert scene.live(run, 1) == Token(run, 1, 2)


# ---- never started


@machines
@policies
def test_an_attempt_that_its_worker_never_heard_of_is_sent_again_with_the_same_token(
    machine: str, policy: OnLost
) -> None:
    scene, token = restarted(machine, policy, began=False)
    assert Start(token, "w") in told(scene.tell(s.AttemptMissing, token=token))
    assert scene.state(1) == "running"
    scene.end(1, 1)
    assert scene.task(1, 1).phase is Phase.SUCCEEDED
    assert scene.task(1, 1).losses == 0


@machines
@policies
def test_an_attempt_that_certainly_never_ran_is_tried_again_whatever_the_policy(
    machine: str, policy: OnLost
) -> None:
    scene, token = restarted(machine, policy, began=False)
    scene.tell(s.AttemptLost, token=token, ran=False)
    assert not scene.task(1, 1).asking
    scene.due(task_ref(1, 1), TimerKind.RETRY)
    assert scene.live(1, 1) == Token(1, 1, 2)


def test_an_old_word_that_an_attempt_is_missing_does_not_touch_one_that_has_started() -> None:
    scene, token = restarted("toolchain.task", began=False)
    scene.tell(s.AttemptMissing, token=token)
    scene.tell(s.AttemptStarted, token=token, pid=5)
    before = scene.model.snapshot()
    scene.tell(s.AttemptMissing, token=token)
    assert scene.model.snapshot() == before


# ---- running


@machines
@policies
def test_an_attempt_that_is_found_running_goes_on(machine: str, policy: OnLost) -> None:
    scene, token = restarted(machine, policy)
    scene.tell(s.AttemptFound, token=token, pid=77)
    assert scene.state(1) == "running"
    assert scene.live(1, 1) == token
    assert not scene.attempt(1, 1).doubt
    assert scene.task(1, 1).phase is Phase.ACTIVE
    scene.end(1, 1)
    assert scene.live(1, 2) == Token(1, 2, 1)
    assert scene.started() == [token, Token(1, 2, 1)]


def test_a_found_attempt_keeps_its_deadline() -> None:
    scene, token = restarted("toolchain.task")
    scene.tell(s.AttemptFound, token=token)
    assert scene.timer(task_ref(1, 1), TimerKind.DEADLINE) == 300 * SECOND


def test_a_found_attempt_that_was_to_stop_is_told_so_again() -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(TaskPlan("a"))
    token = scene.live(run, 1)
    scene.tell(s.Cancel, run=run)
    scene.restart()
    scene.tell(s.AttemptFound, token=token)
    assert [halt.token for halt in scene.halts()] == [token, token]


def test_a_found_attempt_that_was_fenced_is_killed() -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(TaskPlan("a"))
    token = scene.live(run, 1)
    scene.tell(s.Cancel, run=run, force=True)
    scene.restart()
    scene.tell(s.AttemptFound, token=token)
    assert scene.halts()[-1].grace == 0
    assert scene.state(run) == "cancelled"


# ---- finished while away


@machines
@policies
@pytest.mark.parametrize("code", [0, 1])
def test_an_attempt_that_finished_while_the_engine_was_away_counts_as_any_other(
    machine: str, policy: OnLost, code: int
) -> None:
    scene, token = restarted(machine, policy)
    scene.tell(s.AttemptEnded, token=token, exit_code=code)
    assert scene.state(1) == "running", "the result takes START first"
    if code == 0:
        assert scene.live(1, 2) == Token(1, 2, 1)
    else:
        scene.due(task_ref(1, 1), TimerKind.RETRY)
        assert scene.live(1, 1) == Token(1, 1, 2)
    assert scene.task(1, 1).losses == 0


def test_a_recovering_task_and_run_take_start_before_the_result() -> None:
    scene, token = restarted("execution")
    scene.tell(s.AttemptEnded, token=token, exit_code=0)
    assert scene.events(task_ref(1, 1))[-3:] == ["RECOVER", "START", "SUCCEED"]
    assert scene.events(run_ref(1))[-2:] == ["RECOVER", "START"]


def test_a_graceful_cancel_of_a_recovering_run_takes_start_first() -> None:
    scene, token = restarted("execution")
    scene.tell(s.Cancel, run=1)
    assert scene.events(run_ref(1))[-2:] == ["START", "CANCEL_GRACEFUL"]
    assert scene.events(task_ref(1, 1))[-2:] == ["START", "CANCEL_GRACEFUL"]
    scene.tell(s.AttemptEnded, token=token, exit_code=0)
    assert scene.state(1) == "cancelled"


# ---- lost


@machines
def test_a_lost_attempt_is_tried_again_without_using_a_retry(machine: str) -> None:
    scene, token = restarted(machine)
    scene.tell(s.AttemptLost, token=token)
    assert (scene.task(1, 1).retries, scene.task(1, 1).losses) == (0, 1)
    scene.due(task_ref(1, 1), TimerKind.RETRY)
    assert scene.live(1, 1) == Token(1, 1, 2)
    scene.end(1, 1)
    assert scene.task(1, 1).phase is Phase.SUCCEEDED


@machines
def test_the_third_loss_is_the_last(machine: str) -> None:
    scene, token = restarted(machine)
    for number in (1, 2, 3):
        scene.tell(s.AttemptLost, token=token)
        assert scene.task(1, 1).losses == number
        if number < 3:
            scene.due(task_ref(1, 1), TimerKind.RETRY)
            token = scene.live(1, 1)
    assert scene.state(1) == "failed"
    assert len(scene.started()) == 3


@machines
def test_losses_leave_the_whole_budget_for_failures(machine: str) -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", retry=Retry(max_attempts=2)), lifecycle=Lifecycle("execution", machine))
    for _ in range(2):
        scene.tell(s.AttemptLost, token=scene.live(1, 1))
        scene.due(task_ref(1, 1), TimerKind.RETRY)
    scene.end(1, 1, 1)
    scene.due(task_ref(1, 1), TimerKind.RETRY)
    assert scene.live(1, 1).attempt == 4
    scene.end(1, 1, 1)
    assert scene.state(1) == "failed"


@machines
def test_a_lost_attempt_fails_the_task_where_its_file_says_so(machine: str) -> None:
    scene, token = restarted(machine, OnLost.FAIL)
    scene.tell(s.AttemptLost, token=token, evidence="the host rebooted")
    assert scene.state(1) == "failed"
    assert "the host rebooted" in (scene.task(1, 1).error or "")
    assert scene.task(1, 2).phase is not Phase.ACTIVE


@machines
@pytest.mark.parametrize("retry", [True, False])
def test_a_lost_attempt_that_asks_keeps_its_active_state_until_a_person_answers(
    machine: str, retry: bool
) -> None:
    scene, token = restarted(machine, OnLost.ASK)
    scene.tell(s.AttemptLost, token=token)
    assert scene.task(1, 1).phase is Phase.ACTIVE
    assert scene.why(1, 1).what is Why.PERSON
    assert scene.state(1) == "running"
    assert len(scene.facts(task_ref(1, 1), "lost")) == 1, "what a finding is made of"
    scene.tell(s.AnswerLost, run=1, task=1, retry=retry)
    if retry:
        scene.due(task_ref(1, 1), TimerKind.RETRY)
        assert scene.live(1, 1) == Token(1, 1, 2)
    else:
        assert scene.state(1) == "failed"
    assert "nothing is asked" in scene.refused(s.AnswerLost, run=1, task=1, retry=True) or not retry


def test_an_asking_task_can_be_cancelled_with_its_run() -> None:
    scene, token = restarted("orchestration.task", OnLost.ASK)
    scene.tell(s.AttemptLost, token=token)
    scene.tell(s.Cancel, run=1)
    assert scene.state(1) == "cancelled"
    assert scene.state(1, 1) == "cancelled"


# ---- checks


@machines
def test_a_check_that_was_lost_runs_again_three_times_and_then_has_failed(machine: str) -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", checks=1), lifecycle=Lifecycle("execution", machine))
    scene.end(1, 1)
    checks = []
    for _ in range(4):
        checks.append(scene.live(1, 1))
        scene.tell(s.AttemptLost, token=checks[-1])
    assert {token.purpose for token in checks} == {Purpose.CHECK}
    assert len(set(checks)) == 4
    assert scene.task(1, 1).live is None
    assert scene.task(1, 1).error == "its checks came to no verdict"


def test_final_checks_that_were_lost_run_again_three_times_and_then_have_failed() -> None:
    scene = Scene(slots=1)
    run = scene.submit(Plan("p", (TaskPlan("a"),), checks=2))
    scene.end(run, 1)
    tokens = []
    for _ in range(4):
        tokens.append(scene.live(run))
        scene.tell(s.AttemptLost, token=tokens[-1])
    assert len(set(tokens)) == 4
    assert scene.state(run) == "failed"


def test_a_run_recovers_while_its_final_checks_are_asked_for() -> None:
    scene = Scene(slots=1)
    run = scene.submit(Plan("p", (TaskPlan("a"),), checks=1))
    scene.end(run, 1)
    check = scene.live(run)
    scene.restart()
    assert scene.state(run) == "recovering"
    scene.tell(s.AttemptEnded, token=check, exit_code=0)
    assert scene.events(run_ref(run))[-2:] == ["START", "SUCCEED"]


# ---- the worker behind it


def test_a_worker_that_stays_silent_is_reaped_and_each_attempt_accounted_for() -> None:
    scene, token = restarted("execution")
    scene.tell(s.WorkerQuiet, worker="w")
    decisions = scene.tell(s.WorkerGone, worker="w")
    assert Reap("w", (token,)) in told(decisions)
    assert scene.task(1, 1).live == token, "doubt never ends an attempt"
    scene.tell(s.AttemptLost, token=token)
    scene.worker("w2", 1)
    scene.due(task_ref(1, 1), TimerKind.RETRY)
    assert scene.attempt(1, 1).worker == "w2"


def test_a_silent_worker_is_given_up_after_its_time() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"))
    scene.tell(s.WorkerQuiet, worker="w")
    assert scene.timer(worker_ref("w"), TimerKind.GIVE_UP) == 60 * SECOND
    scene.due(worker_ref("w"), TimerKind.GIVE_UP)
    assert scene.the_worker().health == "shutdown"
    assert Reap("w", (Token(1, 1, 1),)) in scene.instructions()


def test_a_workstream_of_000_has_no_recovering_state_and_goes_on() -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(TaskPlan("a"), lifecycle=PIPELINE)
    scene.restart()
    assert (scene.state(run), scene.state(run, 1)) == ("S_RUNNING", "S_RUNNING")
    scene.end(run, 1)
    assert scene.state(run) == "S_SUCCESS"
