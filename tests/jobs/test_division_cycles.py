"""A ReplicaDivision on a server: fleet debt for what is new, and a drift that is repaired a cycle at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise

import pytest

from poise.clock import boot_s
from poise.documents import load
from poise.jobs import running
from poise.jobs.debts import Debts
from poise.jobs.running import Running
from poise.jobs.stored import put_document, read_document, write_status
from poise.model import DivisionRecord, ReplicaDivision
from poise.model.replica_division import ReplicaDivisionStatus
from poise.stores.memory import MemoryStore

SET = "ReplicaDivision/shop"
CYCLE_S = 0.4


def put(store: MemoryStore, workloads: dict[str, int], clusters: str, moves_max: int = 0) -> None:
    listed = ", ".join(f"{{name: {name}, replicas: {replicas}}}" for name, replicas in workloads.items())
    named = ", ".join(f"{{name: {name}}}" for name in clusters)
    spec = f"{{clusters: [{named}], workloads: [{listed}], movesMax: {moves_max}}}"
    text = f"{{kind: ReplicaDivision, metadata: {{name: shop}}, spec: {spec}}}"
    put_document(store, load(text, "test")[0], datetime.now(UTC))


def totals(store: MemoryStore) -> dict[str, int]:
    found = read_document(store, "ReplicaDivision", "shop", datetime.now(UTC)).document
    assert isinstance(found, ReplicaDivision)
    results = [record.result for record in found.status.divisions.values()]
    return {cluster: sum(result.get(cluster, 0) for result in results) for cluster in ("a", "b", "c")}


def is_divided(store: MemoryStore, replicas: int) -> bool:
    return sum(totals(store).values()) == replicas


def run(store: MemoryStore, work: Callable[[], bool]) -> None:
    async def main() -> None:
        job = Running(store, SET, "ReplicaDivision", "s1 1", Debts(), None)
        last_s = time.monotonic() + 10.0
        version = -1
        try:
            while not work():
                assert time.monotonic() < last_s
                if store.version() != version:  # As the server does, also for the job's own writes.
                    version = store.version()
                    job.wake()
                await asyncio.sleep(0.01)
        finally:
            await job.stop()

    asyncio.run(main())


def test_what_is_new_is_divided_with_the_debt_of_the_fleet() -> None:
    """One replica each: alone they would go where the draw says; together every cluster gets one of three."""
    store, names = MemoryStore(boot_s), [f"w{number}" for number in range(9)]
    for count in range(1, 10):
        put(store, dict.fromkeys(names[:count], 1), "abc")
        run(store, partial(is_divided, store, count))
        loads = totals(store).values()
        assert max(loads) - min(loads) <= 1
    lines = [line.item for line in store.journal(SET) if line.transition == "divided"]
    assert lines == names, "what fits is left alone"


def test_a_drift_is_repaired_within_moves_max_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "WAKE_S", CYCLE_S)
    store, names = MemoryStore(boot_s), [f"w{number}" for number in range(8)]
    put(store, dict.fromkeys(names, 3), "ab", moves_max=1)
    drifted = DivisionRecord(replicas=3, weights={"a": 1, "b": 1}, strategy="StaticWeight", result={"a": 2, "b": 1})
    store.transact(SET, lambda tx: write_status(tx, ReplicaDivisionStatus(dict.fromkeys(names, drifted))))
    run(store, lambda: totals(store) == {"a": 12, "b": 12, "c": 0})
    moved = [line for line in store.journal(SET) if line.transition == "divided"]
    assert len(moved) == 4, "as few as it takes"
    pauses = [later.at_s - earlier.at_s for earlier, later in pairwise(moved)]
    assert min(pauses) >= CYCLE_S * 0.9, "one move a cycle"


def test_a_change_of_people_does_not_wait_for_the_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "WAKE_S", 60.0)
    store = MemoryStore(boot_s)
    put(store, {"cart": 4}, "ab", moves_max=1)
    wanted = [4, 6, 8]

    def work() -> bool:
        if sum(totals(store).values()) == wanted[0]:
            wanted.pop(0)
            if wanted:
                put(store, {"cart": wanted[0]}, "ab", moves_max=1)
        return not wanted

    run(store, work)
