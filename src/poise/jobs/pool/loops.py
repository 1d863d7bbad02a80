"""Loops that never end by a fault: each takes its steps when they are due, and pauses longer the more of them fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from math import inf

from poise.errors import PoiseError

_BACKOFF_S, _BACKOFF_MAX_S = 0.1, 5.0
Step = Callable[[], Awaitable[float]]

_log = logging.getLogger("poise.pool")


class Loops:
    """The loops of one pool, with the reason why each of them waits."""

    def __init__(self, pool: str) -> None:
        """Name the pool in what is logged."""
        self._pool = pool
        self.errors: dict[str, str] = {}

    async def until_done(self, what: str, step: Step) -> None:
        """Try a step until it succeeds."""
        failures = 0
        while await self._try(what, step) is None:
            failures += 1
            await asyncio.sleep(_pause_s(failures))

    async def forever(self, what: str, step: Step, due: asyncio.Event | None = None) -> None:
        """Take steps until cancelled: after the time that the last one named, or as soon as one is due."""
        failures = 0
        while True:
            if due is not None:
                due.clear()
            wait_s = await self._try(what, step)
            failures = failures + 1 if wait_s is None else 0
            if wait_s is None:
                await asyncio.sleep(_pause_s(failures))
            elif due is None:
                await asyncio.sleep(wait_s)
            else:
                await wait_for(due, wait_s)

    async def _try(self, what: str, step: Step) -> float | None:
        try:
            wait_s = await step()
            self.errors.pop(what, None)
            return wait_s
        except PoiseError as error:
            if self.errors.get(what) != str(error):
                _log.warning("pool.waits pool=%s what=%s reason=%s", self._pool, what, error)
            self.errors[what] = str(error)
        except Exception as error:
            _log.exception("pool.broken pool=%s what=%s", self._pool, what)
            self.errors[what] = f"a fault of Poise: {error!r}"
        return None


async def wait_for(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for an event, or for a time."""
    try:
        async with asyncio.timeout(None if timeout_s == inf else timeout_s):
            await event.wait()
    except TimeoutError:
        pass


def _pause_s(failures: int) -> float:
    return min(_BACKOFF_MAX_S, _BACKOFF_S * 2.0 ** min(failures, 10))
