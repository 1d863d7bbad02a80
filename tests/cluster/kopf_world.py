"""kopf operators as real processes, what they noted, and a ring whose sharder is played by the test."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import yaml
from tests.cluster.audit_case import FOREVER_S, Case, Process, Reconcile, Terms
from tests.cluster.audit_lines import boot_s, read_audit
from tests.cluster.auditor import overlaps, shared_epochs
from tests.cluster.shard_library_world import World
from tests.cluster.world import Cluster

from poise.errors import Conflict, NotFound
from poise.kube import Client, Partial

ROOT = Path(__file__).parents[2]
D = 6
AUDITED = "tests/cluster/kopf_audited_operator.py"
EMBEDDED = "-m tests.cluster.kopf_audited_operator"
EXAMPLE = "examples/kopf_operator.py"
LIGHTKUBE = "examples/lightkube_operator.py"
_PATIENCE_S = 60.0
_SCENARIO_S = 300.0


class Instances:
    """kopf operators of one ring, each a process; all that are left are killed by their ids."""

    def __init__(self, cluster: Cluster, namespace: str, ring: str, folder: Path) -> None:
        self.audit, self._folder, self._namespace, self._ring = folder / "audit", folder, namespace, ring
        self._kubeconfig = folder / "kubeconfig"
        config = yaml.safe_load(cluster.kubeconfig().read_text())
        for context in config["contexts"]:
            context["context"]["namespace"] = namespace
        self._kubeconfig.write_text(yaml.safe_dump(config))
        self.from_s = boot_s()
        self.processes: list[Process] = []
        self._running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}

    def start(self, name: str, operator: str | Path = AUDITED, **more: str) -> None:
        """Start an instance as its users do."""
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig), "RING": self._ring, "POD_NAME": name}
        environment |= {"RING_NAMESPACE": self._namespace, "AUDIT": str(self.audit), "PYTHONPATH": str(ROOT)}
        plain = operator in (EMBEDDED, LIGHTKUBE)
        kopf_run = [] if plain else ["-m", "kopf", "run", "--namespace", self._namespace]
        command = [sys.executable, *kopf_run, *str(operator).split()]
        leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*leash, *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=ROOT, env=environment | more
            )
        self._running[name] = process, boot_s()

    def has_begun(self, name: str) -> bool:
        """Say whether an instance was ever started."""
        return (self._folder / f"{name}.log").exists()

    def said(self, name: str) -> str:
        """Read what an instance has said."""
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to an instance."""
        self._running[name][0].send_signal(number)

    async def ended(self, name: str) -> int:
        """Wait for the end of an instance; gives its exit code."""
        process, from_s = self._running[name]
        await eventually(lambda: process.poll() is not None, lambda: self.said(name))
        del self._running[name]
        self.processes.append(Process(name, process.pid, from_s, boot_s()))
        return process.returncode

    def stop(self) -> None:
        """End all that are left."""
        for process, _ in self._running.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    # What they noted.

    def notes(self, name: str, what: str = "") -> list[Reconcile]:
        """Give the calls for one object: of all handlers, or of those whose name begins like this."""
        found = read_audit(self.audit)[0]
        return [each for each in found if each.family == name and each.object.startswith(f"{name}/{what}")]

    def whats(self, name: str, *, but: str = "event") -> list[tuple[str, str]]:
        """Give who was called for what, in order, without the calls for every event."""
        notes = self.notes(name)
        whats = [(each.instance, each.object.partition("/")[2]) for each in notes]
        return [each for each in whats if not each[1].startswith(but)]

    async def noted(self, holds: Callable[[], bool]) -> None:
        """Wait until the notes are as wanted."""
        await eventually(holds, self.told)

    def told(self) -> str:
        """Say all that is known, for a test that fails."""
        logs = "\n".join(f"--- {name}\n{self.said(name)[-3000:]}" for name in self._running)
        notes = "\n".join(str(each) for each in read_audit(self.audit)[0] if "timer" not in each.object)
        return f"{logs}\n{notes}"

    def findings(self) -> list[str]:
        """Name every overlap, and every epoch that two instances worked at."""
        running = (Process(name, process.pid, from_s) for name, (process, from_s) in self._running.items())
        terms, all_ = Terms(D, FOREVER_S, FOREVER_S), read_audit(self.audit)[0]
        case = Case(terms, self.from_s, boot_s(), all_, (), (*self.processes, *running))
        held = case._replace(reconciles=tuple(each for each in all_ if each.epoch))
        return [*overlaps(case), *shared_epochs(held)]


def play(cluster: Cluster, scenario: Callable[[Client], Awaitable[None]]) -> None:
    """Play a scenario that starts processes, with the time that these need on a slow machine."""

    async def played() -> None:
        async with asyncio.timeout(_SCENARIO_S), cluster.connect() as client:
            await scenario(client)

    asyncio.run(played())


async def eventually(holds: Callable[[], bool], told: Callable[[], str]) -> None:
    """Wait, with more patience than any machine needs, until something holds."""
    end_s = boot_s() + _PATIENCE_S
    while not holds():
        assert boot_s() < end_s, told()
        await asyncio.sleep(0.05)


class Ring(World):
    """A ring with the owner that each of its Secrets should have."""

    def __init__(self, client: Client, namespace: str, ring: str, owners: dict[str, str]) -> None:
        super().__init__(client, namespace)
        self.ring, self.owners = ring, owners
        self.ring_ref = type(self.ring_ref)(self.ring_ref.resource, ring, namespace)

    async def give(self, name: str, owner: str, ready: str = "ab", **annotations: str) -> None:
        """Create a Secret, and assign it."""
        body = {"metadata": {"name": name, "annotations": annotations}, "stringData": {"key": "value"}}
        await self.client.create(self.secret(name), body, Partial)
        await self.move(name, owner, ready)

    async def move(self, name: str, owner: str, ready: str = "ab") -> None:
        """Ask for a Secret to be moved, or assign it, whoever else writes meanwhile; nobody is waited for."""
        self.owners[name] = owner

        async def asked() -> bool:
            await self.share(self.owners.get, ready)
            marks = await self.marks(self.secret(name))
            return owner in (marks.shard, marks.drain) and (marks.shard != owner or marks.drain is None)

        await self.eventually(asked, _PATIENCE_S)

    async def is_with(self, name: str, owner: str) -> None:
        """Wait until a Secret is with an owner, and nobody asks for it."""

        async def holds() -> bool:
            marks = await self.marks(self.secret(name))
            return (marks.shard, marks.drain) == (owner, None)

        await self.eventually(holds, _PATIENCE_S)

    async def change(self, name: str, **annotations: str) -> None:
        """Change annotations of a Secret as its users do."""
        meta = await self.meta(self.secret(name))
        try:
            await self.client.merge(self.secret(name), meta, {"metadata": {"annotations": annotations}}, Partial)
        except Conflict:
            await self.change(name, **annotations)

    async def remove(self, name: str) -> None:
        """Delete a Secret as its users do."""
        await self.client.delete(self.secret(name), uid=(await self.meta(self.secret(name))).uid)

    async def is_gone(self, name: str) -> None:
        """Wait until a Secret is no more; nobody assigns it then."""

        async def gone() -> bool:
            try:
                await self.meta(self.secret(name))
            except NotFound:
                return True
            return False

        await self.eventually(gone, _PATIENCE_S)
        self.owners.pop(name, None)


async def hold(world: World, names: Iterable[str]) -> None:
    """Wait until instances hold their Leases."""

    async def held() -> bool:
        return all([await world.holder(name) for name in names])

    await world.eventually(held, _PATIENCE_S)
