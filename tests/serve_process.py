"""A real server process of `poise up` on a free port of this machine, and what it says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2


class ServerProcess:
    """One `poise up`; its address is read from what it prints."""

    def __init__(
        self, folder: Path, *arguments: str, db: str = "sqlite:///poise.db", listen: str = "127.0.0.1:0"
    ) -> None:
        command = [sys.executable, "-m", "poise", "up", "--db", db, "--listen", listen, *arguments]
        # As in a person's shell, what was compiled once is kept.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = self._address()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as said:
            for line in said:
                self.said.append(line.rstrip())

    def _address(self, within_s: float = 20.0) -> str:
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s and self._process.poll() is None:
            for line in self.said:
                if "answers on " in line:
                    return line.partition("answers on ")[2].partition(";")[0]
            time.sleep(0.02)
        raise AssertionError("\n".join(self.said))

    @property
    def pid(self) -> int:
        return self._process.pid

    def client(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, timeout=10.0)

    def ready(self, within_s: float = 15.0) -> None:
        with self.client() as client:
            await_met(lambda: client.get("/readyz").status_code == 200, within_s)

    def get(self, path: str) -> httpx2.Response:
        with self.client() as client:
            return client.get(path)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)
        self._reader.join(10)

    def end(self, within_s: float = 20.0) -> int:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(within_s)
            self._reader.join(10)
            return code
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
            raise


def await_met(met: object, within_s: float = 15.0) -> None:
    """Wait for something that must come."""
    assert callable(met)
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
