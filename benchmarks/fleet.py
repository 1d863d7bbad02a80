"""Members over HTTP that do nothing but live: all of them in one process that does as little as a client can."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from tests.serve_process import ServerProcess

from benchmarks.measure import Row, p99_ms, process_cpu_s

MEMBERS, PERIOD_S = 1000, 3.0
SETTLING_MAX_S = 90.0
_CALM_S = 2 * PERIOD_S  # Every member has spoken twice, and none was given anything or asked to let go.


def fleet_rows(server: ServerProcess, port: int, seconds: float) -> Iterator[Row]:
    """Let many members join, wait until they have settled, and measure their heartbeats from then on."""
    lived = asyncio.run(_live(server.pid, port, seconds))
    yield Row(f"server: {MEMBERS} HTTP members join within 3 s, until all have settled", lived.settling_s, None, "s")
    yield Row(
        f"server: {MEMBERS} HTTP members, CPU of one heartbeat", lived.cpu_s / len(lived.took_s) * 1e3, None, "ms"
    )
    yield Row(f"server: {MEMBERS} HTTP members, a heartbeat every 3 s, p99", p99_ms(lived.took_s), 100, "ms")


class Lived(NamedTuple):
    """What the members saw once they had settled and before, how long that took, and the server's CPU seconds since."""

    took_s: list[float]
    joining_s: list[float]
    settling_s: float
    cpu_s: float


class Line:
    """One connection that is kept: as little work as a client can do, so that the server is what is measured."""

    def __init__(self, port: int) -> None:
        """Know where to connect to."""
        self._port = port

    async def open(self) -> None:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def ask(self, method: str, path: str, body: object) -> bytes:
        """Ask and read the answer."""
        text = msgspec.json.encode(body)
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert answer.split()[1] in ("200", "201"), answer
        size = int(answer.partition("content-length:")[2].split("\r\n")[0])
        return await self._reader.readexactly(size)

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        await self._writer.wait_closed()


class _Hold(msgspec.Struct, frozen=True):
    item: str
    epoch: int
    state: str = "held"


class _Registered(msgspec.Struct, frozen=True):
    incarnation: int


class _Said(msgspec.Struct, frozen=True):
    incarnation: int
    seq: int
    holds: list[_Hold]


class _Reply(msgspec.Struct, frozen=True):
    granted: list[_Hold]
    release: list[_Hold]


class _Fleet:
    """What all members know together: whether they have settled, and until when they live."""

    def __init__(self) -> None:
        self.began_s = self.moved_s = time.perf_counter()
        self.until_s = self.began_s + SETTLING_MAX_S
        self.settled_s: float | None = None
        self.took_s: list[float] = []
        self.joining_s: list[float] = []

    async def settle(self) -> None:
        """Return once nothing has moved for a while."""
        while time.perf_counter() < max(self.moved_s, self.began_s + PERIOD_S) + _CALM_S:
            assert time.perf_counter() < self.until_s, "the members do not settle"
            await asyncio.sleep(0.1)
        self.settled_s = time.perf_counter()


async def _live(pid: int, port: int, seconds: float) -> Lived:
    fleet = _Fleet()
    async with asyncio.TaskGroup() as tasks:
        for number in range(MEMBERS):
            tasks.create_task(_member(fleet, port, number))
        await fleet.settle()
        assert fleet.settled_s is not None
        fleet.until_s = fleet.settled_s + seconds
        before_s = process_cpu_s(pid)
        await asyncio.sleep(seconds)
        cpu_s = process_cpu_s(pid) - before_s
    return Lived(fleet.took_s, fleet.joining_s, fleet.moved_s - fleet.began_s, cpu_s)


async def _member(fleet: _Fleet, port: int, number: int) -> None:
    """Join at a moment of its own, so that all are spread evenly; a latency counts from when a heartbeat was due."""
    line, path = Line(port), f"/v1/sets/orders/members/m{number}"
    due_s = fleet.began_s + number / MEMBERS * PERIOD_S
    await asyncio.sleep(due_s - time.perf_counter())
    await line.open()
    registered = msgspec.json.decode(await line.ask("POST", path, {"process": f"p{number}"}), type=_Registered)
    seq, holds = 0, list[_Hold]()
    while due_s < fleet.until_s:
        await asyncio.sleep(due_s - time.perf_counter())
        seq += 1
        answer = await line.ask("PUT", path, _Said(registered.incarnation, seq, holds))
        now_s = time.perf_counter()
        (fleet.joining_s if fleet.settled_s is None else fleet.took_s).append(now_s - due_s)
        reply = msgspec.json.decode(answer, type=_Reply)
        # It lets go of what it is asked for, and says so with its next heartbeat: as an honest member without work.
        said, holds = holds, [*reply.granted, *(_Hold(each.item, each.epoch, "released") for each in reply.release)]
        if said != holds:
            fleet.moved_s = now_s
        due_s += PERIOD_S
    await line.close()
