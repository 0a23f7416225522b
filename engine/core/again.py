"""Taking up a run again: always a new run, linked to the old one, that carries over what is done."""

from engine.core.book import satisfies
from engine.core.draft import Draft
from engine.core.errors import Refused
from engine.core.records import Origin, Pardon, Run
from engine.core.runs import create_run
from engine.core.signals import Rerun, Resume
from engine.machines import Phase


def resume(draft: Draft, signal: Resume) -> None:
    """Everything that succeeded is carried over; the rest runs."""
    run = _ended(draft, signal.run, "resume")
    if run.phase is Phase.SUCCEEDED:
        raise Refused(f"resume {run.number}", "it succeeded", f"`interlock rerun {run.number}` runs it again")
    done = {task.number: Pardon.CARRIED for task in draft.tasks_of(run) if satisfies(task)}
    _again(draft, run, "resume", signal.requester, done if run.plan.checkpoint else {})


def rerun(draft: Draft, signal: Rerun) -> None:
    """Everything again, or one task and, unless told otherwise, what depends on it."""
    run = _ended(draft, signal.run, "rerun")
    if signal.task is None:
        _again(draft, run, "rerun", signal.requester, {})
        return
    if not 1 <= signal.task <= len(run.plan.tasks):
        raise Refused(f"rerun {run.number}/{signal.task}", "there is no such task", "see `interlock show`")
    name = run.plan.task(signal.task).name
    for need in run.plan.task(signal.task).needs:
        if not satisfies(draft.task((run.number, need))):
            raise Refused(
                f"rerun {run.number}/{name}",
                f"its need {run.plan.task(need).name} is not done",
                f"`interlock resume {run.number}`",
            )
    chosen = {signal.task} | (_below(run, signal.task) if signal.dependents else set())
    pardons = {
        task.number: Pardon.CARRIED if satisfies(task) else Pardon.LEFT_OUT
        for task in draft.tasks_of(run)
        if task.number not in chosen
    }
    blocked = [
        n for n in chosen if any(pardons.get(need) is Pardon.LEFT_OUT for need in run.plan.task(n).needs)
    ]
    for number in blocked:
        pardons[number] = Pardon.LEFT_OUT
        for below in _below(run, number):
            pardons[below] = Pardon.LEFT_OUT
    _again(draft, run, "rerun", signal.requester, dict(sorted(pardons.items())))


def _ended(draft: Draft, number: int, verb: str) -> Run:
    run = draft.find_run(number)
    if run is None:
        raise Refused(f"{verb} {number}", "there is no such run", "see `interlock runs`")
    if not run.terminal:
        raise Refused(f"{verb} {number}", f"it is not over, it is in {run.state}", "cancel it first, or wait")
    return run


def _below(run: Run, number: int) -> set[int]:
    """Everything that depends on a task, near or far."""
    found: set[int] = set()
    edge = [number]
    while edge:
        for dependent in run.plan.dependents[edge.pop()]:
            if dependent not in found:
                found.add(dependent)
                edge.append(dependent)
    return found


def _again(draft: Draft, run: Run, verb: str, requester: str | None, pardons: dict[int, Pardon]) -> None:
    new = create_run(
        draft,
        run.plan,
        requester or draft.signal.actor,
        run.params,
        origin=Origin(run.number, verb),
        pardons=pardons,
    )
    draft.note(run, f"{verb}d" if verb == "resume" else "rerun", data={"by_run": new.number})
