"""A set in a store with a coordinator beside it, for tests of members that really run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from poise.clock import boot_s
from poise.errors import Conflict, Unavailable
from poise.jobs.coordinator import Coordinator
from poise.model.ownership import Row, SetRow, Terms
from poise.move.executor import put_set
from poise.stores.base import Store
from poise.stores.memory import MemoryStore

SHORT = Terms(lease_s=2.0, grace_s=1.0, release_s=10.0, restart_grace_s=5.0)
PATIENCE_S = 15.0


def put(store: Store, count: int, terms: Terms = SHORT, name: str = "orders") -> None:
    """Create or change the set of a test."""
    store.transact(name, lambda tx: put_set(tx, SetRow(name=name, count=count, terms=terms)))


def rows(store: Store, name: str = "orders") -> dict[str, Row]:
    """Read the rows of the set."""
    return store.transact(name, lambda tx: tx.rows())


def owners(store: Store, name: str = "orders") -> dict[str, str | None]:
    """Read who owns what."""
    return {item: row.owner for item, row in rows(store, name).items()}


@contextmanager
def leading(store: Store, name: str = "orders") -> Iterator[None]:
    """Run a coordinator in a thread, while the block runs."""
    done = threading.Event()

    def plan() -> None:
        coordinator = Coordinator(store, "leader")
        while not done.wait(0.03):
            try:
                coordinator.cycle(name)
            except (Conflict, Unavailable):
                continue

    thread = threading.Thread(target=plan, name="leader")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def led_set(count: int, terms: Terms = SHORT) -> Iterator[MemoryStore]:
    """Make a set in memory that somebody leads."""
    store = MemoryStore(boot_s)
    put(store, count, terms)
    with leading(store):
        yield store


async def until(met: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait for something that must come."""
    last_s = boot_s() + patience_s
    while not met():
        assert boot_s() < last_s, "it did not come in time"
        await asyncio.sleep(0.01)
