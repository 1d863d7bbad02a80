"""The server under load: how fast it starts, what it needs, heartbeats over HTTP, and events to many readers.

Wall time, one server process on this machine, SQLite. Shorter: `python -m benchmarks.serving --seconds 9`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.serve_process import ServerProcess, servers

from benchmarks.fleet import Line, fleet_rows
from benchmarks.measure import Row, p99_ms, show

SECONDS = float(os.environ.get("POISE_BENCH_SECONDS", "30"))
READERS, EVENTS = 200, 20
FIVE = """apiVersion: poise.dev/v1alpha1
kind: PartitionSet
metadata: {name: orders}
spec: {partitions: 1000, leaseSeconds: 10, guards: {movesInFlightMax: null, perSourceMax: null, perTargetMax: null}}
---
apiVersion: poise.dev/v1alpha1
kind: ShardRing
metadata: {name: web}
spec: {objects: [a, b, c]}
---
apiVersion: poise.dev/v1alpha1
kind: TargetPool
metadata: {name: core}
spec:
  pods: {endpoints: [{name: p0, url: "http://127.0.0.1:1"}]}
  targets: {list: [{name: r1, address: "127.0.0.1:9"}]}
  delivery: {kind: http}
---
apiVersion: poise.dev/v1alpha1
kind: ReplicaDivision
metadata: {name: shop}
spec: {clusters: [{name: a}, {name: b}], workloads: [{name: cart, replicas: 7}]}
---
apiVersion: poise.dev/v1alpha1
kind: CapacitySplit
metadata: {name: shop}
spec: {workloads: [{name: api, replicas: 10, spotPercentage: 70, minOnDemand: 1}]}
"""


def rows(seconds: float = SECONDS) -> Iterator[Row]:
    """Measure one server from its start on."""
    with tempfile.TemporaryDirectory(prefix="poise-bench-") as name:
        folder = Path(name)
        (folder / "five.yaml").write_text(FIVE)
        started_s = time.perf_counter()
        with servers(ServerProcess(folder, "five.yaml")) as (server,):
            server.ready()
            yield Row("server: from the command to ready, five small jobs", time.perf_counter() - started_s, 1.5, "s")
            time.sleep(2)
            yield Row("server: memory with five small jobs", _memory_mb(server.pid), 120, "MB")
            port = int(server.url.rpartition(":")[2])
            seen = asyncio.run(_read_all(port))
            yield Row(f"server: an event reaches {READERS} readers, p99", p99_ms(seen), 200, "ms")
            yield from fleet_rows(server, port, seconds)


def _memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


async def _read_all(port: int) -> list[float]:
    """Let many clients read events, change something again and again, and see when each has heard of it."""
    readers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(READERS)]
    for _, writer in readers:
        writer.write(f"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    await asyncio.sleep(1.0)
    written: dict[str, float] = {}
    seen: list[float] = []

    async def read(reader: asyncio.StreamReader) -> None:
        while True:
            text = (await reader.readline()).decode()
            for mark, at_s in written.items():
                if mark in text:
                    seen.append(time.perf_counter() - at_s)

    tasks = [asyncio.create_task(read(reader)) for reader, _ in readers]
    line = Line(port)
    await line.open()
    for number in range(EVENTS):
        mark = f"spectator-{number:03} registered"
        written[mark] = time.perf_counter()
        await line.ask("POST", f"/v1/sets/web/members/spectator-{number:03}", {"process": "p"})
        await asyncio.sleep(0.3)
    await asyncio.sleep(1.0)
    for task in tasks:
        task.cancel()
    for _, writer in readers:
        writer.close()
    await line.close()
    missing = READERS * EVENTS - len(seen)
    return seen + [10.0] * max(0, missing)  # Whoever heard nothing counts as very late.


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=SECONDS)
    return show(rows(parser.parse_args().seconds))


if __name__ == "__main__":
    sys.exit(main())
