"""A mirror that follows the API server: list in pages, watch with bookmarks, and never believe that silence is health.

A list names no resourceVersion, so it shows what is true now and not what a lagging server remembers. A watch that
fails goes on from the last version seen; when that one is too old, everything is listed again and what has vanished
meanwhile is told as deleted.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Generic, cast

import msgspec

from poise.errors import PoiseError, VersionGone
from poise.kube.client import PAGE_MAX, Client
from poise.kube.mirror import Event, Kept, Key, Mirror
from poise.kube.objects import Partial, WatchLine, slim_partial
from poise.kube.pacing import Pace, asked_wait_s
from poise.kube.resources import Selection


class Following(msgspec.Struct, frozen=True):
    """How a reflector follows. The server sends a bookmark about every minute: silence for longer is a dead line."""

    page_max: int = PAGE_MAX
    idle_s: float = 90.0
    watch_s: int = 300
    lasting_s: float = 5.0
    pace: Pace = Pace()


_USUAL = Following()


class Reflector(Generic[Kept]):
    """Keeps a mirror of one selection and tells every change to `handle`, in order, from one task.

    `handle` must not wait: it notes what to do. `trouble` is what is wrong now, None while the watch is open.
    """

    def __init__(
        self,
        client: Client,
        chosen: Selection,
        shape: type[Kept],
        handle: Callable[[Event[Kept]], None],
        *,
        keep: Callable[[Kept], Kept] | None = None,
        following: Following = _USUAL,
    ) -> None:
        """Follow one selection; `keep` makes of an object what is worth remembering (of metadata: `slim_partial`)."""
        self.chosen = chosen
        self.trouble: PoiseError | None = None
        self.lists = 0
        self._client, self._shape, self._handle, self._following = client, shape, handle, following
        self._keep = keep or _keeper(shape)
        self._mirror: Mirror[Kept] = Mirror()
        self._version = ""
        self._failures = 0
        # Every wish for a fresh list has a number; a list answers the wishes that were there when it began.
        self._wishes = self._answered = 0
        self._wished, self._listed = asyncio.Event(), asyncio.Condition()

    @property
    def objects(self) -> Mapping[Key, Kept]:
        """All objects by namespace and name, as last seen."""
        return self._mirror.objects

    async def run(self) -> None:
        """Follow until cancelled; whatever fails is tried again after a wait that grows."""
        while True:
            try:
                await self._follow()
            except VersionGone as error:
                self._version = ""
                await self._recover(error)
            except PoiseError as error:
                await self._recover(error)

    async def relist(self) -> None:
        """List anew; returns when a list that began after this call has been told."""
        self._wishes += 1
        wish = self._wishes
        self._wished.set()
        async with self._listed:
            await self._listed.wait_for(lambda: self._answered >= wish)

    async def _follow(self) -> None:
        """List as long as a list is wished, which is never cut short; then watch until the next wish."""
        while not self._version or self._answered < self._wishes:
            self._wished.clear()
            await self._list()
        watching = asyncio.create_task(self._watch())
        wished = asyncio.create_task(self._wished.wait())
        try:
            await asyncio.wait((watching, wished), return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                await watching
        finally:
            watching.cancel()
            wished.cancel()
            await asyncio.gather(watching, wished, return_exceptions=True)

    async def _list(self) -> None:
        """Take a whole list into the mirror."""
        wishes = self._wishes
        listed, version = await self._client.list_all(self.chosen, self._shape, limit=self._following.page_max)
        for event in self._mirror.replace(map(self._keep, listed), version):
            self._handle(event)
        self._version = version
        async with self._listed:
            self.lists += 1
            self._answered = wishes
            self._listed.notify_all()

    async def _watch(self) -> None:
        """Take what a watch tells until it ends; one that lasted makes earlier failures forgotten."""
        loop = asyncio.get_running_loop()
        # Watches that began together, after a restart of the server, do not all end together.
        watch_s = self._following.watch_s + random.randrange(self._following.watch_s)
        opened = self._client.watch(
            self.chosen, self._shape, self._version, idle_s=self._following.idle_s, watch_s=watch_s
        )
        async with opened as lines:
            began_s, self.trouble = loop.time(), None
            async for line in lines:
                self._take(line)
                self._failures = 0
        if loop.time() - began_s < self._following.lasting_s:
            # A server that ends every watch at once is not asked in a tight loop.
            self._failures += 1
            await asyncio.sleep(self._following.pace.wait_s(self._failures, random.random()))

    def _take(self, line: WatchLine[Kept]) -> None:
        if line.type == "BOOKMARK":
            pass
        elif line.type == "DELETED":
            for event in self._mirror.drop(self._keep(line.object)):
                self._handle(event)
        else:
            for event in self._mirror.put(self._keep(line.object)):
                self._handle(event)
        self._version = line.object.metadata.resource_version

    async def _recover(self, error: PoiseError) -> None:
        """Wait: as long as the server asks, and longer after each failure."""
        self.trouble = error
        self._failures += 1
        wait_s = self._following.pace.wait_s(self._failures, random.random())
        await asyncio.sleep(max(wait_s, asked_wait_s(error)))


def _keeper(shape: type[Kept]) -> Callable[[Kept], Kept]:
    """Slim metadata, and leave other objects whole."""
    if issubclass(shape, Partial):
        # What is kept of metadata is metadata; the types cannot say that Kept is Partial here.
        return cast(Callable[[Kept], Kept], slim_partial)
    return lambda seen: seen
