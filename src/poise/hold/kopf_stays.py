"""The objects that kopf is told of: for each the event that waits to be processed, and what is known of kopf's work."""

from __future__ import annotations

import asyncio

from kopf._core.reactor.inventory import ResourceMemory

from poise.hold.kopf_inside import Call, Traces, version_of
from poise.model.sharding import Marks


class Job:
    """One event to be processed; `done` is the answer to kopf, where that waits for it."""

    def __init__(self, call: Call, marks: Marks) -> None:
        """Wait to be processed; `marks` are the labels of the ring as the event showed them."""
        self.call, self.epoch = call, marks.epoch or 0
        self.task: asyncio.Task[str | None] | None = None
        self.done: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.awaited = True
        self._pressure = asyncio.Event()

    def again(self) -> Job:
        """Make the same anew; nobody waits for it."""
        job = Job(self.call, Marks(epoch=self.epoch))
        job.awaited = False
        return job

    def hurry(self) -> None:
        """Cut its pauses short: somebody asks for the object, or there is something newer."""
        self._pressure.set()

    def under_pressure(self) -> Call:
        """Give what kopf is called with. Its own signal would also reach the next event, which is processed alone."""
        return {**self.call, "stream_pressure": self._pressure}

    def haste(self) -> tuple[asyncio.Event, ...]:
        """Give what kopf signals newer events by, while it waits for this one; else they are put here."""
        pressure = self.call["stream_pressure"]
        return (pressure,) if self.awaited and pressure is not None else ()

    def finish(self, version: str | None) -> None:
        """Answer kopf, which goes on to the next event of the object."""
        if not self.done.done():
            self.done.set_result(version)

    def fail(self, error: BaseException) -> None:
        """Tell kopf of a fault."""
        if not self.done.done():
            self.done.set_exception(error)


class Stay:
    """One object at this instance, from the first event that shows it there until it leaves."""

    def __init__(self) -> None:
        """Know nothing: whatever kopf remembers of the object is of an earlier stay."""
        self.epoch: int | None = None  # At which kopf's memory of it was made.
        self.leaving = False  # It was let go of, since somebody asked for it.
        self.job: Job | None = None
        self.begun: Job | None = None
        self.news = asyncio.Event()
        self.memory: ResourceMemory | None = None
        self.traces: Traces | None = None
        self._expected, self._expected_until_s = "", 0.0
        self.unseen = 0

    def put(self, job: Job) -> Job:
        """Let an event wait, instead of any older one."""
        if self.job is not None:
            self.job.finish(None)
        if self.begun is not None:
            self.begun.hurry()
        self.job = job
        self.news.set()
        return job

    def put_back(self, job: Job | None) -> None:
        """Let the last event wait anew, where no newer one does: its processing was cut short."""
        if self.job is None and job is not None:
            self.job = job.again()

    def take(self, epoch: int) -> Job | None:
        """Take the event that fits this epoch. An older one tells of an earlier owner, a newer one must wait."""
        self.news.clear()
        job = self.job
        if job is None or job.epoch > epoch:
            return None
        self.job = None
        if job.epoch < epoch:
            job.finish(None)
            return None
        return job

    def expect(self, version: str | None, until_s: float) -> None:
        """Note what kopf wrote last: until an event shows it, older ones must not be taken for the truth."""
        if version is not None:
            self._expected, self._expected_until_s = version, until_s

    def consistency_s(self, call: Call) -> float | None:
        """Give until when a newer event is to be waited for; None where this one shows the last write."""
        if version_of(call) == self._expected:
            self._expected = ""
        return self._expected_until_s if self._expected else None
