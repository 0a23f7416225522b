"""What a machine refuses, and how it says so.

Each error hands its own arguments to `Exception`, so that it survives pickling, and words its sentence
only when somebody reads it.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class MachineError(Exception):
    """A machine was asked something that it cannot answer."""


class DefinitionError(MachineError):
    """A machine's table contradicts itself; the message names the row."""


class UnknownMachineError(MachineError):
    """There is no machine of that name. `interlock machines` lists them."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(self.name, self.known)

    def __str__(self) -> str:
        return f"there is no machine {self.name!r}{hint(self.name, self.known)}"


class UnknownStateError(MachineError):
    """The machine has no state of that name."""

    def __init__(self, machine: str, state: str, known: Iterable[str]) -> None:
        self.machine = machine
        self.state = state
        self.known = tuple(known)
        super().__init__(self.machine, self.state, self.known)

    def __str__(self) -> str:
        return f"{self.machine} has no state {self.state!r}{hint(self.state, self.known)}"


class MissingValuesError(MachineError):
    """A guard could not be evaluated because a value it reads was not given."""

    def __init__(self, machine: str, state: str, event: str, guard: str, needs: tuple[str, ...]) -> None:
        self.machine = machine
        self.state = state
        self.event = event
        self.guard = guard
        self.needs = needs
        super().__init__(machine, state, event, guard, needs)

    def __str__(self) -> str:
        needs = " or ".join(map(repr, self.needs))
        return f"{self.machine}: {self.event} from {self.state} depends on {self.guard}; give it {needs}"


class InvalidTransitionError(MachineError):
    """The event is not allowed in that state. Nothing has changed; `allowed` says what would be."""

    def __init__(
        self,
        machine: str,
        state: str,
        event: str,
        allowed: tuple[str, ...],
        entity: str | None = None,
        because: str | None = None,
        known: tuple[str, ...] = (),
    ) -> None:
        self.machine = machine
        self.state = state
        self.event = event
        self.allowed = allowed
        self.entity = entity
        self.because = because
        self.known = known
        """Every event of the machine: what is not among them is a slip of the pen, and gets a hint."""
        super().__init__(machine, state, event, allowed, entity, because, known)

    def __str__(self) -> str:
        who = f"{self.entity} ({self.machine})" if self.entity else self.machine
        why = f": {self.because}" if self.because else ""
        rest = (
            f"allowed there: {', '.join(self.allowed)}"
            if self.allowed
            else "nothing is allowed there: it is final"
        )
        return f"{who} in state {self.state} does not accept {self.event}{self._meant()}{why}; {rest}"

    def _meant(self) -> str:
        if not self.known or self.event in self.known:
            return ""
        if near := closest(self.event, self.allowed):
            return f" (did you mean {near[0]}?)"
        if near := closest(self.event, self.known):
            return f" (did you mean {near[0]}? It is not allowed there either)"
        return ""


def closest(word: str, known: Iterable[str]) -> list[str]:
    """The known word that was probably meant: the one spelt most alike, else all that contain it."""
    folded = {other.casefold(): other for other in known}
    wanted = word.casefold()
    close = get_close_matches(wanted, folded, n=1)
    if not close and len(wanted) > 2:
        close = [other for other in folded if wanted in other]
    return [folded[near] for near in close]


def hint(word: str, known: tuple[str, ...]) -> str:
    """Say what was probably meant, or what there is."""
    if near := closest(word, known):
        return f"; did you mean {' or '.join(map(repr, near))}?"
    return f"; there are: {', '.join(known)}"
