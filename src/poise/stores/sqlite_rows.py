"""Talking to SQLite: the transaction on its tables, and what its errors mean."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from poise.errors import PoiseError, Unavailable, invalid
from poise.model.ownership import SetRow
from poise.stores.tables import SqlTransaction, Value

_MEANINGS = {
    sqlite3.SQLITE_BUSY: "is locked by another process for too long",
    sqlite3.SQLITE_LOCKED: "is locked by another process for too long",
    sqlite3.SQLITE_READONLY: "cannot be written",
    sqlite3.SQLITE_PERM: "cannot be written",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk fails",
    sqlite3.SQLITE_CORRUPT: "is damaged: restore a backup",
}


class SqliteTransaction(SqlTransaction):
    """The facts of one set in a SQLite file."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, name: str, now_s: float, job: SetRow | None = None
    ) -> None:
        super().__init__(name, now_s, job)
        self._connection, self._path = connection, path

    def ask(self, statement: str, values: Sequence[Value]) -> Sequence[Sequence[object]]:
        assert self._connection.in_transaction, "this transaction is over"
        try:
            return ask(self._connection, self._path, statement, values)
        except PoiseError as error:
            self._failed = error
            raise

    def tell(self, statement: str, values: Sequence[Sequence[Value]]) -> int:
        assert self._connection.in_transaction, "this transaction is over"
        if not values:
            return 0
        try:
            return self._connection.executemany(statement, values).rowcount
        except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
            self._failed = explain(error, self._path)
            raise self._failed from error


def ask(
    connection: sqlite3.Connection, path: Path, statement: str, values: Sequence[Value]
) -> Sequence[Sequence[object]]:
    """Read all rows of one statement."""
    try:
        return connection.execute(statement, values).fetchall()
    except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
        raise explain(error, path) from error


def explain(error: BaseException, path: Path) -> PoiseError:
    """Say in one line what an error means; whatever is Poise's own is left as it is."""
    if isinstance(error, PoiseError):
        return error
    if isinstance(error, OverflowError | UnicodeEncodeError):
        return invalid("$", f"this cannot be stored: {error}")
    if isinstance(error, OSError):
        return Unavailable(f"{path} cannot be used: {error.strerror}")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # The low byte is the kind, the rest the detail.
    if code == sqlite3.SQLITE_NOTADB:
        return invalid("$.db", f"{path} is no database")
    return Unavailable(f"{path} {_MEANINGS[code]}" if code in _MEANINGS else f"{path}: {error}")
