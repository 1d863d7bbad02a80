"""The life of a shard within a kopf operator: it begins before kopf watches anything, and ends after all handlers.

Order for safety: Lease, then kopf's lists; handlers and daemons end, then the Lease is given back.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Sequence
from typing import Unpack

import kopf

from poise.errors import PoiseError
from poise.hold.kopf_gate import Gate, end_all
from poise.hold.kopf_inside import Call, Process, resource_name
from poise.hold.shard import Shard
from poise.kube.client import Client
from poise.model.sharding import label_names

_log = logging.getLogger("poise.kopf")


class RingMember:
    """Begins and ends with the operator; a Lease that is lost ends the operator."""

    def __init__(
        self,
        make: Callable[[Client], Shard],
        connect: Callable[[], Client],
        *,
        ring: str,
        resources: Sequence[str],
        everywhere: Sequence[str],
        finish_s: float,
    ) -> None:
        """Prepare; nothing is asked before kopf starts."""
        self.inner: Process | None = None
        self._make, self._connect = make, connect
        self._ring, self._resources, self._everywhere = ring, frozenset(resources), frozenset(everywhere)
        self._finish_s = finish_s
        self._gate: Gate | None = None
        self._life: asyncio.Task[None] | None = None
        self._left = asyncio.Event()

    async def process(self, **call: Unpack[Call]) -> str | None:
        """Take every event that kopf wants to process."""
        if self._gate is None:
            raise PoiseError("kopf works with another registry than the one that join_ring was given")
        return await self._gate.process(**call)

    async def begin(self, settings: kopf.OperatorSettings, **_: object) -> None:
        """Wait for the ring and the Lease, and let kopf watch only what carries the own name."""
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # kopf shows what others log, and it logs each request.
        holding = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(holding))
        try:
            await asyncio.wait((self._life, holding), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await end_all([self._life])
            raise
        if self._life.done():
            await self._life
        self._life.add_done_callback(self._ended)
        self._adapt(settings, await holding)

    async def _live(self, holding: asyncio.Future[Shard]) -> None:
        async with self._connect() as client:
            assert self.inner is not None, "kopf's own processing was replaced before"
            shard = self._make(client)
            gate = Gate(self.inner, shard, client, self._ring, resources=self._resources, everywhere=self._everywhere)
            sweep = asyncio.create_task(gate.sweep_on())
            try:
                async with shard:
                    self._gate = gate
                    holding.set_result(shard)
                    leaving = asyncio.create_task(self._left.wait())
                    leaving.add_done_callback(lambda _: shard.leave())
                    try:
                        await shard.run(gate.reconcile)
                    finally:
                        leaving.cancel()
                        await gate.close()
            finally:
                await end_all([sweep])

    def _adapt(self, settings: kopf.OperatorSettings, shard: Shard) -> None:
        """Set what a shard needs: a filter, no peering (the ring says who acts), and time for handlers to end."""
        chosen = f"{label_names(self._ring)[0]}={shard.name}"
        settings.watching.label_selectors[self._is_shared] = chosen
        if settings.peering.mandatory:
            _log.warning("kopf.peering_off reason=several instances of a ring act at once")
        settings.peering.standalone, settings.peering.mandatory = True, False
        settings.queueing.exit_timeout = max(settings.queueing.exit_timeout, self._finish_s)
        _log.info("kopf.joined ring=%s name=%s", self._ring, shard.name)

    def _is_shared(self, resource: kopf.Resource) -> bool:
        return resource_name(resource) in self._resources

    def _ended(self, life: asyncio.Task[None]) -> None:
        """End the operator with its shard: nothing may be done any more."""
        if not self._left.is_set():
            _log.error("kopf.ends reason=%s", "cancelled" if life.cancelled() else life.exception())
            os.kill(os.getpid(), signal.SIGTERM)

    async def end(self, **_: object) -> None:
        """Give the Lease back, when no handler runs any more; whatever ended the shard before is told."""
        if self._life is not None:
            self._left.set()
            await self._life
