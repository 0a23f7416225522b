"""Holds and wait timers, of runs and of single tasks: who decides, how many, until when."""

from dataclasses import replace

import pytest

from engine.core import signals as s
from engine.core.plan import SECOND, Approval, Clause, Plan, Settings, TaskPlan
from engine.core.ready import Why
from engine.core.records import Ref, TimerKind
from engine.machines import LIFECYCLES, Lifecycle
from tests.core.scene import EXECUTION, SUPERVISION, Scene, approval, run_ref, task_ref

STANDARD = LIFECYCLES["standard"]
TEAMS = {"ops": frozenset({"olga", "otto"}), "sec": frozenset({"sam", "sue"})}
OPS = Clause(teams=frozenset({"ops"}))
SEC = Clause(teams=frozenset({"sec"}))
ANN_OR_BOB = Clause(users=frozenset({"ann", "bob"}))


def held(
    *clauses: Clause,
    settings: Settings | None = None,
    requester: str | None = "dev",
    wait: int | None = None,
    expires: int = 3600 * SECOND,
    lifecycle: Lifecycle = STANDARD,
) -> Scene:
    """A scene with a free worker and run 1, which is held for these clauses."""
    scene = Scene(settings or Settings(teams=TEAMS), slots=2)
    asked = Approval(clauses, expires)
    plan = Plan("p", (TaskPlan("a"),), lifecycle, digest="d1", approval=asked, wait=wait)
    scene.submit(plan, requester)
    assert scene.state(1) == "held"
    return scene


def held_task(
    *clauses: Clause,
    settings: Settings | None = None,
    wait: int | None = None,
    lifecycle: Lifecycle = EXECUTION,
) -> Scene:
    """The same for task 2 of run 1, which has just become ready."""
    scene = Scene(settings or Settings(teams=TEAMS), slots=2)
    asked = Approval(clauses or (ANN_OR_BOB,), 3600 * SECOND)
    tasks = (TaskPlan("a"), TaskPlan("b", needs=(1,), approval=asked, wait=wait), TaskPlan("c", needs=(2,)))
    scene.submit(Plan("p", tasks, lifecycle, digest="d1"))
    assert scene.state(1, 2) == "pending", "it is not held before its needs are met"
    scene.end(1, 1)
    assert scene.state(1, 2) == "held"
    return scene


def approve(scene: Scene, who: str, target: Ref = run_ref(1), digest: str | None = None) -> None:  # noqa: B008
    scene.tell(s.Approve, target=target, actor=who, digest=digest)


# ---- who and how many


def test_a_held_run_starts_nothing_until_it_is_approved() -> None:
    scene = held(ANN_OR_BOB)
    assert scene.started() == []
    assert scene.why(1).what is Why.PEOPLE
    approve(scene, "ann")
    assert scene.events(run_ref(1)) == ["HOLD", "APPROVE", "START"]
    assert len(scene.started()) == 1


def test_a_clause_of_users_is_met_by_one_of_them() -> None:
    scene = held(ANN_OR_BOB)
    approve(scene, "bob")
    assert scene.state(1) == "running"


def test_a_clause_of_a_team_is_met_by_one_of_its_members() -> None:
    scene = held(OPS)
    approve(scene, "otto")
    assert scene.state(1) == "running"


def test_users_and_teams_of_one_clause_stand_side_by_side() -> None:
    for who in ("ann", "olga"):
        scene = held(Clause(users=frozenset({"ann"}), teams=frozenset({"ops"})))
        approve(scene, who)
        assert scene.state(1) == "running"


def test_a_quorum_of_two_needs_two_people() -> None:
    scene = held(replace(OPS, count=2))
    approve(scene, "olga")
    assert scene.state(1) == "held"
    approve(scene, "otto")
    assert scene.state(1) == "running"


def test_every_clause_must_be_met() -> None:
    scene = held(OPS, SEC)
    approve(scene, "olga")
    approve(scene, "otto")
    assert scene.state(1) == "held", "two of one team do not stand in for the other"
    approve(scene, "sue")
    assert scene.state(1) == "running"


def test_one_person_in_two_clauses_counts_in_both() -> None:
    teams = {"ops": frozenset({"olga"}), "sec": frozenset({"olga"})}
    scene = held(OPS, SEC, settings=Settings(teams=teams))
    approve(scene, "olga")
    assert scene.state(1) == "running"


