"""`python -m benchmarks [SUITE...]` measures, prints a table and writes `benchmarks/results.json`."""

import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from benchmarks.figure import Figure

SUITES = ("machines", "core", "store", "history", "feed", "log")
"""The modules of this package that measure something: each has `measure() -> list[Figure]`."""

RESULTS = Path(__file__).with_name("results.json")


def main(wanted: Sequence[str]) -> None:
    if unknown := sorted(set(wanted) - set(SUITES)):
        sys.exit(f"benchmarks: there is no {', '.join(unknown)}; there are: {', '.join(SUITES)}")
    measured: dict[str, list[Figure]] = {}
    for suite in wanted or SUITES:
        measured[suite] = import_module(f"benchmarks.{suite}").measure()
        print("\n".join(_lines(suite, measured[suite])), flush=True)
    figures = [{"suite": suite, **asdict(figure)} for suite in measured for figure in measured[suite]]
    surroundings = {"python": platform.python_version(), "machine": platform.machine()}
    RESULTS.write_text(json.dumps({**surroundings, "figures": figures}, indent=2) + "\n")


def _lines(suite: str, figures: list[Figure]) -> list[str]:
    lines = [suite]
    for figure in figures:
        goal = f"  goal {figure.goal:g} {figure.verdict}" if figure.goal is not None else ""
        lines.append(f"  {figure.name:<40}{figure.value:>12,.2f} {figure.unit}{goal}")
    return lines


if __name__ == "__main__":
    main(sys.argv[1:])
