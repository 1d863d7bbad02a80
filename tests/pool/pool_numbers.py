"""The numbers of delivery: ten thousand targets on fifty pods, all of them real HTTP servers of one process.

For `make bench`: add `pool_numbers` to the parts in benchmarks/__main__.py (`from tests.pool import pool_numbers`).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx2
import msgspec
from benchmarks.measure import Row
from tests.pool.pool_world import HERE, POOL, SET, document, free_ports, listed, put

from poise import clock
from poise.jobs.pool.engine import PoolEngine
from poise.stores.base import Store
from poise.stores.open import open_store

TARGETS, PODS = 10_000, 50
GONE_AFTER_S = 10
FIRST_BOUND_S, LOST_BOUND_S = 10, 3
_READS = ("GET /api/v1/healthz", "GET /api/v1/config/targets", "GET /api/v1/targets")
_IDLE_S = 5.0
_LIMIT_S = 120.0


def rows() -> Iterator[Row]:
    """Measure by wall-clock time on SQLite."""
    with tempfile.TemporaryDirectory(prefix="poise-bench-") as folder:
        first_s, lost_s, writes = asyncio.run(measure(Path(folder), TARGETS, PODS))
    what = f"{TARGETS:,} targets x {PODS} pods"
    yield Row(f"{what}: first delivery of all pods, from the start of the engine", first_s, FIRST_BOUND_S, "s")
    yield Row(f"{what}: a lost pod's targets delivered, after it counts as gone", lost_s, LOST_BOUND_S, "s")
    yield Row(f"{what}: writes to unchanged pods in {_IDLE_S:g} s", writes, 0, "requests")


async def measure(folder: Path, targets: int, pods: int) -> tuple[float, float, int]:
    """Deliver everything, rest, and lose a pod; answer both times, and the writes while nothing changed."""
    names, ports = [f"pod-{number:02}" for number in range(pods)], free_ports(pods)
    wanted = listed(f"router{number:05}" for number in range(targets))
    endpoints: list[str | dict[str, object]] = [
        {"name": name, "url": f"http://127.0.0.1:{port}"} for name, port in zip(names, ports, strict=True)
    ]
    with closing(open_store(str(folder / "poise.db"))) as store:
        put(store, document(endpoints, wanted, goneAfterSeconds=GONE_AFTER_S))
        async with _collectors(folder, names, ports) as asking:
            start_s = time.monotonic()
            async with _engine(store):
                await asking.until_collected(names, targets)
                first_s = time.monotonic() - start_s
                before = await asking.writes()
                await asyncio.sleep(_IDLE_S)
                writes = await asking.writes() - before
                await asking.break_pod(ports[0])
                await asking.until_collected(names[1:], targets)
                # The end of its lease is when it counts as gone; nobody renews it any more.
                lost = store.transact(SET, lambda tx: tx.member(names[0]))
                assert lost is not None
                return first_s, clock.boot_s() - lost.lease_until_s, writes


class _Total(msgspec.Struct):
    """What one pod says of itself: how many targets it collects, and how often it was asked what."""

    count: int
    requests: dict[str, int]


class _Asking:
    """Asks the collectors what they do, beside the engine and not through it."""

    def __init__(self, client: httpx2.AsyncClient, port: int) -> None:
        self._client, self._port = client, port

    async def totals(self) -> dict[str, _Total]:
        """Ask one port for all of them."""
        answer = await self._client.get(f"http://127.0.0.1:{self._port}/totals")
        return msgspec.json.decode(answer.content, type=dict[str, _Total])

    async def break_pod(self, port: int) -> None:
        """Let a pod answer every request with an error."""
        await self._client.post(f"http://127.0.0.1:{port}/control", json={"status": 500})

    async def writes(self) -> int:
        """Count all requests that were no reads."""
        found = (await self.totals()).values()
        return sum(count for each in found for what, count in each.requests.items() if what not in _READS)

    async def until_collected(self, pods: list[str], targets: int) -> None:
        """Wait until the pods collect so many targets together."""
        async with asyncio.timeout(_LIMIT_S):
            while True:
                totals = await self.totals()
                if sum(totals[pod].count for pod in pods) == targets:
                    return
                await asyncio.sleep(0.05)


@asynccontextmanager
async def _collectors(folder: Path, names: list[str], ports: list[int]) -> AsyncIterator[_Asking]:
    """Run one process with a pod on each port."""
    given = [f"{name}={port}" for name, port in zip(names, ports, strict=True)]
    script = [sys.executable, "-I", "-S", str(HERE / "collector.py"), str(folder / "log"), *given]
    process = subprocess.Popen(script)
    try:
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
            asking = _Asking(client, ports[-1])
            async with asyncio.timeout(_LIMIT_S):
                while not await _answers(asking):
                    await asyncio.sleep(0.05)
            yield asking
    finally:
        process.kill()
        process.wait()


async def _answers(asking: _Asking) -> bool:
    try:
        await asking.totals()
    except httpx2.TransportError:
        return False
    return True


@asynccontextmanager
async def _engine(store: Store) -> AsyncIterator[PoolEngine]:
    """Run an engine beside the measurement."""
    engine = PoolEngine(store, POOL)
    task = asyncio.create_task(engine.run())
    try:
        yield engine
    finally:
        task.cancel()
        await asyncio.wait([task])
