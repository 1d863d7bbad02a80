"""A real `poise up --demo` in a process of its own, its descendants, and what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import httpx2
import msgspec
from tests.hold.processes import alive

from poise.demo.names import FLEET, GATEWAY, ORDERS, ROUTERS, SPOT
from poise.serve.facade import ItemView, JobSummary, MemberView

PATIENCE_S = 60.0  # The machine may have other things to do.
PARTS = 14  # Six workers, four collectors, three gateways and the market; the server comes on top.


View = TypeVar("View")


class _Page(msgspec.Struct):
    items: list[msgspec.Raw]


def descendants(pid: int) -> list[int]:
    """List the processes below one, all generations."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state not in "ZX":
            parents[int(path.name)] = int(parent)
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def cpu_s(pids: Iterable[int]) -> float:
    """Add up the time that processes have computed so far."""
    words = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in words) / os.sysconf("SC_CLK_TCK")


def await_met(met: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Wait for something that must come."""
    last_s = time.monotonic() + within_s
    while not met():
        assert time.monotonic() < last_s, "it did not come in time"
        time.sleep(0.1)


class Demo:
    """One demo; it is killed with its descendants when its block is left, whatever became of it."""

    def __init__(self, folder: Path, *arguments: str, command: Sequence[str] = (), said: Path | None = None) -> None:
        """Start one, by another command where that is given; then what it says is read from a file."""
        self.folder = folder
        plain = [sys.executable, "-m", "poise", "up", "--demo", "--listen", "127.0.0.1:0", *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("POISE_")}
        self.process = subprocess.Popen(
            command or plain,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=bool(command),
        )
        self._lines: list[str] = []
        self._file = said
        self.seen: set[int] = set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def said(self) -> list[str]:
        """Everything that it has said so far."""
        if self._file is None:
            return self._lines
        return self._file.read_text().splitlines() if self._file.exists() else []

    def __enter__(self) -> Self:
        try:
            await_met(lambda: self.process.poll() is not None or any("answers on" in line for line in self.said))
            assert self.process.poll() is None, self.said
        except AssertionError:
            self.process.kill()
            raise
        self.url = next(line for line in self.said if "answers on" in line).rpartition(" ")[2]
        self.client = httpx2.Client(base_url=self.url, timeout=20.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self.look()
        for pid in [self.process.pid, *self.seen]:
            if alive(pid) and (pid == self.process.pid or self._is_ours(pid)):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(20)
        self._reader.join(20)

    def _is_ours(self, pid: int) -> bool:
        """A number may belong to somebody else by now."""
        try:
            return b"poise.demo" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as said:
            for line in said:
                self._lines.append(line.rstrip())

    def look(self) -> list[int]:
        """List the processes of the demo, and remember them."""
        found = descendants(self.process.pid)
        self.seen.update(found)
        return found

    def await_parts(self) -> None:
        """Wait until every part has been started."""
        await_met(lambda: len(self.look()) >= PARTS + 1)

    def await_well(self) -> None:
        """Wait until every job is as it should be; the market may be under way, as markets are."""
        await_met(self.is_well)

    def is_well(self) -> bool:
        own = (ORDERS, ROUTERS, GATEWAY, FLEET, SPOT)
        jobs = {job.name: job for job in self.every("/v1/jobs", JobSummary) if job.name in own}
        members = {name: sum(jobs[name].members.values()) for name in (ORDERS, ROUTERS, GATEWAY)}
        return (
            members == {ORDERS: 6, ROUTERS: 4, GATEWAY: 3}
            and not any(job.unowned or job.moves_in_flight for job in jobs.values())
            and all(jobs[name].spread <= 1 for name in (ORDERS, ROUTERS))
            and all(jobs[name].health == "as it should be" for name in (ORDERS, ROUTERS, GATEWAY, FLEET))
            and jobs[SPOT].items == 3
        )

    def every(self, path: str, kind: type[View]) -> list[View]:
        """Read a list of the API to its end; those of the demo have one page of a thousand at most."""
        response = self.client.get(path, params={"limit": "1000"})
        assert response.status_code == 200, response.text
        return [
            msgspec.json.decode(each, type=kind) for each in msgspec.json.decode(response.content, type=_Page).items
        ]

    def items(self, kind: str, name: str) -> dict[str, ItemView]:
        return {each.item: each for each in self.every(f"/v1/jobs/{kind}/{name}/items", ItemView)}

    def members(self, kind: str, name: str) -> dict[str, MemberView]:
        return {each.name: each for each in self.every(f"/v1/jobs/{kind}/{name}/members", MemberView)}

    def take(self, step: str) -> str:
        """Click a step, and give the address of the page that it leads to."""
        response = self.client.post(f"/demo/{step}", headers={"Origin": self.url})
        assert response.status_code == 303, response.text
        assert response.text.strip(), "the answer says what to watch"
        return response.headers["location"]

    def strip(self) -> str:
        """Read the strip as people do, without its marks."""
        found = re.search(r'<section class="card" id="demo".*?</section>', self.client.get("/").text, re.DOTALL)
        assert found is not None
        return " ".join(re.sub(r"<[^>]+>", " ", found[0]).replace("&nbsp;", " ").split())

    def pids(self, word: str) -> list[int]:
        """Find the processes of the demo with a word among their arguments."""
        return [pid for pid in self.look() if word.encode() in _arguments(pid)]

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.look()
        self.process.send_signal(number)
        return self.process.wait(30)


def _arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
