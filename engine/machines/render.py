"""A machine written out for other programs: JSON for scripts, Mermaid for documentation."""

from engine.machines.machine import Arrow, Kind, Machine


def as_json(machine: Machine) -> dict[str, object]:
    """One element of the list that `interlock machines --json` prints."""
    return {
        "name": machine.name,
        "document": machine.document,
        "entity": machine.entity,
        "initial": machine.initial,
        "states": [
            {"name": state.name, "description": state.description, "terminal": state.terminal}
            for state in machine.states
        ],
        "transitions": [
            {
                "from": arrow.source,
                "event": arrow.event,
                "to": arrow.target,
                "kind": arrow.kind.value,
                "guard": arrow.guard,
                "description": arrow.description,
            }
            for arrow in machine.arrows
        ],
    }


def as_mermaid(machine: Machine) -> str:
    """A `stateDiagram-v2` that is complete by itself, titled with the machine's name.

    Mermaid ends a label at `:` and at `;`, so a label holds names only, never prose.
    """
    lines = ["---", f"title: {machine.name}", "---", "stateDiagram-v2", f"    [*] --> {machine.initial}"]
    lines += [f"    {arrow.source} --> {arrow.target} : {_label(arrow)}" for arrow in machine.arrows]
    lines += [f"    {state.name} --> [*]" for state in machine.states if state.terminal]
    return "\n".join(lines) + "\n"


def _label(arrow: Arrow) -> str:
    """Event, guard and kind. A state diagram cannot dash an arrow, so the kind is spelt out."""
    guard = f" [{arrow.guard}]" if arrow.guard else ""
    kind = f" ({arrow.kind})" if arrow.kind is not Kind.NORMAL else ""
    return f"{arrow.event}{guard}{kind}"
