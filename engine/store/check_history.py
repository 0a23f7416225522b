"""The records held against the trail: each entity's rows, laid over each other, must give what is stored.

The trail is read once, entity by entity, in the order of an index, so memory grows with one entity and not
with the store.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from engine.core.records import Entity, Ref
from engine.store import statements
from engine.store.codec import ref_values
from engine.store.fold import Columns, Folded, fold
from engine.store.gate import AuditRow
from engine.store.loading import TRAIL, audit_row, who
from engine.store.tables import BY_ENTITY

Raw = tuple[Any, ...]

RAW = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What folding raises where a row tells what no engine would tell."""

_RUN, _TASK, _NAME, _MACHINE = 5, 6, 7, 9
"""Places of the entity in a row of `TRAIL`."""
_ORDERS = (
    (f"{TRAIL} AND a.name IS NULL ORDER BY a.run, a.task, a.seq", (_RUN, _TASK)),
    (f"{TRAIL} AND a.name IS NOT NULL ORDER BY a.name, a.seq", (_NAME,)),
)
_DECIDED = "created"
"""By the clock of whoever decided, which may be behind the trail's; the trail never goes back."""
_REGION = ("worker", "machine", "state", "version", "entered", "updated")
_ATTEMPT = ("tool", "sub_run", "ended", "outcome", "exit_code")
"""What the trail tells of an attempt. Its worker may change and its process starts without a row."""
_LONGEST = 60


def differences(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Each entity that is not what its trail tells, with the columns that differ."""
    for sql, places in _ORDERS:
        rows = db.execute(sql)
        for _, group in groupby(rows, lambda row, places=places: tuple(row[place] for place in places)):  # type: ignore[misc]
            yield from _entity(db, group)


def _entity(db: sqlite3.Connection, raw: Iterable[Raw]) -> Iterator[tuple[str, str]]:
    """Rows of one run, one task, or of all that has the same name."""
    attempts: dict[str, Columns] = {}
    last: list[Raw] = []
    try:
        folded = fold(_watched(raw, last, attempts))
    except RAW as error:
        yield _label(last[0]), f"row {last[0][0]} cannot be read: {type(error).__name__}: {error}"
        return
    for ref, entity in folded.items():
        label = _label(last[0], ref)
        wrong = _wrong(db, ref, entity)
        if ref.kind in (Entity.RUN, Entity.TASK):
            wrong += _wrong_hold(db, ref, entity)
            yield from _attempts(db, ref, attempts)
        if wrong:
            yield label, "; ".join(wrong)


def _watched(raw: Iterable[Raw], last: list[Raw], attempts: dict[str, Columns]) -> Iterator[AuditRow]:
    """The rows; on the way the last one is kept, and what they tell of attempts."""
    for told in raw:
        last[:] = [told]
        row = audit_row(told)
        closed, opened = row.metadata.get("closes"), row.metadata.get("opens")
        if isinstance(closed, Mapping):
            attempts.setdefault(closed["token"], {}).update(
                ended=row.at, outcome=closed.get("outcome"), exit_code=closed.get("exit_code")
            )
        if isinstance(opened, Mapping):
            attempts[opened["token"]] = dict.fromkeys(_ATTEMPT) | {
                name: opened[name] for name in ("tool", "sub_run") if name in opened
            }
        yield row


# ---- one entity


def _wrong(db: sqlite3.Connection, ref: Ref, entity: Folded) -> list[str]:
    table = BY_ENTITY[ref.kind].name
    stored = _row(db, table, ref.key if isinstance(ref.key, tuple) else (ref.key,))
    if stored is None:
        return ["the trail tells of it, and it is not there"]
    wrong = _compared(stored, entity.columns)
    for machine, told in entity.regions.items():
        region = _row(db, "worker_regions", (ref.key, machine))
        wrong += [f"{machine} is missing"] if region is None else _compared(region, told, f"{machine}: ")
    return wrong


def _wrong_hold(db: sqlite3.Connection, ref: Ref, entity: Folded) -> list[str]:
    run, task, _ = ref_values(ref)
    found = db.execute(
        "SELECT approval, met, opened_seq FROM holds WHERE run = ? AND task = ?", (run, task)
    ).fetchone()
    if found is None or entity.hold is None:
        return [] if found is entity.hold else [_differs("hold", found, entity.hold)]
    approval, met, opened = found
    votes = db.execute(
        "SELECT actor, at, reason FROM decisions"
        " WHERE run = ? AND task = ? AND verdict = 'approved' AND seq > ? ORDER BY seq",
        (run, task, opened),
    )
    stored: Columns = {"approval": _parsed(approval), "votes": [list(vote) for vote in votes], "met": met}
    return _compared(stored, dict(entity.hold), "hold: ")


def _attempts(db: sqlite3.Connection, ref: Ref, told: dict[str, Columns]) -> Iterator[tuple[str, str]]:
    run, task, _ = ref_values(ref)
    stored: dict[str, Columns] = {}
    for attempt, purpose, turn, *values in db.execute(
        f"SELECT attempt, purpose, round, {', '.join(_ATTEMPT)} FROM attempts WHERE run = ? AND task = ?",
        (run, task),
    ):
        plain = f"{run}.{task}.{attempt}"
        token = plain if purpose == "work" else f"{plain}+{purpose}{turn}"
        stored[token] = dict(zip(_ATTEMPT, values, strict=True))
    for token in sorted(stored.keys() | told.keys()):
        if token not in told or token not in stored:
            what = "the trail does not tell of it" if token in stored else "the trail tells of it alone"
            yield token, f"an attempt: {what}"
        elif wrong := _compared(stored[token], told[token]):
            yield token, "; ".join(wrong)


# ---- comparing


def _row(db: sqlite3.Connection, table: str, key: tuple[object, ...]) -> Columns | None:
    where = " AND ".join(f"{column} = ?" for column in statements.KEYS[table])
    cursor = db.execute(f"SELECT * FROM {table} WHERE {where}", key)
    found = cursor.fetchone()
    if found is None:
        return None
    return {column[0]: value for column, value in zip(cursor.description, found, strict=True)}


def _compared(stored: Columns, told: Columns, where: str = "") -> list[str]:
    return [
        _differs(f"{where}{name}", stored.get(name), told.get(name))
        for name in sorted(stored.keys() | told.keys())
        if stored.get(name) != told.get(name) and not _behind(name, stored.get(name), told.get(name))
    ]


def _behind(name: str, stored: object, told: object) -> bool:
    return name == _DECIDED and isinstance(stored, int) and isinstance(told, int) and stored < told


def _differs(name: str, stored: object, told: object) -> str:
    return f"{name} is {_short(stored)}, and the trail tells {_short(told)}"


def _short(value: object) -> str:
    shown = "nothing" if value is None else str(value)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _label(raw: Raw, ref: Ref | None = None) -> str:
    """As `check_rules` calls it. A worker and a breaker may have the same name."""
    named, label = who(*raw[_RUN : _MACHINE + 1])
    kind = (ref or named).kind
    return label if kind in (Entity.RUN, Entity.TASK) else f"{kind.value} {label}"
