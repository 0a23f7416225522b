"""The breakers a second time: what each must be, worked out from how executions ended.

They count unexpected exits and timeouts of work; not losses, cancels or failed checks. While OPEN
nothing counts, while HALF_OPEN only the probe does.
"""

from dataclasses import dataclass

from engine.core.decision import AttemptNoted, Closing, Created, Decision, Fact, Transition
from engine.core.plan import Settings
from engine.core.records import Attempt, Breaker, Purpose, Stop, Token, Worker
from engine.machines import Phase
from tests.simulator.store import SimulatedStore
from tests.simulator.violation import Violation, story

BY_HAND = ("tripped_by_operator", "probe_requested", "reset_by_operator", "cooldown_expires")


@dataclass(slots=True)
class Count:
    """What one breaker must be."""

    state: str = "CLOSED"
    failures: int = 0
    successes: int = 0


class Ledger:
    """Follows every commit, and keeps its own books."""

    def __init__(self, store: SimulatedStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._open: dict[Token, Attempt] = {}
        self._counts: dict[str, Count] = {}
        self._stopped: set[str] = set()
        """Workers that were stopped by their supervisor and took along what they ran."""
        self._probes: dict[str, Token | None] = {}

    def follow(self, decision: Decision) -> None:
        """Work out what a decision must do to the breakers, and compare."""
        touched: dict[str, Breaker] = {}
        for change in decision.changes:
            if isinstance(change, AttemptNoted):
                self._open[change.token] = change.after
                continue
            if not isinstance(change, Created):
                self._attempts(change)
            if isinstance(change.after, Worker):
                if change.after.control_phase in (Phase.CANCELLED, Phase.FAILED):
                    self._stopped.add(change.after.id)
            elif isinstance(change.after, Breaker):
                touched[change.after.tool] = change.after
                count = self._counts.setdefault(change.after.tool, Count())
                if isinstance(change, Transition) and change.event in BY_HAND:
                    self._by_hand(count, change)
        for tool, breaker in touched.items():
            self._probes[tool] = breaker.probe
            self._compare(tool, breaker)

    def _attempts(self, change: Transition | Fact) -> None:
        if change.closes is not None:
            attempt = self._open.pop(change.closes.token)
            if attempt.tool is not None and attempt.worker is not None:
                self._closed(attempt.tool, attempt, change.closes, change)
        if change.opens is not None:
            self._open[change.opens.token] = change.opens

    def _closed(self, tool: str, attempt: Attempt, closing: Closing, change: Transition | Fact) -> None:
        verdict = self._verdict(attempt, closing)
        if verdict is None:
            return
        count = self._counts.setdefault(tool, Count())
        profile = self._settings.tool(tool)
        if count.state == "CLOSED":
            if attempt.token.purpose is not Purpose.WORK:
                return
            count.failures = 0 if verdict else count.failures + 1
            if count.failures >= profile.failure_threshold:
                count.state = "OPEN"
        elif count.state == "HALF_OPEN" and self._probes.get(tool) == attempt.token:
            if not verdict:
                count.state, count.successes = "OPEN", 0
            elif attempt.token.purpose is Purpose.WORK:
                count.successes += 1
                if count.successes >= profile.success_threshold:
                    count.state, count.failures, count.successes = "CLOSED", 0, 0

    def _verdict(self, attempt: Attempt, closing: Closing) -> bool | None:
        """Whether an ended execution speaks for the tool or against it; None when it says nothing."""
        token = attempt.token
        if token.purpose not in (Purpose.WORK, Purpose.HEALTH) or attempt.fenced:
            return None
        if attempt.stopping in (Stop.CANCEL, Stop.KILLED):
            return None
        if attempt.stopping is Stop.TIMEOUT:
            return False if token.purpose is Purpose.WORK or closing.outcome == "exited" else None
        if closing.outcome != "exited" or closing.exit_code is None:
            return None
        if token.purpose is Purpose.HEALTH:
            return closing.exit_code == 0
        record = self._store.task(token.key)
        if closing.exit_code in record.plan.expected_exits:
            return True
        return None if attempt.worker in self._stopped else False

    def _by_hand(self, count: Count, change: Transition) -> None:
        count.state = change.target
        count.successes = 0
        if change.target == "CLOSED":
            count.failures = 0

    def _compare(self, tool: str, breaker: Breaker) -> None:
        count = self._counts[tool]
        if (breaker.state, breaker.failures) != (count.state, count.failures):
            raise Violation(
                f"breaker {tool} is {breaker.state} with {breaker.failures} failures,"
                f" its history says {count.state} with {count.failures}",
                story(self._store.history(breaker.ref)),
            )

    def check(self) -> None:
        """Every breaker that must exist does, and is as its history says."""
        for tool, count in self._counts.items():
            found = self._store.breaker(tool)
            if found is not None:
                self._compare(tool, found)
            elif count.failures or count.state != "CLOSED":
                raise Violation(f"breaker {tool} does not exist, its history says {count}")