@pytest.mark.parametrize("order", [("sam", "ann"), ("ann", "sam")])
def test_the_policy_of_the_operator_and_the_clauses_of_the_workflow_must_both_be_met(
    order: tuple[str, str],
) -> None:
    scene = held(ANN_OR_BOB, settings=Settings(teams=TEAMS, policy=(SEC,)))
    approve(scene, order[0])
    assert scene.state(1) == "held"
    approve(scene, order[1])
    assert scene.state(1) == "running"


def test_a_policy_holds_nothing_that_asks_for_no_approval() -> None:
    scene = Scene(Settings(teams=TEAMS, policy=(SEC,)), slots=1)
    scene.run_tasks(TaskPlan("a"))
    assert scene.state(1) == "running"


def test_an_approval_without_clauses_is_met_by_anyone_but_the_requester() -> None:
    scene = held()
    assert "may not decide" in scene.refused(s.Approve, target=run_ref(1), actor="dev")
    approve(scene, "somebody")
    assert scene.state(1) == "running"


# ---- who may not


@pytest.mark.parametrize("verb", [s.Approve, s.Reject])
def test_the_requester_may_not_decide_on_the_own_run(verb: type[s.Signal]) -> None:
    scene = held(ANN_OR_BOB, requester="ann")
    assert "may not decide" in scene.refused(verb, target=run_ref(1), actor="ann", reason="because")


def test_the_requester_may_decide_where_the_operator_allows_it() -> None:
    scene = held(ANN_OR_BOB, settings=Settings(self_approval=True), requester="ann")
    approve(scene, "ann")
    assert scene.state(1) == "running"


def test_self_approval_does_not_make_the_requester_eligible() -> None:
    scene = held(ANN_OR_BOB, settings=Settings(self_approval=True))
    assert "none of its clauses" in scene.refused(s.Approve, target=run_ref(1), actor="dev")


@pytest.mark.parametrize("requester", [None, ""])
@pytest.mark.parametrize("verb", [s.Approve, s.Reject])
def test_an_unknown_requester_means_that_nobody_may_decide(
    verb: type[s.Signal], requester: str | None
) -> None:
    scene = held(ANN_OR_BOB, requester=requester)
    assert "nobody knows who asked" in scene.refused(verb, target=run_ref(1), actor="ann", reason="because")


@pytest.mark.parametrize("verb", [s.Approve, s.Reject])
def test_somebody_in_no_clause_may_neither_approve_nor_reject(verb: type[s.Signal]) -> None:
    scene = held(OPS, SEC)
    answer = scene.refused(verb, target=run_ref(1), actor="ann", reason="because")
    assert "ann is in none of its clauses" in answer
    assert "ops" in answer
    assert "sec" in answer


@pytest.mark.parametrize("verb", [s.Approve, s.Reject])
def test_a_team_that_nobody_defined_has_no_members(verb: type[s.Signal]) -> None:
    scene = held(Clause(teams=frozenset({"ghosts"})))
    assert "ghosts" in scene.refused(verb, target=run_ref(1), actor="ghosts", reason="because")


def test_nobody_votes_twice() -> None:
    scene = held(replace(OPS, count=2))
    approve(scene, "olga")
    assert "already" in scene.refused(s.Approve, target=run_ref(1), actor="olga")


def test_a_vote_for_another_workflow_than_the_one_that_was_seen_is_refused() -> None:
    scene = held(ANN_OR_BOB)
    assert "not the one" in scene.refused(s.Approve, target=run_ref(1), actor="ann", digest="d0")
    approve(scene, "ann", digest="d1")
    assert scene.state(1) == "running"


# ---- rejection


def test_a_rejection_needs_a_reason() -> None:
    scene = held(ANN_OR_BOB)
    assert "reason" in scene.refused(s.Reject, target=run_ref(1), actor="ann")
    assert "reason" in scene.refused(s.Reject, target=run_ref(1), actor="ann", reason="")


def test_any_rejection_rejects_whatever_was_approved_before() -> None:
    scene = held(replace(OPS, count=2), SEC)
    approve(scene, "olga")
    approve(scene, "sam")
    scene.tell(s.Reject, target=run_ref(1), actor="otto", reason="not on a friday")
    assert scene.state(1) == "cancelled"
    last = scene.transitions(run_ref(1))[-1]
    assert (last.event, last.reason) == ("REJECT", "not on a friday")
    assert scene.states(1) == ["CANCELLED"]
    assert scene.timer(run_ref(1), TimerKind.EXPIRY) is None


