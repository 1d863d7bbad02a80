"""Chunks of bytes to lines, for a watch that never ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable

from poise.errors import Unavailable

LINE_MAX = 16 * 1024 * 1024
GATHERED_S = 0.05
_WAITED_S = 0.001


async def split_lines(chunks: AsyncIterable[bytes], line_max: int = LINE_MAX) -> AsyncGenerator[bytes, None]:
    """Give each whole line; half a line at the end was cut off and is dropped. A line without end is Unavailable."""
    rest: list[bytes] = []
    length = 0
    async for chunk in chunks:
        *whole, tail = chunk.split(b"\n")
        for line in whole:
            yield b"".join((*rest, line)) if rest else line
            rest, length = [], 0
        if tail:
            rest.append(tail)
            length += len(tail)
        if length > line_max:
            raise Unavailable(f"the API server sent a line of more than {line_max:,} bytes")


async def gathered(chunks: AsyncIterable[bytes], pause_s: float = GATHERED_S) -> AsyncGenerator[bytes, None]:
    """Pause after a chunk that had to be waited for, so that what follows soon is read together with its successors.

    Most of what an event costs is being woken for it. The first of a burst is not delayed, the others by the pause.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    async for chunk in chunks:
        waited = loop.time() - began_s > _WAITED_S
        yield chunk
        if waited:
            await asyncio.sleep(pause_s)
        began_s = loop.time()
