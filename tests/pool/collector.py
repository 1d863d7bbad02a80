"""A collector process for tests: it answers as a gNMIc collector does, and as a plain one, and logs what it collects.

Usage: collector.py LOG NAME=PORT… [--teardown SECONDS]. Loopback only; the standard library only, so it starts fast.
Every line of the log is JSON with the monotonic time: begin, start, stop, request. `POST /control` sets the faults:
{"hang": true}, {"status": 500}, {"applyStatus": 400}, {"acceptThenHang": true}, {"teardownS": 2.0}, {"restart": true},
{"unhealthy": true}.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections import Counter
from urllib.parse import unquote

_NEVER_S = 3600.0
_WHEN = "2026-11-15T19:59:36.169954479Z"


class Log:
    """Lines in a file, each in one write, so that a kill loses none that happened."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, pod: str, event: str, *names: str) -> None:
        at_s = time.monotonic()
        lines = [json.dumps({"at": at_s, "pod": pod, "event": event, "name": name}) for name in names or ("",)]
        os.write(self._file, "".join(f"{line}\n" for line in lines).encode())


class Collector:
    """One pod: what it is configured to collect, what still streams, and its faults."""

    def __init__(self, name: str, log: Log, teardown_s: float) -> None:
        self.name, self.log, self.teardown_s = name, log, teardown_s
        self.configured: dict[str, dict[str, object]] = {}
        self.subscriptions: dict[str, object] = {}
        self.live: set[str] = set()
        self.stopping: dict[str, asyncio.TimerHandle] = {}
        self.requests: Counter[str] = Counter()
        self.hang = self.accept_then_hang = self.unhealthy = False
        self.status = self.apply_status = 200
        log.write(name, "begin")

    def replace(self, targets: dict[str, dict[str, object]]) -> None:
        """Take a full document: deletes first, then sets; streams are torn down later than it answers."""
        gone = [name for name in self.live if name not in targets and name not in self.stopping]
        self.configured = targets
        loop = asyncio.get_running_loop()
        if self.teardown_s <= 0:
            self._stop(gone)
        elif gone:
            handle = loop.call_later(self.teardown_s, self._stop, gone)
            self.stopping |= dict.fromkeys(gone, handle)
        for name in targets:
            self.stopping.pop(name, None)
        fresh = [name for name in targets if name not in self.live]
        self.live.update(fresh)
        if fresh:
            self.log.write(self.name, "start", *fresh)

    def _stop(self, names: list[str]) -> None:
        over = [name for name in names if name in self.live and name not in self.configured]
        self.live.difference_update(over)
        for name in over:
            self.stopping.pop(name, None)
        if over:
            self.log.write(self.name, "stop", *over)

    def control(self, order: dict[str, object]) -> None:
        """Set faults; a restart loses everything at once, as a process that comes back without its state."""
        self.hang = bool(order.get("hang", self.hang))
        self.unhealthy = bool(order.get("unhealthy", self.unhealthy))
        self.accept_then_hang = bool(order.get("acceptThenHang", self.accept_then_hang))
        self.status = int(str(order.get("status", self.status)))
        self.apply_status = int(str(order.get("applyStatus", self.apply_status)))
        self.teardown_s = float(str(order.get("teardownS", self.teardown_s)))
        if order.get("restart"):
            self.configured = {}
            self._stop(list(self.live))
            self.log.write(self.name, "begin")


Answer = tuple[int, str]
PODS: list[Collector] = []  # All pods of this process; `GET /totals` on any port tells of all.


