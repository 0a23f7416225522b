"""`interlock verify`: whether anybody has touched the audit trail."""

import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from console import output
from console.progress import Progress
from console.stores import Json, StoreOption, usable
from console.text import visible
from engine.store.chain import Head

if TYPE_CHECKING:
    from engine.store.verify import Verdict

BROKEN = 1
WORTH_A_RATE = 100_000


def verify(
    *,
    anchor: Annotated[str | None, Parameter(show_default=False)] = None,
    write_anchor: Annotated[Path | None, Parameter(show_default=False)] = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Prove the audit trail: every row, every link, and the end against an anchor.

    Exits with 0 when it is sound and with 1 at the first broken link.

    Parameters
    ----------
    anchor
        What the trail must still hold: a file that `--write-anchor` wrote, or its text.
    write_anchor
        Write the end of the trail into this file, to be kept elsewhere, if the trail is sound and still
        holds the anchor that the file has now.
    json
        As JSON, for scripts.
    """
    from engine.store.files import Place
    from engine.store.verify import verify as prove

    expected = None if anchor is None else _anchor(anchor)
    before = None if write_anchor is None else _anchor_before(write_anchor)
    progress = Progress()
    begin = perf_counter()
    with usable():
        verdict = prove(
            Place.of(store),
            expected,
            before,
            progress=lambda done, all_: progress.tell(f"{done:,} of {all_:,} rows"),
        )
    progress.end()
    seconds = perf_counter() - begin
    if verdict.sound and write_anchor is not None:
        _write(write_anchor, verdict.head)
    if json:
        _show_json(verdict, seconds, anchored=bool(expected or before))
    else:
        _show(verdict, seconds, anchored=bool(expected or before))
        if write_anchor is None and expected is None and verdict.sound:
            output.write("A cut-off end can show against an anchor only: see --write-anchor and --anchor.\n")
        if write_anchor is not None:
            name = visible(str(write_anchor))
            output.write(f"{name} holds it now.\n" if verdict.sound else "No anchor was written.\n")
    if not verdict.sound:
        sys.exit(BROKEN)


def _show(verdict: "Verdict", seconds: float, *, anchored: bool) -> None:
    if verdict.broken is not None:
        broken, rows = verdict.broken, f"{verdict.rows:,} row{'s' if verdict.rows != 1 else ''}"
        about = f" ({visible(broken.about)})" if broken.about else ""
        output.write(f"BROKEN at row {broken.seq:,}{about}: {visible(broken.problem)}.\n")
        if broken.seq == verdict.rows + 1:
            output.write(f"Sound before it: {rows}.\n")
        output.write("Copy the store and its folder as they are, before an engine opens it again.\n")
        return
    against = " and hold what the anchor saw" if anchored else ""
    rate = f", {verdict.rows / seconds:,.0f} a second" if verdict.rows >= WORTH_A_RATE else ""
    output.write(f"{verdict.rows:,} rows are sound{against} ({seconds:.1f} s{rate}).\n")
    output.write(f"The trail ends with {verdict.head}\n")


def _show_json(verdict: "Verdict", seconds: float, *, anchored: bool) -> None:
    from json import dumps

    broken = None
    if verdict.broken is not None:
        found = verdict.broken
        broken = {"seq": found.seq, "problem": found.problem, "about": found.about}
    told = {
        "sound": verdict.sound,
        "rows": verdict.rows,
        "head": {"seq": verdict.head.seq, "hash": verdict.head.hash.hex()},
        "broken": broken,
        "anchored": anchored,
        "seconds": round(seconds, 3),
    }
    output.write(dumps(told, indent=2) + "\n")


def _anchor_before(path: Path) -> Head | None:
    """The anchor that is to be replaced: one that the trail does not hold any more must stay."""
    try:
        return Head.parse(path.read_text())
    except (OSError, ValueError):
        return None


def _anchor(given: str) -> Head:
    path = Path(given)
    text = given
    try:
        if path.is_file():
            text = path.read_text()
        return Head.parse(text)
    except OSError as error:
        output.refuse(f"the anchor {given!r} cannot be read: {error.strerror}")
    except ValueError:
        output.refuse(
            f"{given!r} is no anchor and no file that holds one:"
            " an anchor is a row number, a colon and 64 hexadecimal digits"
        )


def _write(path: Path, head: Head) -> None:
    """Beside it first: where there is no room, the anchor that was there before is still whole."""
    beside = path.with_name(f"{path.name}.new")
    try:
        if path.exists() and not path.is_file():
            path.write_text(f"{head}\n")
            return
        beside.write_text(f"{head}\n")
        beside.replace(path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        output.refuse(f"the anchor could not be written to {visible(str(path))}: {why}")
