"""Two stores at once: the simulated one proves each change, the real one must keep the very same."""

import sqlite3
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from engine.core.decision import Decision
from engine.core.model import Snapshot
from engine.machines import Phase
from engine.store.connections import connect_writer
from engine.store.files import Place
from engine.store.gate import OutboxRow
from engine.store.sqlite_gate import SqliteGate
from tests.simulator.store import SimulatedStore, Staging
from tests.simulator.violation import Violation


class DoubledStore(SimulatedStore):
    """What the simulated store commits, the real one commits too; what they load is the same."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        place = Place(path)
        place.make()
        self.db: sqlite3.Connection = connect_writer(place, "OFF")
        self.real = SqliteGate(self.db)

    def _commit(self, staging: Staging, decisions: Sequence[Decision]) -> None:
        super()._commit(staging, decisions)
        self.real.apply(decisions)
        if self.real.head.seq != len(self.trail):
            raise Violation(f"{len(self.trail)} rows are proved and {self.real.head.seq} are stored")

    def load(self) -> Snapshot:
        every = super().load()
        mine, real = self._not_over(every), self.real.load()
        if mine != real:
            wrong = [
                part.name for part in fields(real) if getattr(mine, part.name) != getattr(real, part.name)
            ]
            told = [f"{name}: {getattr(mine, name)}\n    stored: {getattr(real, name)}" for name in wrong]
            raise Violation("what was stored is not what was proved", told)
        return every

    def _not_over(self, every: Snapshot) -> Snapshot:
        """What a store must load, by the words of `Snapshot`."""
        open_in = {attempt.token.run for attempt in every.attempts}
        runs = tuple(run for run in every.runs if not run.terminal or run.number in open_in)
        numbers = {run.number for run in runs}
        holders = {attempt.worker for attempt in every.attempts}
        return replace(
            every,
            runs=runs,
            tasks=tuple(task for task in every.tasks if task.run in numbers),
            workers=tuple(
                worker
                for worker in every.workers
                if worker.health_phase is not Phase.CANCELLED or worker.id in holders
            ),
        )

    def outbox(self) -> Sequence[OutboxRow]:
        mine, real = super().outbox(), self.real.outbox()
        if [row[1:] for row in mine] != [row[1:] for row in real]:
            raise Violation(f"the outbox holds {real}, not {mine}")
        return mine

    def delivered(self, seqs: Sequence[int]) -> None:
        places = [place for place, row in enumerate(self.waiting) if row.seq in frozenset(seqs)]
        rows = self.real.outbox()
        super().delivered(seqs)
        self.real.delivered([rows[place].seq for place in places])

    def close(self) -> None:
        self.db.close()
