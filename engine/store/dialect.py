"""What SQLite needs that another database would not: every difference between dialects lives here."""

import sqlite3
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Integer,
    Table,
    bindparam,
    literal_column,
    type_coerce,
)
from sqlalchemy.dialects import sqlite

big = BigInteger().with_variant(Integer(), "sqlite")
"""A 64-bit integer; in SQLite every integer is one, and STRICT tables know no other word for it."""

COMPILED = sqlite.dialect(paramstyle="qmark")
"""Statements are compiled once with this, and run on the driver's own connection."""

WRITER_PRAGMAS = (
    "journal_mode=WAL",
    "foreign_keys=ON",
    "busy_timeout=30000",
    "wal_autocheckpoint=1000",
    "journal_size_limit=67108864",
    "recursive_triggers=ON",
    "trusted_schema=OFF",
)
READER_PRAGMAS = ("query_only=ON", "busy_timeout=30000", "trusted_schema=OFF")

WAL_RESET_FIXED = (3, 51, 3)
"""From 3.7.0 until this version two connections that write at once can corrupt a WAL database."""


def unindexed(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The column, out of reach of the planner, which knows no better than to use the first index it sees."""
    assert isinstance(column, Column)
    return type_coerce(literal_column(f"+{column.table.name}.{column.name}"), column.type)


def table_options(*, rowid: bool = True) -> dict[str, Any]:
    return {"sqlite_strict": True, "sqlite_with_rowid": rowid}


def upsert(table: Table, columns: tuple[str, ...], key: tuple[str, ...]) -> sqlite.Insert:
    """An insert that overwrites the row with the same key; not for entities, whose triggers refuse it."""
    found = sqlite.insert(table).values({name: bindparam(name) for name in columns})
    others = {name: found.excluded[name] for name in columns if name not in key}
    return found.on_conflict_do_update(index_elements=key, set_=others)


def insert_new(table: Table, columns: tuple[str, ...]) -> sqlite.Insert:
    """An insert that leaves a row with the same key as it is."""
    return sqlite.insert(table).values({name: bindparam(name) for name in columns}).on_conflict_do_nothing()


def count_up(table: Table, key: tuple[str, ...], value: str) -> sqlite.Insert:
    """An insert that adds to the row with the same key."""
    found = sqlite.insert(table).values({name: bindparam(name) for name in (*key, value)})
    return found.on_conflict_do_update(
        index_elements=key, set_={value: table.c[value] + found.excluded[value]}
    )


def linked_version() -> str:
    return sqlite3.sqlite_version


def has_wal_reset_bug() -> bool:
    return sqlite3.sqlite_version_info < WAL_RESET_FIXED
