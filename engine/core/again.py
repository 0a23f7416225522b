"""Taking up a run again: always a new run, linked to the old one, that carries over what is done."""

from engine.core.book import satisfies
from engine.core.conditions import Outcome, outcome
from engine.core.draft import Draft
from engine.core.errors import Refused
from engine.core.records import Origin, Pardon, Run, Task
from engine.core.runs import create_run
from engine.core.signals import Rerun, Resume
from engine.machines import Phase


def resume(draft: Draft, signal: Resume) -> None:
    """Everything that succeeded is carried over; the rest runs."""
    run = _ended(draft, signal.run, "resume")
    if run.phase is Phase.SUCCEEDED:
        raise Refused(f"resume {run.number}", "it succeeded", f"`interlock rerun {run.number}` runs it again")
    later = draft.find_run(run.resumed_by) if run.resumed_by is not None else None
    if later is not None and not later.terminal:
        raise Refused(f"resume {run.number}", f"run {later.number} has taken it up and is not over")
    pardons = {task.number: pardon for task in draft.tasks_of(run) if (pardon := _carried(task))}
    new = _again(draft, run, "resume", pardons if run.plan.checkpoint else {})
    draft.note(run, "resumed", data={"by_run": new.number}, resumed_by=new.number)


def _carried(task: Task) -> Pardon | None:
    """What a resumed run need not do: what succeeded, and what was not part of the run anyway."""
    if outcome(task) is Outcome.SUCCEEDED:
        return Pardon.CARRIED
    return Pardon.LEFT_OUT if task.pardon is Pardon.LEFT_OUT else None


def rerun(draft: Draft, signal: Rerun) -> None:
    """Everything again, or one task and, unless told otherwise, what depends on it."""
    run = _ended(draft, signal.run, "rerun")
    pardons: dict[int, Pardon] = {}
    if signal.task is not None:
        pardons = _all_but(draft, run, signal.task, signal.dependents)
    new = _again(draft, run, "rerun", pardons)
    draft.note(run, "rerun", data={"by_run": new.number})


def _all_but(draft: Draft, run: Run, number: int, dependents: bool) -> dict[int, Pardon]:
    """How the tasks that a rerun of one task does not touch are passed over."""
    if not 1 <= number <= len(run.plan.tasks):
        raise Refused(
            f"rerun {run.number}/{number}", "there is no such task", f"`interlock show {run.number}`"
        )
    part = run.plan.task(number)
    for need in part.needs:
        if not satisfies(draft.task((run.number, need))):
            raise Refused(
                f"rerun {run.number}/{part.name}",
                f"its need {run.plan.task(need).name} is not done",
                f"`interlock resume {run.number}` runs both",
            )
    chosen = {number} | (_below(run, {number}) if dependents else set())
    pardons = {task.number: _standing_in(task) for task in draft.tasks_of(run) if task.number not in chosen}
    undone = {place for place, pardon in pardons.items() if pardon is Pardon.LEFT_OUT}
    for place in _below(run, undone) - {number}:
        pardons[place] = Pardon.LEFT_OUT
    return dict(sorted(pardons.items()))


def _standing_in(task: Task) -> Pardon:
    if outcome(task) is Outcome.SUCCEEDED:
        return Pardon.CARRIED
    if not satisfies(task):
        return Pardon.LEFT_OUT
    return task.pardon if task.pardon is not None else Pardon.WAIVED


def _below(run: Run, numbers: set[int]) -> set[int]:
    """Everything that depends on these tasks, near or far."""
    found: set[int] = set()
    edge = list(numbers)
    while edge:
        for dependent in run.plan.dependents[edge.pop()]:
            if dependent not in found:
                found.add(dependent)
                edge.append(dependent)
    return found


def _ended(draft: Draft, number: int, verb: str) -> Run:
    run = draft.find_run(number)
    if run is None:
        raise Refused(f"{verb} {number}", "there is no such run", "see `interlock runs`")
    if not run.terminal:
        raise Refused(f"{verb} {number}", f"it is not over, it is in {run.state}", "cancel it first, or wait")
    parent = draft.find_run(run.parent[0]) if run.parent is not None else None
    if parent is not None and not parent.terminal:
        raise Refused(f"{verb} {number}", f"it belongs to run {parent.number}, which is not over")
    return run


def _again(draft: Draft, run: Run, verb: str, pardons: dict[int, Pardon]) -> Run:
    origin = Origin(run.number, verb)
    return create_run(draft, run.plan, draft.signal.actor, run.params, origin=origin, pardons=pardons)
