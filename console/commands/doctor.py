"""`interlock doctor`: everything about this installation, and what is wrong with it."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from console import output
from console.stores import Json, StoreOption, usable
from console.text import visible

if TYPE_CHECKING:
    from engine.store.health import Symptom

ILL = 1
OLDEST_LINUX = (5, 3)


def doctor(*, store: StoreOption = None, json: Json = False) -> None:
    """Tell everything about this installation and its store.

    Exits with 0 when all is well and with 1 when something needs a person.

    Parameters
    ----------
    json
        As JSON, for scripts.
    """
    from engine.store.files import Place
    from engine.store.health import examine

    with usable():
        symptoms = [*_installation(), *examine(Place.of(store), named=bool(store))]
    if json:
        from dataclasses import asdict
        from json import dumps

        output.write(dumps([asdict(symptom) for symptom in symptoms], indent=2) + "\n")
    else:
        _show(symptoms)
    if any(symptom.advice for symptom in symptoms):
        sys.exit(ILL)


def _installation() -> Iterator["Symptom"]:
    import platform
    from importlib.metadata import version

    from engine.store.health import Symptom

    yield Symptom("Interlock", version("interlock"))
    yield Symptom("Python", platform.python_version())
    release = platform.release()
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdecimal())
    system = f"{platform.system()} {release}"
    fit = platform.system() == "Linux" and numbers >= OLDEST_LINUX
    yield Symptom("system", system, None if fit else "Interlock needs Linux 5.3 or newer")


def _show(symptoms: "list[Symptom]") -> None:
    names = [visible(symptom.what) for symptom in symptoms]
    width = max(map(len, names))
    for name, symptom in zip(names, symptoms, strict=True):
        mark = "!" if symptom.advice else " "
        lines = [*_wrapped(symptom.found, width), *_wrapped(symptom.advice or "", width)]
        output.write(f"{mark} {name:<{width}}  {lines[0]}\n")
        for line in lines[1:]:
            output.write(f"  {'':<{width}}  {line}\n")
    wrong = sum(1 for symptom in symptoms if symptom.advice)
    needs = "needs" if wrong == 1 else "need"
    well = "All is well here. For the trail see `interlock verify`, for the records `check`.\n"
    output.write(well if not wrong else f"{wrong} of these {needs} a person.\n")


def _wrapped(text: str, width: int) -> list[str]:
    """Lines that fit beside the names; what a person copies (a path, a hash) stays in one piece."""
    from shutil import get_terminal_size
    from textwrap import wrap

    room = max(output.NARROWEST, get_terminal_size().columns) - width - 4
    return wrap(visible(text), room, break_long_words=False, break_on_hyphens=False)
