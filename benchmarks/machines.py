"""What `transition` costs over a bare dictionary lookup, on every arrow of every machine."""

from benchmarks.figure import Figure, best_of
from engine.machines import MACHINES, Machine, transition

ROUNDS = 100
"""How often a timed run walks through the arrows: about a quarter of a millisecond of work."""


def measure() -> list[Figure]:
    calls = lookup = call = 0
    for machine in MACHINES.values():
        calls += len(machine.certain) * ROUNDS
        best_lookup, best_call = _time(machine)
        lookup += best_lookup
        call += best_call
    return [
        Figure("table[state, event]", lookup / calls, "ns"),
        Figure("transition(machine, state, event)", call / calls, "ns"),
        Figure("transition over table", call / lookup, "times", goal=2.0),
    ]


def _time(machine: Machine) -> tuple[int, int]:
    """Both without the loop around them, which would make the ratio look better than it is."""
    name, table = machine.name, machine.certain
    pairs = list(table) * ROUNDS

    def loop() -> None:
        for _state, _event in pairs:
            pass

    def look_up() -> None:
        for state, event in pairs:
            table[state, event]

    def fire() -> None:
        for state, event in pairs:
            transition(name, state, event)

    around, lookup, call = best_of(500, loop, look_up, fire)
    return lookup - around, call - around
