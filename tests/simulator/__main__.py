"""Many worlds, on every core: `python -m tests.simulator --seeds 1000`."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import Pool, cpu_count
from time import monotonic

from engine.machines import MACHINES
from tests.simulator.report import Report
from tests.simulator.simulation import simulate
from tests.simulator.violation import Violation

CHUNK = 50
SHOWN = 20
"""No more violations than this are printed in full."""


@dataclass
class Batch:
    """What a process found out about some seeds."""

    report: Report = field(default_factory=Report)
    violations: list[Violation] = field(default_factory=list)


def run_chunk(seeds: range) -> Batch:
    batch = Batch()
    for seed in seeds:
        try:
            batch.report.add(simulate(seed))
        except Violation as violation:
            batch.report.seeds += 1
            batch.violations.append(violation)
    return batch


def batches(seeds: range, jobs: int) -> Iterator[Batch]:
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    if jobs == 1 or len(chunks) == 1:
        yield from map(run_chunk, chunks)
        return
    with Pool(jobs) as pool:
        yield from pool.imap(run_chunk, chunks)


def print_report(report: Report, seconds: float) -> None:
    rate = seconds / report.seeds * 1000 if report.seeds else 0.0
    print(f"seeds        {report.seeds:>12,}   in {seconds:.1f} s, {rate:.1f} ms each")
    print(f"steps        {report.steps:>12,}")
    print(f"signals      {report.signals:>12,}   of which {report.refused:,} refused")
    print(f"transitions  {report.transitions:>12,}")
    print(f"facts        {report.facts:>12,}")
    print(f"processes    {report.started:>12,}")
    print("faults")
    for name, count in sorted(report.faults.items(), key=lambda item: -item[1]):
        print(f"  {count:>12,}  {name}")
    print("runs by outcome")
    for name, count in sorted(report.outcomes.items()):
        print(f"  {count:>12,}  {name}")
    print_coverage(report)


def print_coverage(report: Report) -> None:
    documented = [
        (machine.name, arrow.source, arrow.event, arrow.target)
        for machine in MACHINES.values()
        for arrow in machine.arrows
    ]
    never = [arrow for arrow in documented if arrow not in report.arrows]
    rarest = sorted((count, arrow) for arrow, count in report.arrows.items())[:10]
    print(f"arrows taken {len(documented) - len(never)} of {len(documented)}")
    for machine, source, event, target in never:
        print(f"  not once   {machine}: {source} --{event}--> {target}")
    for count, (machine, source, event, target) in rarest:
        print(f"  {count:>9,}  {machine}: {source} --{event}--> {target}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="one world alone, with its violation in full")
    parser.add_argument("--jobs", type=int, default=cpu_count(), help="processes")
    parser.add_argument("--verbose", action="store_true", help="print every violation in full")
    options = parser.parse_args()
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs are 1 or more")
    seeds = range(options.first, options.first + options.seeds)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)

    total, violations, began, spoke = Report(), list[Violation](), monotonic(), monotonic()
    for batch in batches(seeds, options.jobs):
        total.add(batch.report)
        violations += batch.violations
        for violation in batch.violations:
            print(f"seed {violation.seed}: {violation.what[:200]}", file=sys.stderr, flush=True)
        if monotonic() - spoke > 10:
            spoke = monotonic()
            done = f"{total.seeds:,} of {len(seeds):,} seeds, {len(violations)} violations"
            print(f"{done}, {spoke - began:.0f} s", file=sys.stderr, flush=True)

    print_report(total, monotonic() - began)
    for violation in violations if options.verbose else violations[:SHOWN]:
        print(f"\n{violation}\n    again: make simulate SEED={violation.seed}")
    broken = f"{len(violations)} of {total.seeds:,} seeds broke a promise"
    print(f"\n{broken}" if violations else f"\n{total.seeds:,} seeds, no promise broken")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
