"""HTTP over connections that read everything that has arrived, and not one TLS record after the other.

The API server sends each event of a watch as a record of its own: being woken for each would cost more than its
meaning. Errors are httpcore's own: `TRANSPORT_ERRORS`.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any

import httpcore2
import httpx2

TRANSPORT_ERRORS = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.UnsupportedProtocol,
    httpcore2.ConnectionNotAvailable,
)


class Transport(httpx2.AsyncBaseTransport):
    """Sends requests over a pool of such connections."""

    def __init__(self, verify: ssl.SSLContext | bool, limits: httpx2.Limits) -> None:
        """Open nothing yet."""
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpx2.create_ssl_context(verify),
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_Backend(),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; its answer is read bit by bit."""
        url = request.url
        asked = httpcore2.Request(
            request.method,
            httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        answer = await self._pool.handle_async_request(asked)
        assert isinstance(answer.stream, AsyncIterable), "an asynchronous pool gives asynchronous answers"
        return httpx2.Response(
            answer.status, headers=answer.headers, stream=_Body(answer.stream), extensions=answer.extensions
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, closed with it."""

    def __init__(self, stream: AsyncIterable[bytes]) -> None:
        self._stream = stream

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._stream)

    async def aclose(self) -> None:
        if hasattr(self._stream, "aclose"):
            await self._stream.aclose()


class _Backend(httpcore2.AnyIOBackend):
    """Opens connections that read greedily once they are encrypted."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return _Plain(await super().connect_tcp(host, port, timeout, local_address, socket_options))


class _Plain(httpcore2.AsyncNetworkStream):
    """A connection that hands everything on."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        return _Greedy(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Greedy(_Plain):
    """A connection with TLS, whose records are read as long as there are whole ones."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        super().__init__(inner)
        self._records: ssl.SSLObject = inner.get_extra_info("ssl_object")

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        first = await self._inner.read(max_bytes, timeout)
        parts, room = [first], max_bytes - len(first)
        while first and room > 0:
            try:
                more = self._records.read(room)
            except ssl.SSLError:
                # Nothing whole is left, or a fault that the next reading meets as well.
                break
            if not more:
                break
            parts.append(more)
            room -= len(more)
        return b"".join(parts)
