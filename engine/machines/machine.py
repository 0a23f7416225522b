"""A state machine as data: states, arrows, guards, and the rows that translate the engine's cues.

A machine is checked when it is defined and never changes afterwards. `Machine.next_state` is the only
place where a state follows from a state.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engine.machines.cues import STAY, Cue, Phase
from engine.machines.errors import (
    DefinitionError,
    InvalidTransitionError,
    MissingValuesError,
    UnknownStateError,
)
from engine.machines.guards import GUARDS, Values


class Kind(StrEnum):
    """Who may fire an arrow: anyone, a recovery procedure, or the end of the entity's run."""

    NORMAL = "normal"
    RECOVERY = "recovery"
    CASCADE = "cascade"


@dataclass(frozen=True, slots=True)
class State:
    """One state, in the document's spelling."""

    name: str
    phase: Phase
    description: str
    terminal: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """One documented way from a state to another."""

    source: str
    event: str
    target: str
    description: str
    guard: str | None = None
    kind: Kind = Kind.NORMAL


@dataclass(frozen=True)
class Machine:
    """One of the ten machines."""

    name: str
    document: str
    entity: str
    initial: str
    states: tuple[State, ...]
    arrows: tuple[Arrow, ...]
    cues: Mapping[Cue, Mapping[str, str]]
    """For each cue, by state, the events that it stands for: `a`, `a > b`, or `STAY`."""
    on_failure: str = "finish"
    """What a run does with the rest when a critical task failed, unless its file says otherwise."""
    blocked_fails: bool = False
    """Whether a critical task blocked behind a failure that is not critical fails the run."""

    events: tuple[str, ...] = field(init=False, repr=False, compare=False)
    state: dict[str, State] = field(init=False, repr=False, compare=False)
    phase: dict[str, Phase] = field(init=False, repr=False, compare=False)
    certain: dict[tuple[str, str], str] = field(init=False, repr=False, compare=False)
    """Where (state, event) leads when no guard has to tell targets apart."""
    _outgoing: dict[tuple[str, str], tuple[Arrow, ...]] = field(init=False, repr=False, compare=False)
    _steps: dict[tuple[Cue, str], tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        outgoing: dict[tuple[str, str], list[Arrow]] = {}
        for arrow in self.arrows:
            outgoing.setdefault((arrow.source, arrow.event), []).append(arrow)
        derived: dict[str, object] = {
            "events": tuple(dict.fromkeys(arrow.event for arrow in self.arrows)),
            "state": {state.name: state for state in self.states},
            "phase": {state.name: state.phase for state in self.states},
            "_outgoing": {pair: tuple(arrows) for pair, arrows in outgoing.items()},
            "certain": {pair: arrows[0].target for pair, arrows in outgoing.items() if len(arrows) == 1},
            "_steps": {
                (cue, state): tuple(part.strip() for part in path.split(">")) if path != STAY else ()
                for cue, rows in self.cues.items()
                for state, path in rows.items()
            },
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        check_definition(self)

    def steps(self, cue: Cue, state: str) -> tuple[str, ...] | None:
        """The documented events that a cue stands for in a state; None where it has no meaning."""
        return self._steps.get((cue, state))

    def is_terminal(self, state: str) -> bool:
        return self._known(state).terminal

    def valid_events(self, state: str) -> tuple[str, ...]:
        """Every event that has an arrow out of this state, whatever its guard."""
        self._known(state)
        return tuple(dict.fromkeys(arrow.event for arrow in self.arrows if arrow.source == state))

    def arrow(self, state: str, event: str, values: Values | None = None, entity: str | None = None) -> Arrow:
        """The arrow that an event takes out of a state, or the reason why there is none.

        Without values the guards of an unambiguous arrow are not asked: that is the question "does the
        document have this arrow?". With values every guard is evaluated.
        """
        arrows = self._outgoing.get((state, event))
        if arrows is None:
            self._known(state)
            raise InvalidTransitionError(
                self.name, state, event, self.valid_events(state), entity, known=self.events
            )
        if values is None and len(arrows) == 1:
            return arrows[0]
        refused: str | None = None
        for arrow in arrows:
            if arrow.guard is None:
                return arrow
            guard = GUARDS[arrow.guard]
            told = guard.test(values or {})
            if told is None:
                raise MissingValuesError(self.name, state, event, guard.name, guard.needs)
            if told:
                return arrow
            refused = guard.description
        allowed = tuple(other for other in self.valid_events(state) if other != event)
        raise InvalidTransitionError(
            self.name, state, event, allowed, entity, f"it needs that {refused}", self.events
        )

    def next_state(self, state: str, event: str, values: Values | None = None) -> str:
        return self.arrow(state, event, values).target

    def _known(self, state: str) -> State:
        found = self.state.get(state)
        if found is None:
            raise UnknownStateError(self.name, state, self.state)
        return found


def check_definition(machine: Machine) -> None:
    """Refuse a table that contradicts itself, naming the row."""
    names = [state.name for state in machine.states]
    for name in machine.state:
        if names.count(name) > 1:
            raise DefinitionError(f"{machine.name}: the state {name} is listed twice")
    if machine.initial not in machine.state:
        raise DefinitionError(f"{machine.name}: the initial state {machine.initial} is not a state")
    for arrow in machine.arrows:
        _check_arrow(machine, arrow)
    for (state, event), arrows in machine._outgoing.items():
        _check_ambiguity(machine, state, event, arrows)
    _check_reach(machine)
    for (cue, state), path in machine._steps.items():
        _check_path(machine, cue, state, path)


def _row(machine: Machine, arrow: Arrow) -> str:
    return f"{machine.name}: {arrow.source} --{arrow.event}--> {arrow.target}"


def _check_arrow(machine: Machine, arrow: Arrow) -> None:
    row = _row(machine, arrow)
    for end in (arrow.source, arrow.target):
        if end not in machine.state:
            raise DefinitionError(f"{row}: {end} is not a state")
    if arrow.guard is not None and arrow.guard not in GUARDS:
        raise DefinitionError(f"{row}: there is no guard {arrow.guard}")
    if machine.state[arrow.source].terminal and arrow.kind is Kind.NORMAL:
        raise DefinitionError(f"{row}: {arrow.source} is terminal, only recovery or cascade may leave it")


def _check_ambiguity(machine: Machine, state: str, event: str, arrows: tuple[Arrow, ...]) -> None:
    where = f"{machine.name}: {state} --{event}-->"
    if len(arrows) == 1:
        return
    targets = ", ".join(arrow.target for arrow in arrows)
    if len({arrow.target for arrow in arrows}) != len(arrows):
        raise DefinitionError(f"{where} {targets}: the same arrow twice")
    guards = [arrow.guard for arrow in arrows]
    pair = len(arrows) == 2 and guards[0] is not None and GUARDS[guards[0]].opposite == guards[1]
    if not pair:
        raise DefinitionError(f"{where} {targets}: the guards do not tell the targets apart")


def _check_reach(machine: Machine) -> None:
    reached, edge = {machine.initial}, [machine.initial]
    while edge:
        here = edge.pop()
        fresh = {arrow.target for arrow in machine.arrows if arrow.source == here} - reached
        reached |= fresh
        edge.extend(fresh)
    for state in machine.states:
        if state.name not in reached:
            raise DefinitionError(f"{machine.name}: no way leads to {state.name}")
        leaves = any(arrow.source == state.name and arrow.kind is Kind.NORMAL for arrow in machine.arrows)
        if not state.terminal and not leaves:
            raise DefinitionError(f"{machine.name}: {state.name} is not terminal and has no way out")


def _check_path(machine: Machine, cue: Cue, state: str, path: tuple[str, ...]) -> None:
    if state not in machine.state:
        raise DefinitionError(f"{machine.name}: cue {cue} names {state}, which is not a state")
    heads = {state}
    for event in path:
        heads = {a.target for a in machine.arrows if a.event == event and a.source in heads}
        if not heads:
            row = f"{machine.name}: cue {cue} in {state}: {' > '.join(path)}"
            raise DefinitionError(f"{row}: there is no arrow for {event}")
