"""A collector of the demo: it answers as a gNMIc collector does, and takes a reading of each of its targets on a timer.

The routers are made up, so a reading is a count and nothing more; `GET /metrics` shows how many each target has.
Loopback only, and the standard library only: it starts fast.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from collections import Counter
from urllib.parse import unquote

from poise import clock

_READ_S = 2.0  # Between two readings of a target.
_TEARDOWN_S = 0.3  # A stream ends a moment after its target was taken away.
_BODY_MAX = 4 * 1024 * 1024
_FILLED = {"timeout": 10_000_000_000, "retry-timer": 2_000_000_000}
_API, _CONFIG = "/api/v1/targets", "/api/v1/config/targets"

Answer = tuple[int, str]
Targets = dict[str, dict[str, object]]


class Collector:
    """What it is told to collect, what it still collects, and what it has collected so far."""

    def __init__(self) -> None:
        """Begin with nothing: whoever owns the targets says which."""
        self.wanted: Targets = {}
        self.streams: dict[str, asyncio.Task[None]] = {}
        self.readings: Counter[str] = Counter()
        self._last: dict[str, str] = {}

    def replace(self, targets: Targets) -> None:
        """Take a full list: what is absent is torn down a moment later, what is new begins at once."""
        self.wanted = targets
        gone = [name for name in self.streams if name not in targets]
        asyncio.get_running_loop().call_later(_TEARDOWN_S, self._tear_down, gone)
        for place, name in enumerate(targets):
            if name not in self.streams:
                self.streams[name] = asyncio.create_task(self._collect(name, place))

    def _tear_down(self, names: list[str]) -> None:
        for name in names:
            if name not in self.wanted and name in self.streams:
                self.streams.pop(name).cancel()

    async def _collect(self, name: str, place: int) -> None:
        """Take readings, not all targets in the same moment."""
        await asyncio.sleep(place % 20 * _READ_S / 20)
        while True:
            self.readings[name] += 1
            self._last[name] = clock.now().isoformat().replace("+00:00", "Z")
            await asyncio.sleep(_READ_S)

    def live(self) -> list[dict[str, object]]:
        """Tell what is collected at this moment, and how it goes."""
        return [
            {
                "name": name,
                "config": self.wanted.get(name, {}),
                "state": {
                    "intended-state": "enabled" if name in self.wanted else "disabled",
                    "state": "running" if name in self._last else "starting",
                    "last-updated": self._last.get(name, ""),
                    "connection-state": "READY",
                },
            }
            for name in sorted(self.streams)
        ]

    def metrics(self) -> str:
        """Show the readings of every target that was ever here."""
        return "".join(
            f'demo_readings_total{{target="{name}"}} {self.readings[name]}\n' for name in sorted(self.readings)
        )


def answer(collector: Collector, method: str, path: str, body: bytes) -> Answer:
    """Answer one request."""
    match method, path:
        case "GET", "/api/v1/healthz":
            return 200, '{"status":"healthy"}'
        case "GET", "/metrics":
            return 200, collector.metrics()
        case "GET", "/api/v1/targets":
            return 200, json.dumps(collector.live())
        case "GET", "/api/v1/config/targets":
            return 200, json.dumps(collector.wanted)
        case "POST", "/api/v1/config/apply":
            return _apply(collector, body)
    name = unquote(path.removeprefix(f"{_CONFIG}/"))
    if method != "GET" or not path.startswith(f"{_CONFIG}/"):
        return 404, _errors("not found")
    found = collector.wanted.get(name)
    return (404, _errors(f"target {name} not found")) if found is None else (200, json.dumps(found))


def _apply(collector: Collector, body: bytes) -> Answer:
    """Take a full document; one that cannot be read changes nothing."""
    try:
        document = json.loads(body)
        given: Targets = document.get("targets") or {}
        subscriptions = sorted(document.get("subscriptions") or {})
        wanted = {
            name: {"name": name, **_FILLED, "subscriptions": subscriptions, **each} for name, each in given.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        return 400, _errors(f"decode error: {error}")
    if wanted and not subscriptions:
        return 400, _errors("validate error: if targets are provided, at least one subscription is required")
    collector.replace(wanted)
    return 200, ""


def _errors(message: str) -> str:
    return json.dumps({"errors": [message]})


async def converse(collector: Collector, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speak as much HTTP/1.1 as a client that behaves needs, and hang up on any other."""
    try:
        while line := await reader.readline():
            method, target, _ = line.decode("latin-1").split(" ", 2)
            length = 0
            while (header := await reader.readline()).strip():
                key, _, value = header.decode("latin-1").partition(":")
                length = int(value) if key.lower() == "content-length" else length
            if not 0 <= length <= _BODY_MAX:
                return
            body = await reader.readexactly(length)
            status, text = answer(collector, method, target.partition("?")[0], body)
            payload = text.encode()
            head = f"HTTP/1.1 {status} -\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {len(payload)}"
            writer.write(head.encode() + b"\r\n\r\n" + payload)
            await writer.drain()
    except (OSError, ValueError, asyncio.IncompleteReadError):
        pass  # The client went away, or is none.
    finally:
        writer.close()


async def run(port: int) -> None:
    """Serve until a signal comes."""
    collector, ended = Collector(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await converse(collector, reader, writer)

    await asyncio.start_server(hear, "127.0.0.1", port)
    await ended.wait()


def main(arguments: list[str]) -> None:
    """Run one collector."""
    parser = argparse.ArgumentParser(prog="collector")
    parser.add_argument("name")
    parser.add_argument("port", type=int)
    asyncio.run(run(parser.parse_args(arguments).port))
