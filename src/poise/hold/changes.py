"""Gains and losses as a stream, for members that would rather loop than be called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable


class Gained:
    """The member may act on an item now."""

    def __init__(self, item: str, epoch: int) -> None:
        """Name the item and the epoch that every side effect should carry."""
        self.item, self.epoch = item, epoch

    def __repr__(self) -> str:
        """Read like its making."""
        return f"Gained({self.item!r}, {self.epoch})"


class Lost:
    """The member must stop acting on an item; `ack` says that the work has stopped."""

    def __init__(self, item: str, epoch: int, acknowledge: Callable[[], None]) -> None:
        """Name the item and the epoch at which it was held, and who wants to know."""
        self.item, self.epoch, self._acknowledge = item, epoch, acknowledge

    def ack(self) -> None:
        """Say that all work on the item has stopped; only then is it given to another member."""
        self._acknowledge()

    def __repr__(self) -> str:
        """Read like its making."""
        return f"Lost({self.item!r}, {self.epoch})"


class Stream:
    """The changes that nobody has taken yet, in their order."""

    def __init__(self) -> None:
        """Start empty and open."""
        self._waiting: asyncio.Queue[Gained | Lost | None] = asyncio.Queue()
        self._open: set[asyncio.Event] = set()
        self._closed = False

    async def gain(self, item: str, epoch: int) -> None:
        """Add a gain."""
        self._waiting.put_nowait(Gained(item, epoch))

    async def lose(self, item: str, epoch: int) -> None:
        """Add a loss, and wait until it is acknowledged; after the end nobody works any more."""
        if self._closed:
            return
        acknowledged = asyncio.Event()
        self._open.add(acknowledged)
        self._waiting.put_nowait(Lost(item, epoch, acknowledged.set))
        try:
            await acknowledged.wait()
        finally:
            self._open.discard(acknowledged)

    def close(self) -> None:
        """End the stream: whoever worked on something has stopped by now."""
        self._closed = True
        for acknowledged in self._open:
            acknowledged.set()
        self._waiting.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Gained | Lost]:
        """Give the changes one by one, until the stream ends."""
        while (change := await self._waiting.get()) is not None:
            yield change
        self._waiting.put_nowait(None)
