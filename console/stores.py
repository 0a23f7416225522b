"""The option `--store`, and what a command says when a store cannot be used."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from cyclopts import Parameter

from console import output
from engine.store.errors import StoreError

StoreOption = Annotated[
    str | None,
    Parameter(
        name="--store",
        env_var="INTERLOCK_STORE",
        help="The store's file; without it the one in the platform's state folder.",
    ),
]

Json = Annotated[bool, Parameter(name="--json", negative="", show_default=False)]


@contextmanager
def usable() -> Iterator[None]:
    """Run a command on a store; what is wrong with the store is a sentence and exit code 2."""
    try:
        yield
    except StoreError as error:
        output.refuse(str(error))
