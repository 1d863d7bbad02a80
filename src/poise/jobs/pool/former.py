"""Where a pod was before its document changed: freed with proof, before anything is given at its new place.

A collector is told to stop everything, and is free when it has answered that and lists nothing any more. One that
fetched is answered nothing, and is free when it has asked again since: who asks again has taken the answer before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from poise.jobs.pool.delivery import Courier, PodFault

PUSHED = ("gnmic", "http")


class Fetching:
    """A pod that fetched its targets: `has_left` says whether it has asked twice since it is to fetch no more."""

    def __init__(self, has_left: Callable[[], Awaitable[bool]]) -> None:
        """Ask the store what this pod has asked."""
        self._has_left = has_left

    async def is_free(self) -> bool:
        """Say whether it has taken the answer that names nothing; one that has not may be gone."""
        if not await self._has_left():
            raise PodFault("it fetched its targets, and has not asked again since")
        return True

    async def close(self) -> None:
        """There is nothing to close."""


Former = Courier | Fetching


async def vacate(former: Former) -> bool:
    """Take everything from where a pod was before, and say whether that is proven."""
    if isinstance(former, Fetching):
        return await former.is_free()
    await former.apply(former.nothing)
    return not (await former.look()).listed
