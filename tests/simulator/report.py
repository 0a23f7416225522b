"""What a world was like, in figures that add up over many worlds."""

from collections import Counter
from dataclasses import dataclass, field

ArrowTaken = tuple[str, str, str, str]
"""Machine, state, event, next state."""


@dataclass(slots=True)
class Report:
    """The figures of one seed, or of many."""

    seeds: int = 0
    steps: int = 0
    signals: int = 0
    refused: int = 0
    transitions: int = 0
    facts: int = 0
    started: int = 0
    """Processes started."""
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    """Runs by machine and final state."""
    arrows: Counter[ArrowTaken] = field(default_factory=Counter)
    seed: int = -1
    digest: str = ""
    """A fingerprint of the whole trail of one seed: the same seed gives the same one everywhere."""

    def add(self, other: "Report") -> None:
        self.seeds += other.seeds
        self.steps += other.steps
        self.signals += other.signals
        self.refused += other.refused
        self.transitions += other.transitions
        self.facts += other.facts
        self.started += other.started
        self.faults.update(other.faults)
        self.outcomes.update(other.outcomes)
        self.arrows.update(other.arrows)
