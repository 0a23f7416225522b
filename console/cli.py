"""The `interlock` command.

A command is named by its import path and loaded when it runs, so that `--help` and `--version` answer
at once. Exit code 2 means that the command line was not understood and nothing was done.
"""

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from console import output


def _version() -> str:
    from importlib.metadata import version

    return version("interlock")


app = App(
    name="interlock",
    help="Watch and steer workflow runs: every legal move is recorded, every other one is refused.",
    version=_version,
)
app.command(
    "console.commands.machines:machines",
    help="List the state machines, or show one with every state and transition it has.",
)


def main(tokens: Sequence[str] | None = None) -> None:
    with output.guarded():
        try:
            app(tokens, exit_on_error=False)
        except CycloptsError:
            # cyclopts has said what was wrong, but would leave with 1, which here means a failed run.
            sys.exit(output.NOT_UNDERSTOOD)


if __name__ == "__main__":
    main()
