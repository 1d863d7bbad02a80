"""Moves without an end on a real server, and the weight of a page that looks on."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import httpx2
from playwright.sync_api import CDPSession, Page
from tests.browser.browser_world import Speaker
from tests.serve_process import await_met

_BEAT_S, _BEATS = 0.05, 12  # Weights change places every so many heartbeats.


class Shuffle:
    """Two members whose weights change places again and again: what they hold moves to and fro."""

    def __init__(self, client: httpx2.Client, job: str) -> None:
        """Let two members join."""
        self._both = [Speaker(client, job, f"{job}-{number}") for number in (1, 2)]
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shuffle")

    @property
    def moves(self) -> int:
        """Count the items that were let go of so far."""
        return sum(each.moved for each in self._both)

    def _run(self) -> None:
        beats = 0
        while not self._ending.wait(_BEAT_S):
            beats += 1
            if beats % _BEATS == 0:
                heavy = beats // _BEATS % 2
                self._both[heavy].weight, self._both[1 - heavy].weight = 9, 1
            for each in self._both:
                each.speak()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Move while the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._ending.set()
            self._thread.join(30)


class Weighed(NamedTuple):
    """What a page holds when everything that nobody needs has been collected."""

    megabytes: float
    nodes: int


def weigh(session: CDPSession) -> Weighed:
    """Collect, and read what is left of JavaScript and of nodes."""
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    told = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return Weighed(told["JSHeapUsedSize"] / 1e6, int(told["Nodes"]))


def grow(page: Page, shuffle: Shuffle, seconds: float, parts: int = 3) -> list[Weighed]:
    """Weigh a page after every part of the time in which much moves; the first weight counts as its beginning.

    The last one is taken at rest: a browser that is busy collects late, and what is kept for good does not go then.
    """
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    found = []
    with shuffle.going_on():
        for _ in range(parts):
            page.wait_for_timeout(seconds * 1000 / parts)
            found.append(weigh(session))
    while (now := weigh(session)).nodes < found[-1].nodes:
        found.append(now)
        page.wait_for_timeout(500)
    return found


def await_settled(client: httpx2.Client, job: str, names: Sequence[str], within_s: float = 120.0) -> None:
    """Let members join, and wait until each has confirmed its share and nothing moves."""
    members = [Speaker(client, job, name) for name in names]
    path = f"/v1/jobs/PartitionSet/{job}"

    def rests() -> bool:
        for each in members:
            each.speak()
        known = client.get(path).json()
        rows = known["status"].get("partitions", [])
        loads = Counter(row["owner"] for row in rows if row["state"] == "Assigned" and row.get("confirmed"))
        shares = [loads[name] for name in names]
        return sum(shares) == known["spec"]["partitions"] and max(shares) - min(shares) <= 1

    await_met(rests, within_s)
