"""Every state × every event of every machine, legal and illegal, and the totals counted by hand."""

from collections import Counter

import pytest

from engine.machines import (
    GUARDS,
    MACHINES,
    Arrow,
    Guard,
    InvalidTransitionError,
    Kind,
    Machine,
    MissingValuesError,
    UnknownMachineError,
    UnknownStateError,
    can_transition,
    is_terminal,
    named,
    transition,
    valid_events,
)

EVERY_EVENT = sorted({arrow.event for machine in MACHINES.values() for arrow in machine.arrows})
UNKNOWN_EVENT = "derail"

every_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)

# machine: document, states, documented transitions
COUNTS = {
    "execution": ("004", 11, 25),
    "pipeline.workstream": ("000", 6, 7),
    "pipeline.step": ("000", 5, 5),
    "pipeline.breaker": ("000", 3, 4),
    "orchestration.task": ("001", 8, 9),
    "orchestration.workstream": ("001", 7, 9),
    "orchestration.worker": ("001", 5, 8),
    "supervision.worker": ("002", 6, 8),
    "supervision.job": ("002", 6, 7),
    "toolchain.task": ("003", 11, 18),
}

# An operator's own way to fire a documented arrow.
OPERATORS_WAY = {
    ("pipeline.breaker", "CLOSED", "tripped_by_operator", "OPEN"),
    ("pipeline.breaker", "OPEN", "probe_requested", "HALF_OPEN"),
}

RECOVERY = {
    ("pipeline.workstream", "S_SUCCESS", "corrected_by_operator", "S_FAILED", "steps_unfinished"),
    ("pipeline.step", "S_FAILED", "reset_by_operator", "S_PENDING", "retries_zeroed"),
    ("pipeline.step", "S_FAILED", "attested_by_operator", "S_SUCCESS", "evidence_given"),
    ("pipeline.breaker", "OPEN", "reset_by_operator", "CLOSED", "healthy_or_overridden"),
    ("orchestration.worker", "initializing", "registration_timed_out", "shutdown", "never_registered"),
    ("supervision.worker", "COMPLETED", "terminate", "TERMINATED", "still_holds"),
    ("supervision.worker", "FAILED", "terminate", "TERMINATED", "still_holds"),
    ("toolchain.task", "CIRCUIT_OPEN", "manual_reset", "PENDING", "run_open_retries_zeroed"),
}

CASCADE = {
    ("toolchain.task", "CIRCUIT_OPEN", "run_cancelled", "CANCELLED", "run_cancelled"),
    ("toolchain.task", "RETRYING", "run_ended", "CANCELLED", "run_ended"),
    ("toolchain.task", "VALIDATING", "run_ended", "CANCELLED", "run_ended"),
    ("toolchain.task", "HALF_OPEN", "run_ended", "CANCELLED", "run_ended"),
}

FLAGS = (
    "steps_unfinished",
    "retries_zeroed",
    "evidence_given",
    "healthy_or_overridden",
    "never_registered",
    "still_holds",
    "run_open_retries_zeroed",
    "run_cancelled",
    "run_ended",
)

Told = tuple[dict[str, object], bool | None]

RETRY_LEFT: list[Told] = [
    ({"retry_left": True}, True),
    ({"retry_left": False}, False),
    ({"retry_count": 0, "max_retries": 4}, True),
    ({"retry_count": 3, "max_retries": 4}, True),
    ({"retry_count": 4, "max_retries": 4}, False),
    ({"retry_count": 5, "max_retries": 4}, False),
    ({"retry_count": 0, "max_retries": 0}, False),
    # The decided answer also knows of permanent errors and of losses, so it stands against the count.
    ({"retry_left": True, "retry_count": 4, "max_retries": 4}, True),
    ({"retry_left": False, "retry_count": 0, "max_retries": 4}, False),
    ({}, None),
    ({"retry_left": None}, None),
    ({"retry_count": 0}, None),
    ({"max_retries": 4}, None),
    ({"retry_count": "0", "max_retries": "4"}, None),
    ({"run_ended": True}, None),
]


