"""Stores that are broken on purpose: for each the test of the promise that it breaks must fail."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
from tests.contract import test_contract as promises
from tests.contract import test_contract_together as together
from tests.store_places import Place, owned

from poise.model.ownership import Line, SetRow
from poise.stores import tables
from poise.stores.base import Transaction
from poise.stores.batches import Piece
from poise.stores.sqlite import SqliteStore
from poise.stores.sqlite_rows import SqliteTransaction
from poise.stores.tables import SqlTransaction
from poise.stores.waking import Bell


class LateConnection(sqlite3.Connection):
    """A connection that locks the file only when it writes."""

    def execute(self, sql: str, parameters: Sequence[str | int | float | None] = (), /) -> sqlite3.Cursor:  # type: ignore[override]  # Only what the store uses.
        return super().execute(sql.replace("BEGIN IMMEDIATE", "BEGIN DEFERRED"), parameters)


@pytest.fixture
def file(tmp_path: Path) -> Place:
    return Place("sqlite", str(tmp_path / "poise.db"))


def must_fail(place: Place, test: Callable[[], None]) -> None:
    """See a test of the contract fail."""
    try:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            test()
    finally:
        place.close()


def test_without_compare_and_set(file: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqlTransaction, "_require", lambda *_: None)
    work = promises.write(owned(revision=4))
    must_fail(file, lambda: promises.test_a_write_over_anything_else_is_a_conflict(file.open(), work))


def test_with_renewals_over_any_epoch(file: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_RENEW_ROW", tables._RENEW_ROW.replace("epoch = ?", "coalesce(?, 0) >= 0"))
    work = promises.renew(owned(revision=2, epoch=8))
    must_fail(file, lambda: promises.test_a_write_over_anything_else_is_a_conflict(file.open(), work))


def test_with_terms_that_may_fall(file: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    statement = tables._WRITE_LEADER.partition(" WHERE excluded.term")[0]
    monkeypatch.setattr(tables, "_WRITE_LEADER", statement)
    work = promises.lead_late
    must_fail(file, lambda: promises.test_a_write_over_anything_else_is_a_conflict(file.open(), work))


def test_without_undoing_a_work_that_fails(file: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    class Kept(SqliteStore):
        def _run(self, piece: Piece, jobs: dict[str, SetRow]) -> SqliteTransaction | None:
            tx = SqliteTransaction(self._connection, self._file.path, piece.name, 0.0, jobs.get(piece.name))
            try:
                piece.run(tx)
            except promises.Halt as error:
                piece.done.set_exception(error)
                return None
            return tx

    monkeypatch.setattr("poise.stores.open.SqliteStore", Kept)
    must_fail(file, lambda: promises.test_an_error_of_the_work_leaves_nothing(file.open()))


def test_with_what_a_failed_work_knew_of_its_set(file: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    class Credulous(SqliteStore):
        def _run(self, piece: Piece, jobs: dict[str, SetRow]) -> SqliteTransaction | None:
            known: list[SetRow | None] = []

            def run(tx: Transaction) -> None:
                try:
                    piece.run(tx)
                finally:
                    known.append(tx.job())

            done = super()._run(piece._replace(run=run), jobs)
            if known and known[0] is not None:
                jobs[piece.name] = known[0]
            return done

    monkeypatch.setattr("poise.stores.open.SqliteStore", Credulous)
    must_fail(file, lambda: together.test_what_a_failed_work_wrote_is_unknown_to_those_committed_with_it(file))


def test_with_two_processes_in_one_set(file: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that locks only when it writes reads what is no longer true."""

    def connect(path: Path, busy_s: float) -> sqlite3.Connection:
        return sqlite3.connect(
            path, timeout=busy_s, isolation_level=None, check_same_thread=False, factory=LateConnection
        )

    monkeypatch.setattr("poise.stores.sqlite.connect", connect)
    must_fail(file, lambda: together.test_store_time_is_read_once_the_set_is_free(file))


def test_without_tombstones(file: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tables, "_WRITE_TOMBSTONE", "DELETE FROM poise_tombstones WHERE set_name = ? AND id = ? AND epoch = ?"
    )
    must_fail(file, lambda: promises.test_a_tombstone_keeps_the_epoch_until_the_item_is_back(file.open()))


def test_with_a_journal_of_its_own_transaction(file: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is written although its transition was not."""
    real = SqlTransaction.write_lines

    def write_lines(self: SqlTransaction, lines: Iterable[Line]) -> None:
        assert isinstance(self, SqliteTransaction)
        real(self, lines)
        self._connection.execute("COMMIT")
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("SAVEPOINT piece")

    monkeypatch.setattr(SqlTransaction, "write_lines", write_lines)
    must_fail(file, lambda: promises.test_lines_are_numbered_within_their_set_without_gaps(file.open()))


def test_without_a_bell(file: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bell, "ring", lambda _: None)
    monkeypatch.setattr(together, "_SOON_S", 0.3)
    monkeypatch.setattr(together, "_PATIENCE_S", 0.8)
    must_fail(file, lambda: together.test_a_commit_of_another_thread_wakes_every_waiter(file))


def test_with_the_wall_clock(file: Place, monkeypatch: pytest.MonkeyPatch) -> None:

    def wall_clock_s() -> float:
        return time.time()

    monkeypatch.setattr("poise.stores.boot.boot_s", wall_clock_s)
    must_fail(file, lambda: promises.test_the_wall_clock_of_this_process_changes_nothing(file.open(), monkeypatch))
