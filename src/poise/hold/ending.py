"""Waiting for work that may never end, and for several loops that end as one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


async def within(work: Coroutine[object, None, object], timeout_s: float) -> None:
    """Wait for work for a time, however it ends; unlike `wait_for`, no cancellation is ever lost here."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=timeout_s)
    finally:
        task.cancel()
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


def only(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Take the one error out of its group, or the group where there are several."""
    return errors.exceptions[0] if len(errors.exceptions) == 1 else errors
