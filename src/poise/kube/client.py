"""The verbs of the Kubernetes API, over lightkube's authenticated HTTP client; every error is one of Poise's own.

No write is repeated after an unknown end: only 429, by which the server says that it did nothing, is waited out. The
server is told the deadline of each request, so that it gives up, too; but what has reached a slow etcd by then may
still be written. Unavailable therefore means: observe again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TypeVar

import httpx2
import msgspec
from lightkube.core.exceptions import ConfigError

from poise.errors import Overloaded, PoiseError, Unavailable
from poise.kube.failures import JSON_PATCH, Request, failure, read_status
from poise.kube.lines import gathered, split_lines
from poise.kube.objects import (
    Meta,
    Page,
    Partial,
    Status,
    StatusLine,
    WatchLine,
    decode,
    line_decoder,
    page_decoder,
    unreadable,
)
from poise.kube.patches import Operation, guarded
from poise.kube.resources import ObjectRef, Resource, Selection
from poise.kube.transport import TRANSPORT_ERRORS

Shape = TypeVar("Shape")
PAGE_MAX = 500
MANAGER = "poise"
_MERGE_PATCH, _APPLY_PATCH, _JSON = "application/merge-patch+json", "application/apply-patch+yaml", "application/json"
_LIMIT_S: ContextVar[float] = ContextVar("limit_s", default=float("inf"))
_TRANSPORT = (*TRANSPORT_ERRORS, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, ConfigError, OSError)


class Client:
    """Talks to one API server as one user. One client serves all tasks of a process."""

    def __init__(self, http: httpx2.AsyncClient, *, namespace: str = "default", request_s: float = 10.0) -> None:
        """Use an HTTP client that signs its requests; `namespace` is the user's own."""
        self._http = http
        self.namespace = namespace
        self.request_s = request_s

    async def __aenter__(self) -> Client:
        """Be usable in a block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def get(self, ref: ObjectRef, shape: type[Shape]) -> Shape:
        """Read one object as it is now."""
        return decode(await self._ask("GET", _request("get", ref), ref.path, shape=shape), shape)

    async def read(self, path: str, shape: type[Shape]) -> Shape:
        """Read what the API server says about itself, such as its groups."""
        request = Request("get", Resource("", "", path, ""), "", path)
        return decode(await self._ask("GET", request, path), shape)

    async def page(
        self, chosen: Selection, shape: type[Shape], *, limit: int = PAGE_MAX, after: str = ""
    ) -> Page[Shape]:
        """Read one page of a list; `after` is the `continue_` of the page before."""
        query = chosen.query | {"limit": str(limit)} | ({"continue": after} if after else {})
        request = Request("list", chosen.resource, chosen.namespace, str(chosen))
        body = await self._ask("GET", request, chosen.path, query=query, shape=shape, listed=True)
        try:
            return page_decoder(shape).decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise unreadable(error) from None

    async def list_all(
        self, chosen: Selection, shape: type[Shape], *, limit: int = PAGE_MAX
    ) -> tuple[list[Shape], str]:
        """Read a whole list page by page, with no resourceVersion: as it is now. Gives its version, too.

        VersionGone where it took so long that the server forgot its beginning: list again.
        """
        found: list[Shape] = []
        after = ""
        while True:
            page = await self.page(chosen, shape, limit=limit, after=after)
            found.extend(page.items or ())
            after = page.metadata.continue_
            if not after:
                return found, page.metadata.resource_version

    @asynccontextmanager
    async def watch(
        self, chosen: Selection, shape: type[Shape], version: str, *, idle_s: float = 90.0, watch_s: int = 300
    ) -> AsyncIterator[AsyncIterator[WatchLine[Shape]]]:
        """Follow what happens after a version, bookmarks included. It ends after `watch_s`, or once nothing comes."""
        query = chosen.query | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(watch_s),
        }
        request = Request("watch", chosen.resource, chosen.namespace, str(chosen))
        response = await self._open(request, chosen.path, query, _accept(shape, listed=False), idle_s)
        # Only reading is translated: an error of whoever uses the lines stays what it is.
        try:
            if response.status_code != 200:
                raise failure(request, response.status_code, response.headers, await _said(request, response))
            async with aclosing(_watch_lines(response, shape, request)) as lines:
                yield lines
        finally:
            await response.aclose()

    async def _open(
        self, request: Request, path: str, query: Mapping[str, str], accept: str, idle_s: float
    ) -> httpx2.Response:
        """Send a request whose answer is read bit by bit."""
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        timeout = httpx2.Timeout(self.request_s, read=idle_s)
        try:
            asked = self._http.build_request("GET", path, params=query, headers=headers, timeout=timeout)
            return await self._http.send(asked, stream=True)
        except _TRANSPORT as error:
            raise _unavailable(request, error) from error

    async def forward(self, method: str, path: str, headers: Mapping[str, str], content: bytes) -> httpx2.Response:
        """Send what somebody else asks for, signed as this user; whoever called reads the answer and closes it."""
        timeout = httpx2.Timeout(self.request_s, read=None)
        try:
            asked = self._http.build_request(method, path, headers=headers, content=content, timeout=timeout)
            return await self._http.send(asked, stream=True)
        except _TRANSPORT as error:
            raise Unavailable(f"{method} {path}: {type(error).__name__}: {error}") from error

    async def create(self, ref: ObjectRef, body: object, shape: type[Shape]) -> Shape:
        """Create an object; Conflict where there is one of that name."""
        path = ref.path if ref.subresource else ref.resource.path(ref.namespace)
        return await self._send("POST", _request("create", ref), path, body, shape)

    async def replace(self, ref: ObjectRef, body: object, shape: type[Shape]) -> Shape:
        """Put an object in the place of the version that its metadata names; Conflict where somebody wrote since."""
        return await self._send("PUT", _request("update", ref), ref.path, body, shape)

    async def apply(
        self, ref: ObjectRef, body: object, shape: type[Shape], *, manager: str = MANAGER, force: bool = False
    ) -> Shape:
        """Apply the fields that one manager owns; Conflict where another owns one of them, unless forced.

        The body carries uid and resourceVersion where it must not make a deleted object anew.
        """
        request = _request("patch", ref, _APPLY_PATCH)
        query = {"fieldManager": manager, "force": "true" if force else "false", "fieldValidation": "Strict"}
        return await self._send("PATCH", request, ref.path, body, shape, query)

    async def merge(self, ref: ObjectRef, meta: Meta, change: Mapping[str, object], shape: type[Shape]) -> Shape:
        """Change fields of exactly the object and version that was seen; None removes one. A stale one is Conflict."""
        return await self._send("PATCH", _request("patch", ref, _MERGE_PATCH), ref.path, guarded(meta, change), shape)

    async def patch(self, ref: ObjectRef, operations: Sequence[Operation], shape: type[Shape]) -> Shape:
        """Carry out a JSON Patch as a whole; PatchRefused where one of its tests fails."""
        return await self._send("PATCH", _request("patch", ref, JSON_PATCH), ref.path, operations, shape)

    async def delete(self, ref: ObjectRef, *, uid: str, version: str = "") -> None:
        """Delete exactly this object, in this version where one is named; Conflict where it is another."""
        conditions = {"uid": uid} | ({"resourceVersion": version} if version else {})
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        await self._ask("DELETE", _request("delete", ref), ref.path, content=msgspec.json.encode(body))

    async def _send(
        self,
        method: str,
        request: Request,
        path: str,
        body: object,
        shape: type[Shape],
        query: Mapping[str, str] | None = None,
    ) -> Shape:
        content = msgspec.json.encode(body)
        named = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
        return decode(await self._ask(method, request, path, query=query or named, content=content, shape=shape), shape)

    async def _ask(
        self,
        method: str,
        request: Request,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        content: bytes | None = None,
        shape: object = None,
        listed: bool = False,
    ) -> bytes:
        """Send one request. 429 is waited out as long as the deadline allows; nothing else is tried again."""
        headers = {"Accept": _accept(shape, listed=listed)}
        if content is not None:
            headers["Content-Type"] = request.content_type or _JSON
        limit_s = min(self.request_s, bound_s())
        asked = {**(query or {}), "timeout": _told(limit_s)}
        try:
            async with asyncio.timeout(limit_s) as limit:
                while True:
                    response = await self._http.request(method, path, params=asked, headers=headers, content=content)
                    if response.is_success:
                        return response.content
                    said = read_status(response.content)
                    refusal = failure(request, response.status_code, response.headers, said)
                    await _wait_out(refusal, limit.when())
        except _TRANSPORT as error:  # TimeoutError is an OSError.
            raise _unavailable(request, error) from error


def bound_s() -> float:
    """Say how long a request of this block may take at the most."""
    return _LIMIT_S.get()


@asynccontextmanager
async def within(limit_s: float | None) -> AsyncIterator[None]:
    """Bound the requests of a block; the server is told the same deadline. What takes longer is Unavailable."""
    token = _LIMIT_S.set(_LIMIT_S.get() if limit_s is None else limit_s)
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError:
        raise Unavailable("the API server gave no answer in time") from None
    finally:
        _LIMIT_S.reset(token)


def _told(limit_s: float) -> str:
    """Write a deadline as the server reads it; never a longer one."""
    return f"{int(limit_s)}s" if limit_s == int(limit_s) else f"{max(1, int(limit_s * 1000))}ms"


async def _wait_out(refusal: PoiseError, deadline_s: float | None) -> None:
    """Wait as long as an overloaded server asks for; raise what cannot be waited out before the deadline."""
    wait_s = refusal.retry_after_s if isinstance(refusal, Overloaded) else None
    if wait_s is None or deadline_s is None or asyncio.get_running_loop().time() + wait_s >= deadline_s:
        raise refusal
    await asyncio.sleep(wait_s)


async def _said(request: Request, response: httpx2.Response) -> Status:
    """Read why a watch was refused."""
    try:
        return read_status(await response.aread())
    except _TRANSPORT as error:
        raise _unavailable(request, error) from error


async def _watch_lines(
    response: httpx2.Response, shape: type[Shape], request: Request
) -> AsyncGenerator[WatchLine[Shape], None]:
    """Read line by line; the line that says why a watch ends is raised as the error that it means."""
    read = line_decoder(shape).decode
    async with aclosing(split_lines(gathered(_chunks(response, request)))) as lines:
        async for line in lines:
            try:
                event = read(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise unreadable(error) from None
            if event.type == "ERROR":
                said = decode(line, StatusLine).object
                raise failure(request, said.code, {}, said)
            yield event


async def _chunks(response: httpx2.Response, request: Request) -> AsyncIterator[bytes]:
    """Read bytes as they come."""
    try:
        async for chunk in response.aiter_raw():
            yield chunk
    except _TRANSPORT as error:
        raise _unavailable(request, error) from error


def _accept(shape: object, *, listed: bool) -> str:
    """Ask for metadata alone where nothing else is decoded; a list of them must be asked for as a list."""
    if shape is not Partial:
        return _JSON
    return f"{_JSON};as=PartialObjectMetadata{'List' if listed else ''};v=v1;g=meta.k8s.io"


def _request(verb: str, ref: ObjectRef, content_type: str = "") -> Request:
    return Request(verb, ref.resource, ref.namespace, str(ref), content_type, ref.subresource)


def _unavailable(request: Request, error: Exception) -> Unavailable:
    told = " ".join(str(error).split()) or "no answer in time"
    return Unavailable(f"{request.verb} {request.subject}: {type(error).__name__}: {told}")
