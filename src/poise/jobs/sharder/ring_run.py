"""One ring while it is run: its sharder, started again when it fails, so that the other rings never notice."""

from __future__ import annotations

import asyncio
import logging
import random
import traceback
from collections.abc import Callable

from poise.errors import PoiseError
from poise.jobs.sharder.happenings import Happening, happenings
from poise.jobs.sharder.orders import NO_ORDERS, Orders
from poise.jobs.sharder.report import RingReport
from poise.jobs.sharder.sharder import RingSharder
from poise.jobs.sharder.status import Refusal
from poise.kube.pacing import Pace
from poise.model import ShardRing

RESTART_PACE = Pace(first_s=1.0, longest_s=60.0)
_LASTING_S = 120.0
_log = logging.getLogger("poise.operator")


class RingRun:
    """Runs the sharder of one ring, and what people want of it now."""

    def __init__(
        self, make: Callable[[ShardRing], RingSharder], ring: ShardRing, uid: str, changed: Callable[[], None]
    ) -> None:
        """Prepare; `changed` is called when there is something new to show."""
        self.uid, self.ring = uid, ring
        self._failed = ""
        self._before: RingReport | None = None
        self._make, self._changed = make, changed
        self._removing, self._brake_released, self._orders = False, "", NO_ORDERS
        self.sharder = make(ring)

    def failure(self, report: RingReport) -> Refusal | None:
        """Say why it does not run; what failed counts as failing until it has read everything again."""
        return Refusal("SharderFailed", self._failed) if self._failed and not report.synced else None

    def told_since(self, report: RingReport) -> list[Happening]:
        """Give what happened to the instances since this was last asked."""
        if not report.synced:
            return []
        before, self._before = self._before, report
        return happenings(before, report)

    def update(self, ring: ShardRing, *, removing: bool, brake_released: str, orders: Orders = NO_ORDERS) -> None:
        """Take what people want now; what is known already changes nothing."""
        wanted = (ring, removing, brake_released, orders)
        if wanted != (self.ring, self._removing, self._brake_released, self._orders):
            self.ring, self._removing, self._brake_released, self._orders = wanted
            self.sharder.update(ring, removing=removing, brake_released=brake_released, orders=orders)

    async def run(self) -> None:
        """Run until cancelled; a sharder that fails begins anew, later each time, and knows nothing of before."""
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            began_s = loop.time()
            try:
                await self.sharder.run()
                self._failed = "the sharder of this ring ended by itself; it is started again"
            except Exception as error:
                self._failed = f"the sharder of this ring failed, and is started again: {told(error)}"
                _log.error("ring.failed name=%s\n%s", self.ring.metadata.name, trace(error))
            failures = 1 if loop.time() - began_s > _LASTING_S else failures + 1
            self._begin_anew()
            self._changed()
            await asyncio.sleep(RESTART_PACE.wait_s(failures, random.random()))

    def _begin_anew(self) -> None:
        self.sharder, self._before = self._make(self.ring), None
        if self._removing or self._brake_released or self._orders != NO_ORDERS:
            self.sharder.update(
                self.ring, removing=self._removing, brake_released=self._brake_released, orders=self._orders
            )


def told(error: BaseException) -> str:
    """Say in one line what failed, also where several things did at once."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) if isinstance(error, PoiseError) else f"{type(error).__name__}: {error}"


def trace(error: BaseException) -> str:
    """Give the trace for the log: it names the place of a fault of ours."""
    return "".join(traceback.format_exception(error))
