"""A store in one SQLite file, for any number of processes on one machine.

One thread of each process writes. What waits for it is written together: every work has a savepoint of its own, and all
of them are told their answers after the one commit that makes them durable.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from poise.errors import PoiseError, Unavailable
from poise.model.ownership import Line, SetRow
from poise.stores.base import Answer, Transaction
from poise.stores.batches import Batches, Piece, fail
from poise.stores.boot import Machine, this_machine
from poise.stores.migrations import MIGRATIONS, Migration
from poise.stores.sqlite_file import BUSY_S, begin, connect, open_file, still_there
from poise.stores.sqlite_rows import SqliteTransaction, ask, explain
from poise.stores.tables import READ_EVENTS, READ_SETS, READ_VERSION, events_of, journal_statement, lines_of, number_of
from poise.stores.waking import Bell

_WATCH_S = 0.05  # How often the file is asked whether another process has written, while somebody waits for that.


class SqliteStore:
    """Keeps everything in one file."""

    def __init__(
        self,
        path: Path,
        *,
        machine: Machine | None = None,
        busy_s: float = BUSY_S,
        migrations: tuple[Migration, ...] = MIGRATIONS,
        adopt: bool = False,
    ) -> None:
        """Open or make the file; `adopt` takes over one that another machine has used and is done with."""
        machine = machine or this_machine()
        self._file = open_file(path, machine, migrations, busy_s=busy_s, adopt=adopt)
        self._clock, self._busy_s, self._process = machine.clock, busy_s, os.getpid()
        self._connection, self._reader = connect(path, busy_s), connect(path, busy_s)
        self._connection.execute("PRAGMA busy_timeout = 0")  # From now on `begin` waits, in its own steps.
        self._reader.execute("PRAGMA query_only = ON")
        self._reading = threading.Lock()
        self._bell = Bell()
        self._batches = Batches(self._write, threads=1, start_s=busy_s, where=str(path))
        self._watcher = threading.Thread(target=self._watch, name=f"watch {path.name}", daemon=True)
        self._watcher.start()

    def transact(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        """Run work on the writer's thread; it either starts within the time that a lock is waited for, or never."""
        self._require_open()
        return self._batches.do("", name, work)

    def view(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        """Run work beside the writers: the log keeps what the file was when the first statement read it."""
        self._require_open()
        with self._reading:
            # The time is read first, so that no lease is judged by a later time than the facts are of.
            tx = SqliteTransaction(self._reader, self._file.path, name, self._clock() + self._file.offset_s)
            try:
                self._reader.execute("BEGIN")
                still_there(self._file, self._reader)
                return work(tx)
            except sqlite3.Error as error:
                raise explain(error, self._file.path) from error
            finally:
                if self._reader.in_transaction:
                    self._reader.execute("ROLLBACK")

    def sets(self) -> list[str]:
        """Name all sets that have not ended."""
        return [str(name) for (name,) in self._read(READ_SETS, ())]

    def journal(self, name: str, item: str | None = None, after: int = 0, most: int = 1000) -> list[Line]:
        """Read lines of the journal in their order."""
        values = (name, after, most) if item is None else (name, after, item, most)
        return lines_of(name, self._read(journal_statement(item), values))

    def events(self, after: tuple[int, int], most: int = 1000) -> list[Line]:
        """Read lines of all sets in the order of their commits."""
        version, number = after
        return events_of(self._read(READ_EVENTS, (version, version, number, most)))

    def version(self) -> int:
        """Count the commits of all processes that changed more than leases."""
        return number_of(self._read(READ_VERSION, ()))

    def wait(self, version: int, timeout_s: float) -> int:
        """Wait for a commit of any process."""
        return self._bell.wait_for_change(version, self.version, timeout_s)

    def close(self) -> None:
        """Finish what is queued, then let go of the file."""
        if self._bell.closed or self._process != os.getpid():
            return
        self._batches.close()
        self._bell.close()
        self._watcher.join()
        self._reader.close()
        self._connection.close()
        os.close(self._file.lock)

    def _require_open(self) -> None:
        if self._process != os.getpid():
            raise Unavailable(f"{self._file.path} was opened before a fork: open it again in this process")
        if self._bell.closed:
            raise Unavailable(f"{self._file.path} is closed")

    def _read(self, statement: str, values: tuple[str | int, ...]) -> list[tuple[object, ...]]:
        self._require_open()
        with self._reading:
            return [tuple(each) for each in ask(self._reader, self._file.path, statement, values)]

    def _write(self, pieces: list[Piece]) -> None:
        """Commit works together. An error of a work undoes it alone; an error of the file undoes them all."""
        try:
            begin(self._connection, self._busy_s)
            still_there(self._file, self._connection)
            jobs: dict[str, SetRow] = {}
            finished = [(piece, tx.changed) for piece in pieces if (tx := self._run(piece, jobs)) is not None]
            self._connection.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            return fail(pieces, explain(error, self._file.path))
        for piece, _ in finished:
            piece.done.set_result(None)
        if any(changed for _, changed in finished):
            self._bell.ring()
        return None

    def _run(self, piece: Piece, jobs: dict[str, SetRow]) -> SqliteTransaction | None:
        """Run one work up to its savepoint; None where it failed and was undone.

        Nobody else writes before the commit: what one work knows of its set is true for the next one.
        """
        self._connection.execute("SAVEPOINT piece")
        now_s, job = self._clock() + self._file.offset_s, jobs.pop(piece.name, None)
        tx = SqliteTransaction(self._connection, self._file.path, piece.name, now_s, job)
        try:
            piece.run(tx)
            tx.finish()
        except BaseException as error:
            if not self._connection.in_transaction:
                raise  # SQLite has undone everything by itself: the file failed, not only this work.
            self._connection.execute("ROLLBACK TO piece")
            self._connection.execute("RELEASE piece")
            piece.done.set_exception(error)
            return None
        self._connection.execute("RELEASE piece")
        if tx.known_job is not None:
            jobs[piece.name] = tx.known_job
        return tx

    def _watch(self) -> None:
        """Ask the file whether another process has written, while somebody waits for that."""
        seen = -1
        while self._bell.wait_for_waiters():
            try:
                with self._reading:
                    now = number_of(ask(self._reader, self._file.path, "PRAGMA data_version", ()))
            except PoiseError:
                now = seen - 1  # Whoever waits looks for himself, and hears what is wrong.
            if now != seen:
                self._bell.ring()
            seen = now
            self._bell.rest(_WATCH_S)
