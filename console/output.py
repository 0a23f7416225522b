"""How the commands write: answers to standard output, refusals as one sentence to standard error.

No traceback comes from where the output goes: a full disk is told, a reader that has gone is not.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, NoReturn, TextIO, cast

from console.text import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

NOT_UNDERSTOOD = 2
OUTPUT_LOST = 1
READER_GONE = 141
"""What a shell reports of a program that was ended by a closed pipe."""

NARROWEST = 72
"""Below this a table of four columns is easier to read when the terminal itself breaks the lines."""


def write(text: str) -> None:
    """Write text as it is. Standard output may be closed, which is a wish to see nothing."""
    if sys.stdout is not None:
        sys.stdout.write(text)


def show(*parts: "RenderableType") -> None:
    """Write for a person: as wide as the terminal, else 80 columns; plain unless colour is welcome."""
    from rich.console import Console

    coloured = _colour_is_welcome()
    console = Console(
        width=max(NARROWEST, shutil.get_terminal_size().columns),
        force_terminal=coloured,
        color_system="auto" if coloured else None,
        markup=False,
        highlight=False,
        emoji=False,
    )
    with console.capture() as captured:
        console.print(*parts, sep="\n")
    write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def refuse(sentence: str) -> NoReturn:
    """End with exit code 2: the command was not understood, and nothing has changed."""
    _tell(sentence)
    sys.exit(NOT_UNDERSTOOD)


@contextmanager
def guarded() -> Iterator[None]:
    """Run a command, and end the program without a traceback where its output cannot be written."""
    if sys.stdout is None:
        yield
        return
    watched = _Watched(sys.stdout)
    with redirect_stdout(cast(TextIO, watched)):
        try:
            try:
                yield
            finally:
                watched.flush()
        except (OSError, SystemExit):
            # An error of the command's own, or its ordinary end.
            if watched.failure is None:
                raise
    if watched.failure is not None:
        _give_up(watched.failure)


class _Watched:
    """A stream that remembers why it failed, which tells its errors from those of other files."""

    def __init__(self, stream: TextIO) -> None:
        self.failure: OSError | None = None
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as reason:
            self.failure = reason
            raise

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as reason:
            self.failure = reason
            raise

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def _give_up(reason: OSError) -> NoReturn:
    # What is still buffered goes nowhere, or the interpreter would try once more and complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(reason, BrokenPipeError):
        sys.exit(READER_GONE)
    _tell(f"the output could not be written: {reason.strerror}")
    sys.exit(OUTPUT_LOST)


def _tell(sentence: str) -> None:
    if sys.stderr is not None:
        print(f"interlock: {visible(sentence)}", file=sys.stderr)


def _colour_is_welcome() -> bool:
    return (
        sys.stdout is not None
        and sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") not in ("dumb", "unknown")
    )
