"""What every request can reach: the facade, the settings, the door, the events, the numbers and the threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from poise.serve.door import Door
from poise.serve.events import Hub
from poise.serve.facade import JobsApi
from poise.serve.metrics import Metrics
from poise.serve.problems import busy
from poise.serve.settings import ServeSettings

Result = TypeVar("Result")

# Asking is kept narrow, so that plans of huge jobs leave time to the job loops. Heartbeats have a way of their own, as
# wide as the number of works that a store commits at once.
_ASK_THREADS, _BEAT_THREADS = 4, 32
_WAITING_MAX = 2_000


class Lane:
    """A few threads with a bounded queue before them: whoever finds it full is asked to come again."""

    def __init__(self, name: str, threads: int) -> None:
        """Begin without threads; they come with the work."""
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"poise-{name}")
        self._count = threading.Lock()
        self._waiting = 0

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run work in a thread; what was given up on still counts until it has ended."""
        with self._count:
            if self._waiting >= _WAITING_MAX:
                raise busy("too many requests wait already")
            self._waiting += 1
        future = self._threads.submit(work)
        future.add_done_callback(self._ended)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise busy("this server ends") from None  # Nobody gave the request up: its work was never begun.

    def _ended(self, _future: Future[Result]) -> None:
        with self._count:
            self._waiting -= 1

    def close(self) -> None:
        """Take no more work; what hangs is left behind."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Buffers:
    """The memory that bodies take while they are read and worked on, all together."""

    def __init__(self, most: int) -> None:
        """Allow so many bytes."""
        self._free = most

    def take(self, size: int) -> None:
        """Take some, or ask to come again: many large bodies at once must not end the process."""
        if size > self._free:
            raise busy("too many large bodies are under way")
        self._free -= size

    def give(self, size: int) -> None:
        """Give back."""
        self._free += size


class Site:
    """One server's parts, made once."""

    def __init__(self, api: JobsApi, settings: ServeSettings, metrics: Metrics) -> None:
        """Put the parts together; nothing runs yet."""
        self.api = api
        self.settings = settings
        self.metrics = metrics
        self.door = Door(settings)
        self.description: Callable[[], bytes] = bytes
        self.hub = Hub(api, metrics.on_event, most=settings.streams_max, lag_max=settings.lag_max)
        self.buffers = Buffers(settings.buffers_max)
        self.lanes = {"asks": Lane("asks", _ASK_THREADS), "beats": Lane("beats", _BEAT_THREADS)}

    def close(self) -> None:
        """End the threads."""
        for lane in self.lanes.values():
            lane.close()
