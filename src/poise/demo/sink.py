"""Where the workers of the demo put their work: a database that lets no late writer in.

Law: of one item, the epochs of accepted writes never fall. A refused write is kept beside them, so that it can be seen.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from poise.errors import Fenced
from poise.hold.fencing import SqlGuard

_GUARD = SqlGuard()
_BUSY_S = 30.0  # A writer that is frozen in the middle of a write is waited for.
_TABLES = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=OFF",  # What is lost with the power is only the demo's.
    _GUARD.schema,
    "CREATE TABLE IF NOT EXISTS done (item TEXT PRIMARY KEY, times INTEGER NOT NULL, writer TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS refused (item TEXT, writer TEXT, epoch INTEGER, seen INTEGER)",
)


class Sink:
    """The database, opened by one process; one thread uses it."""

    def __init__(self, path: Path) -> None:
        """Open or make it."""
        self._database = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        for statement in _TABLES:
            self._database.execute(statement).fetchall()

    def write(self, item: str, epoch: int, writer: str) -> None:
        """Count one more piece of work, or raise `Fenced`: the check and the write are one transaction."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            refusal = self._put(item, epoch, writer)
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")
        if refusal is not None:
            raise refusal

    def _put(self, item: str, epoch: int, writer: str) -> Fenced | None:
        try:
            _GUARD.admit(self._ask, item, epoch)
        except Fenced as error:
            self._ask("INSERT INTO refused VALUES (?, ?, ?, ?)", (item, writer, epoch, error.seen))
            return error
        counted = "ON CONFLICT (item) DO UPDATE SET times = times + 1, writer = excluded.writer"
        self._ask(f"INSERT INTO done VALUES (?, 1, ?) {counted}", (item, writer))
        return None

    def done(self) -> int:
        """Count all work that was ever done."""
        row = self._ask("SELECT coalesce(sum(times), 0) FROM done", ())
        return int(str(row[0])) if row else 0

    def refused(self) -> int:
        """Count all late writes that were ever refused."""
        row = self._ask("SELECT count(*) FROM refused", ())
        return int(str(row[0])) if row else 0

    def close(self) -> None:
        """Let go of it."""
        self._database.close()

    def _ask(self, statement: str, values: tuple[str | int, ...]) -> Sequence[object] | None:
        row: tuple[object, ...] | None = self._database.execute(statement, values).fetchone()
        return row
