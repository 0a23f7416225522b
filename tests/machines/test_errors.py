"""What the machines refuse is said in a sentence a person can act on, and survives a process boundary."""

import copy
import pickle

import pytest

from engine.machines import (
    MACHINES,
    DefinitionError,
    InvalidTransitionError,
    MachineError,
    MissingValuesError,
    UnknownMachineError,
    UnknownStateError,
    named,
    transition,
)


def refused(machine: str, state: str, event: str) -> InvalidTransitionError:
    with pytest.raises(InvalidTransitionError) as caught:
        transition(machine, state, event)
    return caught.value


def refused_by_guard() -> InvalidTransitionError:
    with pytest.raises(InvalidTransitionError) as caught:
        transition("pipeline.step", "S_FAILED", "retry_eligible", {"retry_left": False})
    return caught.value


def refused_for_an_entity() -> InvalidTransitionError:
    with pytest.raises(InvalidTransitionError) as caught:
        MACHINES["toolchain.task"].arrow("PENDING", "tests_pass", entity="182/build")
    return caught.value


ERRORS = [
    MachineError("something is wrong"),
    DefinitionError("signal: red is not terminal and has no way out"),
    UnknownMachineError("pipelin.step", ["pipeline.step", "execution"]),
    UnknownStateError("execution", "runing", {"running": 1, "queued": 2}),
    MissingValuesError("orchestration.task", "running", "execution_failed", "retry_left", ("retry_left",)),
    InvalidTransitionError("execution", "held", "START", ("APPROVE", "REJECT")),
    InvalidTransitionError("execution", "held", "STRT", ("APPROVE",), "182", "it is held", ("START",)),
]


def test_a_refusal_carries_machine_entity_state_event_and_what_was_allowed() -> None:
    error = refused_for_an_entity()
    assert error.machine == "toolchain.task"
    assert error.entity == "182/build"
    assert error.state == "PENDING"
    assert error.event == "tests_pass"
    assert error.allowed == ("executor_starts", "dependency_failed", "user_cancels")


def test_a_refusal_is_one_sentence() -> None:
    assert str(refused_for_an_entity()) == (
        "182/build (toolchain.task) in state PENDING does not accept tests_pass; "
        "allowed there: executor_starts, dependency_failed, user_cancels"
    )


def test_a_refusal_without_an_entity_names_the_machine() -> None:
    assert str(refused("supervision.job", "SUBMITTED", "success")) == (
        "supervision.job in state SUBMITTED does not accept success; allowed there: validate, cancel"
    )


def test_a_refusal_in_a_final_state_says_that_it_is_final() -> None:
    assert str(refused("execution", "success", "START")) == (
        "execution in state success does not accept START; nothing is allowed there: it is final"
    )


def test_a_refusal_by_a_guard_says_what_it_needs_and_what_else_is_allowed() -> None:
    error = refused_by_guard()
    assert str(error) == (
        "pipeline.step in state S_FAILED does not accept retry_eligible: it needs that the budget is not "
        "used up, the error is neither permanent nor repeated, the tool may be retried; "
        "allowed there: reset_by_operator, attested_by_operator"
    )
    assert error.event not in error.allowed


def test_a_missing_value_is_asked_for_by_name() -> None:
    with pytest.raises(MissingValuesError) as caught:
        transition("orchestration.task", "running", "execution_failed")
    error = caught.value
    assert (error.machine, error.state, error.event) == (
        "orchestration.task",
        "running",
        "execution_failed",
    )
    assert (error.guard, error.needs) == ("retry_left", ("retry_left", "retry_count and max_retries"))
    assert str(error) == (
        "orchestration.task: execution_failed from running depends on retry_left; "
        "give it 'retry_left' or 'retry_count and max_retries'"
    )


def test_a_misspelt_event_that_resembles_an_allowed_one_gets_it_as_a_hint() -> None:
    said = str(refused("execution", "pending", "ENQUE"))
    assert said.startswith("execution in state pending does not accept ENQUE (did you mean ENQUEUE?); ")


def test_an_event_in_the_wrong_case_gets_the_right_case_as_a_hint() -> None:
    assert "(did you mean CANCEL_GRACEFUL?)" in str(refused("execution", "running", "cancel_graceful"))
    assert "(did you mean pause?)" in str(refused("supervision.worker", "RUNNING", "PAUSE"))


def test_a_misspelt_event_that_resembles_one_of_another_state_is_told_so() -> None:
    said = str(refused("execution", "pending", "SUCCED"))
    assert "(did you mean SUCCEED? It is not allowed there either)" in said


def test_an_allowed_event_is_suggested_before_one_that_is_not() -> None:
    assert "(did you mean CANCEL_FORCE?)" in str(refused("execution", "cancelling", "CANCEL_FORC"))
    assert "(did you mean CANCEL?)" in str(refused("execution", "queued", "CANCELL"))


def test_part_of_a_name_is_enough_for_a_hint() -> None:
    assert "(did you mean scheduler_assigned?)" in str(refused("orchestration.task", "pending", "assigned"))


def test_a_known_event_in_the_wrong_state_gets_no_hint_however_alike_another_is() -> None:
    assert "did you mean" not in str(refused("execution", "running", "CANCEL_FORCE"))
    assert "did you mean" not in str(refused("toolchain.task", "CIRCUIT_OPEN", "run_ended"))


def test_an_event_like_no_other_gets_no_hint() -> None:
    for event in ("zigzag", "x", ""):
        assert "did you mean" not in str(refused("execution", "pending", event))


def test_an_unknown_machine_gets_a_suggestion() -> None:
    with pytest.raises(UnknownMachineError) as caught:
        named("pipelin.step")
    assert str(caught.value) == "there is no machine 'pipelin.step'; did you mean 'pipeline.step'?"


def test_a_name_that_fits_two_machines_gets_both() -> None:
    with pytest.raises(UnknownMachineError) as caught:
        named("worker")
    assert str(caught.value) == (
        "there is no machine 'worker'; did you mean 'orchestration.worker' or 'supervision.worker'?"
    )


def test_an_unknown_machine_like_no_other_gets_the_list() -> None:
    with pytest.raises(UnknownMachineError) as caught:
        named("zzz")
    assert str(caught.value) == f"there is no machine 'zzz'; there are: {', '.join(MACHINES)}"
    assert caught.value.known == tuple(MACHINES)


def test_an_unknown_state_gets_a_suggestion() -> None:
    with pytest.raises(UnknownStateError) as caught:
        transition("execution", "RUNNING", "FAIL")
    assert str(caught.value) == "execution has no state 'RUNNING'; did you mean 'running'?"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_pickling_with_its_sentence_and_its_fields(
    error: MachineError, protocol: int
) -> None:
    other = pickle.loads(pickle.dumps(error, protocol))
    assert type(other) is type(error)
    assert (str(other), vars(other), other.args) == (str(error), vars(error), error.args)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_can_be_copied(error: MachineError) -> None:
    for other in (copy.copy(error), copy.deepcopy(error)):
        assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))


def test_every_error_of_a_machine_is_a_machine_error() -> None:
    for error in ERRORS:
        assert isinstance(error, MachineError)
