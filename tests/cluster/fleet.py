"""Real processes on a real API server: operators and shards, started, killed, frozen and ended by their ids.

A shard that ends by itself is started again under its name, as a kubelet does; one that was scaled away is not.
Processes are started from one thread only: the kernel ends each together with the thread that started it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Literal

import httpx2
from tests.cluster.audit_case import FOREVER_S, Fault, Process
from tests.cluster.audit_lines import boot_s
from tests.cluster.ring_world import RING
from tests.cluster.world import Cluster

ROOT = Path(__file__).parent.parent.parent
LEAD_S = 8  # How long the lead of an operator lasts.
RESTART_S = 0.5
_STOP_S = 20.0
Kind = Literal["operator", "shard"]


class Part:
    """One process of a fleet."""

    def __init__(self, name: str, kind: Kind, command: list[str], log: Path, environment: dict[str, str]) -> None:
        """Start it; the kernel ends it also when the tests are killed."""
        self.name, self.kind, self.log = name, kind, log
        self.frozen_s: float | None = None
        self.ending = False
        self.hit = False  # Something was done to it that explains its end.
        leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with log.open("ab") as said:
            self.process = subprocess.Popen(
                [*leash, *command], stdout=said, stderr=said, stdin=subprocess.DEVNULL, cwd=ROOT, env=environment
            )
        self.from_s, self.until_s = boot_s(), FOREVER_S
        # Its end is noted at once, whatever the test is busy with.
        self._mourner = threading.Thread(target=self._mourn, daemon=True)
        self._mourner.start()

    def _mourn(self) -> None:
        self.process.wait()
        self.until_s = boot_s()

    def ended(self, within_s: float) -> bool:
        """Wait for its end; False where it does not end in time."""
        self._mourner.join(within_s)
        return not self.runs

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def runs(self) -> bool:
        """Say whether it has not ended."""
        return self.until_s == FOREVER_S

    def said(self) -> str:
        """Read what it and earlier processes of its name have said."""
        return self.log.read_text(errors="replace")


class Fleet:
    """Operators and shards of one ring in one namespace, and the log of what was done to them."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path, ring: str = RING) -> None:
        """Prepare; nothing runs yet."""
        self.cluster, self.namespace, self.folder, self.ring = cluster, namespace, folder, ring
        self.audit = folder / "audit"
        self.parts: dict[str, Part] = {}
        self.past: list[Part] = []
        self.faults: list[Fault] = []
        self._restarts: dict[str, tuple[float, Callable[[], Part]]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Fleet:
        """Be usable in a block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process, whatever state it is in."""
        self.end()

    def start_operator(self, name: str, *options: str) -> Part:
        """Start an operator of this namespace."""
        command = [sys.executable, "-m", "poise", "operator", "--namespace", self.namespace, "--id", name]
        command += ["--listen", "127.0.0.1:0", "--lease-seconds", str(LEAD_S), *options]
        return self._start(name, "operator", command, lambda: self.start_operator(name, *options))

    def start_shard(self, name: str, *options: str, url: str | None = None) -> Part:
        """Start a shard; another address is that of a proxy of the tests."""
        command = [sys.executable, "-m", "tests.cluster.audited_shard", "--ring", self.ring, "--name", name]
        command += ["--namespace", self.namespace, "--audit", str(self.audit), *options]
        return self._start(name, "shard", command, lambda: self.start_shard(name, *options, url=url), url)

    def _start(
        self, name: str, kind: Kind, command: list[str], again: Callable[[], Part], url: str | None = None
    ) -> Part:
        assert name not in self.parts, f"{name} runs already"
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig(url)), "NO_COLOR": "1"}
        self.parts[name] = Part(name, kind, command, self.folder / f"{name}.log", environment)
        self._restarts[name] = (FOREVER_S, again)
        return self.parts[name]

    def _kubeconfig(self, url: str | None) -> Path:
        """Keep a copy that nobody writes anew while a process reads it."""
        copy = self.folder / f"kubeconfig-{'direct' if url is None else url.rpartition(':')[2]}"
        if not copy.exists():
            shutil.copy(self.cluster.kubeconfig(url=url), copy)
        return copy

    def names(self, kind: Kind = "shard") -> list[str]:
        """Name what should run now, frozen ones included."""
        known = [name for name, part in self.parts.items() if part.kind == kind and not part.ending]
        waiting = [name for name, (due_s, _) in self._restarts.items() if due_s < FOREVER_S]
        return sorted({*known, *(name for name in waiting if self._kind(name) == kind)})

    def _kind(self, name: str) -> Kind:
        return next(part.kind for part in reversed([*self.past, *self.parts.values()]) if part.name == name)

    def tick(self) -> None:
        """Note who has ended, and start again who should run."""
        for name, part in list(self.parts.items()):
            if not part.runs:
                self._forget(part)
                if not (part.ending or part.hit):
                    self.note("end", part)
                if not part.ending:
                    self._restarts[name] = (boot_s() + RESTART_S, self._restarts[name][1])
        for name, (due_s, again) in list(self._restarts.items()):
            if due_s <= boot_s() and name not in self.parts:
                again()

    def _forget(self, part: Part) -> None:
        self.past.append(self.parts.pop(part.name))
        if part.frozen_s is not None:
            self._thawed(part)

    def kill(self, name: str, *, restart: bool = True) -> None:
        """Kill a process at once; it is started again a little later."""
        part = self.parts[name]
        part.ending, part.hit = not restart, True
        part.process.kill()
        assert part.ended(_STOP_S), f"{name} was killed"
        self.note("kill", part)
        self.tick()

    def freeze(self, name: str) -> None:
        """Let a process stand still."""
        part = self.parts[name]
        part.frozen_s, part.hit = boot_s(), True
        part.process.send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let it go on, and note for how long it stood still."""
        part = self.parts[name]
        part.process.send_signal(signal.SIGCONT)
        self._thawed(part)

    def _thawed(self, part: Part) -> None:
        assert part.frozen_s is not None, "only what stands still is thawed"
        self.faults.append(Fault(part.frozen_s, "freeze", part.name, part.pid, boot_s()))
        part.frozen_s = None

    def stop(self, name: str, *, restart: bool = False) -> None:
        """Ask a process to leave, and not to come back unless it is said."""
        part = self.parts[name]
        part.ending, part.hit = not restart, True
        part.process.terminate()
        self.note("stop", part)

    def dismiss(self, name: str) -> None:
        """Let an instance leave for good: one that stands still hears of it when it goes on, one that is dead never."""
        if name in self.parts:
            self.stop(name)
        self._restarts[name] = (FOREVER_S, self._restarts[name][1])

    def leader(self, since: datetime | None = None) -> str:
        """Read which operator leads, with a renewal since then; empty where none does, or nobody can say."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/poise-operator"
        try:
            with self.cluster.plane.client() as client:
                lease = client.get(path, timeout=2).json().get("spec", {})
        except (httpx2.HTTPError, ValueError):
            return ""
        holder, renewed = lease.get("holderIdentity") or "", lease.get("renewTime")
        if since is not None and (renewed is None or datetime.fromisoformat(renewed) <= since):
            return ""
        return next((name for name in self.names("operator") if f"-{name}_" in holder), "")

    def note(self, kind: str, part: Part) -> None:
        """Note what was done to a process."""
        at_s = min(boot_s(), part.until_s)
        self.faults.append(Fault(at_s, kind, part.name, part.pid, at_s))

    def processes(self) -> tuple[Process, ...]:
        """Give every process of a shard that ever ran."""
        parts = [part for part in (*self.past, *self.parts.values()) if part.kind == "shard"]
        return tuple(Process(part.name, part.pid, part.from_s, part.until_s) for part in parts)

    def wait(self, holds: Callable[[], bool], within_s: float, what: str = "it") -> float:
        """Wait until something holds, and keep the fleet running meanwhile; gives how long it took."""
        began_s = time.monotonic()
        while not holds():
            assert time.monotonic() < began_s + within_s, f"{what}: not within {within_s} s\n{self.told()}"
            self.tick()
            time.sleep(0.05)
        return time.monotonic() - began_s

    def sleep(self, for_s: float) -> None:
        """Let time pass, and keep the fleet running."""
        end_s = time.monotonic() + for_s
        while time.monotonic() < end_s:
            self.tick()
            time.sleep(0.05)

    def told(self, last: int = 1500) -> str:
        """Give the last words of every process, for a test that fails."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-last:]}" for log in logs)

    def end(self) -> None:
        """Ask all to leave; whoever does not go in time is killed."""
        for part in self.parts.values():
            part.ending = True
            if part.runs:
                part.process.send_signal(signal.SIGCONT)
                part.process.terminate()
        end_s = time.monotonic() + _STOP_S
        for part in list(self.parts.values()):
            if not part.ended(max(0.1, end_s - time.monotonic())):
                part.process.kill()
                part.ended(_STOP_S)
        self.tick()
