"""Whether `explain` tells the truth: each reason it may give is checked against the records."""

from collections.abc import Callable

from engine.core.book import Standing
from engine.core.explain import Explanation, explain
from engine.core.model import Model
from engine.core.ready import Why
from engine.core.records import Attempt, Breaker, Entity, Run, Task, TimerKind, Worker
from engine.machines import Phase
from tests.simulator.footing import Footing, fulfilled


class Witness:
    """Asks for explanations and disbelieves them."""

    def __init__(self, model: Model, footing: Footing, now: int) -> None:
        self._model = model
        self._footing = footing
        self._now = now

    def lie(self, record: Run | Task) -> str | None:
        """What is wrong with the explanation of a record that is not over; None when it is true."""
        told = explain(self._model, record.ref, self._now)
        if not told.sentence or "unknown" in told.sentence:
            return f"explain {record.ref} does not know: {told}"
        if told.due is not None and told.what is Why.TIMER and told.due < self._now:
            return f"explain {record.ref} waits for a timer that is over: {told}"
        test = _TESTS[told.what]
        run = record if isinstance(record, Run) else self._model.run(record.run)
        tasks = list(self._model.tasks_of(record)) if isinstance(record, Run) else [record]
        if test(self, told, run, tasks):
            return None
        return f"explain {record.ref} says {told.what}, which is not so: {told.sentence}"

    # ---- one test for each reason

    def _attempts(self, run: Run, tasks: list[Task]) -> list[Attempt]:
        tokens = [task.live for task in tasks if task.live is not None]
        if run.live is not None:
            tokens.append(run.live)
        found = [self._model.attempt(token) for token in tokens]
        return [attempt for attempt in found if attempt is not None]

    def _over(self, told: Explanation, run: Run, tasks: list[Task]) -> bool:
        return run.terminal or all(
            task.terminal or task.pardon or task.blocked or task.final or task.phase is Phase.FAILED
            for task in tasks
        )

    def _running(self, told: Explanation, run: Run, tasks: list[Task]) -> bool:
        return bool(self._attempts(run, tasks))

    def _stopping(self, told: Explanation, run: Run, tasks: list[Task]) -> bool:
        open_ones = [
            self._model.attempt(token) for task in tasks for token in self._footing.open_tokens(task)
        ]
        return run.ending is not None or any(
            attempt is not None and (attempt.stopping is not None or attempt.fenced)
            for attempt in (*open_ones, *self._attempts(run, []))
        )

    def _need(self, told: Explanation, run: Run, tasks: list[Task]) -> bool:
        needed = told.blocked_by
        if needed is None or not isinstance(needed.key, tuple):
            return False
        return any(needed.key[1] in task.plan.needs for task in tasks) and not fulfilled(
            self._model.task(needed.key)
        )

    def _run(self, told: Explanation, run: Run, tasks: list[Task]) -> bool:
        return run.phase in (Phase.BACKOFF, Phase.HELD, Phase.WAITING, Phase.IDLE) or run.ending is not None

    def _timer(self, told: Explanation, run: Run, tasks: list[Task]) -> bool:
        return told.due is not None

    def _people(self, told: Explanation, run: Run, tasks: list[Task]) -> bool:
        return run.phase is Phase.HELD or any(task.phase is Phase.HELD for task in tasks)

    def _person(self, told: Explanation, run: Run, tasks: list[Task]) -> bool:
        return run.phase is Phase.FAILED or any(
            task.asking
            or task.phase is Phase.FAILED
            or self._model.standing(task.key) in (Standing.STRANDED, Standing.FAILED)
            for task in tasks
        )

    def _failure(self, told: Explanation, run: Run, tasks: list[Task]) -> bool:
        return self._footing.decided(run)

    def _concurrency(self, told: Explanation, run: Run, tasks: list[Task]) -> bool:
        limit = run.plan.concurrency
        return limit is not None and self._footing.tasks_alive(run) >= limit

    def _breaker(self, told: Explanation, run: Run, tasks: list[Task]) -> bool:
        found = self._breaker_of(told)
        return found is not None and (found.phase is not Phase.ACTIVE or found.ramp is not None)

    def _breaker_of(self, told: Explanation) -> Breaker | None:
        on = told.blocked_by
        return self._model.breaker(str(on.key)) if on is not None and on.kind is Entity.BREAKER else None

    def _tool_limit(self, told: Explanation, run: Run, tasks: list[Task]) -> bool:
        return any(self._footing.tool_is_full(task.plan.tool) for task in tasks if task.plan.tool is not None)

    def _capacity(self, told: Explanation, run: Run, tasks: list[Task]) -> bool:
        if run.checking and not self._takers(frozenset()):
            return True
        return any(not self._takers(task.plan.capabilities) for task in tasks)

    def _takers(self, capabilities: frozenset[str]) -> list[Worker]:
        return self._footing.takers(capabilities)

    def _contact(self, told: Explanation, run: Run, tasks: list[Task]) -> bool:
        silent = (Phase.RECOVERING,)
        return (
            run.phase in silent
            or any(task.phase in silent for task in tasks)
            or any(attempt.doubt for attempt in self._attempts(run, tasks))
        )

    def _turn(self, told: Explanation, run: Run, tasks: list[Task]) -> bool:
        """After a dispatch nothing that could start waits for its turn."""
        return False


_TESTS: dict[Why, Callable[[Witness, Explanation, Run, list[Task]], bool]] = {
    Why.OVER: Witness._over,
    Why.RUNNING: Witness._running,
    Why.STOPPING: Witness._stopping,
    Why.NEED: Witness._need,
    Why.RUN: Witness._run,
    Why.TIMER: Witness._timer,
    Why.PEOPLE: Witness._people,
    Why.PERSON: Witness._person,
    Why.FAILURE: Witness._failure,
    Why.CONCURRENCY: Witness._concurrency,
    Why.BREAKER: Witness._breaker,
    Why.TOOL_LIMIT: Witness._tool_limit,
    Why.WORKER: Witness._capacity,
    Why.SLOT: Witness._capacity,
    Why.CONTACT: Witness._contact,
    Why.TURN: Witness._turn,
}

DEADLINES = (TimerKind.DEADLINE, TimerKind.GRACE)
"""One of these runs for every execution on a worker that is not fenced off."""
