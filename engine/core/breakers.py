"""Breakers: one for each tool, opened by failures in a row, tried by a single probe.

They count unexpected exits and timeouts of work; not losses, cancels or failed checks.
"""

from engine.core.draft import BREAKER, Draft
from engine.core.errors import Refused
from engine.core.records import Breaker, Circuit, Entity, Ref, TimerKind, Token
from engine.core.signals import ProbeBreaker, ResetBreaker, TripBreaker
from engine.machines import BreakerCue, InvalidTransitionError, Phase, TaskCue

FULL_RAMP = 8
"""When so many may run at once after a closing, the limit is lifted."""


def breaker_of(draft: Draft, tool: str) -> Breaker:
    """The breaker of a tool; made when it is first needed."""
    found = draft.breaker(tool)
    if found is not None:
        return found
    phase = BREAKER.phase[BREAKER.initial]
    made = Breaker(tool, BREAKER.initial, phase, version=1, entered=draft.now)
    draft.create(made, BREAKER.name, BREAKER.initial)
    return made


def take_probe(draft: Draft, tool: str | None, token: Token) -> None:
    """While a breaker is half open, the one attempt that starts is its probe."""
    breaker = draft.breaker(tool) if tool is not None else None
    if breaker is not None and breaker.phase is Phase.PROBING:
        draft.note(breaker, "probe_started", probe=token)


def free_probe(draft: Draft, tool: str | None, token: Token) -> None:
    """A probe that was cancelled or lost says nothing of the tool; the next may try."""
    breaker = draft.breaker(tool) if tool is not None else None
    if breaker is not None and breaker.probe == token:
        draft.note(breaker, "probe_freed", probe=None)


def count_success(draft: Draft, tool: str | None, token: Token) -> None:
    breaker = draft.breaker(tool) if tool is not None else None
    if breaker is None:
        return
    if breaker.phase is Phase.ACTIVE:
        if breaker.failures or breaker.ramp is not None:
            ramp = None if breaker.ramp is None or breaker.ramp >= FULL_RAMP else breaker.ramp * 2
            draft.note(breaker, "success_counted", failures=0, ramp=ramp)
    elif breaker.phase is Phase.PROBING and breaker.probe == token:
        successes = breaker.successes + 1
        if successes >= draft.settings.tool(breaker.tool).success_threshold:
            draft.move_breaker(
                breaker, BreakerCue.PROBE_OK, failures=0, successes=0, probe=None, ramp=1, error=None
            )
        else:
            draft.note(breaker, "probe_succeeded", successes=successes, probe=None)


def count_failure(draft: Draft, tool: str | None, token: Token, error: str) -> None:
    if tool is None:
        return
    breaker = breaker_of(draft, tool)
    profile = draft.settings.tool(tool)
    if breaker.phase is Phase.ACTIVE:
        failures = breaker.failures + 1
        if failures < profile.failure_threshold:
            draft.note(breaker, "failure_counted", failures=failures, error=error)
            return
        draft.move_breaker(
            breaker,
            BreakerCue.THRESHOLD,
            reason=f"{failures} failures in a row",
            failures=failures,
            error=error,
            ramp=None,
        )
        _cool(draft, tool)
    elif breaker.phase is Phase.PROBING and breaker.probe == token:
        draft.move_breaker(
            breaker, BreakerCue.PROBE_FAILED, reason="the probe failed", probe=None, successes=0, error=error
        )
        _cool(draft, tool)


def _cool(draft: Draft, tool: str) -> None:
    """An open breaker cools down, and parks the tasks that wait to retry where they have a state for it."""
    draft.arm(Ref(Entity.BREAKER, tool), TimerKind.COOLDOWN, draft.settings.tool(tool).cooldown)
    for task in draft.touched(draft.model.backoff.get(tool, {})):
        if task.plan.tool == tool and task.phase is Phase.BACKOFF and draft.answers(task, TaskCue.PARK):
            park(draft, task.key)


def park(draft: Draft, key: tuple[int, int]) -> None:
    """A retrying task goes behind the open breaker of its tool."""
    task = draft.task(key)
    draft.disarm(task.ref, TimerKind.RETRY)
    draft.move_task(task, TaskCue.PARK, reason=f"breaker {task.plan.tool} is open", circuit=Circuit.BREAKER)


def is_open(draft: Draft, tool: str | None) -> bool:
    breaker = draft.breaker(tool) if tool is not None else None
    return breaker is not None and breaker.phase is Phase.PARKED


def cooled(draft: Draft, tool: str) -> None:
    """The cooldown is over: one probe may try."""
    draft.move_breaker(breaker_of(draft, tool), BreakerCue.COOLED, probe=None, successes=0)


def _named(draft: Draft, tool: str) -> Breaker:
    if not tool:
        raise Refused("breaker", "a tool's name is needed", "`interlock breakers` lists them")
    return breaker_of(draft, tool)


def trip(draft: Draft, signal: TripBreaker) -> None:
    breaker = _named(draft, signal.tool)
    if breaker.phase is not Phase.ACTIVE:
        raise InvalidTransitionError(
            BREAKER.name,
            breaker.state,
            "tripped_by_operator",
            BREAKER.valid_events(breaker.state),
            signal.tool,
        )
    draft.move_breaker(breaker, BreakerCue.TRIPPED, ramp=None)
    _cool(draft, signal.tool)


def probe_now(draft: Draft, signal: ProbeBreaker) -> None:
    breaker = _named(draft, signal.tool)
    draft.move_breaker(breaker, BreakerCue.PROBE_NOW, probe=None, successes=0)
    draft.disarm(breaker.ref, TimerKind.COOLDOWN)


def reset(draft: Draft, signal: ResetBreaker) -> None:
    """Recovery 3: only when the tool is healthy, or when the operator names it to override."""
    breaker = _named(draft, signal.tool)
    allowed = signal.healthy or signal.override == signal.tool
    draft.move_breaker(
        breaker,
        BreakerCue.RESET,
        values={"healthy_or_overridden": allowed},
        failures=0,
        successes=0,
        probe=None,
        ramp=1,
    )
    draft.disarm(breaker.ref, TimerKind.COOLDOWN)
