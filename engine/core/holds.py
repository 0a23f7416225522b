"""Approvals and wait timers, of runs and of single tasks.

The clauses of the workflow and of the operator's policy must all be met. Who may approve may reject,
nobody else; the one who asked may not decide unless the operator allows it; an unknown requester
means that nobody may.
"""

from engine.core.conclude import end_run
from engine.core.draft import Draft
from engine.core.errors import Refused
from engine.core.plan import Clause, Settings
from engine.core.records import Entity, Hold, Ref, Run, Task, TimerKind, Vote
from engine.core.signals import Approve, Reject
from engine.machines import MACHINES, InvalidTransitionError, Phase, RunCue, TaskCue

ANYONE = Clause()


def place(draft: Draft, record: Run | Task) -> bool:
    """Hold a new run or a task whose needs are met, or let it wait; False when nothing keeps it."""
    approval, wait = record.plan.approval, record.plan.wait
    if approval is None and wait is None:
        return False
    sets: dict[str, object] = {} if approval is None else {"hold": Hold(approval)}
    if isinstance(record, Run):
        draft.move_run(record, RunCue.WAIT if approval is None else RunCue.HOLD, sets)
    else:
        draft.move_task(record, TaskCue.WAIT if approval is None else TaskCue.HOLD, sets)
    if approval is not None:
        draft.arm(record.ref, TimerKind.EXPIRY, approval.expires)
    if wait is not None:
        draft.arm(record.ref, TimerKind.WAIT, wait)
    return True


# ---- votes


def clauses(settings: Settings, hold: Hold) -> tuple[Clause, ...]:
    """All that must be met: the operator's policy and the workflow's own."""
    return (*settings.policy, *hold.approval.clauses) or (ANYONE,)


def eligible(settings: Settings, clause: Clause, actor: str) -> bool:
    if not clause.users and not clause.teams:
        return True
    return actor in clause.users or any(actor in settings.teams.get(team, ()) for team in clause.teams)


def votes_for(settings: Settings, clause: Clause, hold: Hold) -> int:
    return sum(eligible(settings, clause, vote.actor) for vote in hold.votes)


def quorum(settings: Settings, hold: Hold) -> bool:
    return all(votes_for(settings, clause, hold) >= clause.count for clause in clauses(settings, hold))


def approve(draft: Draft, signal: Approve) -> None:
    record, hold = _held(draft, signal.target, "APPROVE")
    run = record if isinstance(record, Run) else draft.run(record.run)
    _may_decide(draft, run, hold, signal.actor, f"approve {signal.target}")
    if any(vote.actor == signal.actor for vote in hold.votes):
        raise Refused(f"approve {signal.target}", f"{signal.actor} has approved it already", "others must")
    if signal.digest is not None and signal.digest != run.plan.digest:
        raise Refused(f"approve {signal.target}", "the workflow is not the one that you saw", "look again")
    vote = Vote(signal.actor, draft.now, signal.reason)
    hold = Hold(hold.approval, (*hold.votes, vote))
    if not quorum(draft.settings, hold):
        draft.note(record, "approved", hold=hold)
        return
    hold = Hold(hold.approval, hold.votes, met=True)
    draft.disarm(record.ref, TimerKind.EXPIRY)
    if draft.timer(record.ref, TimerKind.WAIT) is not None:
        draft.note(record, "approved", "the quorum is met; the wait timer still runs", hold=hold)
    else:
        release(draft, record, hold)


def reject(draft: Draft, signal: Reject) -> None:
    record, hold = _held(draft, signal.target, "REJECT")
    run = record if isinstance(record, Run) else draft.run(record.run)
    _may_decide(draft, run, hold, signal.actor, f"reject {signal.target}")
    if not signal.reason:
        raise Refused(f"reject {signal.target}", "a rejection needs a reason", "give --reason")
    if isinstance(record, Run):
        end_run(draft, record, RunCue.REJECTED, signal.reason)
    else:
        draft.move_task(record, TaskCue.REJECTED, reason=signal.reason)


def _held(draft: Draft, target: Ref, event: str) -> tuple[Run | Task, Hold]:
    record: Run | Task | None = None
    if target.kind is Entity.RUN and isinstance(target.key, int):
        record = draft.find_run(target.key)
    elif isinstance(target.key, tuple):
        record = draft.find_task(target.key)
    if record is None:
        raise Refused(f"{event.lower()} {target}", "there is no such run or task", "see `interlock runs`")
    if record.phase is not Phase.HELD or record.hold is None:
        machine = MACHINES[record.machine]
        raise InvalidTransitionError(
            machine.name, record.state, event, machine.valid_events(record.state), str(target)
        )
    expiry = draft.timer(record.ref, TimerKind.EXPIRY)
    if expiry is not None and expiry <= draft.now:
        raise Refused(f"{event.lower()} {target}", "its time to be approved is over", "submit it again")
    return record, record.hold


def _may_decide(draft: Draft, run: Run, hold: Hold, actor: str, what: str) -> None:
    settings = draft.settings
    if not run.requester:
        raise Refused(what, "nobody knows who asked for this run, so nobody may decide", "submit it again")
    if actor == run.requester and not settings.self_approval:
        raise Refused(what, f"{actor} asked for this run and may not decide on it", "ask someone else")
    if not any(eligible(settings, clause, actor) for clause in clauses(settings, hold)):
        raise Refused(what, f"{actor} is in none of its clauses", f"they name {_who(settings, hold)}")


def _who(settings: Settings, hold: Hold) -> str:
    named = [name for clause in clauses(settings, hold) for name in (*clause.users, *clause.teams)]
    return ", ".join(sorted(named)) or "nobody"


# ---- the end of a hold


def admit(draft: Draft, run: Run) -> None:
    """The run may go: so may every task that needs nothing."""
    for task in draft.tasks_of(run):
        if draft.unmet(task.key) == 0:
            draft.freed[task.key] = None


def release(draft: Draft, record: Run | Task, hold: Hold | None = None) -> None:
    """Approved, or the wait is over: it is lined up."""
    sets: dict[str, object] = {} if hold is None else {"hold": hold}
    if isinstance(record, Run):
        admit(draft, draft.move_run(record, RunCue.RELEASED, sets))
    else:
        draft.move_task(record, TaskCue.RELEASED, sets)


def waited(draft: Draft, record: Run | Task) -> None:
    """The wait timer is over; a hold that is still open goes on."""
    if record.phase is Phase.WAITING or (record.hold is not None and record.hold.met):
        release(draft, record)


def expired(draft: Draft, record: Run | Task) -> None:
    reason = "nobody approved in time"
    if isinstance(record, Run):
        end_run(draft, record, RunCue.EXPIRED, reason)
    else:
        draft.move_task(record, TaskCue.EXPIRED, reason=reason)
