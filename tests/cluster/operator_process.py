"""Real processes of `poise operator` beside a test, and an eye on what they show of rings."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import httpx2
import msgspec
from prometheus_client.parser import text_string_to_metric_families
from tests.cluster.ring_world import RINGS, ring_document
from tests.serve_process import environment

from poise.kube import Client, ObjectRef, Selection
from poise.kube.objects import Custom, KubeValue, Meta
from poise.kube.resources import EVENTS

LEASE_S = 8
OPERATOR = ("-m", "poise", "operator")


class OperatorProcess:
    """One `poise operator`; its address is read from what it prints. It ends with its block, whatever happens."""

    def __init__(self, kubeconfig: Path, *options: str, program: Sequence[str] = OPERATOR) -> None:
        """Start it; the kernel ends it also when the tests are killed."""
        leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        usual = ["--kubeconfig", str(kubeconfig), "--listen", "127.0.0.1:0", "--lease-seconds", str(LEASE_S)]
        command = [*leash, sys.executable, *program, *usual, *options]
        self.process = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as said:
            self.lines.extend(line.rstrip() for line in iter(said.readline, ""))

    def __enter__(self) -> OperatorProcess:
        """Be usable in a block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave nothing running; a test that fails shows what was said."""
        self.process.kill()
        self.process.wait(10)
        self._reader.join(10)
        sys.stderr.write(f"{self.said}\n")

    @property
    def said(self) -> str:
        """All that it has said."""
        return "\n".join(self.lines)

    async def end(self, number: signal.Signals = signal.SIGTERM, within_s: float = 60.0) -> int:
        """Ask it to end, and give its exit code."""
        self.process.send_signal(number)
        return await self.ended(within_s)

    async def ended(self, within_s: float = 60.0) -> int:
        """Wait until it has ended by itself."""
        await eventually(lambda: self.process.poll() is not None, lambda: self.said, within_s)
        self._reader.join(10)
        return self.process.returncode

    async def url(self) -> str:
        """Where it answers."""
        await eventually(lambda: "answers on " in self.said, lambda: self.said)
        return self.said.partition("answers on ")[2].partition(";")[0]

    async def get(self, path: str, timeout_s: float = 5.0) -> httpx2.Response:
        """Ask it for health or numbers."""
        async with httpx2.AsyncClient(base_url=await self.url(), timeout=timeout_s) as client:
            return await client.get(path)

    async def ready(self, within_s: float = 60.0) -> None:
        """Wait until it says that it is ready."""
        await awaited(self._is_ready, lambda: self.said, within_s)

    async def _is_ready(self) -> bool:
        return (await self.get("/readyz")).status_code == 200

    async def numbers(self) -> dict[str, float]:
        """Read its metrics, each by its name and labels as they are written."""
        text = (await self.get("/metrics")).text
        return {
            sample.name + "".join(f" {value}" for _, value in sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


async def eventually(holds: Callable[[], bool], told: Callable[[], object], within_s: float = 60.0) -> None:
    """Wait until something holds; else fail, and tell how it stands."""

    async def asked() -> bool:
        return holds()

    await awaited(asked, told, within_s)


async def awaited(holds: Callable[[], Awaitable[bool]], told: Callable[[], object], within_s: float = 60.0) -> None:
    """Wait until something that must be asked for holds."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + within_s
    while not await holds():
        assert loop.time() < end_s, f"not within {within_s} s: {told()}"
        await asyncio.sleep(0.1)


class SeenCondition(KubeValue, frozen=True):
    """One condition as people read it."""

    type: str
    status: str
    reason: str
    message: str = ""


class SeenStatus(KubeValue, frozen=True):
    """The status of a ring as people read it."""

    observed_generation: int = 0
    conditions: tuple[SeenCondition, ...] = ()
    summary: str = ""
    objects: dict[str, int] = msgspec.field(default_factory=dict)
    instances: tuple[dict[str, str | int], ...] = ()
    ready: int | None = None
    drains_pending: int | None = None
    unassigned: int | None = None

    def of(self, kind: str) -> SeenCondition:
        """Give one condition; an unknown one before there is any."""
        return next((each for each in self.conditions if each.type == kind), SeenCondition(kind, "", ""))


class SeenRing(KubeValue, frozen=True):
    """A ring with its status."""

    metadata: Meta
    status: SeenStatus = SeenStatus()


class SeenEvent(KubeValue, frozen=True):
    """One Event as people read it."""

    metadata: Meta
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0


def ring_ref(namespace: str, name: str) -> ObjectRef:
    """Name a ring."""
    return ObjectRef(RINGS, name, namespace)


async def put_ring(client: Client, namespace: str, name: str, **spec: object) -> Custom:
    """Create a ring of the Secrets of its namespace, with the ConfigMaps that they control."""
    return await client.create(ring_ref(namespace, name), ring_document(name, namespace, **spec), Custom)


async def change_ring(client: Client, namespace: str, name: str, change: Mapping[str, object]) -> None:
    """Change a ring as it is now."""
    ref = ring_ref(namespace, name)
    await client.merge(ref, (await client.get(ref, Custom)).metadata, change, Custom)


async def remove_ring(client: Client, namespace: str, name: str) -> None:
    """Ask for a ring to be removed."""
    found = await client.get(ring_ref(namespace, name), Custom)
    await client.delete(ring_ref(namespace, name), uid=found.metadata.uid)


async def read_ring(client: Client, namespace: str, name: str) -> SeenRing:
    """Read a ring as it is now."""
    return await client.get(ring_ref(namespace, name), SeenRing)


async def shown(
    client: Client, namespace: str, name: str, kind: str, status: str, reason: str, within_s: float = 60.0
) -> SeenRing:
    """Wait until a ring shows a condition, by its status and reason."""
    seen: list[SeenRing] = []

    async def holds() -> bool:
        seen[:] = [await read_ring(client, namespace, name)]
        found = seen[0].status.of(kind)
        return (found.status, found.reason) == (status, reason)

    await awaited(holds, lambda: msgspec.json.encode(seen[0].status).decode(), within_s)
    return seen[0]


async def read_events(client: Client, namespace: str) -> list[SeenEvent]:
    """Read the Events of a namespace."""
    return (await client.list_all(Selection(EVENTS, namespace), SeenEvent))[0]


async def event(client: Client, namespace: str, reason: str, about: str = "", within_s: float = 60.0) -> SeenEvent:
    """Wait for an Event of a reason whose message has a word."""
    found: list[SeenEvent] = []

    async def holds() -> bool:
        found[:] = [
            each for each in await read_events(client, namespace) if each.reason == reason and about in each.message
        ]
        return bool(found)

    await awaited(holds, lambda: reason, within_s)
    return found[0]