def told_to(guard: str) -> list[Told]:
    """Values that say yes, no and nothing to a guard."""
    if guard == "retry_left":
        return RETRY_LEFT
    if guard == "no_retry_left":
        return [(values, None if told is None else not told) for values, told in RETRY_LEFT]
    return [
        ({guard: True}, True),
        ({guard: False}, False),
        ({guard: None}, None),
        ({}, None),
        ({"x": 1}, None),
    ]


def arrows_out(machine: Machine, state: str, event: str) -> list[Arrow]:
    return [arrow for arrow in machine.arrows if (arrow.source, arrow.event) == (state, event)]


def test_there_are_ten_machines_with_68_states_and_100_documented_transitions() -> None:
    assert list(MACHINES) == list(COUNTS)
    assert len(COUNTS) == 10
    assert sum(states for _, states, _ in COUNTS.values()) == 68
    assert sum(transitions for _, _, transitions in COUNTS.values()) == 100


@every_machine
def test_a_machine_has_the_states_and_transitions_that_were_counted_by_hand(machine: Machine) -> None:
    documented = [
        arrow
        for arrow in machine.arrows
        if arrow.kind is Kind.NORMAL
        and (machine.name, arrow.source, arrow.event, arrow.target) not in OPERATORS_WAY
    ]
    assert (machine.document, len(machine.states), len(documented)) == COUNTS[machine.name]


@pytest.mark.parametrize(("kind", "rows"), [(Kind.RECOVERY, RECOVERY), (Kind.CASCADE, CASCADE)])
def test_the_recovery_and_cascade_rows_are_these_and_no_others(
    kind: Kind, rows: set[tuple[str, str, str, str, str]]
) -> None:
    found = {
        (machine.name, arrow.source, arrow.event, arrow.target, arrow.guard)
        for machine in MACHINES.values()
        for arrow in machine.arrows
        if arrow.kind is kind
    }
    assert found == rows


def test_an_operators_way_doubles_a_documented_arrow() -> None:
    for name, source, event, target in OPERATORS_WAY:
        same = [
            arrow.event
            for arrow in MACHINES[name].arrows
            if (arrow.source, arrow.target, arrow.kind) == (source, target, Kind.NORMAL)
        ]
        assert event in same
        assert len(same) == 2


def test_the_kinds_add_up_to_all_the_transitions_there_are() -> None:
    kinds = Counter(arrow.kind for machine in MACHINES.values() for arrow in machine.arrows)
    assert kinds == {Kind.NORMAL: 102, Kind.RECOVERY: 8, Kind.CASCADE: 4}


@every_machine
def test_what_the_table_does_not_hold_is_refused_in_every_state(machine: Machine) -> None:
    for state in machine.state:
        for event in (*EVERY_EVENT, UNKNOWN_EVENT):
            if arrows_out(machine, state, event):
                continue
            for values in (None, {}, {"retry_left": True}):
                with pytest.raises(InvalidTransitionError) as refused:
                    transition(machine.name, state, event, values)
                error = refused.value
                assert (error.machine, error.state, error.event) == (machine.name, state, event)
                assert error.allowed == valid_events(machine.name, state)
                assert not can_transition(machine.name, state, event, values)
            assert event not in valid_events(machine.name, state)


@every_machine
def test_an_arrow_without_a_rival_leads_to_its_target_when_no_values_are_given(machine: Machine) -> None:
    for arrow in machine.arrows:
        if len(arrows_out(machine, arrow.source, arrow.event)) > 1:
            continue
        assert transition(machine.name, arrow.source, arrow.event) == arrow.target
        assert can_transition(machine.name, arrow.source, arrow.event)
        assert arrow.event in valid_events(machine.name, arrow.source)


@every_machine
def test_an_arrow_without_a_guard_does_not_care_for_values(machine: Machine) -> None:
    for arrow in machine.arrows:
        if arrow.guard is None:
            for values in ({}, {"retry_left": False}, {"run_ended": False}):
                assert transition(machine.name, arrow.source, arrow.event, values) == arrow.target
                assert can_transition(machine.name, arrow.source, arrow.event, values)


