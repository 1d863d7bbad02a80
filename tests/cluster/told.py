"""What a reflector told, and a reflector that runs beside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from poise.kube import Added, Client, Deleted, Event, Modified, Partial, Reflector, Selection, Synced
from poise.kube.pacing import Pace
from poise.kube.reflector import Following

QUICK = Following(page_max=500, idle_s=30.0, watch_s=60, lasting_s=0.5, pace=Pace(0.05, 0.5))


class Told:
    """Every event in order, and the names that are there by these events alone."""

    def __init__(self) -> None:
        """Begin with nothing told."""
        self.events: list[Event[Partial]] = []
        self.there: dict[str, str] = {}

    def __call__(self, event: Event[Partial]) -> None:
        """Take one event, which must fit to what was told before."""
        self.events.append(event)
        match event:
            case Added(object=seen):
                assert seen.metadata.name not in self.there, "an object is added once"
                self.there[seen.metadata.name] = seen.metadata.uid
            case Modified(object=seen, old=old):
                assert self.there[seen.metadata.name] == seen.metadata.uid == old.metadata.uid
            case Deleted(old=old):
                assert self.there.pop(old.metadata.name) == old.metadata.uid

    def count(self, kind: type[object]) -> int:
        """Count the events of one kind."""
        return sum(isinstance(event, kind) for event in self.events)

    def has(self, name: str) -> Callable[[], bool]:
        """Give the question whether an object is there."""
        return lambda: name in self.there

    @property
    def synced(self) -> bool:
        """Tell whether a list was told whole."""
        return any(isinstance(event, Synced) for event in self.events)


@asynccontextmanager
async def following(
    client: Client, chosen: Selection, told: Told, how: Following = QUICK
) -> AsyncIterator[Reflector[Partial]]:
    """Let a reflector run while the block does."""
    reflector = Reflector(client, chosen, Partial, told, following=how)
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
        assert not task.done(), "a reflector never ends by itself"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
