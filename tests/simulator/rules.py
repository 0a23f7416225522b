"""What must hold at the moment of a change: what may start, who may approve, what an end means.

Follows every committed change in its order, so each is judged by what was true just then.
"""

from engine.core.decision import (
    AttemptNoted,
    Closing,
    Created,
    Decision,
    Fact,
    Halt,
    Start,
    TimerSet,
    Transition,
)
from engine.core.plan import Clause, Settings, Test
from engine.core.records import (
    Attempt,
    Breaker,
    Circuit,
    Entity,
    Hold,
    Pardon,
    Purpose,
    Record,
    Ref,
    Run,
    Task,
    TimerKind,
    Token,
)
from engine.machines import Phase
from tests.simulator.footing import decided, fulfilled
from tests.simulator.store import SimulatedStore
from tests.simulator.verdicts import misjudged
from tests.simulator.violation import Violation, brief, story

RESTING = (Phase.HELD, Phase.WAITING, Phase.BACKOFF, Phase.FAILED, Phase.RECOVERING)


class Rules:
    """Keeps a copy of every record as of the change that is being judged."""

    def __init__(self, store: SimulatedStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._seen: dict[Ref, Record] = {}
        self._open: dict[Token, Attempt] = {}

    def follow(self, decision: Decision) -> None:
        opened: list[Attempt] = []
        closed: list[tuple[Ref, Attempt, Closing]] = []
        stopped: list[Attempt] = []
        for change in decision.changes:
            if isinstance(change, AttemptNoted):
                if self._open[change.token].stopping is None and change.after.stopping is not None:
                    stopped.append(change.after)
                self._open[change.token] = change.after
                continue
            before = self._seen.get(change.ref)
            self._seen[change.ref] = change.after
            if isinstance(change, Created):
                continue
            if change.closes is not None:
                closed.append((change.ref, self._open.pop(change.closes.token), change.closes))
            if change.opens is not None:
                self._starts(change, change.opens, before)
                self._cooled(change.opens, before, decision.at)
                self._open[change.opens.token] = change.opens
                opened.append(change.opens)
            if isinstance(change, Transition):
                self._moved(change)
            elif isinstance(change.after, Task) and change.after.pardon is Pardon.CARRIED:
                self._carried(change.after)
        self._told(decision, opened)
        self._halted(decision, stopped)
        for ref, attempt, closing in closed:
            after = self._seen[ref]
            assert isinstance(after, Task | Run)
            if wrong := misjudged(attempt, closing, after, self._run):
                raise self._broken(ref, wrong)
        reopened = any(isinstance(change, Fact) and change.name == "reopened" for change in decision.changes)
        for timer in decision.timers:
            if isinstance(timer, TimerSet) and timer.kind is TimerKind.RETRY and not reopened:
                self._backs_off(timer, decision.at)

    def _backs_off(self, timer: TimerSet, now: int) -> None:
        """Longer each time, capped, then jittered."""
        task = self._seen[timer.ref]
        assert isinstance(task, Task)
        retry = self._settings.retry_of(task.plan)
        plain = min(retry.cap, retry.base * 2 ** (task.failures - 1))
        if abs(timer.due - now - plain) > plain * retry.jitter + 1:
            raise self._broken(
                timer.ref, f"{timer.ref} waits {timer.due - now} after {task.failures} failures"
            )

    def _run(self, number: int) -> Run:
        found = self._seen[Ref(Entity.RUN, number)]
        assert isinstance(found, Run)
        return found

    def _task(self, run: int, number: int) -> Task:
        found = self._seen[Ref(Entity.TASK, (run, number))]
        assert isinstance(found, Task)
        return found

    # ---- starting

    def _told(self, decision: Decision, opened: list[Attempt]) -> None:
        """An attempt on a worker commits together with its start instruction."""
        told = {(one.token, one.worker) for one in decision.instructions if isinstance(one, Start)}
        for attempt in opened:
            if attempt.worker is not None and (attempt.token, attempt.worker) not in told:
                raise Violation(
                    f"{attempt.token} was opened on {attempt.worker} and nobody is told to start it"
                )
        for token, worker in told:
            known = self._open.get(token)
            if known is None or known.worker != worker:
                raise Violation(f"{worker} is told to start {token}, which is not open there")

    def _halted(self, decision: Decision, stopped: list[Attempt]) -> None:
        """What is to stop on a worker is told so, and what is told so is known to be stopping."""
        told = {one.token for one in decision.instructions if isinstance(one, Halt)}
        for attempt in stopped:
            if attempt.worker is not None and attempt.token not in told and attempt.token in self._open:
                raise Violation(f"{attempt.token} is to stop ({attempt.stopping}) and nobody tells it")
        for token in told:
            known = self._open.get(token)
            if known is not None and known.stopping is None and not known.fenced:
                raise Violation(f"{token} is told to end and nothing says why")

    def _starts(self, change: Transition | Fact, attempt: Attempt, before: Record | None) -> None:
        if not isinstance(change.after, Task) or attempt.token.purpose is not Purpose.WORK:
            return
        task, run = change.after, self._run(attempt.token.run)
        refused = self._run_refuses(run) or self._tool_refuses(attempt)
        if refused is None and any(not fulfilled(self._task(task.run, need)) for need in task.plan.needs):
            refused = "a need is not met"
        if any(not _holds(run, test) for test in task.plan.when):
            refused = "its condition is false"
        if not isinstance(before, Task) or attempt.token.attempt != before.attempt + 1:
            refused = f"{before and brief(before)} came before it"
        if refused is not None:
            raise self._broken(task.ref, f"{attempt.token} starts although {refused}")

    def _cooled(self, attempt: Attempt, before: Record | None, now: int) -> None:
        """A task leaves its own open circuit only after the cooldown."""
        if isinstance(before, Task) and before.phase is Phase.PARKED and before.circuit is Circuit.OWN:
            cooldown = self._settings.tool(before.plan.tool).cooldown
            if now - before.entered < cooldown:
                raise self._broken(
                    before.ref, f"{attempt.token} starts {now - before.entered} of {cooldown} early"
                )

    def _run_refuses(self, run: Run) -> str | None:
        if run.terminal or run.ending is not None or run.phase in RESTING:
            return f"its run is {run.state}, {run.ending or 'not ending'}"
        if decided(run, {number: self._task(run.number, number) for number in run.plan.numbers.values()}):
            return "a critical task of its run has failed"
        limit = run.plan.concurrency
        live = sum(
            1
            for one in self._open.values()
            if one.token.run == run.number and one.token.task and not one.fenced
        )
        return f"{live} of {limit} tasks run" if limit is not None and live >= limit else None

    def _tool_refuses(self, attempt: Attempt) -> str | None:
        tool = attempt.tool
        if tool is None:
            return None
        live = sum(
            1
            for one in self._open.values()
            if one.tool == tool and one.token.purpose in (Purpose.WORK, Purpose.HEALTH)
        )
        limit = self._settings.tool(tool).concurrency
        if limit is not None and live >= limit:
            return f"{live} of {limit} run {tool}"
        breaker = self._seen.get(Ref(Entity.BREAKER, tool))
        if not isinstance(breaker, Breaker):
            return None
        if breaker.phase is Phase.ACTIVE:
            full = breaker.ramp is not None and live >= breaker.ramp
            return f"breaker {tool} has just closed and {live} run" if full else None
        if breaker.phase is Phase.PARKED:
            return f"breaker {tool} is open"
        probe = breaker.probe
        if probe is not None and probe.key != attempt.token.key and probe in self._open:
            return f"breaker {tool} is being probed by {probe}"
        return None

    # ---- moving

    def _moved(self, change: Transition) -> None:
        after = change.after
        if isinstance(after, Run | Task) and change.event == "APPROVE":
            run = after if isinstance(after, Run) else self._run(after.run)
            if after.hold is None or not self._granted(after.hold, run.requester):
                raise self._broken(
                    change.ref, f"{change.ref} was approved by {after.hold and after.hold.votes}"
                )
        if isinstance(after, Task) and after.pardon is Pardon.CARRIED:
            self._carried(after)
        if isinstance(after, Run) and after.terminal:
            self._ended(after)
        if isinstance(after, Task) and after.pardon is Pardon.CONDITION and change.sets.get("pardon"):
            run = self._run(after.run)
            if not any(not _holds(run, test) or test.subject.startswith("needs") for test in after.plan.when):
                raise self._broken(change.ref, f"{change.ref} is left out although its condition is true")

    def _granted(self, hold: Hold, requester: str | None) -> bool:
        voters = [vote.actor for vote in hold.votes]
        if requester is None or len(set(voters)) != len(voters):
            return False
        if requester in voters and not self._settings.self_approval:
            return False
        return all(
            sum(self._eligible(clause, voter) for voter in voters) >= clause.count
            for clause in (*self._settings.policy, *hold.approval.clauses)
        )

    def _eligible(self, clause: Clause, voter: str) -> bool:
        if not clause.users and not clause.teams:
            return True
        return voter in clause.users or any(voter in self._settings.teams[team] for team in clause.teams)

    def _carried(self, task: Task) -> None:
        origin = self._run(task.run).origin
        if origin is None or not fulfilled(self._task(origin.run, task.number)):
            raise self._broken(
                task.ref, f"{task.ref} was carried over from {origin} without having succeeded there"
            )

    def _ended(self, run: Run) -> None:
        tasks = [self._task(run.number, number) for number in range(1, len(run.plan.tasks) + 1)]
        if run.phase is Phase.SUCCEEDED:
            for task in tasks:
                if task.phase is not Phase.SUCCEEDED and task.pardon is None:
                    raise self._broken(
                        run.ref, f"{run.ref} succeeded and its task {task.ref} is {task.state}"
                    )
        for one in self._open.values():
            if one.token.run == run.number and not one.fenced and one.sub_run is None:
                raise self._broken(run.ref, f"{run.ref} is {run.state} and {one.token} is alive")

    def _broken(self, ref: Ref, what: str) -> Violation:
        return Violation(what, story(self._store.history(ref)))


def _holds(run: Run, test: Test) -> bool:
    """Whether a part of a condition on a parameter is true; one on a need is not judged here."""
    kind, _, name = test.subject.partition(".")
    return kind != "params" or (run.params.get(name) == test.value) is test.equal
