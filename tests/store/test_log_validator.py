"""The judge of logs: every arrow of every machine is accepted, all else is a problem with a sentence."""

from dataclasses import replace

import pytest

from engine.core.records import Entity
from engine.machines import MACHINES
from engine.store.events import DRIVEN_BY, SEVERITY_OF
from engine.store.log_entities import UNDERWAY
from engine.store.log_problems import Fault, Problem, Summary
from engine.store.log_validator import UNSAID, validate
from tests.store.logs import foreign, found, line, lines, only
from tests.store.trail import EVERY_ARROW, Way, life, named, row

RUN, TASK, WORKER, BREAKER = Entity.RUN, Entity.TASK, Entity.WORKER, Entity.BREAKER

SAMPLE = (
    b'{"timestamp": "2024-01-15T10:30:00.000Z", "event_type": "task_state_transition", "severity": "info",'
    b' "entity_id": "task-ulid-001", "from_state": "running", "to_state": "completed",'
    b' "trigger": "execution_completed", "metadata": {"duration_seconds": 45, "retry_count": 0}}'
)


# ---- arrows


@pytest.mark.parametrize("way", EVERY_ARROW, ids=named(EVERY_ARROW))
def test_every_arrow_of_every_machine_is_accepted_as_a_continuation(way: Way) -> None:
    rows = life(*way)
    summary = Summary()
    assert list(validate(lines(rows), summary)) == []
    assert summary == Summary(lines=len(rows), events=len(rows), entities=1)


@pytest.mark.parametrize("way", EVERY_ARROW, ids=named(EVERY_ARROW))
def test_every_arrow_is_refused_from_every_state_that_does_not_have_it(way: Way) -> None:
    entity, name, arrow = way
    machine = MACHINES[name]
    legal = {(other.source, other.event, other.target) for other in machine.arrows}
    for source in machine.state:
        if (source, arrow.event, arrow.target) not in legal:
            one = row(entity, name, source, arrow.event, arrow.target)
            kind = Fault.TERMINAL if machine.is_terminal(source) else Fault.TRANSITION
            assert only([line(one)], partial=True).kind is kind


@pytest.mark.parametrize("name", MACHINES)
def test_every_pair_of_states_without_an_arrow_is_refused_whatever_the_trigger(name: str) -> None:
    machine = MACHINES[name]
    (entity, *_) = (entity for entity, names in DRIVEN_BY.items() if name in names)
    pairs = {(arrow.source, arrow.target) for arrow in machine.arrows}
    for source in machine.state:
        for target in machine.state:
            for event in machine.events if (source, target) not in pairs else ():
                problem = only([line(row(entity, name, source, event, target))], partial=True)
                assert problem.kind in (Fault.TERMINAL, Fault.TRANSITION)
                allowed = machine.valid_events(source)
                assert all(word in problem.sentence for word in allowed or ("nothing is allowed there",))


def test_the_documents_own_sample_is_refused_and_told_what_is_allowed() -> None:
    assert only([SAMPLE], partial=True) == Problem(
        1,
        Fault.TRANSITION,
        "task-ulid-001",
        "task-ulid-001: orchestration.task has no execution_completed from running to completed; allowed"
        " there: execution_completed to validating, execution_failed to retrying, execution_failed to failed,"
        " user_cancelled to cancelled",
    )
    assert found([SAMPLE]) == [(1, "transition"), (1, "start")]


