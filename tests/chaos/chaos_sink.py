"""The guarded sink: one table of the largest epoch of each item, and a log of every write, accepted or refused.

It runs as `python -I -S chaos_sink.py PIPE FILE`. All writers share one pipe, so the log has one order: the one in
which the writes were made.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import NamedTuple

_SCHEMA = """
CREATE TABLE seen (item TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
CREATE TABLE log (
    number INTEGER PRIMARY KEY, kind TEXT, item TEXT, epoch INTEGER, pid INTEGER, holder TEXT, child_s REAL,
    sink_s REAL, accepted INTEGER
);
"""
# The guard: one statement that answers a row if the epoch is not over, and nothing if it is.
_ADMIT = """
INSERT INTO seen VALUES (?, ?)
ON CONFLICT (item) DO UPDATE SET epoch = excluded.epoch WHERE excluded.epoch >= epoch
RETURNING epoch
"""
_LOG = "INSERT INTO log (kind, item, epoch, pid, holder, child_s, sink_s, accepted) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_READ_MAX = 1 << 16


class Entry(NamedTuple):
    """One line of the log. `holder` is a worker process: its name and its watchdog. Kinds: start, write, stop."""

    number: int
    kind: str
    item: str
    epoch: int
    pid: int
    holder: str
    child_s: float
    sink_s: float
    accepted: bool

    @property
    def member(self) -> str:
        """The name of the worker, which a later process may have too."""
        return self.holder.partition("/")[0]


class Sink:
    """The table and the log, in a database of its own."""

    def __init__(self, path: Path) -> None:
        """Make the file; a crash of the machine is not what is tested here."""
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=OFF")
        self._database.executescript(_SCHEMA)

    def take(self, lines: list[str], now_s: float) -> None:
        """Judge and log what has arrived; only writes are guarded."""
        self._database.execute("BEGIN")
        for line in lines:
            kind, item, epoch, pid, holder, child_s = line.split()
            admitted = kind != "write" or self._database.execute(_ADMIT, (item, int(epoch))).fetchone() is not None
            row = (kind, item, int(epoch), int(pid), holder, float(child_s), now_s, admitted)
            self._database.execute(_LOG, row)
        self._database.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()


def read_log(path: Path, after: int = 0) -> list[Entry]:
    """Read the log from another process, in its order."""
    database = sqlite3.connect(path, timeout=10)
    try:
        rows = database.execute("SELECT * FROM log WHERE number > ? ORDER BY number", (after,)).fetchall()
    finally:
        database.close()
    return [Entry._make((*row[:-1], bool(row[-1]))) for row in rows]


def serve(pipe: int, path: Path) -> None:
    """Take writes for ever; whoever started the sink ends it."""
    sink, heard = Sink(path), b""
    while True:
        heard += os.read(pipe, _READ_MAX)
        now_s = time.monotonic()
        *lines, heard = heard.split(b"\n")
        sink.take([line.decode() for line in lines], now_s)


if __name__ == "__main__":
    # Open for writing too: otherwise the pipe would end with its first writers.
    serve(os.open(sys.argv[1], os.O_RDWR), Path(sys.argv[2]))
