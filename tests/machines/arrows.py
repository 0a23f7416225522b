"""Questions about the tables that the tests of the documents ask."""

from engine.machines import MACHINES, Kind, is_terminal, transition, valid_events

Row = tuple[str, str, str]

NOTHING_LEFT = {"retry_count": 4, "max_retries": 4}
ONE_LEFT = {"retry_count": 3, "max_retries": 4}


def ordinary(machine: str) -> set[Row]:
    """Every arrow that needs neither a recovery procedure nor the end of a run."""
    return {(a.source, a.event, a.target) for a in MACHINES[machine].arrows if a.kind is Kind.NORMAL}


def any_way(machine: str, source: str, target: str) -> bool:
    return any((a.source, a.target) == (source, target) for a in MACHINES[machine].arrows)


def ordinary_targets(machine: str, source: str) -> set[str]:
    return {target for start, _, target in ordinary(machine) if start == source}


def targets(machine: str, source: str, kind: Kind) -> set[str]:
    return {a.target for a in MACHINES[machine].arrows if a.source == source and a.kind is kind}


def sources(machine: str, event: str) -> set[str]:
    return {state for state in MACHINES[machine].state if event in valid_events(machine, state)}


def terminal_states(machine: str) -> set[str]:
    return {state for state in MACHINES[machine].state if is_terminal(machine, state)}


def walk(machine: str, state: str, *events: str) -> str:
    for event in events:
        state = transition(machine, state, event)
    return state
