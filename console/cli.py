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

app.command(
    "console.commands.verify:verify",
    help="Prove the audit trail, row by row, and against an anchor that was kept elsewhere.",
)
app.command(
    "console.commands.check:check",
    help="Look through the store for what the documents say must never be.",
)
app.command(
    "console.commands.doctor:doctor",
    help="Tell everything about this installation and its store, and what is wrong with it.",
)
app.command(
    "console.commands.metrics:metrics",
    help="Count transitions, time in state, refusals and repeated requests, for Prometheus.",
)
log = App(name="log", help="The transitions as JSON lines, in document 001's schema.")
log.command("console.commands.log:export", help="Write every transition of a store.")
log.command("console.commands.log:validate", help="Judge such a file, ours or another system's.")
app.command(log)


def main(tokens: Sequence[str] | None = None) -> None:
    with output.guarded():
        try:
            app(tokens, exit_on_error=False)
        except CycloptsError:
            # cyclopts has said what was wrong, but would leave with 1, which here means a failed run.
            sys.exit(output.NOT_UNDERSTOOD)


if __name__ == "__main__":
    main()