def test_an_event_that_names_no_machine_follows_document_001() -> None:
    log = [
        foreign(),
        foreign(from_state="queued", to_state="running", trigger="worker_started"),
        foreign(
            event_type="workstream_state_transition",
            entity_id="ws-1",
            from_state="planned",
            to_state="ready",
            trigger="all_tasks_created",
        ),
        foreign(
            event_type="worker_state_transition",
            entity_id="worker-1",
            from_state="initializing",
            to_state="idle",
            trigger="registration_complete",
        ),
    ]
    summary = Summary()
    assert list(validate(log, summary)) == []
    assert summary == Summary(lines=4, events=4, entities=3)


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"metadata": {"machine": "toolchain.tusk"}}, "machine", "did you mean 'toolchain.task'?"),
        ({"metadata": {"machine": "pipeline.breaker"}}, "machine", "pipeline.breaker makes no task_state_"),
        ({"metadata": {"machine": 7}}, "schema", "metadata.machine must be a text, not a number"),
        ({"from_state": "pendin"}, "state", "has no state 'pendin'; did you mean 'pending'?"),
        ({"to_state": "S_RUNNING"}, "state", "has no state 'S_RUNNING'"),
        ({"trigger": "started"}, "trigger", "has no trigger 'started'"),
        ({"event_type": "job_state_transition"}, "schema", "there is no event_type 'job_state_transition'"),
        ({"severity": "fatal"}, "schema", "there is no severity 'fatal'; there are: info, warning,"),
        ({"severity": "error"}, "severity", "(orchestration.task) is told as info, not as error"),
        ({"severity": ...}, "schema", "severity is missing"),
        ({"trigger": None}, "schema", "trigger must be a text, not null"),
        ({"from_state": ["pending"]}, "schema", "from_state must be a text, not an array"),
        ({"entity_id": 7}, "schema", "entity_id must be a text of 1 to 1,024 characters"),
        ({"entity_id": ""}, "schema", "entity_id must be"),
        ({"entity_id": "x" * 1025}, "schema", "entity_id must be"),
        ({"metadata": ...}, "schema", "metadata must be an object"),
        ({"metadata": []}, "schema", "metadata must be an object"),
        ({"timestamp": ...}, "schema", "timestamp is missing"),
        ({"timestamp": 1705314600}, "schema", "timestamp must be a text, not a number"),
        ({"timestamp": "yesterday"}, "schema", "'yesterday' is not ISO 8601"),
        ({"timestamp": "2024-01-15T10:30:00"}, "schema", "has no zone"),
        ({"timestamp": "2024-01-15"}, "schema", "is not ISO 8601"),
        ({"timestamp": "2024-02-30T10:30:00Z"}, "schema", "is not ISO 8601"),
        ({"metadata": {"seq": "7"}}, "schema", "metadata.seq must be a whole number of 64 bits"),
        ({"metadata": {"retry_count": -1}}, "schema", "retry_count must be a whole number from 0 on"),
        ({"metadata": {"retry_count": True}}, "schema", "metadata.retry_count must be"),
        ({"metadata": {"retry_count": 4, "max_retries": 3}}, "retries", "4 is above its max_retries 3"),
    ],
)  # fmt: skip
def test_one_thing_wrong_in_an_event_is_one_problem(
    changes: dict[str, object], kind: str, words: str
) -> None:
    problem = only([foreign(**changes)])
    assert (problem.line, problem.kind) == (1, kind)
    assert words in problem.sentence


def test_several_things_wrong_are_all_told() -> None:
    assert found([foreign(severity="loud", to_state="gone", timestamp="now")]) == [
        (1, "state"),
        (1, "schema"),
        (1, "schema"),
    ]


# ---- severities


def test_a_severity_of_ours_is_what_the_tables_say() -> None:
    for entity, name, arrow in EVERY_ARROW:
        right = SEVERITY_OF[entity, name, arrow.target]
        text = line(row(entity, name, arrow.source, arrow.event, arrow.target))
        wrong = b'"severity":"info"' if right != "info" else b'"severity":"critical"'
        changed = text.replace(f'"severity":"{right}"'.encode(), wrong)
        assert found([changed], partial=True) == [(1, "severity")]


def test_where_document_001_is_silent_another_system_may_choose_its_severity() -> None:
    types = {"task": "task", "workstream": "workstream", "worker": "worker"}
    for name, event_type in types.items():
        machine = MACHINES[f"orchestration.{name}"]
        for arrow in machine.arrows:
            if arrow.kind != "normal":
                continue
            accepted = [
                severity
                for severity in ("info", "warning", "error", "critical")
                if not found(
                    [
                        foreign(
                            event_type=f"{event_type}_state_transition",
                            from_state=arrow.source,
                            to_state=arrow.target,
                            trigger=arrow.event,
                            severity=severity,
                        )
                    ],
                    partial=True,
                )
            ]
            silent = (machine.name, arrow.source, arrow.target) in UNSAID
            assert len(accepted) == (4 if silent else 1)


# ---- from event to event


