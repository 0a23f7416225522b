"""The ten machines of the documents, as data, and the pure functions that walk them.

What is not in a table cannot happen: `transition` returns the next state or raises. Which of the
engine's cues is which documented event stands as rows beside each machine.
"""

from collections.abc import Mapping

from engine.machines.cues import (
    BreakerCue,
    ControlCue,
    Cue,
    HealthCue,
    Phase,
    RunCue,
    TaskCue,
)
from engine.machines.errors import (
    DefinitionError,
    InvalidTransitionError,
    MachineError,
    MissingValuesError,
    UnknownMachineError,
    UnknownStateError,
)
from engine.machines.guards import GUARDS, Guard
from engine.machines.lifecycles import LIFECYCLES, MACHINES, RUN_MACHINES, TASK_MACHINES, Lifecycle
from engine.machines.machine import Arrow, Kind, Machine, State

_CERTAIN: dict[tuple[str, str, str], str] = {
    (machine.name, state, event): target
    for machine in MACHINES.values()
    for (state, event), target in machine.certain.items()
}


def transition(machine: str, state: str, event: str, values: Mapping[str, object] | None = None) -> str:
    """The state that follows, or an error that says what is allowed instead.

    Without values, guards of an unambiguous arrow are not asked; with values, all are.
    """
    if values is None:
        try:
            return _CERTAIN[machine, state, event]
        except KeyError:
            pass
    return named(machine).next_state(state, event, values)


def can_transition(machine: str, state: str, event: str, values: Mapping[str, object] | None = None) -> bool:
    """Whether `transition` would answer with a state. What is unknown or missing still raises."""
    try:
        transition(machine, state, event, values)
    except InvalidTransitionError:
        return False
    return True


def valid_events(machine: str, state: str) -> tuple[str, ...]:
    """Every event with an arrow out of this state."""
    return named(machine).valid_events(state)


def is_terminal(machine: str, state: str) -> bool:
    return named(machine).is_terminal(state)


def named(name: str) -> Machine:
    """The machine of that name, or an error that lists them."""
    try:
        return MACHINES[name]
    except KeyError:
        raise UnknownMachineError(name, MACHINES) from None


__all__ = [
    "GUARDS",
    "LIFECYCLES",
    "MACHINES",
    "RUN_MACHINES",
    "TASK_MACHINES",
    "Arrow",
    "BreakerCue",
    "ControlCue",
    "Cue",
    "DefinitionError",
    "Guard",
    "HealthCue",
    "InvalidTransitionError",
    "Kind",
    "Lifecycle",
    "Machine",
    "MachineError",
    "MissingValuesError",
    "Phase",
    "RunCue",
    "State",
    "TaskCue",
    "UnknownMachineError",
    "UnknownStateError",
    "can_transition",
    "is_terminal",
    "named",
    "transition",
    "valid_events",
]
