"""The whole engine under simulated time, with everything that can go wrong going wrong.

One seed is one world: random workflows under every pair of machines, workers that die, people who
meddle, an engine that crashes. The real core decides; after every step its promises are checked.
`python -m tests.simulator --seeds 1000` runs many worlds, `--seed S` one of them again.
"""

from tests.simulator.report import Report
from tests.simulator.simulation import simulate
from tests.simulator.violation import Violation

__all__ = ["Report", "Violation", "simulate"]