def test_an_entity_leaves_the_state_that_it_was_in() -> None:
    queued = row(TASK, "execution", "pending", "ENQUEUE", "queued", seq=1)
    running = row(TASK, "execution", "running", "SUCCEED", "success", seq=2)
    problem = only(lines([queued, running]))
    assert (problem.line, problem.kind, problem.entity) == (2, "continuity", "182/build")
    assert problem.sentence == "182/build: it leaves running, but it was in queued"


def test_an_illegal_move_is_one_problem_and_what_follows_goes_on_from_there() -> None:
    log = [
        foreign(to_state="running", trigger="worker_started"),
        foreign(from_state="running", to_state="validating", trigger="execution_completed"),
    ]
    assert found(log) == [(1, "transition")]


def test_after_an_unknown_state_anything_may_follow() -> None:
    log = [
        foreign(to_state="limbo"),
        foreign(from_state="queued", to_state="running", trigger="worker_started"),
    ]
    assert found(log) == [(1, "state")]


def test_the_first_event_starts_where_the_machine_begins_unless_the_log_is_partial() -> None:
    log = [foreign(from_state="queued", to_state="running", trigger="worker_started")]
    assert "begins in pending; a log without its beginning is partial" in only(log).sentence
    assert found(log, partial=True) == []


def test_a_final_state_is_left_by_recovery_only() -> None:
    success = life(TASK, "pipeline.step", MACHINES["pipeline.step"].arrows[1])
    again = row(TASK, "pipeline.step", "S_SUCCESS", "retry_attempt", "S_RUNNING", seq=3)
    problem = only(lines([*success, again]))
    assert (problem.line, problem.kind) == (3, "terminal")
    assert "S_SUCCESS is final" in problem.sentence


def test_timestamps_never_go_back_and_may_stay() -> None:
    stamps = ["2024-01-15T10:30:00Z", "2024-01-15T10:30:00.000Z", "2024-01-15T11:30:00.000001+01:00"]
    log = [foreign(timestamp=stamp, entity_id=f"t{n}") for n, stamp in enumerate(stamps)]
    assert found(log) == []
    problem = only([*log, foreign(timestamp="2024-01-15T10:30:00.000000Z", entity_id="t9")])
    assert (problem.line, problem.kind) == (4, "order")
    assert "is before 2024-01-15T11:30:00.000001+01:00" in problem.sentence


def test_one_stray_clock_is_one_problem() -> None:
    hours = ["10", "11", "09", "10", "11"]
    log = [foreign(timestamp=f"2024-01-15T{hour}:00:00Z", entity_id=f"t{n}") for n, hour in enumerate(hours)]
    assert found(log) == [(3, "order")]


def test_sequence_numbers_rise() -> None:
    rows = [row(TASK, "execution", "pending", "ENQUEUE", "queued", seq=n, label=f"1/{n}") for n in (4, 6, 7)]
    twice = row(TASK, "execution", "pending", "ENQUEUE", "queued", seq=7, label="1/8")
    assert found(lines(rows), partial=True) == []
    assert only(lines([*rows, twice]), partial=True).sentence == "1/8: the sequence number 7 is there twice"
    assert found(lines(reversed(rows)), partial=True) == [
        (2, "order"), (2, "sequence"), (3, "order"), (3, "sequence")
    ]  # fmt: skip


def test_a_line_taken_out_shows_in_the_versions_even_where_the_states_meet() -> None:
    ways = [("idle", "task_assigned", "busy"), ("busy", "task_completed", "idle")]
    rows = [row(WORKER, "orchestration.worker", "initializing", "registration_complete", "idle")]
    rows += [row(WORKER, "orchestration.worker", *way, seq=n) for n, way in enumerate(ways * 2, 2)]
    assert found(lines(rows)) == []
    problem = only(lines(rows[:1] + rows[3:]))
    assert problem.sentence == "worker-1: its version is 5 and was 2: an event in between is missing"


def test_a_line_that_is_there_twice_is_found() -> None:
    log = lines(life(TASK, "orchestration.task", MACHINES["orchestration.task"].arrows[1]))
    assert found([*log, log[-1]]) == [(3, "sequence"), (3, "continuity"), (3, "version")]


