"""Why something does not start: the one predicate behind scheduling and `explain`.

Three questions, each answered by the first unmet condition or None: may this task start, may anything
of this run start, may anything with these requirements start.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from engine.core.book import LIVE, Book, Standing, probe_left, satisfies
from engine.core.plan import OnFailure
from engine.core.records import Circuit, Ending, Entity, Ref, Run, Task, TimerKind
from engine.machines import Phase, TaskCue


class Why(StrEnum):
    """What an entity waits for."""

    OVER = "over"
    RUNNING = "running"
    STOPPING = "stopping"
    NEED = "need"
    RUN = "run"
    TIMER = "timer"
    PEOPLE = "people"
    PERSON = "person"
    FAILURE = "failure"
    CONCURRENCY = "concurrency"
    BREAKER = "breaker"
    TOOL_LIMIT = "tool_limit"
    WORKER = "worker"
    SLOT = "slot"
    CONTACT = "contact"
    TURN = "turn"


@dataclass(frozen=True, slots=True)
class Blocker:
    """The first condition that is not met, and what it hangs on."""

    why: Why
    on: Ref | None = None
    timer: TimerKind | None = None
    detail: str = ""


class Rank(StrEnum):
    """What goes first among equals."""

    CHECK = "a"
    RETRY = "b"
    FRESH = "c"


class Lane(NamedTuple):
    """What a ready task needs. All tasks of a lane are admitted or refused alike."""

    urgency: int
    rank: Rank
    tool: str
    capabilities: tuple[str, ...]
    worker: bool


def lane_of(run: Run, task: Task | None) -> Lane:
    """The lane of a task, or of the run's own final checks."""
    if task is None:
        return Lane(-run.plan.priority, Rank.CHECK, "", (), True)
    if task.checking:
        rank = Rank.CHECK
    else:
        rank = Rank.RETRY if task.attempt else Rank.FRESH
    tool = "" if task.checking else (task.plan.tool or "")
    needs_worker = task.plan.uses is None
    return Lane(-run.plan.priority, rank, tool, tuple(sorted(task.plan.capabilities)), needs_worker)


OPEN, CHECKS_ONLY, CLOSED = 2, 1, 0
"""How far a run lets its ready tasks start."""


def task_blocker(book: Book, task: Task) -> Blocker | None:
    """What keeps this task, by itself, from starting now."""
    if task.live is not None:
        return Blocker(Why.RUNNING, detail=str(task.live))
    if task.fenced is not None:
        return Blocker(Why.STOPPING, detail=f"{task.fenced} was killed and is not proven gone")
    if task.asking:
        return Blocker(Why.PERSON, detail="its attempt is lost; a person decides whether it is tried again")
    if task.checking:
        return None
    if task.blocked is not None:
        return Blocker(Why.OVER, detail=task.blocked)
    if task.pardon is not None or task.final or task.terminal:
        return Blocker(Why.OVER, detail=task.pardon or task.state)
    return _BY_PHASE[task.phase](book, task)


def _idle(book: Book, task: Task) -> Blocker | None:
    if book.unmet(task.key):
        return _UNMET
    if book.run(task.run).plan.task_machine.steps(TaskCue.READY, task.state) is not None:
        return Blocker(Why.RUN, Ref(Entity.RUN, task.run), detail="its run has not been admitted")
    return None


def _timed(book: Book, task: Task) -> Blocker | None:
    """Between two attempts; where the machine lines it up again first, that comes before its start."""
    if book.timer(task.ref, TimerKind.RETRY) is not None:
        return Blocker(Why.TIMER, task.ref, TimerKind.RETRY, f"attempt {task.attempt + 1} starts then")
    if book.run(task.run).plan.task_machine.steps(TaskCue.START, task.state) is None:
        return Blocker(Why.RUN, Ref(Entity.RUN, task.run), detail="its retry is not lined up yet")
    return None


def _parked(book: Book, task: Task) -> Blocker | None:
    if task.circuit is Circuit.BREAKER:
        return None
    if book.timer(task.ref, TimerKind.PROBE) is not None:
        return Blocker(Why.TIMER, task.ref, TimerKind.PROBE, "one probe is let through then")
    if not probe_left(task):
        return Blocker(
            Why.PERSON, detail="its circuit is open and no probe is left; reset it or cancel the run"
        )
    return None


def _free(book: Book, task: Task) -> Blocker | None:
    return None


def _held(book: Book, task: Task) -> Blocker | None:
    return _hold_blocker(task, "it")


def _hold_blocker(record: Run | Task, who: str) -> Blocker:
    if record.hold is not None and record.hold.met:
        return Blocker(Why.TIMER, record.ref, TimerKind.WAIT, f"{who} is approved and its wait timer runs")
    return Blocker(Why.PEOPLE, record.ref, TimerKind.EXPIRY, f"{who} is held for approval")


def _waiting(book: Book, task: Task) -> Blocker | None:
    return Blocker(Why.TIMER, task.ref, TimerKind.WAIT, "its wait timer runs")


