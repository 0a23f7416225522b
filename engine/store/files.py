"""Where a store lives and who may touch it: a file of mode 0600, and beside it a folder of mode 0700.

The folder holds the lock, the socket, journals, segments, `transitions.jsonl` and `archive/`.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from engine.store.errors import NoStore, StoreError, StoreForeign, StoreReadOnly

VARIABLE = "INTERLOCK_STORE"


def default_path() -> Path:
    """`interlock.db` in the platform's state folder, unless the environment names another."""
    from platformdirs import user_state_path

    named = os.environ.get(VARIABLE)
    return Path(named) if named else user_state_path("interlock", appauthor=False) / "interlock.db"


@dataclass(frozen=True, slots=True)
class Place:
    """A store's file and its folder."""

    file: Path

    @property
    def folder(self) -> Path:
        return self.file.with_name(f"{self.file.name}.d")

    @property
    def lock(self) -> Path:
        return self.folder / "lock"

    @property
    def archive(self) -> Path:
        return self.folder / "archive"

    @property
    def transitions(self) -> Path:
        return self.folder / "transitions.jsonl"

    @classmethod
    def of(cls, path: Path | str | None) -> "Place":
        given = Path(path) if path is not None else default_path()
        if "://" in str(path or ""):
            raise StoreError(
                f"{path}: only SQLite files are supported so far; give --store the path of a file"
            )
        return cls(given.expanduser().absolute())

    def require(self) -> None:
        """There must be a store to read."""
        try:
            found = self.file.stat()
        except FileNotFoundError:
            raise NoStore(
                f"there is no store at {self.file} yet: `interlock demo` or `interlock run` makes one"
            ) from None
        except PermissionError:
            raise StoreError(f"{self.file} cannot be reached: its folder is not yours to read") from None
        except OSError as error:
            raise StoreError(f"{self.file} cannot be reached: {error.strerror}") from None
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(f"{self.file} is not a file: give --store the path of one")
        if not os.access(self.file, os.R_OK):
            raise StoreError(f"{self.file} is not yours to read: ask its owner, or give another --store")

    def make(self) -> None:
        """Make the file and the folder where they are missing, and see that both are ours alone."""
        self._make_parent()
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except IsADirectoryError:
            raise StoreError(f"{self.file} is a folder: give --store the path of a file") from None
        except PermissionError:
            _refuse_foreign(self.file)
            raise StoreReadOnly(f"{self.file} cannot be written: it is read-only, or its folder is") from None
        except OSError as error:
            raise StoreError(f"{self.file} cannot be made: {error.strerror}") from None
        if os.geteuid() == 0 and not self.file.stat().st_mode & stat.S_IWUSR:
            raise StoreReadOnly(f"{self.file} cannot be written: it is read-only (`chmod u+w` gives it back)")
        for path, mode in ((self.folder, 0o700), (self.file, 0o600)):
            _refuse_foreign(path)
            if stat.S_IMODE(path.stat().st_mode) & ~mode:
                path.chmod(stat.S_IMODE(path.stat().st_mode) & mode)

    def _make_parent(self) -> None:
        parent = self.file.parent
        if parent.is_dir():
            return
        if self.file == default_path() and VARIABLE not in os.environ:
            parent.mkdir(mode=0o700, parents=True)
            return
        raise NoStore(f"the folder {parent} does not exist: make it, or give another --store")


def _refuse_foreign(path: Path) -> None:
    try:
        owner = path.stat().st_uid
    except OSError:
        return
    if owner != os.geteuid():
        raise StoreForeign(
            f"{path} belongs to another user (uid {owner}): use a store of your own, or ask its owner"
        )
