"""`interlock log`: the transitions as JSON lines.

`export` writes those of a store; `validate` judges such a file, ours or another system's, and exits with 1
where a problem was found.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated, BinaryIO

from cyclopts import Parameter

from console import output
from console.progress import Progress
from console.stores import StoreOption, usable
from console.text import visible
from engine.store.log_problems import Problem, Summary
from engine.store.log_validator import lines_of
from engine.store.log_validator import validate as problems_of

PROBLEMS_FOUND = 1
SHOWN = 20
STANDARD_INPUT = "-"

BETWEEN_LOOKS = 4096
"""Lines read before the clock is asked whether progress is due."""


def export(*, after: Annotated[int, Parameter(show_default=False)] = 0, store: StoreOption = None) -> None:
    """Write every transition of a store as a JSON line, oldest first.

    Parameters
    ----------
    after
        Leave out the rows of the trail up to this one (`seq` in the metadata of a line).
    """
    from engine.store.events import line_of
    from engine.store.exporter import transitions
    from engine.store.files import Place

    with usable():
        for row in transitions(Place.of(store), after):
            line = line_of(row)
            if line is not None:
                output.write(f"{line}\n")


def validate(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    partial: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    everything: Annotated[bool, Parameter("--all", negative="", show_default=False)] = False,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> None:
    """Judge a log of transitions: its schema, its order, and every transition by its machine.

    Parameters
    ----------
    file
        The JSON lines to read; `-` is standard input.
    partial
        The beginning is not there: entities may be met in any state.
    everything
        Show every problem instead of the first 20.
    json
        As JSON, for scripts; always with every problem.
    """
    summary = Summary()
    with _opened(file) as stream:
        progress = Progress()
        lines = _watched(_readable(stream, file), summary, progress)
        problems = problems_of(lines, summary, partial=partial)
        if json:
            _write_json(problems, summary, progress)
        else:
            _write_text(problems, summary, progress, file, None if everything else SHOWN)
    if summary.problems:
        sys.exit(PROBLEMS_FOUND)


def _write_text(
    problems: Iterator[Problem], summary: Summary, progress: Progress, file: str, limit: int | None
) -> None:
    name = _name(file)
    for number, problem in enumerate(problems, 1):
        if limit is None or number <= limit:
            progress.end()
            output.write(f"{name}:{problem.line}: {visible(problem.sentence)}\n")
    progress.end()
    if limit is not None and (hidden := summary.problems - limit) > 0:
        output.write(f"... and {_count(hidden, 'more problem')}; --all shows every one\n")
    read = f"{_count(summary.lines, 'line')}, {_count(summary.events, 'event')}"
    found = _count(summary.problems, "problem") if summary.problems else "no problems"
    output.write(f"{read}, {_count(summary.entities, 'entity', 'entities')}: {found}\n")


def _write_json(problems: Iterator[Problem], summary: Summary, progress: Progress) -> None:
    """Write the problems as they are found; the counts follow them, since they are known last."""
    from json import dumps

    output.write('{"problems": [')
    between = "\n"
    for problem in problems:
        progress.end()
        told = {
            "line": problem.line,
            "kind": problem.kind,
            "entity": problem.entity,
            "message": problem.sentence,
        }
        output.write(f"{between}  {dumps(told)}")
        between = ",\n"
    progress.end()
    counts = f'"lines": {summary.lines}, "events": {summary.events}, "entities": {summary.entities}'
    output.write(f"\n], {counts}}}\n")


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == STANDARD_INPUT:
        if sys.stdin is None:
            output.refuse("standard input is closed; there is nothing to validate")
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(open(file, "rb"))
        except OSError as error:
            output.refuse(_unreadable(file, error))
        yield stream


def _readable(stream: BinaryIO, file: str) -> Iterator[bytes]:
    """The lines; what cannot be read is told here, apart from output that cannot be written."""
    lines = lines_of(stream)
    while True:
        try:
            line = next(lines, None)
        except OSError as error:
            output.refuse(_unreadable(file, error))
        if line is None:
            return
        yield line


def _unreadable(file: str, error: OSError) -> str:
    return f"cannot read {_name(file)}: {error.strerror}"


def _name(file: str) -> str:
    return "standard input" if file == STANDARD_INPUT else visible(file)


def _watched(lines: Iterator[bytes], summary: Summary, progress: Progress) -> Iterator[bytes]:
    size = 0
    for line in lines:
        yield line
        size += len(line)
        if summary.lines % BETWEEN_LOOKS == 0:
            read = f"{_count(summary.lines, 'line')}, {size / 1e6:,.0f} MB"
            progress.tell(f"{read}, {_count(summary.problems, 'problem')}")


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
