"""A proxy of the tests' own between a client and the API server: it delays, hangs, freezes, cuts and refuses."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

Answer = bytes
_HEAD_MAX = 64 * 1024
_SOON_S = 10.0


def refusal(status: str, headers: str = "", body: str = "{}") -> Answer:
    """Write an answer: `429 Too Many Requests`, `Retry-After: 1`."""
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *([headers] if headers else []), "", body]).encode()


class FaultyProxy:
    """Speaks plain HTTP with clients and TLS with the API server; one request a connection when it passes one on."""

    def __init__(self, port: int, ca_file: Path) -> None:
        """Stand before the API server on this port of loopback."""
        self._port, self._tls = port, ssl.create_default_context(cafile=str(ca_file))
        self.seen: list[str] = []
        self.refused: list[str] = []
        self.delay_s = 0.0
        self.hung = False
        self._flows = asyncio.Event()
        self._flows.set()
        self._refusals: list[tuple[Callable[[str], bool], Answer, int]] = []
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> FaultyProxy:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_HEAD_MAX)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every connection."""
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def refuse(self, answer: Answer, *, when: Callable[[str], bool] = lambda _head: True, times: int = 1) -> None:
        """Give this answer to the next requests whose head, which begins with the first line, fits."""
        self._refusals.append((when, answer, times))

    def calm(self) -> None:
        """Refuse nothing any more."""
        self._refusals.clear()

    def cut(self) -> None:
        """Cut every open connection, as a firewall does that forgets them."""
        for writer in list(self._open):
            writer.transport.abort()

    def freeze(self) -> None:
        """Let no more bytes through; the connections stay open and silent."""
        self._flows.clear()

    def thaw(self) -> None:
        """Let bytes through again."""
        self._flows.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open.add(writer)
        try:
            await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # Whoever hung up knows why.
        except asyncio.CancelledError:
            pass  # The proxy ends.
        finally:
            self._open.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests by refusals until one is passed on; that one ends with its connection."""
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            body = await reader.readexactly(_length(head))
            line = head.split("\r\n", 1)[0]
            self.seen.append(line)
            if self.hung:
                await asyncio.Event().wait()
            await asyncio.sleep(self.delay_s)
            given = self._refusal(head)
            if given is None:
                return await self._pass_on(head, body, reader, writer)
            self.refused.append(line)
            writer.write(given)
            await writer.drain()

    def _refusal(self, head: str) -> Answer | None:
        for place, (fits, answer, times) in enumerate(self._refusals):
            if fits(head):
                self._refusals[place : place + 1] = [(fits, answer, times - 1)] if times > 1 else []
                return answer
        return None

    async def _pass_on(
        self, head: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        del reader
        lines = [line for line in head.split("\r\n") if not line.lower().startswith("connection:")]
        closing = "\r\n".join([lines[0], "Connection: close", *lines[1:]])
        above, below = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls)
        self._open.add(below)
        try:
            below.write(closing.encode() + body)
            await below.drain()
            while chunk := await above.read(_HEAD_MAX):
                await self._flows.wait()
                writer.write(chunk)
                await writer.drain()
            await self._flows.wait()
        finally:
            self._open.discard(below)
            below.transport.abort()


class ProxyBeside:
    """A proxy with a thread of its own, for a test whose own thread starts processes and waits for them."""

    def __init__(self, port: int, ca_file: Path) -> None:
        """Prepare; nothing listens yet."""
        self.proxy = FaultyProxy(port, ca_file)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._ready = threading.Event()

    def __enter__(self) -> ProxyBeside:
        """Listen."""
        self._thread.start()
        assert self._ready.wait(_SOON_S), "the proxy listens"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the thread, and with it every connection."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(_SOON_S)
        assert not self._thread.is_alive(), "the proxy ends when it is told to"

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.proxy.url

    def do(self, act: Callable[[FaultyProxy], None]) -> None:
        """Do something to the proxy in the thread that it belongs to, and see it done."""

        async def done() -> None:
            act(self.proxy)

        asyncio.run_coroutine_threadsafe(done(), self._loop).result(_SOON_S)

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with self.proxy:
            self._ready.set()
            await self._over.wait()


def _length(head: str) -> int:
    for line in head.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            return int(value)
    return 0