async def answer(pod: Collector, method: str, path: str, body: bytes) -> Answer:
    """Answer one request as the collector would."""
    if path == "/totals":
        return 200, json.dumps({each.name: {"count": len(each.live), "requests": each.requests} for each in PODS})
    if path == "/control":
        if method == "POST":
            pod.control(json.loads(body))
        return 200, json.dumps({"live": sorted(pod.live), "requests": pod.requests})
    what = f"{method} {path}"
    pod.requests[what] += 1
    if pod.hang:
        await asyncio.sleep(_NEVER_S)
    if pod.status != 200:
        return pod.status, '{"errors":["out of order"]}'
    if what == "GET /api/v1/healthz":
        return (503, '{"status":"unhealthy"}') if pod.unhealthy else (200, '{"status":"healthy"}')
    if what == "GET /api/v1/config/targets":
        return 200, json.dumps(pod.configured)
    if path.startswith("/api/v1/config/targets/"):
        name = unquote(path.removeprefix("/api/v1/config/targets/"))
        found = pod.configured.get(name)
        return (404, _errors(f"target {name} not found")) if found is None else (200, json.dumps(found))
    if what == "GET /api/v1/targets":
        return 200, json.dumps([_state(pod, name) for name in sorted(pod.live)])
    if what == "GET /targets":
        return 200, json.dumps([pod.configured.get(name, {"name": name}) for name in sorted(pod.live)])
    if what in ("POST /api/v1/config/apply", "PUT /targets"):
        return await _apply(pod, what, body)
    return 404, _errors("not found")


async def _apply(pod: Collector, what: str, body: bytes) -> Answer:
    if pod.apply_status != 200:
        return pod.apply_status, _errors("refused")
    try:
        document = json.loads(body)
    except ValueError:
        return 400, _errors("decode error: unexpected EOF")
    if what == "PUT /targets":
        targets = {target["name"]: target for target in document}
    else:
        given: dict[str, dict[str, object]] = document.get("targets") or {}
        if given and not document.get("subscriptions"):
            return 400, _errors("validate error: if targets are provided, at least one subscription is required")
        filled: dict[str, object] = {"timeout": 10_000_000_000, "retry-timer": 2_000_000_000}
        filled["subscriptions"] = sorted(document.get("subscriptions") or {})
        targets = {name: {"name": name, **filled, **target} for name, target in given.items()}
    pod.replace(targets)
    if pod.accept_then_hang:
        await asyncio.sleep(_NEVER_S)
    return 200, ""


def _state(pod: Collector, name: str) -> dict[str, object]:
    state = {"intended-state": "enabled", "state": "running", "last-updated": _WHEN, "connection-state": "READY"}
    return {"name": name, "config": pod.configured.get(name, {}), "state": state}


def _errors(message: str) -> str:
    return json.dumps({"errors": [message]})


async def serve(pod: Collector, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speak just enough HTTP/1.1 for clients that behave."""
    try:
        while line := await reader.readline():
            method, target, _ = line.decode("latin-1").split(" ", 2)
            length = 0
            while (header := await reader.readline()) not in (b"\r\n", b""):
                key, _, value = header.decode("latin-1").partition(":")
                if key.lower() == "content-length":
                    length = int(value)
            body = await reader.readexactly(length) if length else b""
            status, text = await answer(pod, method, target.partition("?")[0], body)
            payload = text.encode()
            head = f"HTTP/1.1 {status} -\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {len(payload)}"
            writer.write(head.encode() + b"\r\n\r\n" + payload)
            await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
        pass  # The client or the process ends.
    finally:
        writer.close()


async def main() -> None:
    """Serve every pod on its own port of the loopback."""
    parser = argparse.ArgumentParser()
    parser.add_argument("log")
    parser.add_argument("pods", nargs="+")
    parser.add_argument("--teardown", type=float, default=0.0)
    options = parser.parse_args()
    log = Log(options.log)
    servers = []
    for given in options.pods:
        name, _, port = given.partition("=")
        pod = Collector(name, log, options.teardown)
        PODS.append(pod)

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pod: Collector = pod) -> None:
            await serve(pod, reader, writer)

        servers.append(await asyncio.start_server(handle, "127.0.0.1", int(port)))
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main())
