"""Where a store lives and who may touch it: a file of mode 0600, and beside it a folder of mode 0700.

The folder holds the lock, the socket, journals, segments, `transitions.jsonl` and `archive/`.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from engine.store.errors import NoStore, StoreError, StoreForeign, StoreReadOnly
from engine.store.trouble import system_sentence_of

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
        given = Path(path) if path else default_path()
        if "://" in str(path or ""):
            raise StoreError(
                f"{path}: only SQLite files are supported so far; give --store the path of a file"
            )
        # Two names of one file must lead to one lock; SQLite looks for its log beside the real file too.
        return cls(Path(os.path.realpath(given.expanduser())))

    def require(self) -> None:
        """There must be a store to read."""
        try:
            found = self.file.stat()
        except FileNotFoundError:
            raise NoStore(f"there is no store at {self.file}: give another with --store") from None
        except PermissionError:
            raise StoreError(
                f"{self.file} cannot be reached: its folder is not yours to read."
                " Ask its owner, or give another --store"
            ) from None
        except OSError as error:
            raise system_sentence_of(error, self.file) from None
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(f"{self.file} is not a file: give --store the path of one")
        if not os.access(self.file, os.R_OK):
            raise StoreError(f"{self.file} is not yours to read: ask its owner, or give another --store")

    def make(self) -> None:
        """Make the file and the folder where they are missing, and see that both are ours alone."""
        self._make_parent()
        try:
            # Never open one that is there: closing it would end the locks that SQLite holds in this process.
            os.close(os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            self._see_that_it_can_be_written()
        except OSError as error:
            raise system_sentence_of(error, self.file) from None
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError:
            raise StoreError(
                f"{self.folder} is not a folder, and the store needs one there: move it away"
            ) from None
        except OSError as error:
            raise system_sentence_of(error, self.folder) from None
        _refuse_foreign(self.folder)
        _tighten(self.folder, 0o700)
        for name in ("", "-wal", "-shm"):
            _tighten(self.file.with_name(f"{self.file.name}{name}"), 0o600)

    def _see_that_it_can_be_written(self) -> None:
        try:
            mode = self.file.stat().st_mode
        except OSError as error:
            raise system_sentence_of(error, self.file) from None
        if stat.S_ISDIR(mode):
            raise StoreError(f"{self.file} is a folder: give --store the path of a file")
        if not stat.S_ISREG(mode):
            raise StoreError(f"{self.file} is not a file: give --store the path of one")
        _refuse_foreign(self.file)
        # Root may write whatever the mode says, and is told of it all the same.
        if not mode & stat.S_IWUSR or not os.access(self.file, os.R_OK | os.W_OK):
            raise StoreReadOnly(f"{self.file} cannot be written: it is read-only (`chmod u+w` gives it back)")
        if not os.access(self.file.parent, os.W_OK | os.X_OK):
            raise StoreReadOnly(
                f"the folder {self.file.parent} is read-only, and a store writes beside its file:"
                " `chmod u+w` gives it back"
            )

    def _make_parent(self) -> None:
        parent = self.file.parent
        try:
            if parent.is_dir():
                return
            if VARIABLE not in os.environ and self == Place.of(None):
                parent.mkdir(mode=0o700, parents=True)
                return
        except OSError as error:
            raise system_sentence_of(error, parent) from None
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


def _tighten(path: Path, mode: int) -> None:
    """Nobody else may read it, whatever it was before."""
    try:
        found = stat.S_IMODE(path.stat().st_mode)
        if found & ~mode:
            path.chmod(found & mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise system_sentence_of(error, path) from None
