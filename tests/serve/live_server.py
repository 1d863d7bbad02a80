"""A real server on 127.0.0.1: uvicorn in a thread over the facade of a store in memory, with one coordinator."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2
import msgspec
from starlette.routing import BaseRoute

from poise import clock
from poise.errors import Unavailable
from poise.jobs.coordinator import Coordinator
from poise.serve.app import make_app
from poise.serve.jobs_api import StoreJobs
from poise.serve.running import serve
from poise.serve.settings import ServeSettings, open_sockets
from poise.stores.base import Answer, Transaction
from poise.stores.memory import MemoryStore

ORDERS = {"kind": "PartitionSet", "metadata": {"name": "orders"}, "spec": {"partitions": 4}}
STRANGE = ["apps/Deployment/default/a", '<b>bold</b> & "quoted"', "ü ñ 日本", "a?b#c%2Fd", "100%"]
KEYS = {"kind": "ShardRing", "metadata": {"name": "web"}, "spec": {"policy": "balanced", "objects": STRANGE}}
SHOP = {
    "kind": "CapacitySplit",
    "metadata": {"name": "shop"},
    "spec": {"workloads": [{"name": "api", "replicas": 10, "spotPercentage": 70, "minOnDemand": 1}]},
}

POOL = {
    "kind": "TargetPool",
    "metadata": {"name": "core"},
    "spec": {
        "pods": {"endpoints": [{"name": "gnmic-0", "url": "http://127.0.0.1:9"}]},
        "targets": {"list": [{"name": "router/1", "address": "10.0.0.1:57400", "labels": {"site": "par"}}]},
    },
}
DIVISION = {
    "kind": "ReplicaDivision",
    "metadata": {"name": "shop"},
    "spec": {"clusters": [{"name": "m1"}, {"name": "m2"}], "workloads": [{"name": "cart", "replicas": 7}]},
}


class AwayStore(MemoryStore):
    """A store that can be sent away, or made slow."""

    def __init__(self, now: Callable[[], float] = clock.boot_s) -> None:
        super().__init__(now)
        self.away = False
        self.slow_s = 0.0

    def transact(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        self._ask()
        return super().transact(name, work)

    def view(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        self._ask()
        return super().view(name, work)

    def sets(self) -> list[str]:
        self._ask()
        return super().sets()

    def version(self) -> int:
        self._ask()
        return super().version()

    def wait(self, version: int, timeout_s: float) -> int:
        self._ask()
        return super().wait(version, min(timeout_s, 0.2))

    def clear(self) -> None:
        """Forget everything but the version, which only grows."""
        with self._changed:
            self._sets.clear()
        self.away, self.slow_s = False, 0.0

    def _ask(self) -> None:
        if self.away:
            raise Unavailable("the store is away")
        time.sleep(self.slow_s)


class LiveServer:
    """Serves while its block runs; `cycle` plans the set as a job loop would."""

    def __init__(
        self,
        settings: ServeSettings | None = None,
        store: AwayStore | None = None,
        pages: Sequence[BaseRoute] = (),
    ) -> None:
        self.settings = msgspec.structs.replace(settings or ServeSettings(), port=0)
        self.store = store or AwayStore()
        self.ready = True
        self.api = StoreJobs(self.store, now=lambda: datetime.now(UTC), ready=lambda: self.ready)
        self.app = make_app(self.api, self.settings, pages=pages)
        self.site = self.app.state.site
        self._coordinator = Coordinator(self.store, "leader")
        self._thread = threading.Thread(target=self._run, name="live-server")
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None

    def __enter__(self) -> Self:
        self._sockets = open_sockets(self.settings)
        self.port: int = self._sockets[0].getsockname()[1]
        self._thread.start()
        assert self._started.wait(10)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with socket.create_connection((self.settings.host, self.port), 5):
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self._thread.join(20)
        assert not self._thread.is_alive(), "the server must end"

    def reset(self) -> None:
        """Begin a test with an empty store."""
        self.store.clear()
        self.ready = True
        self._coordinator = Coordinator(self.store, "leader")

    def end(self) -> None:
        """Ask the server to end, as a signal does."""
        if self._loop is not None and self._ended is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ended.set)

    def _run(self) -> None:
        async def main() -> None:
            self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
            self._started.set()
            await serve(self.app, self.settings, self._sockets, self._ended)

        asyncio.run(main())

    @property
    def url(self) -> str:
        return f"{self.settings.scheme}://127.0.0.1:{self.port}"

    def client(self, token: str = "", **headers: str) -> httpx2.Client:
        sent = {**headers, **({"Authorization": f"Bearer {token}"} if token else {})}
        # Without TLS there is nothing to verify, and no time to be lost with reading certificates.
        return httpx2.Client(base_url=self.url, headers=sent, timeout=20, verify=False)

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 20)

    def put(self, document: Mapping[str, object], client: httpx2.Client) -> None:
        assert isinstance(document["metadata"], dict)
        path = f"/v1/jobs/{document['kind']}/{document['metadata']['name']}"
        response = client.put(path, json=document)
        assert response.status_code in (200, 201), response.text

    def shrink_buffers(self) -> None:
        """Let the system keep little of what new clients do not read."""
        self._sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    def cycle(self, name: str = "orders") -> None:
        self._coordinator.cycle(name)


def token_line(name: str, role: str) -> str:
    """Make a line of a tokens file; the token is the name, turned round."""
    return f"{name} {role} {hashlib.sha256(name[::-1].encode()).hexdigest()}"


def tokens_file(folder: Path, *lines: str) -> Path:
    """Write a tokens file."""
    path = folder / "tokens"
    path.write_text("\n".join(lines) + "\n")
    return path


def read_all(connection: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    got = b""
    try:
        while part := connection.recv(65_536):
            got += part
    except ConnectionResetError:
        pass
    return got
