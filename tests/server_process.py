"""A real `poise up` in a process of its own, which tests stop, kill and start again at the same address."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE_S = 30.0


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found: int = listening.getsockname()[1]
        return found


class ServerProcess:
    """Runs while its block runs; verbs and workers that were started with it end with it."""

    def __init__(self, folder: Path, *documents: str, options: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._options = options
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

    def start(self) -> None:
        """Start the server, and wait until it is ready; a second time it reads no files."""
        files = self._files if not self._started else []
        listen = ("--listen", f"127.0.0.1:{self.port}")
        self._server = self._run("up", *files, *listen, *self._options)
        last_s = time.monotonic() + PATIENCE_S
        while not self._is_ready():
            assert self._server.poll() is None, self._server.communicate()[1]
            assert time.monotonic() < last_s, "the server did not become ready"
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the server."""
        self._server.send_signal(number)
        return self._server.wait(20)

    def begin(self, *arguments: str, token: str = "") -> subprocess.Popen[str]:
        """Start a verb that asks this server."""
        return self._run(*arguments, token=token)

    def poise(self, *arguments: str, token: str = "", said: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a verb that asks this server to its end."""
        command = [sys.executable, "-m", "poise", *arguments]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment(token),
            input=said or "",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def _run(self, *arguments: str, token: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "poise", *arguments]
        started = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self._environment(token),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(started)
        return started

    def _environment(self, token: str) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("POISE_")}
        return {**kept, "POISE_SERVER": self.url, "NO_COLOR": "1", **({"POISE_TOKEN": token} if token else {})}

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
