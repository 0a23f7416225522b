"""The second opinion on every query: the records and the trail, filtered and sorted in plain Python."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import TypeVar

from engine.core.records import Ref, Run, Task
from engine.machines import MACHINES
from engine.store.chain import Head
from engine.store.gate import AuditRow
from engine.store.queries import (
    AttemptRow,
    Cursor,
    HistoryFilter,
    Page,
    RunDetail,
    RunFilter,
    RunRow,
    RunSort,
    TaskRow,
)
from tests.simulator.store import Execution, SimulatedStore
from tests.simulator.telling import plan_id, text, word

T = TypeVar("T")
Key = tuple[bool, int | str, int]
"""Whether there is a sort value at all, the value, and the number of the row."""


class SimulatedQueries:
    """What the simulated store can be asked."""

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store

    async def runs(
        self,
        wanted: RunFilter = RunFilter(),  # noqa: B008 - it is frozen
        sort: RunSort = RunSort.NUMBER,
        *,
        descending: bool = True,
        after: Cursor | None = None,
        limit: int = 50,
    ) -> Page[RunRow]:
        rows = [self._run(run) for run in self._store.runs()]
        found = [row for row in rows if _is_wanted(row, wanted)]

        def cursor(row: RunRow) -> Cursor:
            return getattr(row, sort.value), row.number

        return _page(found, cursor, descending, after, limit)

    async def run(self, number: int) -> RunDetail | None:
        found = self._store.run(number)
        if found is None:
            return None
        tasks = [record for record in self._store.records.values() if isinstance(record, Task)]
        mine = sorted((task for task in tasks if task.run == number), key=lambda task: task.number)
        return RunDetail(self._run(found), tuple(self._task(task) for task in mine))

    async def history(
        self,
        wanted: HistoryFilter = HistoryFilter(),  # noqa: B008 - it is frozen
        *,
        descending: bool = True,
        after: Cursor | None = None,
        limit: int = 50,
    ) -> Page[AuditRow]:
        found = [row for row in self._store.trail if _is_told(row, wanted)]
        seq = None if after is None else after[1]
        last = None if seq is None else (None, seq)
        return _page(found, lambda row: (None, row.seq), descending, last, limit)

    async def attempts(self, run: int, task: int | None = None) -> Sequence[AttemptRow]:
        every = [execution for token, execution in self._store.executions.items() if token.run == run]
        mine = [execution for execution in every if task in (None, execution.attempt.token.task)]
        # As they were opened, which is what sorting leaves alone.
        return [_attempt(execution) for execution in sorted(mine, key=lambda one: one.attempt.token[1:3])]

    async def head(self) -> Head:
        return Head(seq=len(self._store.trail), at=self._store.trail[-1].at if self._store.trail else 0)

    def _run(self, run: Run) -> RunRow:
        parent_run, parent_task = run.parent or (None, None)
        return RunRow(
            number=run.number,
            workflow=plan_id(run.plan),
            name=run.plan.name,
            task_description=run.plan.description or run.plan.name,
            machine=run.machine,
            state=run.state,
            version=run.version,
            requester=run.requester,
            params=text(dict(run.params)),
            created=run.created,
            entered=run.entered,
            updated=self._store.updated[run.ref],
            started=run.started,
            ended=run.ended,
            parent_run=parent_run,
            parent_task=parent_task,
            depth=run.depth,
            worker_count=run.plan.worker_count,
            task_count=len(run.plan.tasks),
            origin_run=None if run.origin is None else run.origin.run,
            origin_verb=None if run.origin is None else run.origin.verb,
            ending=None if run.ending is None else run.ending.value,
            ending_reason=run.ending_reason,
            resumed_by=run.resumed_by,
        )

    def _task(self, task: Task) -> TaskRow:
        own = {"name": task.plan.name, "updated": self._store.updated[task.ref]}
        flags = {"asking": task.asking, "final": task.final}
        rest = [spec.name for spec in fields(TaskRow) if spec.name not in (own | flags)]
        return TaskRow(**own, **flags, **{name: word(getattr(task, name)) for name in rest})  # type: ignore[arg-type]


def _is_wanted(row: RunRow, wanted: RunFilter) -> bool:
    return all(
        (
            not wanted.phases or MACHINES[row.machine].phase[row.state] in wanted.phases,
            not wanted.states or row.state in wanted.states,
            wanted.machine in (None, row.machine),
            wanted.name in (None, row.name),
            wanted.requester in (None, row.requester),
            wanted.parent in (None, row.parent_run),
            wanted.open in (None, row.ended is None),
        )
    )


def _is_told(row: AuditRow, wanted: HistoryFilter) -> bool:
    return all(
        (
            wanted.ref in (None, row.ref),
            wanted.run in (None, _run_of(row.ref)),
            wanted.kind in (None, row.ref.kind),
            wanted.machine in (None, row.machine),
            wanted.from_state in (None, row.from_state),
            wanted.event in (None, row.event),
            wanted.to_state in (None, row.to_state),
            wanted.actor in (None, row.actor),
            wanted.source in (None, row.source),
            wanted.request_id in (None, row.request_id),
            wanted.cause in (None, row.cause),
            wanted.since is None or row.at >= wanted.since,
            wanted.until is None or row.at < wanted.until,
            wanted.facts in (None, row.to_state is None),
        )
    )


def _run_of(ref: Ref) -> int | None:
    """The run that an entity belongs to; a run belongs to itself."""
    if isinstance(ref.key, tuple):
        return ref.key[0]
    return ref.key if isinstance(ref.key, int) else None


def _attempt(execution: Execution) -> AttemptRow:
    attempt, closing = execution.attempt, execution.closing
    report = closing.report if closing is not None else None
    return AttemptRow(
        run=attempt.token.run,
        task=attempt.token.task,
        attempt=attempt.token.attempt,
        purpose=attempt.token.purpose.value,
        round=attempt.token.round,
        worker=attempt.worker,
        tool=attempt.tool,
        sub_run=attempt.sub_run,
        sent=attempt.sent,
        started=attempt.started,
        pid=attempt.pid,
        stopping=None if attempt.stopping is None else attempt.stopping.value,
        ended=execution.ended,
        outcome=closing.outcome if closing is not None else None,
        exit_code=closing.exit_code if closing is not None else None,
        output_size=report.output_size if report is not None else None,
        cpu_time=report.cpu_time if report is not None else None,
        peak_memory=report.peak_memory if report is not None else None,
    )


def _page(
    rows: Iterable[T],
    cursor: Callable[[T], Cursor],
    descending: bool,
    after: Cursor | None,
    limit: int,
) -> Page[T]:
    """Sort, cut after the cursor, cut at the limit. No value sorts below every value."""
    if limit < 1:
        raise ValueError("a page has at least one row")
    found = sorted(rows, key=lambda row: _key(cursor(row)), reverse=descending)
    if after is not None:
        last = _key(after)
        found = [
            row for row in found if (_key(cursor(row)) < last if descending else _key(cursor(row)) > last)
        ]
    kept = tuple(found[:limit])
    return Page(kept, cursor(kept[-1]) if len(found) > limit else None)


def _key(cursor: Cursor) -> Key:
    value, number = cursor
    return value is not None, 0 if value is None else value, number
