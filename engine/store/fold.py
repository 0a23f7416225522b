"""The trail as records: laying what each row tells over what was told before gives the row of the tables.

Pure, and it can stop at a moment: what an entity was then is the fold of the rows until then.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.core.records import Entity, Ref
from engine.store.codec import scrubbed
from engine.store.gate import AuditRow
from engine.store.tables import BY_ENTITY

Columns = dict[str, object]

BESIDE = frozenset(("opens", "closes", "timers", "data", "hold"))
"""What a row tells that is not a column of its entity: attempts, timers, evidence, and the hold."""


@dataclass(slots=True)
class Folded:
    """An entity as its trail tells it, column by column."""

    ref: Ref
    seq: int = 0
    """The last row that was laid over it."""
    columns: Columns = field(default_factory=dict)
    regions: dict[str, Columns] = field(default_factory=dict)
    """Of a worker: the rows of its regions, by machine."""
    hold: Mapping[str, object] | None = None
    """What it waits or waited for, with its votes."""

    def lay(self, row: AuditRow) -> None:
        """What this row changed."""
        created = row.from_state is None and row.to_state is not None
        if created and not self.columns:
            self.columns = _blank(row)
        self.seq = row.seq
        told = {name: scrubbed(value) for name, value in row.metadata.items() if name not in BESIDE}
        if self.ref.kind is Entity.WORKER:
            self._lay_worker(row, told, created)
        else:
            self.columns |= told | {"updated": row.at}
            if row.to_state is not None:
                self.columns |= _standing(row)
        if "hold" in row.metadata:
            hold = row.metadata["hold"]
            self.hold = hold if isinstance(hold, Mapping) else None

    def _lay_worker(self, row: AuditRow, told: Columns, created: bool) -> None:
        """A worker is born with each of its regions, and its own row is written with the first."""
        if (created and not self.regions) or (not created and (told or row.to_state is None)):
            self.columns |= told | {"updated": row.at}
        if row.to_state is not None:
            self.regions[row.machine] = {"worker": self.ref.key, "updated": row.at} | _standing(row)


def fold(rows: Iterable[AuditRow], *, until: int | None = None, last: int | None = None) -> dict[Ref, Folded]:
    """The entities that these rows tell of. The rows of an entity come in their order, from its creation.

    `until` is the first moment that no longer counts, `last` the last row that does.
    """
    found: dict[Ref, Folded] = {}
    for row in rows:
        if (until is not None and row.at >= until) or (last is not None and row.seq > last):
            continue
        if row.ref not in found:
            found[row.ref] = Folded(row.ref)
        found[row.ref].lay(row)
    return found


def _standing(row: AuditRow) -> Columns:
    return {"machine": row.machine, "state": row.to_state, "version": row.version, "entered": row.at}


def _blank(row: AuditRow) -> Columns:
    """A new row of the entity's table: its key, and what the table gives where nothing is told."""
    ref = row.ref
    table = BY_ENTITY[ref.kind]
    keys = [column.name for column in table.primary_key.columns]
    found: Columns = {
        column.name: 0 if column.server_default is not None else None for column in table.columns
    }
    found |= dict(zip(keys, ref.key if isinstance(ref.key, tuple) else (ref.key,), strict=True))
    return found
