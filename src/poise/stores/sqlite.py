"""A store in one SQLite file, for any number of processes on one machine.

One thread of each process writes. What waits for it is written together: every work has a savepoint of its own, and all
of them are told their answers after the one commit that makes them durable.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as TooLate
from pathlib import Path

from poise.errors import PoiseError, Unavailable
from poise.stores.base import Answer, Line, Transaction
from poise.stores.boot import Machine, this_machine
from poise.stores.migrations import MIGRATIONS, Migration
from poise.stores.sqlite_file import BUSY_S, connect, open_file, still_there
from poise.stores.sqlite_rows import SqliteTransaction, ask, explain
from poise.stores.tables import READ_SETS, READ_VERSION, journal_statement, lines_of, number_of
from poise.stores.waking import Bell

_TOGETHER_MAX = 32  # So many works share a commit; a longer queue is written in turns, so that others get the file.
_WATCH_S = 0.02  # How often the file is asked whether another process has written, while somebody waits for that.


class _Piece:
    """One work in the queue: it runs on the writer's thread, and its answer is told after the commit."""

    def __init__(self, name: str, run: Callable[[SqliteTransaction], Callable[[], None]], fail: Callable[[BaseException], None], starts: Callable[[], bool]) -> None:
        self.name, self.run, self.fail, self.starts = name, run, fail, starts


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
        self._reading = threading.Lock()
        self._bell = Bell()
        self._queue: queue.SimpleQueue[_Piece | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write_all, name=f"write {path.name}", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name=f"watch {path.name}", daemon=True)
        self._writer.start()
        self._watcher.start()

    def transact(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        """Run work on the writer's thread; it either starts within the time that a lock is waited for, or never."""
        self._require_open()
        assert threading.current_thread() is not self._writer, "a transaction cannot wait for another one"
        promise: Future[Answer] = Future()

        def run(tx: SqliteTransaction) -> Callable[[], None]:
            answer = work(tx)
            return lambda: promise.set_result(answer)

        self._queue.put(_Piece(name, run, promise.set_exception, promise.set_running_or_notify_cancel))
        try:
            return promise.result(self._busy_s)
        except TooLate:
            if promise.cancel():
                raise Unavailable(f"{self._file.path} had no time for this within {self._busy_s:g} s") from None
            return promise.result()
        except CancelledError:
            raise Unavailable(f"{self._file.path} is closed") from None

    def sets(self) -> list[str]:
        """Name all sets."""
        return [str(name) for (name,) in self._read(READ_SETS, ())]

    def journal(self, name: str, item: str | None = None, after: int = 0, most: int = 1000) -> list[Line]:
        """Read lines of the journal in their order."""
        values = (name, after, most) if item is None else (name, after, item, most)
        return lines_of(name, self._read(journal_statement(item), values))

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
        self._bell.close()
        self._queue.put(None)
        self._writer.join()
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
            return [tuple(each) for each in ask(self._reader, statement, values)]

    def _write_all(self) -> None:
        """Write what is queued, as much as is there at once."""
        while (piece := self._queue.get()) is not None:
            pieces = [piece]
            while len(pieces) < _TOGETHER_MAX:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    self._queue.put(None)
                    break
                pieces.append(more)
            self._write([each for each in pieces if each.starts()])

    def _write(self, pieces: list[_Piece]) -> None:
        """Commit works together. Their own errors undo them alone; an error of the file undoes them all."""
        told: list[tuple[_Piece, Callable[[], None]]] = []
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            still_there(self._file, self._connection)
            changed = False
            for piece in pieces:
                tx = SqliteTransaction(self._connection, piece.name, self._clock() + self._file.offset_s)
                ...
        except (sqlite3.Error, PoiseError) as error:
            ...

    def _watch(self) -> None:
        """Ask the file whether another process has written, while somebody waits for that."""
