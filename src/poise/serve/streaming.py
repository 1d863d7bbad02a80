"""The answer of `/v1/events`: a stream that ends when the client goes, is cut off, or the server ends."""

from __future__ import annotations

import asyncio

from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from poise.errors import invalid
from poise.serve.asking import Ask
from poise.serve.events import PAGE, Client, Hub, Wish
from poise.serve.facade import Event
from poise.serve.guard import DEADLINE, connection_of
from poise.serve.problems import Refused
from poise.serve.site import Site

EVENT_STREAM = "text/event-stream"
_ID_MAX = 100


class EventStream(StreamingResponse):
    """A stream of one client, who leaves the hub however it ends."""

    def __init__(self, site: Site, client: Client, after: str | None) -> None:
        """Begin after an event, or now."""

        async def read(last: str) -> list[Event]:
            return await site.lanes["asks"].run(lambda: site.api.events(last, PAGE))

        headers = {"Connection": "close", "X-Accel-Buffering": "no"}
        content = site.hub.stream(client, after, read, site.settings.ping_s)
        super().__init__(content, headers=headers, media_type=EVENT_STREAM)
        self._hub: Hub = site.hub
        self._client = client
        self._part_s = site.settings.request_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream without a deadline."""
        try:
            deadline = scope[DEADLINE]
            assert isinstance(deadline, asyncio.Timeout), "the guard gives every request its deadline"
            deadline.reschedule(None)
            connection_of(scope).let_stream()
            await super().__call__(scope, receive, self._in_time(send))
        finally:
            self._hub.leave(self._client)

    def _in_time(self, send: Send) -> Send:
        """Give every part of the stream the time of a request: a client that reads nothing for so long is cut off."""

        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(self._part_s):
                await send(message)

        return send_in_time


async def open_stream(site: Site, ask: Ask, scope: Scope) -> Response:
    """Let a client in; an id that is none is refused before the stream begins."""
    if ask.who.role == "member" and ask.query.get("job", ask.who.set) != ask.who.set:
        raise Refused(403, f"{ask.who.name} may read the events of {ask.who.set} only")
    after = ask.headers.get("last-event-id") or None
    if after is not None and not site.hub.has(after):
        if len(after) > _ID_MAX or not after.isascii():
            raise invalid("Last-Event-ID", "expected the id of an event")
        last = after
        await site.lanes["asks"].run(lambda: site.api.events(last, 1))
    if scope["method"] == "HEAD":
        return Response(headers={"Connection": "close"}, media_type=EVENT_STREAM)
    # A member hears of its own set only, and not of a job of another kind that has the same name.
    its = ask.who.set if ask.who.role == "member" else None
    wish = Wish(ask.query.get("kind"), ask.query.get("job"), ask.query.get("member"), its)
    return EventStream(site, site.hub.join(connection_of(scope).cut, wish), after)
