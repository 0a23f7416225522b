"""`interlock machines`: the ten machines, for a person, a script or a page of documentation."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter, validators

from console import output
from engine.machines import GUARDS, MACHINES, Arrow, Kind, Machine, UnknownMachineError, named

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

FORM = Group("Form", validator=validators.mutually_exclusive)

WHO_FIRES = {
    Kind.RECOVERY: "fired only by a recovery procedure, which checks the guard again as it does so",
    Kind.CASCADE: "fired only by the end of the run that the entity belongs to",
}


def machines(
    name: str | None = None,
    /,
    *,
    json: Annotated[bool, Parameter(group=FORM, negative="", show_default=False)] = False,
    mermaid: Annotated[bool, Parameter(group=FORM, negative="", show_default=False)] = False,
) -> None:
    """List the state machines, or show one with every state and transition it has.

    Parameters
    ----------
    name
        The machine to show; all of them without it.
    json
        As JSON, for scripts.
    mermaid
        As Mermaid state diagrams, for documentation.
    """
    try:
        chosen = list(MACHINES.values()) if name is None else [named(name)]
    except UnknownMachineError as error:
        output.refuse(str(error))
    if json:
        _write_json(chosen)
    elif mermaid:
        _write_mermaid(chosen)
    elif name is None:
        output.show(_overview(chosen))
    else:
        output.show(*_portrait(chosen[0]))


def _write_json(chosen: list[Machine]) -> None:
    from json import dumps

    from engine.machines.render import as_json

    output.write(dumps([as_json(machine) for machine in chosen], indent=2) + "\n")


def _write_mermaid(chosen: list[Machine]) -> None:
    from engine.machines.render import as_mermaid

    output.write("\n".join(as_mermaid(machine) for machine in chosen))


def _overview(chosen: list[Machine]) -> "RenderableType":
    table = _table("name", "doc", "drives")
    table.add_column("states", justify="right")
    table.add_column("transitions")
    for machine in chosen:
        table.add_row(
            machine.name, machine.document, machine.entity, str(len(machine.states)), _counts(machine)
        )
    return table


def _counts(machine: Machine) -> str:
    """`18 +1 recovery +4 cascade`: the ordinary transitions first, then the others by kind."""
    count = {kind: sum(arrow.kind is kind for arrow in machine.arrows) for kind in Kind}
    others = [f" +{number} {kind}" for kind, number in count.items() if kind is not Kind.NORMAL and number]
    return f"{count[Kind.NORMAL]:2}{''.join(others)}"


def _portrait(machine: Machine) -> list["RenderableType"]:
    from rich.text import Text

    title = Text.assemble(
        (machine.name, "bold"), f": drives a {machine.entity}, from document {machine.document}"
    )
    parts: list[RenderableType] = [title, "", _states(machine), "", _transitions(machine)]
    guards = dict.fromkeys(arrow.guard for arrow in machine.arrows if arrow.guard)
    if guards:
        parts += ["", _glossary("guard", {guard: GUARDS[guard].description for guard in guards})]
    kinds = {arrow.kind for arrow in machine.arrows}
    if kinds - {Kind.NORMAL}:
        parts += ["", _glossary("kind", {kind: who for kind, who in WHO_FIRES.items() if kind in kinds})]
    return parts


def _states(machine: Machine) -> "RenderableType":
    table = _table("state", "", "meaning")
    for state in machine.states:
        mark = "initial" if state.name == machine.initial else "terminal" if state.terminal else ""
        table.add_row(state.name, mark, state.description)
    return table


def _transitions(machine: Machine) -> "RenderableType":
    table = _table("from", "event", "to", "meaning")
    for arrow in machine.arrows:
        table.add_row(arrow.source, arrow.event, arrow.target, _meaning(arrow))
    return table


def _meaning(arrow: Arrow) -> "RenderableType":
    from rich.text import Text

    text = Text(arrow.description)
    if arrow.kind is not Kind.NORMAL:
        text.append(f"\n{arrow.kind}", "yellow")
    if arrow.guard:
        text.append(" if " if arrow.kind is not Kind.NORMAL else "\nif ").append(arrow.guard, "cyan")
    return text


def _glossary(what: str, words: dict[str, str]) -> "RenderableType":
    table = _table(what, "means")
    for word, meaning in words.items():
        table.add_row(word, meaning)
    return table


def _table(first: str, *others: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, style="bold", no_wrap=True)
    for header in others:
        table.add_column(header)
    return table
