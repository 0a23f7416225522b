"""The entities as the tables have them, each column as it is stored."""

import sqlite3

from engine.core.records import Entity, Ref

Columns = dict[str, object]
Tables = dict[Ref, tuple[Columns, dict[str, Columns]]]
"""For each entity its row, and for a worker the rows of its regions by machine."""


def _rows(db: sqlite3.Connection, table: str) -> list[Columns]:
    cursor = db.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _ref(kind: Entity, row: Columns) -> Ref:
    match kind:
        case Entity.RUN:
            return Ref(kind, int(str(row["number"])))
        case Entity.TASK:
            return Ref(kind, (int(str(row["run"])), int(str(row["number"]))))
        case Entity.WORKER:
            return Ref(kind, str(row["id"]))
    return Ref(kind, str(row["tool"]))


def stored(db: sqlite3.Connection) -> Tables:
    """Every entity of a store."""
    regions: dict[object, dict[str, Columns]] = {}
    for row in _rows(db, "worker_regions"):
        regions.setdefault(row["worker"], {})[str(row["machine"])] = row
    return {
        _ref(kind, row): (row, regions.get(row["id"], {}) if kind is Entity.WORKER else {})
        for kind in Entity
        for row in _rows(db, f"{kind}s")
    }
