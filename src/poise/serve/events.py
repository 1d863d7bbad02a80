"""Server-sent events: one reader of the store for all clients, and no client that anybody waits for.

The last events are kept once for everybody; a client is a place in that list. One that falls further behind than the
list may grow is dropped, and comes back with the id of the last event that it has seen.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import islice

import msgspec

from poise import clock
from poise.errors import PoiseError
from poise.serve.facade import ORIGIN, Event, JobsApi
from poise.serve.problems import busy

PAGE = 1_000
_WAIT_S = 1.0
_PACE_S = 0.5
_BACKOFF_S, _BACKOFF_MAX_S = 0.1, 5.0
_FIRST = b"retry: 2000\n: every transition, in the order of commits\n\n"
_PING = b": ping\n\n"
_log = logging.getLogger("poise.events")


class Wish(msgspec.Struct, frozen=True):
    """Which events a client wants: those of one kind, of one job, about one member, of one set; None is any."""

    kind: str | None = None
    job: str | None = None
    member: str | None = None
    set: str | None = None

    def takes(self, event: Event) -> bool:
        """Tell whether an event is wanted."""
        return (
            self.kind in (None, event.kind)
            and self.job in (None, event.job)
            and self.member in (None, event.line.member)
            and self.set in (None, event.line.set)
        )


class Client:
    """One reader of events: its place, what it wants, and how to cut it off while it does not read."""

    def __init__(self, cut: Callable[[], None], wish: Wish) -> None:
        """Begin at no place yet: while it catches up from the store it cannot fall behind."""
        self.place: int | None = None
        self.wish = wish
        self.news = asyncio.Event()
        self.dropped = False
        self._cut = cut

    def drop(self) -> None:
        """End a client that does not read."""
        self.dropped = True
        self._cut()


class Hub:
    """Reads events in a thread, and hands them out in the event loop that started it."""

    def __init__(self, api: JobsApi, on_event: Callable[[Event], None], *, most: int, lag_max: int) -> None:
        """Read from this facade, for so many clients at most, each at most so many events behind."""
        self._api, self._on_event = api, on_event
        self._most, self._lag_max = most, lag_max
        self._kept: deque[tuple[Event, bytes]] = deque(maxlen=lag_max)
        self._places: dict[str, int] = {}
        self._head = 0
        self._told = 0
        self._clients: set[Client] = set()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def clients(self) -> int:
        """Count those who listen."""
        return len(self._clients)

    @property
    def head(self) -> int:
        """Count the events that were handed out."""
        return self._head

    def has(self, event: str) -> bool:
        """Tell whether a stream can go on after this event without asking the store."""
        return event in self._places

    def start(self) -> None:
        """Begin to read; the running event loop is the one that hands out."""
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._read, args=(loop,), name="poise-events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End every stream in order; the reader ends with its present wait."""
        self._ended.set()
        self._wake()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for commits and read what they wrote; a store that is away is asked again, ever more patiently."""
        version, last, failures = -1, None, 0
        while not self._ended.is_set():
            try:
                last = last or self._newest()
                version = self._api.wait(version, _WAIT_S)
                while found := self._api.events(last, PAGE):
                    last = found[-1].id
                    self._tell(loop, found)
                    self._pace(len(found))
                failures = 0
            except Exception as error:
                failures += 1
                if failures == 1 or not isinstance(error, PoiseError):
                    _log.warning("events.unreadable error=%s reason=%s", type(error).__name__, error)
                self._ended.wait(min(_BACKOFF_S * 2.0 ** min(failures, 10), _BACKOFF_MAX_S))

    def _newest(self) -> str:
        """Find where to begin: at what is newest now; nobody listens yet."""
        newest = self._api.events(None, PAGE)
        last = newest[-1].id if newest else ORIGIN
        while found := self._api.events(last, PAGE):
            last = found[-1].id
        return last

    def _tell(self, loop: asyncio.AbstractEventLoop, found: list[Event]) -> None:
        written = [(event, as_text(event)) for event in found]
        for event in found:
            self._on_event(event)
        with suppress(RuntimeError):  # The loop may have ended before the reader.
            loop.call_soon_threadsafe(self._publish, written)

    def _pace(self, told: int) -> None:
        """Let clients read before the next one of many large pages comes; who does not is not waited for long."""
        self._told += told
        end_s = clock.boot_s() + _PACE_S
        while told == PAGE and not self._ended.is_set() and clock.boot_s() < end_s:
            behind = [client for client in list(self._clients) if (client.place or self._told) < self._told]
            if self._head == self._told and not behind:
                return
            self._ended.wait(0.005)

    def _publish(self, written: list[tuple[Event, bytes]]) -> None:
        """Keep new events, wake those whom one of them may concern, and drop whoever is too far behind."""
        before = self._head
        for event, text in written:
            if len(self._kept) == self._kept.maxlen:
                self._places.pop(self._kept[0][0].id, None)
            self._kept.append((event, text))
            self._places[event.id] = self._head
            self._head += 1
        members: set[str | None] = {None, *(event.line.member for event, _ in written)}
        for client in list(self._clients):
            if client.wish.member in members:
                client.news.set()
            elif client.place == before:
                client.place = self._head  # Nothing here is about its member: it has missed nothing.
            if client.place is not None and self._head - client.place > self._lag_max:
                client.drop()

    def _wake(self) -> None:
        for client in self._clients:
            client.news.set()

    def join(self, cut: Callable[[], None], wish: Wish) -> Client:
        """Let one more client in, if there is room."""
        if self._ended.is_set():
            raise busy("the server is ending")
        if len(self._clients) >= self._most:
            raise busy(f"{self._most} clients listen already")
        client = Client(cut, wish)
        self._clients.add(client)
        return client

    def leave(self, client: Client) -> None:
        """Forget a client."""
        self._clients.discard(client)

    async def stream(
        self, client: Client, after: str | None, read: Callable[[str], Awaitable[list[Event]]], ping_s: float
    ) -> AsyncIterator[bytes]:
        """Give the bytes of one stream: what was missed since `after`, then what comes, and pings in between."""
        yield _FIRST
        if after is None:
            client.place = self._head
        else:
            async for missed in self._catch_up(client, after, read):
                yield missed
        ping_at_s = clock.boot_s() + ping_s
        while not client.dropped and not self._ended.is_set():
            part = await self._next(client, ping_at_s - clock.boot_s())
            # News that is not wanted is no sign of life for the one who listens.
            if not part and clock.boot_s() >= ping_at_s:
                part = _PING
            if part:
                yield part
                ping_at_s = clock.boot_s() + ping_s

    async def _catch_up(
        self, client: Client, after: str, read: Callable[[str], Awaitable[list[Event]]]
    ) -> AsyncIterator[bytes]:
        """Read what was missed from the store until the kept events go on from there.

        What was handed out before a page was asked for was committed before it: an empty page means nothing is missed.
        """
        while not self._ended.is_set():
            if after in self._places:
                client.place = self._places[after] + 1
                return
            head = self._head
            page = await read(after)
            if not page:
                client.place = head
                return
            after = page[-1].id
            yield b"".join(as_text(event) for event in page if client.wish.takes(event))

    async def _next(self, client: Client, wait_s: float) -> bytes:
        """Wait for news, so long at most, and give what is wanted of it."""
        assert client.place is not None, "a client that is fed has caught up"
        if client.place == self._head:
            client.news.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await client.news.wait()
            except TimeoutError:
                return b""
        behind = self._head - client.place
        client.place = self._head
        latest = islice(self._kept, max(len(self._kept) - behind, 0), None)
        return b"".join(text for event, text in latest if client.wish.takes(event))


def as_text(event: Event) -> bytes:
    """Write an event as the wire has it; JSON has no line break, so nothing in a name can forge a line."""
    return b"id: %b\nevent: transition\ndata: %b\n\n" % (event.id.encode(), msgspec.json.encode(event))