def test_retries_never_decrease_except_by_a_recovery() -> None:
    failure = ("S_RUNNING", "failure", "S_FAILED"), ("S_FAILED", "retry_eligible", "S_RETRYING")
    start = ("S_PENDING", "dependencies_met", "S_RUNNING")
    ways = [start, *failure, ("S_RETRYING", "retry_attempt", "S_RUNNING"), *failure]
    counts = [None, None, 1, None, None, 0]
    rows = [
        row(TASK, "pipeline.step", *way, seq=n, metadata={} if kept is None else {"retries": kept})
        for n, (way, kept) in enumerate(zip(ways, counts, strict=True), 1)
    ]
    assert only(lines(rows)).sentence == "182/build: its retry_count is 0 and was 1"
    reset = row(
        TASK, "pipeline.step", "S_FAILED", "reset_by_operator", "S_PENDING", seq=3, metadata={"retries": 0}
    )
    assert found(lines([*rows[:2], reset])) == []
    rows = [
        *rows[:3],
        *rows[3:5],
        row(TASK, "pipeline.step", "S_FAILED", "reset_by_operator", "S_PENDING", seq=6),
    ]
    rows += [row(TASK, "pipeline.step", *start, seq=7, metadata={"retries": 0})]
    assert found(lines(rows)) == []


def test_another_system_fails_a_task_only_when_no_retry_is_left() -> None:
    def failed(count: int) -> bytes:
        return foreign(
            from_state="running",
            to_state="failed",
            trigger="execution_failed",
            severity="error",
            metadata={"retry_count": count, "max_retries": 3},
        )

    assert found([failed(3)], partial=True) == []
    assert found([failed(2)], partial=True) == [(1, "guard")]


def test_a_worker_has_two_regions_and_is_one_entity() -> None:
    summary = Summary()
    rows = [
        row(
            WORKER, "orchestration.worker", "initializing", "registration_complete", "idle", seq=1, version=2
        ),
        row(WORKER, "supervision.worker", "IDLE", "start_task", "RUNNING", seq=2, version=2),
    ]
    assert list(validate(lines(rows), summary)) == []
    assert summary.entities == 1


def test_a_task_that_follows_two_machines_is_in_two_states() -> None:
    rows = [
        row(TASK, "execution", "pending", "ENQUEUE", "queued", seq=1, version=2),
        row(TASK, "toolchain.task", "PENDING", "executor_starts", "IN_PROGRESS", seq=2, version=2),
    ]
    problem = only(lines(rows))
    assert (problem.line, problem.kind) == (2, "machine")
    assert "it followed execution before; an entity is in exactly one state" in problem.sentence


def test_a_run_a_worker_and_a_breaker_may_have_the_same_name() -> None:
    rows = [
        row(RUN, "execution", "pending", "ENQUEUE", "queued", seq=1, version=2, label="7"),
        row(TASK, "execution", "pending", "ENQUEUE", "queued", seq=2, version=2, label="7"),
        row(
            BREAKER, "pipeline.breaker", "CLOSED", "tripped_by_operator", "OPEN", seq=3, version=2, label="7"
        ),
    ]
    assert found(lines(rows)) == []


@pytest.mark.parametrize("name", DRIVEN_BY[TASK])
def test_a_run_does_not_succeed_while_a_task_of_it_is_underway(name: str) -> None:
    machine = MACHINES[name]
    for arrow in machine.arrows:
        task = life(TASK, name, arrow)
        first = len(task) + 1
        run = [
            row(RUN, "execution", "pending", "ENQUEUE", "queued", seq=first, version=2),
            row(RUN, "execution", "queued", "START", "running", seq=first + 1, version=3),
            row(RUN, "execution", "running", "SUCCEED", "success", seq=first + 2, version=4),
        ]
        underway = machine.phase[arrow.target] in UNDERWAY
        expected = [(first + 2, "unfinished")] if underway else []
        assert found(lines([*task, *run])) == expected
        assert found(lines([*task, *(replace(one, label="18") for one in run)])) == []


def test_the_sentence_names_a_few_of_many_tasks_that_are_underway() -> None:
    start = ("PENDING", "executor_starts", "IN_PROGRESS")
    rows = [row(TASK, "toolchain.task", *start, seq=n, version=2, label=f"182/t{n}") for n in range(1, 6)]
    rows.append(row(RUN, "execution", "running", "SUCCEED", "success", seq=6))
    sentence = only(lines(rows), partial=True).sentence
    assert sentence.endswith("182/t3 is in IN_PROGRESS and 2 more")
