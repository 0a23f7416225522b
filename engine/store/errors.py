"""What can be wrong with a store, in sentences for the person who has to mend it."""

from pathlib import Path


class StoreError(Exception):
    """The store cannot be used. The sentence says what is wrong and what to do; nothing was lost."""


class NoStore(StoreError):
    """There is no such file yet."""


class StoreBusy(StoreError):
    """Another engine holds the store."""

    def __init__(self, path: Path, holder: str | None) -> None:
        by = f" ({holder})" if holder else ""
        super().__init__(f"another engine{by} holds {path}: wait until it ends, or stop it")


class StoreNewer(StoreError):
    """It was written by a newer version of Interlock."""


class StoreDamaged(StoreError):
    """The file is not a database, or a part of it is broken."""


class StoreFull(StoreError):
    """The disk has no room. What was committed stays; what was not is not."""


class StoreReadOnly(StoreError):
    """The file or its folder cannot be written."""


class StoreForeign(StoreError):
    """The file belongs to someone else, or others could write it."""


class RefusedByStore(Exception):
    """The database's own interlock refused a change; nothing of it was stored."""
