"""A worker freezes between its last look at the clock and its write. It wakes up too late, and the sink refuses it.

Run it: python examples/fenced_writes.py
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from poise.errors import Fenced
from poise.hold.changes import Lost
from poise.hold.fencing import SqlGuard
from poise.hold.sync import SyncMember
from poise.jobs.coordinator import Coordinator
from poise.model.ownership import SetRow, Terms
from poise.move.executor import put_set
from poise.stores.open import open_store

GUARD = SqlGuard()


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Sink:
    """A table of orders in a database of its own, whose guard has seen every epoch that ever wrote to it."""

    def __init__(self, path: Path) -> None:
        """Open or make it."""
        self.database = sqlite3.connect(path)
        self.database.execute(GUARD.schema)
        self.database.execute("CREATE TABLE IF NOT EXISTS orders (item TEXT, epoch INTEGER, writer TEXT)")

    def ask(self, statement: str, values: tuple[str | int, ...]) -> Sequence[object] | None:
        """Run one statement on the open transaction."""
        row: tuple[object, ...] | None = self.database.execute(statement, values).fetchone()
        return row

    def write(self, item: str, epoch: int, writer: str) -> None:
        """Write if the epoch is not over: the check and the write are one transaction."""
        with self.database:
            GUARD.admit(self.ask, item, epoch)
            self.database.execute("INSERT INTO orders VALUES (?, ?, ?)", (item, epoch, writer))


def work(name: str, folder: Path, *, freeze: bool) -> None:
    """Hold the one item of the set, write to the sink, and perhaps freeze before writing again."""
    sink = Sink(folder / "sink.db")
    with SyncMember(f"sqlite:///{folder / 'poise.db'}", set="orders", name=name, margin_s=0.5, stop_s=0.5) as member:
        for change in member.changes():
            if isinstance(change, Lost):
                change.ack()
                continue
            sink.write(change.item, change.epoch, name)
            say(f"{name:8}wrote item {change.item} at epoch {change.epoch}")
            if not freeze:
                return
            assert member.epoch(change.item) == change.epoch  # All is well; and just now the machine stands still.
            os.kill(os.getpid(), signal.SIGSTOP)
            try:
                sink.write(change.item, change.epoch, name)
                say(f"{name:8}overwrote what another one had written")
            except Fenced as error:
                say(f"{name:8}woke up, and its late write was refused: {error}")
            return


def lead(url: str, done: threading.Event) -> None:
    """Plan the set until it is over."""
    store = open_store(url)
    terms = Terms(lease_s=2, grace_s=1)
    store.transact("orders", lambda tx: put_set(tx, SetRow(name="orders", count=1, terms=terms)))
    coordinator = Coordinator(store, "leader")
    while not done.wait(0.05):
        coordinator.cycle("orders")
    store.close()


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """Start a worker: this file again."""
    return subprocess.Popen([sys.executable, __file__, *arguments])


def show() -> None:
    """Let the first worker freeze, the second one take over, and the first one wake up."""
    with tempfile.TemporaryDirectory() as folder:
        done = threading.Event()
        leader = threading.Thread(target=lead, args=(f"sqlite:///{folder}/poise.db", done))
        leader.start()
        threading.Event().wait(0.5)
        first = start("first", folder, "freeze")
        os.waitpid(first.pid, os.WUNTRACED)
        say("first   is frozen; its lease runs out")
        second = start("second", folder)
        second.wait()
        first.send_signal(signal.SIGCONT)
        first.wait()
        done.set()
        leader.join()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(sys.argv[1], Path(sys.argv[2]), freeze="freeze" in sys.argv[3:])
    else:
        show()
