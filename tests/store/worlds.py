"""Stores that simulated worlds have filled, copies of them, and an attacker who takes the triggers away."""

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from engine.core.decision import Decision
from engine.store.chain import GENESIS, arrow_words, link, row_hash
from engine.store.files import Place
from tests.simulator.simulation import Parts, Simulation
from tests.simulator.store import Staging
from tests.store.doubled import DoubledStore


class WatchedStore(DoubledStore):
    """Is copied each time that so many transactions were committed."""

    def __init__(self, path: Path, folder: Path, every: int) -> None:
        super().__init__(path)
        self.copies: list[Place] = []
        self._folder, self._every, self._commits = folder, every, 0

    def _commit(self, staging: Staging, decisions: Sequence[Decision]) -> None:
        super()._commit(staging, decisions)
        self._commits += 1
        if self._commits % self._every == 0:
            path = self._folder / f"{self._commits}.db"
            with closing(sqlite3.connect(path)) as copy:
                self.db.backup(copy)
            self.copies.append(Place(path))


def lived(path: Path, seed: int) -> DoubledStore:
    """One world in a real store, from its first run to its last. The store is closed."""
    world = Simulation(seed, Parts(store=lambda: DoubledStore(path)))
    store = world.store
    assert isinstance(store, DoubledStore)
    with closing(store):
        world.run()
    return store


def watched(folder: Path, seed: int, every: int) -> list[Place]:
    """The store of a world as it was after each so many transactions, and at the end."""
    folder.mkdir()
    path = folder / "store.db"
    world = Simulation(seed, Parts(store=lambda: WatchedStore(path, folder, every)))
    store = world.store
    assert isinstance(store, WatchedStore)
    with closing(store):
        world.run()
    return [*store.copies, Place(path)]


def copied(place: Place, path: Path) -> Place:
    """Another file with the same bytes; nobody has the first one open, so all of it is in the file."""
    left = Path(f"{place.file}-wal")
    assert not left.exists() or left.stat().st_size == 0
    for tail in ("-wal", "-shm"):
        Path(f"{path}{tail}").unlink(missing_ok=True)
    shutil.copyfile(place.file, path)
    return Place(path)


@contextmanager
def attacked(place: Place) -> Iterator[sqlite3.Connection]:
    """A connection to a store without its triggers; all or nothing of the block is stored."""
    with closing(sqlite3.connect(place.file, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        yield db
        db.execute("COMMIT")


AUDIT = (
    "SELECT a.seq, a.at, a.run, a.task, a.name, a.version, a.since, a.cause, a.actor, a.source, a.reason,"
    " a.request_id, a.metadata, r.machine, r.from_state, r.event, r.to_state"
    " FROM audit AS a JOIN arrows AS r ON r.id = a.arrow WHERE a.seq >= ? ORDER BY a.seq"
)


def rechain(db: sqlite3.Connection, first: int = 1) -> None:
    """Give every row from this one on the hashes that it should have: what a careful forger does."""
    found = db.execute("SELECT hash FROM audit WHERE seq = ?", (first - 1,)).fetchone()
    before = found[0] if found else GENESIS
    for row in db.execute(AUDIT, (first,)).fetchall():
        seq, at, run, task, name, version, since, cause, actor, source, reason, asked, metadata, *key = row
        digest = row_hash(
            seq, at, run, task, name, version, arrow_words(*key), since, cause, actor, source, reason, asked,
            metadata,
        )  # fmt: skip
        before = link(before, digest)
        db.execute("UPDATE audit SET row_hash = ?, hash = ? WHERE seq = ?", (digest, before, seq))
