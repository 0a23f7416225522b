"""`interlock check`: whether what is stored makes sense."""

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from console import output
from console.progress import Progress
from console.stores import Json, StoreOption, usable
from console.text import visible

if TYPE_CHECKING:
    from engine.store.check import Finding

FOUND = 1
SHOWN = 10
"""Findings of one rule that are shown unless all are wanted."""


def check(
    *,
    everything: Annotated[bool, Parameter("--all", negative="", show_default=False)] = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Look through the whole store for what the documents say must never be.

    Exits with 0 when nothing was found and with 1 otherwise.

    Parameters
    ----------
    everything
        Show every finding instead of the first 10 of each rule.
    json
        As JSON, for scripts; always with every finding.
    """
    from engine.store.check import check as look
    from engine.store.files import Place

    progress = Progress()
    with usable():
        findings = list(look(Place.of(store), lambda rule: progress.tell(f"checking {rule}")))
    progress.end()
    if json:
        _show_json(findings)
    else:
        _show(findings, None if everything else SHOWN)
    if findings:
        sys.exit(FOUND)


def _show(findings: "list[Finding]", limit: int | None) -> None:
    if not findings:
        output.write("Nothing is wrong.\n")
        return
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    for rule, found in by_rule.items():
        output.write(f"{rule} ({len(found):,}): {found[0].sentence} (document {found[0].document})\n")
        for finding in found[:limit]:
            output.write(f"  {visible(finding.entity)}: {visible(finding.evidence)}\n")
        if limit is not None and len(found) > limit:
            output.write(f"  ... and {len(found) - limit:,} more; --all shows every one\n")
    rules = f"{len(by_rule)} rule{'s' if len(by_rule) > 1 else ''}"
    count = f"{len(findings):,} finding{'s' if len(findings) > 1 else ''}"
    output.write(f"{count} by {rules}. Copy the store before anything is mended.\n")


def _show_json(findings: "list[Finding]") -> None:
    from dataclasses import asdict
    from json import dumps

    output.write(dumps([asdict(finding) for finding in findings], indent=2) + "\n")
