"""Places where stores live, so that one test can open the same one several times, also from other processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from poise.clock import boot_s
from poise.model.ownership import OwnerState, Row, SetRow
from poise.stores.base import Answer, Store, Transaction
from poise.stores.boot import Machine
from poise.stores.memory import MemoryStore
from poise.stores.open import open_store
from poise.stores.sqlite import SqliteStore

ROOT = Path(__file__).parent.parent


class Place:
    """One place; everything that was opened or started there is ended with the test."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.url = kind, url
        self._stores: list[Store] = []
        self._children: list[subprocess.Popen[str]] = []

    def open(self) -> Store:
        """Open the place once more; what is in memory can only be shared."""
        if self.kind == "memory" and self._stores:
            return self._stores[0]
        store = MemoryStore(boot_s) if self.kind == "memory" else open_store(self.url)
        self._stores.append(store)
        return store

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start another process on this place; `tests/store_child.py` says what it can do."""
        command = [sys.executable, "-m", "tests.store_child", self.url, *words]
        child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._children.append(child)
        return child

    def close(self) -> None:
        """End everything."""
        for child in self._children:
            child.kill()
            child.communicate()
        for store in self._stores:
            store.close()


def hears(child: subprocess.Popen[str]) -> str:
    """Read one line that a child says."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def do(store: Store, work: Callable[[Transaction], Answer], name: str = "orders") -> Answer:
    """Run work on the set of most tests."""
    return store.transact(name, work)


def put(store: Store, *rows: Row, name: str = "orders") -> None:
    """Write rows."""
    store.transact(name, lambda tx: tx.write_rows(rows))


def make_set(store: Store, name: str = "orders") -> None:
    """Write a set of no items."""
    store.transact(name, lambda tx: tx.write_job(SetRow(name=name, revision=1)))


def owned(item: str = "0", *, revision: int = 1, epoch: int = 7, owner: str = "n1") -> Row:
    """Make a row that has an owner."""
    return Row(
        id=item,
        state=OwnerState.ASSIGNED,
        confirmed=True,
        owner=owner,
        owner_incarnation=3,
        epoch=epoch,
        lease_until_s=100.5,
        granted_s=10.0,
        offers={owner: 2},
        since_s=90.25,
        reason="furthest below its share",
        plan=4,
        revision=revision,
    )


def machine(boot_id: str = "boot 1", now_s: float = 1000.0, machine_id: str = "m1") -> Machine:
    """Make a machine whose clock stands still."""
    return Machine(machine_id=machine_id, boot_id=boot_id, clock=lambda: now_s)


def used(path: Path, by: Machine | None = None) -> None:
    """Leave a file with one set in it."""
    store = SqliteStore(path, machine=by or machine())
    make_set(store)
    put(store, owned())
    store.close()
