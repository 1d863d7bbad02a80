"""COMMAND as a process: started with what the contract says, asked to leave, and ended with all that it started."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import yaml

from poise.errors import PoiseError

_LAST_WORDS = 300
# What would lead a client past its kubeconfig, to the cluster that the check itself runs in.
_HIDDEN = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "POD_UID")


class Casting(msgspec.Struct, frozen=True, kw_only=True):
    """What one process is told: who it is, and how it reaches the API server."""

    ring: str
    namespace: str
    instance: str
    lease_s: int
    kubeconfig: Path

    @property
    def words(self) -> dict[str, str]:
        """What may stand in the command, in braces."""
        return {"ring": self.ring, "namespace": self.namespace, "instance": self.instance}

    @property
    def environment(self) -> dict[str, str]:
        """What the contract says that a shard finds in its environment."""
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "POISE_RING": self.ring,
            "POISE_NAMESPACE": self.namespace,
            "POISE_INSTANCE": self.instance,
            "POISE_LEASE_SECONDS": str(self.lease_s),
            "POD_NAME": self.instance,
            "POD_NAMESPACE": self.namespace,
        }


def fill_in(command: Sequence[str], words: Mapping[str, str]) -> list[str]:
    """Put names in the place of {ring}, {namespace} and {instance}; other braces stay as they are."""
    filled = list(command)
    for name, value in words.items():
        filled = [part.replace("{" + name + "}", value) for part in filled]
    return filled


def write_kubeconfig(path: Path, url: str, namespace: str) -> None:
    """Write what leads a process through the gate; only the user of this check may read it."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "gate", "cluster": {"server": url}}],
        "users": [{"name": "shard", "user": {"token": "the-gate-signs"}}],
        "contexts": [{"name": "gate", "context": {"cluster": "gate", "user": "shard", "namespace": namespace}}],
        "current-context": "gate",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))


class Process:
    """One run of COMMAND, in a process group of its own."""

    def __init__(self, name: str, running: asyncio.subprocess.Process, log: Path) -> None:
        """Speak for a process that was started."""
        self.name = name
        self._running, self._log = running, log
        self._ended = asyncio.ensure_future(running.wait())

    @classmethod
    async def start(cls, name: str, command: Sequence[str], casting: Casting, log: Path) -> Process:
        """Start COMMAND; what it says goes to a file."""
        inherited = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
        with log.open("ab") as said:
            try:
                running = await asyncio.create_subprocess_exec(
                    *fill_in(command, casting.words),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    env=inherited | casting.environment,
                    process_group=0,
                )
            except OSError as error:
                raise PoiseError(f"{command[0]} cannot be started: {error.strerror}") from error
        return cls(name, running, log)

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._running.returncode

    @property
    def end_told(self) -> str:
        """Say how it ended, with its last words."""
        return f"COMMAND ended by itself with code {self.exit_code}{self._last_words()}"

    def _last_words(self) -> str:
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f": {lines[-1][:_LAST_WORDS]}" if lines else ""

    def ask_to_leave(self) -> None:
        """Send SIGTERM to the process itself, as is done to the first process of a container."""
        with suppress(ProcessLookupError):
            self._running.terminate()

    async def ends_within(self, timeout_s: float) -> bool:
        """Wait for its end for a while."""
        done, _ = await asyncio.wait([self._ended], timeout=timeout_s)
        return bool(done)

    async def end(self) -> None:
        """End it now, and whatever it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._running.pid, signal.SIGKILL)
        await self._ended
