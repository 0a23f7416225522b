"""Why something is not moving: the first unmet condition, as data, from the predicate that schedules."""

from dataclasses import dataclass

from engine.core.book import LIVE, Standing
from engine.core.dispatch import lane_blocker
from engine.core.errors import Refused
from engine.core.model import Model
from engine.core.plan import SECOND
from engine.core.ready import (
    CHECKS_ONLY,
    Blocker,
    Why,
    final_checks_ready,
    lane_of,
    openness,
    run_blocker,
    task_blocker,
    unmet_need,
)
from engine.core.records import Entity, Ref, Run, Stop, Task, TimerKind

_MOVES = {
    Why.OVER: "nothing: it is over",
    Why.RUNNING: "the end of its attempt",
    Why.STOPPING: "the end of what still runs",
    Why.NEED: "the success of what it needs",
    Why.RUN: "its run",
    Why.TIMER: "the timer",
    Why.PEOPLE: "approval",
    Why.PERSON: "a person",
    Why.FAILURE: "the end of what still runs",
    Why.CONCURRENCY: "the end of another task of its run",
    Why.BREAKER: "the breaker's cooldown and probe, or a reset",
    Why.TOOL_LIMIT: "the end of another task with that tool",
    Why.WORKER: "a capable worker",
    Why.SLOT: "a free slot",
    Why.CONTACT: "contact with its worker",
    Why.TURN: "its turn: it starts with the next batch",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """What an entity waits for, since when, on whom, and what would move it."""

    what: Why
    ref: Ref
    since: int
    blocked_by: Ref | None
    moves: str
    due: int | None
    sentence: str


def explain(model: Model, ref: Ref, now: int) -> Explanation:
    """Answer for a run or a task."""
    run = model.find_run(ref.key) if isinstance(ref.key, int) else None
    if run is not None:
        return _say(model, ref, f"run {run.number}", run.entered, run_reason(model, run), now)
    task = model.find_task(ref.key) if isinstance(ref.key, tuple) else None
    if task is None:
        raise Refused(f"explain {ref}", "there is no such run or task", "see `interlock runs`")
    name = f"{task.run}/{task.plan.name}"
    return _say(model, ref, name, task.entered, task_reason(model, task), now)


def task_reason(model: Model, task: Task) -> Blocker:
    """The first condition that is not met for a task."""
    run = model.run(task.run)
    own = task_blocker(model, task)
    if own is not None and own.why is Why.RUNNING:
        return _running(model, task)
    if run.terminal and (own is None or own.why is not Why.OVER):
        return Blocker(Why.OVER, run.ref, detail=f"its run is over ({run.state})")
    if own is not None and own.why is Why.NEED and run.ending is None:
        return unmet_need(model, task)
    if own is not None and own.why in (Why.OVER, Why.PERSON):
        return own
    if own is not None and own.why is not Why.RUN and run.ending is None:
        return own
    if own is not None:
        return run_blocker(model, run) or own
    lane = lane_of(run, task)
    blocker = run_blocker(model, run)
    if blocker is not None and not (task.checking and openness(model, run) == CHECKS_ONLY):
        return blocker
    return lane_blocker(model, lane) or Blocker(Why.TURN)


def _running(model: Model, task: Task) -> Blocker:
    assert task.live is not None
    attempt = model.attempt(task.live)
    if attempt is None:
        return Blocker(Why.CONTACT, detail="its attempt is unknown")
    if attempt.sub_run is not None:
        child = Ref(Entity.RUN, attempt.sub_run)
        return Blocker(Why.RUNNING, child, detail=f"sub-run {attempt.sub_run} runs")
    where = Ref(Entity.WORKER, attempt.worker or "")
    if attempt.stopping is not None:
        kind = TimerKind.GRACE
        word = "timed out" if attempt.stopping is Stop.TIMEOUT else "being cancelled"
        return Blocker(Why.STOPPING, where, kind, f"{attempt.token} is {word} and asked to end")
    if attempt.doubt:
        return Blocker(Why.CONTACT, where, detail=f"{attempt.worker} has not been heard of")
    return Blocker(Why.RUNNING, where, TimerKind.DEADLINE, f"{attempt.token} runs on {attempt.worker}")


def run_reason(model: Model, run: Run) -> Blocker:
    """The first condition that is not met for a run: its own, else that of its worst task."""
    if run.terminal:
        return Blocker(Why.OVER, detail=run.state)
    if run.live is not None:
        return Blocker(Why.RUNNING, run.ref, TimerKind.DEADLINE, "its final checks run")
    if final_checks_ready(run):
        return lane_blocker(model, lane_of(run, None)) or Blocker(Why.TURN)
    blocker = run_blocker(model, run)
    if blocker is not None and blocker.why not in (Why.CONCURRENCY, Why.FAILURE, Why.STOPPING):
        return blocker
    tally = model.tally(run.number)
    if tally[LIVE]:
        return Blocker(Why.RUNNING, run.ref, detail=f"{tally[LIVE]} of its tasks run")
    for wanted in (Standing.ASKING, Standing.STRANDED, Standing.HELD, Standing.PARKED, Standing.RETRYING):
        if tally[wanted]:
            return next(
                task_reason(model, task) for task in model.tasks_of(run) if model.standing(task.key) is wanted
            )
    for task in model.tasks_of(run):
        if model.standing(task.key) in (Standing.WAITING, Standing.ACTIVE) and not model.unmet(task.key):
            return task_reason(model, task)
    return blocker or Blocker(Why.TURN)


def _say(model: Model, ref: Ref, name: str, since: int, blocker: Blocker, now: int) -> Explanation:
    due = None
    if blocker.timer is not None:
        due = model.timer(blocker.on if blocker.on is not None else ref, blocker.timer)
        if due is None:
            due = model.timer(ref, blocker.timer)
    detail = blocker.detail or str(blocker.why)
    word = "retry in" if blocker.why is Why.BREAKER else "in"
    wait = f", {word} {max(0, due - now) // SECOND} s" if due is not None else ""
    sentence = f"{name}: {detail}{wait}"
    return Explanation(blocker.why, ref, since, blocker.on, _MOVES[blocker.why], due, sentence)
