"""A table that contradicts itself is refused when it is defined, with the row in the message."""

from collections.abc import Mapping

import pytest

from engine.machines import Arrow, Cue, DefinitionError, Kind, Machine, Phase, RunCue, State

GREEN = State("green", Phase.IDLE, "Clear.")
RED = State("red", Phase.ACTIVE, "Stop.")
DARK = State("dark", Phase.FAILED, "Out of order.", terminal=True)

STOP = Arrow("green", "stop", "red", "A train is in the section.")
CLEAR = Arrow("red", "clear", "green", "The section is clear.")
BREAK = Arrow("red", "break", "dark", "The lamp broke.")


def define(
    states: tuple[State, ...] = (GREEN, RED, DARK),
    arrows: tuple[Arrow, ...] = (STOP, CLEAR, BREAK),
    cues: Mapping[Cue, Mapping[str, str]] | None = None,
    initial: str = "green",
) -> Machine:
    return Machine(
        name="signal",
        document="none",
        entity="lamp",
        initial=initial,
        states=states,
        arrows=arrows,
        cues=cues or {},
    )


def refusal(
    states: tuple[State, ...] = (GREEN, RED, DARK),
    arrows: tuple[Arrow, ...] = (STOP, CLEAR, BREAK),
    cues: Mapping[Cue, Mapping[str, str]] | None = None,
    initial: str = "green",
) -> str:
    with pytest.raises(DefinitionError) as refused:
        define(states, arrows, cues, initial)
    return str(refused.value)


def test_a_sound_table_is_accepted() -> None:
    machine = define(cues={RunCue.START: {"green": "stop > clear > stop", "red": ""}})
    assert machine.next_state("green", "stop") == "red"
    assert machine.steps(RunCue.START, "green") == ("stop", "clear", "stop")
    assert machine.steps(RunCue.START, "red") == ()
    assert machine.steps(RunCue.START, "dark") is None


def test_an_arrow_to_a_state_that_does_not_exist() -> None:
    said = refusal(arrows=(STOP, CLEAR, BREAK, Arrow("red", "dim", "amber", "Dimmed.")))
    assert said == "signal: red --dim--> amber: amber is not a state"


def test_an_arrow_from_a_state_that_does_not_exist() -> None:
    said = refusal(arrows=(STOP, CLEAR, BREAK, Arrow("amber", "stop", "red", "Stop.")))
    assert said == "signal: amber --stop--> red: amber is not a state"


def test_a_state_that_no_arrow_reaches() -> None:
    amber = State("amber", Phase.WAITING, "Caution.")
    said = refusal((GREEN, RED, DARK, amber), (STOP, CLEAR, BREAK, Arrow("amber", "stop", "red", "Stop.")))
    assert said == "signal: no way leads to amber"


def test_an_ordinary_way_out_of_a_terminal_state() -> None:
    said = refusal(arrows=(STOP, CLEAR, BREAK, Arrow("dark", "mend", "green", "Mended.")))
    assert said == "signal: dark --mend--> green: dark is terminal, only recovery or cascade may leave it"


@pytest.mark.parametrize("kind", [Kind.RECOVERY, Kind.CASCADE])
def test_a_way_out_of_a_terminal_state_by_recovery_or_cascade_is_accepted(kind: Kind) -> None:
    machine = define(arrows=(STOP, CLEAR, BREAK, Arrow("dark", "mend", "green", "Mended.", kind=kind)))
    assert machine.next_state("dark", "mend") == "green"


def test_a_state_that_is_not_terminal_and_has_no_way_out() -> None:
    said = refusal((GREEN, RED), (STOP,))
    assert said == "signal: red is not terminal and has no way out"


def test_a_recovery_is_no_way_out_for_a_state_that_is_not_terminal() -> None:
    mend = Arrow("red", "mend", "green", "Mended.", kind=Kind.RECOVERY)
    assert refusal((GREEN, RED), (STOP, mend)) == "signal: red is not terminal and has no way out"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (None, None),
        ("retry_left", None),
        (None, "retry_left"),
        ("retry_left", "retry_left"),
        ("retry_left", "run_ended"),
        ("run_ended", "run_cancelled"),
    ],
)
def test_guards_that_do_not_tell_two_targets_apart(first: str | None, second: str | None) -> None:
    arrows = (
        STOP,
        CLEAR,
        Arrow("red", "break", "dark", "The lamp broke.", guard=first),
        Arrow("red", "break", "green", "It flickered.", guard=second),
    )
    said = refusal(arrows=arrows)
    assert said == "signal: red --break--> dark, green: the guards do not tell the targets apart"


def test_a_third_target_cannot_be_told_apart_by_a_guard_and_its_opposite() -> None:
    arrows = (
        STOP,
        CLEAR,
        Arrow("red", "break", "dark", "The lamp broke.", guard="retry_left"),
        Arrow("red", "break", "green", "It flickered.", guard="no_retry_left"),
        Arrow("red", "break", "red", "Nothing happened.", guard="run_ended"),
    )
    assert "red --break--> dark, green, red" in refusal(arrows=arrows)


@pytest.mark.parametrize("order", [("retry_left", "no_retry_left"), ("no_retry_left", "retry_left")])
def test_a_guard_and_its_opposite_tell_two_targets_apart(order: tuple[str, str]) -> None:
    arrows = (
        STOP,
        CLEAR,
        Arrow("red", "break", "dark", "The lamp broke.", guard=order[0]),
        Arrow("red", "break", "green", "It flickered.", guard=order[1]),
    )
    machine = define(arrows=arrows)
    assert {machine.next_state("red", "break", {"retry_left": left}) for left in (True, False)} == {
        "dark",
        "green",
    }


def test_the_same_arrow_twice() -> None:
    said = refusal(arrows=(STOP, CLEAR, BREAK, BREAK))
    assert said == "signal: red --break--> dark, dark: the same arrow twice"


def test_a_state_listed_twice() -> None:
    said = refusal(states=(GREEN, RED, DARK, State("red", Phase.HELD, "Stop as well.")))
    assert said == "signal: the state red is listed twice"


def test_a_guard_that_does_not_exist() -> None:
    said = refusal(arrows=(STOP, CLEAR, Arrow("red", "break", "dark", "It broke.", guard="lamp_broken")))
    assert said == "signal: red --break--> dark: there is no guard lamp_broken"


def test_an_initial_state_that_does_not_exist() -> None:
    assert refusal(initial="blue") == "signal: the initial state blue is not a state"


def test_a_cue_in_a_state_that_does_not_exist() -> None:
    said = refusal(cues={RunCue.START: {"amber": "stop"}})
    assert said == "signal: cue run.start names amber, which is not a state"


def test_a_cue_with_an_event_that_has_no_arrow_in_its_state() -> None:
    said = refusal(cues={RunCue.START: {"green": "clear"}})
    assert said == "signal: cue run.start in green: clear: there is no arrow for clear"


def test_a_cue_whose_path_breaks_off_half_way() -> None:
    said = refusal(cues={RunCue.START: {"green": "stop > stop"}})
    assert said == "signal: cue run.start in green: stop > stop: there is no arrow for stop"


def test_a_cue_with_an_event_that_the_machine_does_not_know() -> None:
    said = refusal(cues={RunCue.START: {"green": "stop > whistle"}})
    assert said == "signal: cue run.start in green: stop > whistle: there is no arrow for whistle"