def test_a_run_that_is_not_held_takes_no_votes() -> None:
    scene = Scene(slots=1)
    run = scene.run_tasks(TaskPlan("a"))
    assert "does not accept APPROVE" in scene.refused(s.Approve, target=run_ref(run), actor="ann")
    assert "REJECT" in scene.refused(s.Reject, target=run_ref(run), actor="ann", reason="because")


# ---- expiry


def test_expiry_means_cancelled() -> None:
    scene = held(ANN_OR_BOB)
    assert scene.timer(run_ref(1), TimerKind.EXPIRY) == 3600 * SECOND
    scene.due(run_ref(1), TimerKind.EXPIRY)
    assert scene.state(1) == "cancelled"
    assert scene.events(run_ref(1)) == ["HOLD", "EXPIRE"]
    assert scene.states(1) == ["CANCELLED"]


def test_the_usual_expiry_is_a_day() -> None:
    assert Approval((ANN_OR_BOB,)).expires == 24 * 3600 * SECOND


@pytest.mark.parametrize("verb", [s.Approve, s.Reject])
def test_a_vote_after_the_expiry_is_refused(verb: type[s.Signal]) -> None:
    scene = held(ANN_OR_BOB)
    scene.due(run_ref(1), TimerKind.EXPIRY)
    assert "cancelled" in scene.refused(verb, target=run_ref(1), actor="ann", reason="because")


def test_an_approval_after_the_expiry_is_refused_although_the_word_of_the_timer_is_late() -> None:
    scene = held(ANN_OR_BOB)
    scene.pass_time(3601)
    scene.refused(s.Approve, target=run_ref(1), actor="ann")
    scene.due(run_ref(1), TimerKind.EXPIRY)
    assert scene.state(1) == "cancelled"


def test_the_expiry_ends_with_the_quorum() -> None:
    scene = held(ANN_OR_BOB, wait=7200 * SECOND)
    approve(scene, "ann")
    assert scene.timer(run_ref(1), TimerKind.EXPIRY) is None
    scene.pass_time(3700)
    scene.tell(s.TimerDue, ref=run_ref(1), kind=TimerKind.EXPIRY)
    assert scene.state(1) == "held"
    scene.due(run_ref(1), TimerKind.WAIT)
    assert scene.state(1) == "running"


# ---- waiting, alone and with a hold


def test_a_wait_alone_is_a_state_of_its_own() -> None:
    scene = Scene(slots=1)
    scene.submit(Plan("p", (TaskPlan("a"),), wait=60 * SECOND))
    assert scene.state(1) == "waiting"
    assert scene.why(1).due == 60 * SECOND
    scene.due(run_ref(1), TimerKind.WAIT)
    assert scene.events(run_ref(1)) == ["WAIT", "TIMER_DONE", "START"]


def test_hold_and_wait_with_the_approval_first() -> None:
    scene = held(ANN_OR_BOB, wait=60 * SECOND)
    approve(scene, "ann")
    assert scene.state(1) == "held", "the timer is not over"
    scene.due(run_ref(1), TimerKind.WAIT)
    assert scene.events(run_ref(1)) == ["HOLD", "APPROVE", "START"]


def test_hold_and_wait_with_the_timer_first() -> None:
    scene = held(ANN_OR_BOB, wait=60 * SECOND)
    scene.due(run_ref(1), TimerKind.WAIT)
    assert scene.state(1) == "held", "nobody has approved"
    approve(scene, "ann")
    assert scene.events(run_ref(1)) == ["HOLD", "APPROVE", "START"]


def test_a_hold_whose_quorum_is_met_can_still_be_rejected_while_it_waits() -> None:
    scene = held(ANN_OR_BOB, wait=60 * SECOND)
    approve(scene, "ann")
    scene.tell(s.Reject, target=run_ref(1), actor="bob", reason="wait, no")
    assert scene.state(1) == "cancelled"
    assert scene.timer(run_ref(1), TimerKind.WAIT) is None


def test_hold_and_wait_expire_together_only_by_the_expiry() -> None:
    scene = held(ANN_OR_BOB, wait=60 * SECOND)
    scene.due(run_ref(1), TimerKind.WAIT)
    scene.due(run_ref(1), TimerKind.EXPIRY)
    assert scene.state(1) == "cancelled"


