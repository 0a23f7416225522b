"""The event of a row: document 001's schema and severities, restated by hand, and one line for each."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from engine.core.records import Entity
from engine.machines import MACHINES
from engine.store.events import DRIVEN_BY, SEVERITY_OF, event_of, line_of, timestamp
from tests.store.trail import EVERY_ARROW, START, Way, named, row

RUN, TASK, WORKER, BREAKER = Entity.RUN, Entity.TASK, Entity.WORKER, Entity.BREAKER

SAID_BY_001 = {
    (TASK, "pending", "queued"): "info",
    (TASK, "queued", "running"): "info",
    (TASK, "running", "validating"): "info",
    (TASK, "running", "retrying"): "warning",
    (TASK, "running", "failed"): "error",
    (TASK, "validating", "completed"): "info",
    (TASK, "validating", "failed"): "error",
    (RUN, "planned", "ready"): "info",
    (RUN, "ready", "executing"): "info",
    (RUN, "executing", "validating"): "info",
    (RUN, "executing", "failed"): "critical",
    (RUN, "validating", "completed"): "info",
    (WORKER, "initializing", "idle"): "info",
    (WORKER, "idle", "busy"): "info",
    (WORKER, "busy", "idle"): "info",
    (WORKER, "busy", "unresponsive"): "error",
    (WORKER, "unresponsive", "idle"): "info",
}

ALARMING = {
    (RUN, "execution", "failed"): "critical",
    (RUN, "execution", "recovering"): "error",
    (RUN, "pipeline.workstream", "S_FAILED"): "error",
    (RUN, "pipeline.workstream", "S_RETRYING"): "warning",
    (RUN, "orchestration.workstream", "failed"): "critical",
    (RUN, "supervision.job", "FAILED"): "critical",
    (TASK, "execution", "failed"): "error",
    (TASK, "execution", "recovering"): "error",
    (TASK, "pipeline.step", "S_FAILED"): "error",
    (TASK, "pipeline.step", "S_RETRYING"): "warning",
    (TASK, "orchestration.task", "failed"): "error",
    (TASK, "orchestration.task", "retrying"): "warning",
    (TASK, "toolchain.task", "FAILED"): "warning",
    (TASK, "toolchain.task", "TIMEOUT"): "warning",
    (TASK, "toolchain.task", "RETRYING"): "warning",
    (TASK, "toolchain.task", "CIRCUIT_OPEN"): "error",
    (WORKER, "orchestration.worker", "unresponsive"): "error",
    (WORKER, "supervision.worker", "FAILED"): "error",
    (BREAKER, "pipeline.breaker", "OPEN"): "error",
}

SHORT_NAME = {
    "orchestration.task": TASK,
    "orchestration.workstream": RUN,
    "orchestration.worker": WORKER,
}


def test_a_transition_makes_the_event_of_the_documents_sample() -> None:
    told = event_of(
        row(
            TASK, "orchestration.task", "running", "execution_completed", "validating",
            seq=7, reason="exit 0", request_id="r-1", since=START + 7_000 - 45_000_000,
            metadata={"retries": 0, "attempt": 1, "error": None},
        )
    )  # fmt: skip
    assert told == {
        "timestamp": "2024-01-15T10:30:00.007000Z",
        "event_type": "task_state_transition",
        "severity": "info",
        "entity_id": "182/build",
        "from_state": "running",
        "to_state": "validating",
        "trigger": "execution_completed",
        "metadata": {
            "machine": "orchestration.task",
            "seq": 7,
            "version": 8,
            "actor": "alice",
            "source": "console",
            "cause": 1007,
            "reason": "exit 0",
            "request_id": "r-1",
            "duration_seconds": 45,
            "retry_count": 0,
            "attempt": 1,
        },
    }


def test_what_is_not_known_is_left_out_of_the_metadata() -> None:
    told = event_of(row(RUN, "execution", "pending", "ENQUEUE", "queued"))
    assert told is not None
    metadata = told["metadata"]
    assert isinstance(metadata, dict)
    assert list(metadata) == ["machine", "seq", "version", "actor", "source", "cause"]


@pytest.mark.parametrize(("source", "target"), [(None, "pending"), (None, None)], ids=["creation", "fact"])
def test_creations_and_facts_have_no_event(source: str | None, target: str | None) -> None:
    nothing = row(RUN, "execution", source, "created", target)
    assert event_of(nothing) is None
    assert line_of(nothing) is None


@pytest.mark.parametrize(
    ("entity", "event_type"),
    [
        (RUN, "workstream_state_transition"),
        (TASK, "task_state_transition"),
        (WORKER, "worker_state_transition"),
        (BREAKER, "breaker_state_transition"),
    ],
)
def test_the_event_type_follows_the_entity_whatever_its_machine(entity: Entity, event_type: str) -> None:
    for name in DRIVEN_BY[entity]:
        arrow = MACHINES[name].arrows[0]
        told = event_of(row(entity, name, arrow.source, arrow.event, arrow.target))
        assert told is not None
        assert told["event_type"] == event_type


def test_every_machine_drives_somebody() -> None:
    assert {name for names in DRIVEN_BY.values() for name in names} == set(MACHINES)
    assert DRIVEN_BY[WORKER] == ("orchestration.worker", "supervision.worker")
    assert DRIVEN_BY[BREAKER] == ("pipeline.breaker",)


def test_severities_are_those_that_document_001_gives() -> None:
    given = {
        (SHORT_NAME[name], arrow.source, arrow.target): SEVERITY_OF[entity, name, arrow.target]
        for entity, name, arrow in EVERY_ARROW
        if name in SHORT_NAME
    }
    assert {way: given[way] for way in SAID_BY_001} == SAID_BY_001


def test_every_other_state_is_entered_with_information_unless_it_is_alarming() -> None:
    assert {key: value for key, value in SEVERITY_OF.items() if value != "info"} == ALARMING


@pytest.mark.parametrize("way", EVERY_ARROW, ids=named(EVERY_ARROW))
def test_the_line_of_every_arrow_reads_back_as_its_event(way: Way) -> None:
    entity, name, arrow = way
    one = row(entity, name, arrow.source, arrow.event, arrow.target)
    line = line_of(one)
    assert line is not None
    assert json.loads(line) == event_of(one)
    assert (": " in line, ", " in line) == (False, False)


def test_a_line_keeps_letters_and_escapes_everything_that_could_break_it() -> None:
    nasty = 'ü\n\r\t\0\x1b[31m\x7f\x85\u2028\u2029\ud800"\\'
    line = line_of(row(TASK, "execution", "pending", "ENQUEUE", "queued", reason=nasty))
    assert line is not None
    assert "ü" in line
    assert [char for char in line if not char.isprintable()] == []
    assert line.encode().splitlines() == [line.encode()]
    assert json.loads(line)["metadata"]["reason"] == nasty


@pytest.mark.parametrize("at", [0, 1, 999_999, START, START + 123_456, 253_402_300_799_999_999])
def test_a_timestamp_is_exact_to_the_microsecond_and_sorts_as_text(at: int) -> None:
    text = timestamp(at)
    assert (len(text), text[-1]) == (27, "Z")
    assert datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC) == timedelta(microseconds=at)


@pytest.mark.parametrize(("micros", "seconds"), [(0, 0), (45_000_000, 45), (1, 1e-06), (1_500_000, 1.5)])
def test_a_duration_is_told_in_seconds(micros: int, seconds: float) -> None:
    told = event_of(row(RUN, "execution", "pending", "ENQUEUE", "queued", since=START + 1_000 - micros))
    assert told is not None
    assert isinstance(told["metadata"], dict)
    assert told["metadata"]["duration_seconds"] == seconds


def test_retries_are_counted_by_the_budget_not_by_attempts() -> None:
    """A lost attempt is no retry: the count would run past the limit and back."""
    told = event_of(
        row(TASK, "toolchain.task", "RETRYING", "backoff_complete", "IN_PROGRESS", metadata={"attempt": 3})
    )
    assert told is not None
    assert isinstance(told["metadata"], dict)
    assert "retry_count" not in told["metadata"]
    assert told["metadata"]["attempt"] == 3
