"""Collectors inside a test's own event loop, and an engine beside them: everything real but the processes."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.pool.collector import Collector, Log, serve
from tests.pool.pool_world import POOL

from poise.jobs.pool.delivery import Courier, open_client
from poise.jobs.pool.engine import PoolEngine
from poise.jobs.pool.settings import pace_of
from poise.stores.base import Store

_LIMIT_S = 20.0


class Served:
    """One collector on a port of the loopback."""

    def __init__(self, pod: Collector, port: int) -> None:
        self.pod, self.port = pod, port

    @property
    def endpoint(self) -> dict[str, object]:
        return {"name": self.pod.name, "url": f"http://127.0.0.1:{self.port}"}

    @property
    def writes(self) -> int:
        """Count the documents that it was sent."""
        return sum(count for what, count in self.pod.requests.items() if not what.startswith("GET"))


@asynccontextmanager
async def collectors(folder: Path, *names: str, teardown_s: float = 0.0) -> AsyncIterator[list[Served]]:
    """Serve collectors of these names."""
    log = Log(str(folder / "log"))
    servers, served = [], []
    for name in names:
        pod = Collector(name, log, teardown_s)

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pod: Collector = pod) -> None:
            await serve(pod, reader, writer)

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        servers.append(server)
        served.append(Served(pod, server.sockets[0].getsockname()[1]))
    try:
        yield served
    finally:
        for server in servers:
            server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.01)  # Connections that were closed are gone after another turn of the loop.


@asynccontextmanager
async def courier_to(served: Served, kind: str = "gnmic", gone_after_s: float = 3.0) -> AsyncIterator[Courier]:
    """Open a way to one collector."""
    client = open_client(ssl.create_default_context())
    async with client:
        yield Courier(client, kind, f"http://127.0.0.1:{served.port}/", pace_of(gone_after_s))


@asynccontextmanager
async def engine_on(store: Store, folder: Path | None = None) -> AsyncIterator[PoolEngine]:
    """Run an engine while the block runs."""
    engine = PoolEngine(store, POOL, folder=folder)
    task = asyncio.create_task(engine.run())
    try:
        yield engine
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(reached: Callable[[], bool], told: Callable[[], object] = lambda: "") -> None:
    """Wait for something, for a bounded time."""
    until_s = time.monotonic() + _LIMIT_S
    while not reached():
        assert time.monotonic() < until_s, f"not reached: {told()}"
        await asyncio.sleep(0.02)
