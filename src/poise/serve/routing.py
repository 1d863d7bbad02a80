"""From a row of the API to an answer: who may, with which parameters and body, in which thread."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from poise.errors import Conflict
from poise.serve.asking import Answer, Ask, Who, path_names, query_values
from poise.serve.call import Call
from poise.serve.guard import WHO, shown_path
from poise.serve.problems import Refused
from poise.serve.site import Site
from poise.serve.streaming import open_stream

_log = logging.getLogger("poise.requests")


class Resource:
    """Everything that can be done at one path."""

    def __init__(self, site: Site, calls: Iterable[Call]) -> None:
        """Know the calls of a path by their methods."""
        self._site = site
        self._calls = {call.method: call for call in calls}
        reads = ["HEAD"] if "GET" in self._calls else []
        self._allow = ", ".join([*self._calls, *reads, "OPTIONS"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        call = self._calls.get(method)
        if call is None:
            if method == "OPTIONS":
                await Response(status_code=204, headers={"Allow": self._allow})(scope, receive, send)
                return
            raise Refused(405, f"allowed here: {self._allow}", headers={"Allow": self._allow})
        response = await self._answer(call, scope, receive)
        if call.role == "operator":
            who: Who = scope[WHO]
            _log.info("request.done who=%s method=%s path=%s", who.name, method, shown_path(scope))
        await response(scope, receive, send)

    async def _answer(self, call: Call, scope: Scope, receive: Receive) -> Response:
        body = Body(self._site)
        try:
            ask = await read_ask(self._site, call, scope, receive, body)
            if call.streams:
                return await open_stream(self._site, ask, scope)
            work = partial(run, call, self._site, ask)
            return work() if call.lane == "loop" else await self._site.lanes[call.lane].run(work)
        finally:
            body.free()


class Body:
    """A body that is being read: it counts in what all bodies may take together."""

    def __init__(self, site: Site) -> None:
        """Begin with nothing."""
        self._most, self._buffers = site.settings.body_max, site.buffers
        self._size = 0

    async def read(self, receive: Receive, said: str) -> bytes:
        """Read a body up to its limit; one that says that it is larger is not read at all."""
        if not said.isdecimal() or int(said[:18]) > self._most:
            raise self._too_large()
        parts = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "the client went away")
            part: bytes = message.get("body", b"")
            if self._size + len(part) > self._most:
                raise self._too_large()
            self._buffers.take(len(part))
            self._size += len(part)
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_large(self) -> Refused:
        return Refused(413, f"the body is larger than {self._most} bytes")

    def free(self) -> None:
        """Let others have the room."""
        self._buffers.give(self._size)
        self._size = 0


async def read_ask(site: Site, call: Call, scope: Scope, receive: Receive, body: Body) -> Ask:
    """Check the form of a request; its body is read last, and only for those who may."""
    headers, names = Headers(scope=scope), path_names(scope["path_params"])
    who: Who = scope[WHO]
    authorize(call, who, names)
    query = query_values(scope["query_string"], [each.name for each in call.query])
    text = await body.read(receive, headers.get("content-length", "0"))
    check_media(call, headers, text)
    kept = {name.lower(): value for name, value in headers.items()}
    secure = site.settings.tls_cert is not None
    return Ask(names=names, query=query, headers=kept, body=text, who=who, secure=secure)


def authorize(call: Call, who: Who, names: dict[str, str]) -> None:
    """Hold the role against the call: viewers read, operators do everything, members speak for their set."""
    if call.role == "open" or who.role == "operator" or who.role == call.role == "viewer":
        return
    if who.role == "none":
        raise Refused(401, "send a token: Authorization: Bearer TOKEN", headers={"WWW-Authenticate": "Bearer"})
    if who.role == call.role == "member" and names.get("set") == who.set:
        return
    if who.role == "member" and call.members is not None and call.members.may(who.set, names):
        return
    its = f" of set {who.set}" if who.set else ""
    raise Refused(403, f"{who.name} is a {who.role}{its}, and may not do this")


def check_media(call: Call, headers: Headers, body: bytes) -> None:
    """Refuse a body of another type, one that nobody reads, and the lack of one that is needed."""
    if not body and not (call.body and call.body_needed):
        return
    if call.body is None:
        raise Refused(400, "this call takes no body")
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in call.body_media:
        raise Refused(415, f"expected Content-Type: {' or '.join(call.body_media)}, got {media[:100] or 'none'}")


def run(call: Call, site: Site, ask: Ask) -> Response:
    """Do the work of a call and write its answer; a lost race of a conditional write has its own status."""
    try:
        answer = call.handle(site, ask)
    except Conflict as error:
        if call.conditional and ("if-match" in ask.headers or "if-none-match" in ask.headers):
            raise Refused(412, str(error)) from None
        raise
    return written(answer)


def written(answer: Answer) -> Response:
    """Write an answer."""
    if answer.status == 204:
        return Response(status_code=204, headers=answer.headers)
    body = answer.value if isinstance(answer.value, bytes) else msgspec.json.encode(answer.value)
    return Response(body, answer.status, answer.headers, answer.media)


def routes_of(site: Site, calls: Iterable[Call]) -> list[Route]:
    """Make one route a path, in the order of the rows."""
    paths: dict[str, list[Call]] = {}
    for call in calls:
        paths.setdefault(call.path, []).append(call)
    return [Route(path, Resource(site, rows)) for path, rows in paths.items()]