def _failed(book: Book, task: Task) -> Blocker | None:
    return Blocker(Why.PERSON, detail="it failed and no retry is left; reset it, waive it, or end the run")


def _odd(book: Book, task: Task) -> Blocker | None:
    return Blocker(Why.CONTACT, detail="it is out of contact")


_BY_PHASE = {
    Phase.IDLE: _idle,
    Phase.QUEUED: _free,
    Phase.HELD: _held,
    Phase.WAITING: _waiting,
    Phase.ACTIVE: _timed,
    Phase.BACKOFF: _timed,
    Phase.PARKED: _parked,
    Phase.FAILED: _failed,
    Phase.CHECKING: _free,
    Phase.PROBING: _odd,
    Phase.CANCELLING: _odd,
    Phase.RECOVERING: _odd,
    Phase.FAILING: _odd,
}


_UNMET = Blocker(Why.NEED)
"""Which need it is, only `explain` asks: a join may have fifty thousand."""


def unmet_need(book: Book, task: Task) -> Blocker:
    """The first need that is not met."""
    for need in task.plan.needs:
        other = book.task((task.run, need))
        if not satisfies(other):
            return Blocker(Why.NEED, other.ref, detail=f"it needs {other.plan.name}")
    return Blocker(Why.NEED)


def bad(book: Book, run: int) -> int:
    """How many critical tasks have failed for good, or are blocked where the machine calls that failed."""
    tally = book.tally(run)
    blocked = tally[Standing.DOOMED] if book.run(run).plan.run_machine.blocked_fails else 0
    return tally[Standing.FAILED] + blocked


def draining(book: Book, run: Run) -> bool:
    """Whether a failure has decided the run, and only what runs already may finish."""
    return bool(
        not run.plan.mirrors_tasks
        and run.plan.failure_policy is not OnFailure.CONTINUE
        and bad(book, run.number)
    )


def run_blocker(book: Book, run: Run) -> Blocker | None:
    """What keeps every task of this run from starting now."""
    ref = run.ref
    if run.terminal:
        return Blocker(Why.OVER, detail=run.state)
    if run.phase is Phase.FAILED and run.ending is not Ending.CANCEL:
        return Blocker(Why.PERSON, ref, TimerKind.ABANDON, "the run failed; reset, waive or abandon it")
    if run.ending is not None:
        return Blocker(Why.STOPPING, ref, detail=f"the run ends ({run.ending})")
    match run.phase:
        case Phase.HELD:
            return _hold_blocker(run, "the run")
        case Phase.WAITING:
            return Blocker(Why.TIMER, ref, TimerKind.WAIT, "the run's wait timer runs")
        case Phase.BACKOFF:
            return Blocker(Why.RUN, ref, detail="the run waits before it retries")
        case Phase.RECOVERING:
            return Blocker(Why.CONTACT, ref, detail="the run is asking for its attempts after a restart")
        case _:
            pass
    if draining(book, run):
        return Blocker(Why.FAILURE, ref, detail="a critical task failed; nothing new starts")
    live = book.tally(run.number)[LIVE]
    if run.plan.concurrency is not None and live >= run.plan.concurrency:
        return Blocker(Why.CONCURRENCY, ref, detail=f"{live} of {run.plan.concurrency} tasks run")
    return None


def openness(book: Book, run: Run) -> int:
    """How far this run lets its ready tasks start."""
    blocker = run_blocker(book, run)
    if blocker is not None and blocker.why is Why.STOPPING and run.plan.finishes_checks:
        return CHECKS_ONLY
    if blocker is None:
        return CHECKS_ONLY if run.phase is Phase.CHECKING else OPEN
    resting = run.phase in (Phase.FAILED, Phase.BACKOFF) and run.ending is None
    return CHECKS_ONLY if resting or blocker.why is Why.FAILURE else CLOSED


def final_checks_ready(run: Run) -> bool:
    return run.checking and run.live is None and run.ending is None and not run.terminal


def breaker_blocker(book: Book, tool: str) -> Blocker | None:
    """What the breaker and the limits of a tool say to one more start."""
    breaker = book.breaker(tool)
    profile = book.settings.tool(tool)
    live = book.tool_live(tool)
    if breaker is not None:
        if breaker.phase is Phase.PARKED:
            return Blocker(Why.BREAKER, breaker.ref, TimerKind.COOLDOWN, f"breaker {tool} open")
        if breaker.phase is Phase.PROBING and breaker.probe is not None:
            return Blocker(
                Why.BREAKER, breaker.ref, detail=f"breaker {tool} lets one probe through at a time"
            )
        if breaker.ramp is not None and live >= breaker.ramp:
            return Blocker(Why.BREAKER, breaker.ref, detail=f"breaker {tool} just closed; {live} run again")
    if profile.concurrency is not None and live >= profile.concurrency:
        return Blocker(Why.TOOL_LIMIT, detail=f"{live} of {profile.concurrency} run {tool}")
    return None