@pytest.mark.parametrize("wait", [None, 60 * SECOND])
@pytest.mark.parametrize("force", [False, True])
def test_a_held_run_can_be_cancelled_at_once(wait: int | None, force: bool) -> None:
    scene = held(ANN_OR_BOB, wait=wait)
    scene.tell(s.Cancel, run=1, force=force)
    assert scene.events(run_ref(1)) == ["HOLD", "CANCEL"]
    assert list(scene.model.timers()) == []


@pytest.mark.parametrize("force", [False, True])
def test_a_waiting_run_can_be_cancelled_at_once(force: bool) -> None:
    scene = Scene(slots=1)
    scene.submit(Plan("p", (TaskPlan("a"),), wait=60 * SECOND))
    scene.tell(s.Cancel, run=1, force=force)
    assert scene.events(run_ref(1)) == ["WAIT", "CANCEL"]


def test_a_hold_survives_a_restart_with_its_votes() -> None:
    scene = held(replace(OPS, count=2))
    approve(scene, "olga")
    scene.restart()
    assert scene.state(1) == "held"
    approve(scene, "otto")
    assert scene.state(1) == "running"


# ---- single tasks


@pytest.mark.parametrize("lifecycle", [EXECUTION, SUPERVISION])
def test_a_task_is_held_when_its_needs_are_met_and_goes_on_by_approval(lifecycle: Lifecycle) -> None:
    scene = held_task(lifecycle=lifecycle)
    assert scene.why(1, 2).what is Why.PEOPLE
    approve(scene, "ann", task_ref(1, 2))
    assert scene.events(task_ref(1, 2)) == ["HOLD", "APPROVE", "START"]


def test_a_held_task_follows_the_same_rules_of_eligibility() -> None:
    scene = held_task(OPS)
    target = task_ref(1, 2)
    assert "none of its clauses" in scene.refused(s.Approve, target=target, actor="ann")
    assert "may not decide" in scene.refused(s.Approve, target=target, actor="dev")
    assert "not the one" in scene.refused(s.Approve, target=target, actor="olga", digest="old")
    assert "reason" in scene.refused(s.Reject, target=target, actor="olga")


def test_the_policy_counts_for_a_held_task_too() -> None:
    scene = held_task(ANN_OR_BOB, settings=Settings(teams=TEAMS, policy=(SEC,)))
    approve(scene, "ann", task_ref(1, 2))
    assert scene.state(1, 2) == "held"
    approve(scene, "sam", task_ref(1, 2))
    assert scene.state(1, 2) == "running"


def test_a_rejected_task_fails_its_run_and_skips_what_needs_it() -> None:
    scene = held_task()
    scene.tell(s.Reject, target=task_ref(1, 2), actor="ann", reason="no")
    assert scene.states(1) == ["success", "cancelled", "skipped"]
    assert scene.state(1) == "failed"


def test_an_expired_task_is_cancelled() -> None:
    scene = held_task()
    scene.due(task_ref(1, 2), TimerKind.EXPIRY)
    assert scene.state(1, 2) == "cancelled"
    assert scene.events(task_ref(1, 2)) == ["HOLD", "EXPIRE"]
    scene.refused(s.Approve, target=task_ref(1, 2), actor="ann")


@pytest.mark.parametrize("timer_first", [True, False])
def test_a_task_that_is_held_and_waits_needs_both_in_either_order(timer_first: bool) -> None:
    scene = held_task(wait=60 * SECOND)
    if timer_first:
        scene.due(task_ref(1, 2), TimerKind.WAIT)
    approve(scene, "ann", task_ref(1, 2))
    if not timer_first:
        assert scene.state(1, 2) == "held"
        scene.due(task_ref(1, 2), TimerKind.WAIT)
    assert scene.state(1, 2) == "running"


def test_a_held_task_does_not_hold_up_its_neighbours() -> None:
    scene = Scene(slots=2)
    tasks = (TaskPlan("a", approval=approval()), TaskPlan("b"))
    run = scene.submit(Plan("p", tasks, EXECUTION))
    scene.end(run, 2)
    assert scene.states(run) == ["held", "success"]
    assert scene.state(run) == "running"


def test_cancelling_the_run_cancels_a_held_task() -> None:
    scene = held_task()
    scene.tell(s.Cancel, run=1)
    assert scene.state(1) == "cancelled"
    assert scene.states(1) == ["success", "cancelled", "cancelled"]
    assert list(scene.model.timers()) == []
