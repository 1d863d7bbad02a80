"""Pools of tests: documents, collector processes, and engines beside them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.request import Request, urlopen

import msgspec

from poise import clock
from poise.jobs.stored import put_document, store_name
from poise.model import TargetPool
from poise.stores.base import Store

HERE = Path(__file__).parent
POOL = "core"
SET = store_name("TargetPool", POOL)


def free_ports(count: int) -> list[int]:
    """Find ports that nobody uses, all at once so that they differ."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def document(
    pods: Iterable[str | dict[str, object]],
    targets: dict[str, object],
    *,
    delivery: dict[str, object] | None = None,
    **spec: object,
) -> TargetPool:
    """Make a document of a pool; pods are endpoints, or names where pods fetch."""
    endpoints = [{"name": pod} if isinstance(pod, str) else pod for pod in pods]
    plain = {
        "kind": "TargetPool",
        "metadata": {"name": POOL},
        "spec": {
            "pods": {"endpoints": endpoints},
            "targets": targets,
            "delivery": delivery or {"kind": "gnmic", "subscriptions": {"s1": {"paths": ["/interfaces"]}}},
            "goneAfterSeconds": 2,
            "guards": {"movesInFlightMax": None},
            **spec,
        },
    }
    return msgspec.convert(plain, TargetPool)


def listed(names: Iterable[str]) -> dict[str, object]:
    """Make a source that lists its targets."""
    return {"list": [{"name": name, "address": f"{name}:57400"} for name in names]}


def put(store: Store, pool: TargetPool) -> None:
    """Write a document where engines read it; its revision grows where it has changed."""
    put_document(store, pool, clock.now())


class CollectorProcess:
    """One collector process with one pod; it can be killed, frozen, and told to misbehave."""

    def __init__(self, name: str, port: int, log: Path, *, teardown_s: float = 0.0) -> None:
        self.name, self.port, self.log, self._teardown_s = name, port, log, teardown_s
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def endpoint(self) -> dict[str, object]:
        return {"name": self.name, "url": f"http://127.0.0.1:{self.port}"}

    def start(self) -> None:
        """Start it, empty, as a process that comes back without its state."""
        script = [sys.executable, "-I", "-S", str(HERE / "collector.py"), str(self.log)]
        self.process = subprocess.Popen([*script, f"{self.name}={self.port}", "--teardown", str(self._teardown_s)])

    def wait(self, limit_s: float = 20.0) -> None:
        """Wait until it answers."""
        until_s = time.monotonic() + limit_s
        while True:
            with suppress(OSError):
                self.control()
                return
            assert time.monotonic() < until_s, f"{self.name} did not begin"
            time.sleep(0.02)

    def control(self, **order: object) -> dict[str, object]:
        """Set a fault, or only ask for the counters."""
        url = f"http://127.0.0.1:{self.port}/control"
        with urlopen(Request(url, json.dumps(order).encode(), method="POST"), timeout=5) as answer:
            told: dict[str, object] = json.loads(answer.read())
        return told

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it, and note in the log that nothing of it collects from here on."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        line = json.dumps({"at": time.monotonic(), "pod": self.name, "event": "killed", "name": ""})
        with self.log.open("a") as file:
            file.write(f"{line}\n")

    def end(self) -> None:
        """End it at the end of a test, also when it is frozen."""
        assert self.process is not None
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGCONT)
            self.process.kill()
        self.process.wait()
