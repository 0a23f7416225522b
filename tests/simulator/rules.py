"""What must hold at the moment of a change: what may start, who may approve, what an end means.

Follows every committed change in its order, so each is judged by what was true just then.
"""

from engine.core.decision import AttemptNoted, Created, Decision, Fact, Start, TimerSet, Transition
from engine.core.plan import Clause, Settings
from engine.core.records import (
    Attempt,
    Breaker,
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
        for change in decision.changes:
            if isinstance(change, AttemptNoted):
                self._open[change.token] = change.after
                continue
            before = self._seen.get(change.ref)
            self._seen[change.ref] = change.after
            if isinstance(change, Created):
                continue
            if change.closes is not None:
                del self._open[change.closes.token]
            if change.opens is not None:
                self._starts(change, change.opens, before)
                self._open[change.opens.token] = change.opens
                opened.append(change.opens)
            if isinstance(change, Transition):
                self._moved(change)
            elif isinstance(change.after, Task) and change.after.pardon is Pardon.CARRIED:
                self._carried(change.after)
        self._told(decision, opened)
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

    def _starts(self, change: Transition | Fact, attempt: Attempt, before: Record | None) -> None:
        if not isinstance(change.after, Task) or attempt.token.purpose is not Purpose.WORK:
            return
        task, run = change.after, self._run(attempt.token.run)
        refused = self._run_refuses(run) or self._tool_refuses(attempt)
        if refused is None and any(not fulfilled(self._task(task.run, need)) for need in task.plan.needs):
            refused = "a need is not met"
        if not isinstance(before, Task) or attempt.token.attempt != before.attempt + 1:
            refused = f"{before and brief(before)} came before it"
        if refused is not None:
            raise self._broken(task.ref, f"{attempt.token} starts although {refused}")

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
        if not isinstance(breaker, Breaker) or breaker.phase is Phase.ACTIVE:
            return None
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