@every_machine
def test_a_guarded_arrow_follows_what_the_values_say(machine: Machine) -> None:
    for arrow in machine.arrows:
        if arrow.guard is None:
            continue
        rivals = arrows_out(machine, arrow.source, arrow.event)
        others = tuple(e for e in valid_events(machine.name, arrow.source) if e != arrow.event)
        for values, told in told_to(arrow.guard):
            asked = (machine.name, arrow.source, arrow.event, values)
            if told is None:
                with pytest.raises(MissingValuesError) as unanswered:
                    transition(*asked)
                assert unanswered.value.guard in {rival.guard for rival in rivals}
                with pytest.raises(MissingValuesError):
                    can_transition(*asked)
            elif told:
                assert transition(*asked) == arrow.target
                assert can_transition(*asked)
            elif len(rivals) > 1:
                assert transition(*asked) in {rival.target for rival in rivals} - {arrow.target}
                assert can_transition(*asked)
            else:
                with pytest.raises(InvalidTransitionError) as refused:
                    transition(*asked)
                assert refused.value.because == f"it needs that {GUARDS[arrow.guard].description}"
                assert refused.value.allowed == others
                assert not can_transition(*asked)


@every_machine
def test_where_a_guard_tells_two_targets_apart_no_values_are_no_answer(machine: Machine) -> None:
    rivals = [arrow for arrow in machine.arrows if len(arrows_out(machine, arrow.source, arrow.event)) > 1]
    assert [(arrow.source, arrow.event, arrow.target) for arrow in rivals] == (
        [("running", "execution_failed", "retrying"), ("running", "execution_failed", "failed")]
        if machine.name == "orchestration.task"
        else []
    )
    for arrow in rivals:
        with pytest.raises(MissingValuesError):
            transition(machine.name, arrow.source, arrow.event)
        with pytest.raises(MissingValuesError):
            can_transition(machine.name, arrow.source, arrow.event)
        assert valid_events(machine.name, arrow.source).count(arrow.event) == 1


@every_machine
def test_the_valid_events_of_a_state_are_those_of_its_arrows_each_once(machine: Machine) -> None:
    for state in machine.state:
        events = valid_events(machine.name, state)
        assert set(events) == {arrow.event for arrow in machine.arrows if arrow.source == state}
        assert len(set(events)) == len(events)


@every_machine
def test_a_state_is_terminal_where_the_table_says_so_and_then_nothing_ordinary_leaves_it(
    machine: Machine,
) -> None:
    for state in machine.states:
        assert is_terminal(machine.name, state.name) is state.terminal
        ordinary = [a for a in machine.arrows if a.source == state.name and a.kind is Kind.NORMAL]
        assert bool(ordinary) is not state.terminal


@every_machine
def test_a_state_that_the_machine_does_not_have_is_an_error_and_not_a_no(machine: Machine) -> None:
    event = machine.arrows[0].event
    for ask in (
        lambda: transition(machine.name, "derailed", event),
        lambda: transition(machine.name, "derailed", event, {}),
        lambda: can_transition(machine.name, "derailed", event),
        lambda: valid_events(machine.name, "derailed"),
        lambda: is_terminal(machine.name, "derailed"),
    ):
        with pytest.raises(UnknownStateError) as unknown:
            ask()
        assert (unknown.value.machine, unknown.value.state) == (machine.name, "derailed")


def test_a_machine_that_does_not_exist_is_an_error_and_not_a_no() -> None:
    for ask in (
        lambda: named("signalbox"),
        lambda: transition("signalbox", "pending", "START"),
        lambda: can_transition("signalbox", "pending", "START"),
        lambda: valid_events("signalbox", "pending"),
        lambda: is_terminal("signalbox", "pending"),
    ):
        with pytest.raises(UnknownMachineError):
            ask()


def test_the_guards_are_these_and_each_is_used_by_an_arrow() -> None:
    used = {arrow.guard for machine in MACHINES.values() for arrow in machine.arrows} - {None}
    assert set(GUARDS) == used == {"retry_left", "no_retry_left", *FLAGS}


@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
def test_a_guard_answers_yes_no_or_cannot_tell(guard: Guard) -> None:
    for values, told in told_to(guard.name):
        assert guard.test(values) is told


def test_every_state_and_every_arrow_says_in_words_what_it_means() -> None:
    for machine in MACHINES.values():
        said = [state.description for state in machine.states]
        said += [arrow.description for arrow in machine.arrows]
        assert [words for words in said if not words.endswith(".")] == [], machine.name
