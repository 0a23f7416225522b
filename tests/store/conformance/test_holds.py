"""Approvals: what is asked, who has voted, and that all of it survives."""

from dataclasses import replace

from engine.core import signals as s
from engine.core.plan import SECOND, Approval, Clause, Plan, TaskPlan
from engine.core.records import Entity, Hold, Ref, TimerKind, Vote
from engine.machines import LIFECYCLES
from tests.core.scene import run_ref, task_ref
from tests.store.conformance.drivers import Driver
from tests.store.conformance.stage import Stage, created, decision, fact, new_run, new_task

TWO = Approval((Clause(frozenset({"ann", "bob", "cyd"}), count=2),), 500 * SECOND)
ONE = Approval((Clause(frozenset({"ann"}), frozenset({"ops"})),), 500 * SECOND)
PAIR = LIFECYCLES["execution"]


def held(stage: Stage, ref: Ref) -> Hold:
    """The hold as the store has it, which must be the one of the model."""
    snapshot = stage.driver.gate.load()
    assert snapshot == stage.model.snapshot()
    records = snapshot.runs if ref.kind is Entity.RUN else snapshot.tasks
    (found,) = [record.hold for record in records if record.ref == ref]
    assert found is not None
    return found


def test_a_held_run_waits_for_what_its_workflow_asks(driver: Driver) -> None:
    stage = Stage(driver)
    run = stage.submit(Plan("p", (TaskPlan("a"),), PAIR, approval=TWO))
    stage.reload()
    assert held(stage, run_ref(run)) == Hold(TWO)


def test_votes_are_kept_in_their_order_with_who_when_and_why(driver: Driver) -> None:
    stage = Stage(driver)
    run = stage.submit(Plan("p", (TaskPlan("a"),), PAIR, approval=TWO))
    stage.pass_time(3)
    stage.tell(s.Approve, target=run_ref(run), actor="bob", reason="looks fine")
    stage.reload()
    assert held(stage, run_ref(run)) == Hold(TWO, (Vote("bob", 3 * SECOND, "looks fine"),))
    stage.pass_time(1)
    stage.tell(s.Approve, target=run_ref(run), actor="ann")
    stage.reload()
    votes = (Vote("bob", 3 * SECOND, "looks fine"), Vote("ann", 4 * SECOND, None))
    assert held(stage, run_ref(run)) == Hold(TWO, votes, met=True)


def test_a_quorum_that_waits_for_its_timer_is_met_and_still_held(driver: Driver) -> None:
    stage = Stage(driver)
    run = stage.submit(Plan("p", (TaskPlan("a"),), PAIR, approval=ONE, wait=60 * SECOND))
    stage.tell(s.Approve, target=run_ref(run), actor="ann")
    stage.reload()
    hold = held(stage, run_ref(run))
    assert hold.met
    state = stage.state(run)
    stage.due(run_ref(run), TimerKind.WAIT)
    stage.reload()
    assert held(stage, run_ref(run)) == hold
    assert stage.state(run) != state


def test_a_held_task_has_a_hold_of_its_own(driver: Driver) -> None:
    stage = Stage(driver, slots=1)
    plan = Plan("p", (TaskPlan("a", approval=TWO), TaskPlan("b", approval=ONE)), PAIR, approval=ONE)
    run = stage.submit(plan)
    stage.tell(s.Approve, target=run_ref(run), actor="ann")
    stage.tell(s.Approve, target=task_ref(run, 1), actor="cyd")
    stage.reload()
    assert [vote.actor for vote in held(stage, run_ref(run)).votes] == ["ann"]
    assert [vote.actor for vote in held(stage, task_ref(run, 1)).votes] == ["cyd"]
    assert held(stage, task_ref(run, 2)) == Hold(ONE)


def test_a_rejection_is_no_vote_and_is_in_the_history(driver: Driver) -> None:
    stage = Stage(driver, slots=1)
    plan = Plan("p", (TaskPlan("a", approval=TWO), TaskPlan("b")), PAIR)
    run = stage.submit(plan)
    stage.tell(s.Approve, target=task_ref(run, 1), actor="ann")
    stage.tell(s.Reject, target=task_ref(run, 1), actor="bob", reason="not now")
    stage.reload()
    assert [vote.actor for vote in held(stage, task_ref(run, 1)).votes] == ["ann"]
    row = next(row for row in driver.gate.history(task_ref(run, 1)) if row.event == "REJECT")
    assert (row.actor, row.reason) == ("bob", "not now")


def test_a_task_that_is_held_again_has_no_votes_of_before(driver: Driver) -> None:
    run = new_run(1, Plan("p", (TaskPlan("a", approval=TWO),), PAIR))
    task = new_task(run)
    driver.gate.apply([decision(created(run), created(task), fact(task, "held", hold=Hold(TWO)))])
    votes = (Vote("ann", 2, "first"), Vote("bob", 3, None))
    for count in (1, 2):
        hold = Hold(TWO, votes[:count], met=count == 2)
        vote = votes[count - 1]
        made = replace(fact(task, "approved", hold=hold), reason=vote.reason)
        driver.gate.apply([decision(made, at=vote.at, actor=vote.actor)])
    assert driver.gate.load().tasks[0].hold == Hold(TWO, votes, met=True)
    driver.gate.apply([decision(fact(task, "held", hold=Hold(ONE)), at=4)])
    driver.reopen()
    assert driver.gate.load().tasks[0].hold == Hold(ONE)
    again = Hold(ONE, (Vote("ann", 5, "second"),))
    made = replace(fact(task, "approved", hold=again), reason="second")
    driver.gate.apply([decision(made, at=5, actor="ann")])
    driver.reopen()
    assert driver.gate.load().tasks[0].hold == again


def test_a_task_may_be_held_again_and_approved_in_one_transaction(driver: Driver) -> None:
    run = new_run(1, Plan("p", (TaskPlan("a"),), PAIR))
    task = new_task(run)
    vote = Vote("ann", 1, None)
    changes = [fact(task, "held", hold=Hold(TWO)), fact(task, "approved", hold=Hold(TWO, (vote,)))]
    driver.gate.apply([decision(created(run), created(task), actor="ann"), decision(*changes, actor="ann")])
    driver.gate.apply([decision(*changes, actor="ann")])
    assert driver.gate.load().tasks[0].hold == Hold(TWO, (vote,))
