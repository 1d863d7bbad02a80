"""Real server processes of `poise up` on ports of this machine, and what they say; verbs and workers beside them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2

PATIENCE_S = 60.0


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found: int = listening.getsockname()[1]
        return found


def environment(**more: str) -> dict[str, str]:
    """Give what a process sees: nothing that was set for Poise, and as in a shell what was compiled is kept."""
    dropped = ("PYTHONDONTWRITEBYTECODE",)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POISE_") and name not in dropped}
    return {**kept, "NO_COLOR": "1", **more}


class ServerProcess:
    """One `poise up`; its address is read from what it prints."""

    def __init__(
        self, folder: Path, *arguments: str, db: str = "sqlite:///poise.db", listen: str = "127.0.0.1:0"
    ) -> None:
        command = [sys.executable, "-m", "poise", "up", "--db", db, "--listen", listen, *arguments]
        self._process = subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True)
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = self._address()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as said:
            for line in said:
                self.said.append(line.rstrip())

    def _address(self, within_s: float = PATIENCE_S) -> str:
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s and self._process.poll() is None:
            for line in self.said:
                if "answers on " in line:
                    return line.partition("answers on ")[2].partition(";")[0]
            time.sleep(0.02)
        self.kill()
        raise AssertionError("\n".join(self.said))

    @property
    def pid(self) -> int:
        return self._process.pid

    def client(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, timeout=10.0)

    def ready(self, within_s: float = PATIENCE_S) -> None:
        with self.client() as client:
            await_met(lambda: client.get("/readyz").status_code == 200, within_s)

    def get(self, path: str) -> httpx2.Response:
        with self.client() as client:
            return client.get(path)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)
        self._reader.join(10)

    def end(self, within_s: float = 60.0, number: signal.Signals = signal.SIGTERM) -> int:
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            code = self._process.wait(within_s)
            self._reader.join(10)
            return code
        except subprocess.TimeoutExpired:
            self.kill()
            raise


class ServedFolder:
    """A folder with a server that is stopped, killed and started again at the same address, and verbs that ask it.

    It runs while its block runs; verbs and workers that were started with it end with it.
    """

    def __init__(self, folder: Path, *documents: str, options: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._options = options
        self._server: ServerProcess | None = None
        self._started: list[subprocess.Popen[str]] = []
        self._files: list[str] = []
        for number, text in enumerate(documents):
            (folder / f"document-{number}.yaml").write_text(text)
            self._files.append(f"document-{number}.yaml")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in reversed(self._started):
            if each.poll() is None:
                each.kill()
            each.communicate(timeout=10)
        if self._server is not None:
            self._server.kill()

    def start(self) -> None:
        """Start the server, and wait until it is ready; a second time it reads no files."""
        files = self._files if self._server is None else []
        self._server = ServerProcess(self.folder, *files, *self._options, listen=f"127.0.0.1:{self.port}")
        self._server.ready(PATIENCE_S)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the server."""
        assert self._server is not None
        return self._server.end(number=number)

    def begin(self, *arguments: str, token: str = "") -> subprocess.Popen[str]:
        """Start a verb that asks this server."""
        started = subprocess.Popen(
            [sys.executable, "-m", "poise", *arguments],
            cwd=self.folder,
            env=self._environment(token),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(started)
        return started

    def poise(self, *arguments: str, token: str = "", said: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a verb that asks this server to its end."""
        return subprocess.run(
            [sys.executable, "-m", "poise", *arguments],
            cwd=self.folder,
            env=self._environment(token),
            input=said or "",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def _environment(self, token: str) -> dict[str, str]:
        return environment(POISE_SERVER=self.url, **({"POISE_TOKEN": token} if token else {}))


def await_met(met: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Wait for something that must come."""
    until_s = time.monotonic() + within_s
    while not met():
        assert time.monotonic() < until_s, "it did not come in time"
        time.sleep(0.05)


@contextmanager
def servers(*started: ServerProcess) -> Iterator[tuple[ServerProcess, ...]]:
    """Leave no server running."""
    try:
        yield started
    finally:
        for each in started:
            each.kill()
