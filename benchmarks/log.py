"""How many lines per second the log of transitions is judged and written with.

The log is a plausible one: runs of the standard lifecycle, one after the other, each task through its
whole life with one retry.
"""

import gc
from collections.abc import Iterator
from itertools import count

from benchmarks.figure import Figure, best_of
from engine.core.records import Entity, Ref
from engine.machines import transition
from engine.store.events import line_of
from engine.store.gate import AuditRow
from engine.store.log_validator import validate

RUNS = 100
TASKS = 50
ROUNDS = 5
FAST = 150_000

TASK_LIFE = (
    "executor_starts",
    "tool_execution_error",
    "retry_available",
    "backoff_complete",
    "tool_execution_complete",
    "tests_pass",
)


def measure() -> list[Figure]:
    rows = list(_rows())
    lines = [f"{line_of(row)}\n".encode() for row in rows]
    assert not list(validate(lines)), "the benchmark's own log has problems"
    gc.collect()
    judged, written = best_of(
        ROUNDS, lambda: sum(1 for _ in validate(lines)), lambda: [line_of(row) for row in rows]
    )
    return [
        Figure("validate", len(rows) * 1e9 / judged, "lines/s", goal=FAST, at_least=True),
        Figure("export (line_of)", len(rows) * 1e9 / written, "lines/s"),
    ]


def _rows() -> Iterator[AuditRow]:
    numbers = count(1)
    for run in range(1, RUNS + 1):
        ref = Ref(Entity.RUN, run)
        yield _row(next(numbers), ref, str(run), "execution", 2, "pending", "ENQUEUE")
        yield _row(next(numbers), ref, str(run), "execution", 3, "queued", "START")
        states = {f"{run}/task-{task}": "PENDING" for task in range(1, TASKS + 1)}
        for version, event in enumerate(TASK_LIFE, 2):
            for task, (label, state) in enumerate(states.items(), 1):
                of_task = Ref(Entity.TASK, (run, task))
                row = _row(next(numbers), of_task, label, "toolchain.task", version, state, event)
                states[label] = str(row.to_state)
                yield row
        yield _row(next(numbers), ref, str(run), "execution", 4, "running", "SUCCEED")


def _row(seq: int, ref: Ref, label: str, machine: str, version: int, source: str, event: str) -> AuditRow:
    target = transition(machine, source, event)
    at = 1_700_000_000_000_000 + seq * 1_357
    metadata = {"retries": 1} if event == "retry_available" else {}
    return AuditRow(
        seq, at, seq, "alice", "engine", ref, label, machine, version, source, event, target, None,
        since=at - 45_000_123, metadata=metadata,
    )  # fmt: skip
