"""The Lease of one shard process: waited for, taken, renewed, given back; when to do what is decided in `sharding`.

Every request is timed from before it is sent. One of which the answer is lost may have been carried out: it is looked
at again, never assumed to have failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Literal

import msgspec

from poise import clock
from poise.errors import Conflict, NotFound, PoiseError, Unavailable, invalid
from poise.hold.ring_leases import Dress, read_lease, shard_lease
from poise.hold.shard_terms import ShardPace
from poise.hold.sharding import (
    Claimant,
    Grip,
    SeenOwnLease,
    Take,
    Wait,
    claim,
    grasp,
    next_renewal_s,
    read_again,
    release,
    renewal,
    renewed,
    see_own_lease,
)
from poise.kube.client import Client
from poise.kube.objects import Lease
from poise.kube.resources import LEASES, ObjectRef
from poise.model.sharding import RING_LABEL, LeaseWrite

TICK_S = 0.25  # The event loop's clock may stand still while the machine sleeps: look at the right one this often.
RETRY_S = 0.1  # The pause after a request that failed.

_log = logging.getLogger("poise.shard")


class LeaseLost(PoiseError):
    """The Lease is over, or somebody else's: nothing may be done any more. End this process; a new one waits for it."""


class OwnLease:
    """Holds one Lease. `grip` is None until it is taken, and again once it is given back."""

    def __init__(
        self,
        client: Client,
        who: Callable[[], Claimant],
        dress: Dress,
        pace: Callable[[], ShardPace],
        *,
        named: Callable[[], Awaitable[bool]],
        eager: bool,
        now_s: Callable[[], float],
    ) -> None:
        """Speak for one process; `who` and `pace` follow the ring, `named` lists whether objects carry the name."""
        self.grip: Grip | None = None
        self.renewals = self.refused = 0
        self.gained = asyncio.Event()
        self._client, self._who, self._dress, self._pace = client, who, dress, pace
        self._named, self._eager, self._now_s = named, eager, now_s
        self._ref = ObjectRef(LEASES, who().name, dress.namespace)
        self._lease: Lease | None = None
        self._turn = asyncio.Lock()

    async def take(self) -> None:
        """Wait until no other hold can last, by the own observation, and take the Lease."""
        seen: SeenOwnLease | None = None
        told = ""
        while self.grip is None:
            try:
                lease = await self._read()
                # The Lease is read first: whoever is named afterwards may have been given objects while it was gone.
                named = lease is None and await self._named()
                seen = see_own_lease(seen, None if lease is None else read_lease(lease), self._now_s())
                self._refuse_another_ring(lease)
                why = await self._try(seen, lease, named=named)
            except (Conflict, NotFound):
                why = ""  # Somebody was faster: look again at once, the wait begins anew.
            except Unavailable as error:
                why = str(error)
                await asyncio.sleep(RETRY_S)
            if why and why != told:
                _log.info("shard.waits name=%s reason=%s", self._ref.name, why)
                told = why

    def _refuse_another_ring(self, lease: Lease | None) -> None:
        ring = "" if lease is None else lease.metadata.labels.get(RING_LABEL, "")
        if ring not in ("", self._dress.ring):
            raise invalid(
                "$.name", f"the Lease {self._ref.name} is of the ring {ring}: give this instance another name"
            )

    async def _try(self, seen: SeenOwnLease, lease: Lease | None, *, named: bool) -> str:
        """Take the Lease where that may be; else wait a while, and say why."""
        decided = claim(self._who(), seen, self._now_s(), named=named)
        if isinstance(decided, Wait):
            await asyncio.sleep(min(max(decided.until_s - self._now_s(), 0.0), self._pace().look_s))
            holder = "nobody, but objects carry this name" if seen.fact is None else seen.fact.holder
            return f"the Lease is held by {holder}"
        await self._grasp(decided, lease)
        return ""

    async def _grasp(self, take: Take, lease: Lease | None) -> None:
        who, sent_at_s = self._who(), self._now_s()
        answer = await self._write(take.write, lease)
        pace = self._pace()
        self.grip = grasp(who, take, answer.metadata.resource_version, sent_at_s, pace.margin_s, eager=self._eager)
        _log.info("shard.holds name=%s holder=%s fences=%s", who.name, who.me, self.grip.eager)

    def listed(self) -> None:
        """Note that everything was listed since the Lease was acquired."""
        if self.grip is not None:
            self.grip = msgspec.structs.replace(self.grip, listed=True)

    def may_act(self) -> bool:
        """Say whether the Lease allows anything at all now."""
        return self.grip is not None and self._now_s() < self.grip.until_s

    def left_s(self) -> float:
        """Give how long a write may take that is sent now: whatever arrives after D was never allowed."""
        return 0.0 if self.grip is None else max(0.0, self.grip.sent_at_s + self.grip.duration_s - self._now_s())

    async def renew_on(self, newest_gain_s: Callable[[], float | None], tell: Callable[[], None]) -> None:
        """Renew until the Lease is given back; LeaseLost where it is over.

        `tell` hears of every renewal, and of a shorter grip before anybody else can.
        """
        while self.grip is not None:
            due_s = next_renewal_s(self.grip, newest_gain_s(), self._pace().confirm_s)
            now_s = self._now_s()
            if now_s >= self.grip.until_s:
                raise LeaseLost(f"the Lease {self._ref.name} could not be renewed in time")
            if now_s < due_s:
                await self._sleep(min(due_s, self.grip.until_s) - now_s)
                continue
            try:
                await self._renew(tell)
                tell()
            except LeaseLost:
                raise
            except PoiseError as error:
                self.refused += 1
                _log.warning("shard.unrenewed name=%s reason=%s", self._ref.name, error)
                await asyncio.sleep(RETRY_S)

    async def _sleep(self, left_s: float) -> None:
        """Sleep, but not through a gain, and not longer than the clock can be trusted."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(left_s, TICK_S)):
                await self.gained.wait()
                self.gained.clear()

    async def _renew(self, tell: Callable[[], None]) -> None:
        async with self._turn:
            if self.grip is None:
                return
            wanted = self._towards(self.grip, tell)
            sent_at_s = self._now_s()
            try:
                answer = await self._write(renewal(wanted), self._lease)
            except (Conflict, NotFound):
                await self._look_again()
                return
            self.renewals += 1
            given = msgspec.structs.replace(self.grip, duration_s=wanted.duration_s, margin_s=wanted.margin_s)
            self.grip = renewed(given, answer.metadata.resource_version, sent_at_s)

    def _towards(self, grip: Grip, tell: Callable[[], None]) -> Grip:
        """Follow the ring's D. A shorter one counts from the moment it is sent, a longer one once it is granted."""
        pace = self._pace()
        if pace.duration_s < grip.duration_s:
            # Nobody who sees it counts from earlier than now; what was granted before ends when it would have.
            until_s = min(grip.until_s, self._now_s() + pace.duration_s - pace.margin_s)
            left_s = until_s + pace.margin_s - grip.sent_at_s
            self.grip = msgspec.structs.replace(grip, duration_s=left_s, margin_s=pace.margin_s)
            tell()  # Not only once it is answered: the event loop may hang until then.
        return msgspec.structs.replace(grip, duration_s=pace.duration_s, margin_s=pace.margin_s)

    async def _look_again(self) -> None:
        """After a refused write: go on from the own one whose answer was lost; else the Lease is lost."""
        assert self.grip is not None, "only a holder writes"
        lease = await self._read()
        grip = read_again(self.grip, None if lease is None else read_lease(lease))
        if grip is None:
            self.grip = None  # From now on nothing may be done, however much time there seems to be left.
            holder = "gone" if lease is None else f"held by {lease.spec.holder_identity or 'nobody'}"
            raise LeaseLost(f"the Lease {self._ref.name} is {holder}")
        self.grip, self._lease = grip, lease

    async def release(self, reason: Literal["stop", "restart"]) -> None:
        """Give the Lease back; when nothing runs any more. Who cannot be told finds out by itself."""
        async with self._turn:
            for _ in range(2):
                if self.grip is None or not self.may_act():
                    break
                try:
                    await self._write(release(self.grip, reason), self._lease)
                    _log.info("shard.released name=%s reason=%s", self._ref.name, reason)
                    break
                except (Conflict, NotFound):
                    with suppress(PoiseError):
                        await self._look_again()
                except PoiseError as error:
                    _log.warning("shard.unreleased name=%s reason=%s", self._ref.name, error)
            self.grip = None

    async def _write(self, write: LeaseWrite, old: Lease | None) -> Lease:
        body = shard_lease(write, old, self._dress, clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
        async with self._asking():
            if write.version is None:
                self._lease = await self._client.create(self._ref, body, Lease)
            else:
                self._lease = await self._client.replace(self._ref, body, Lease)
        return self._lease

    async def _read(self) -> Lease | None:
        try:
            async with self._asking():
                return await self._client.get(self._ref, Lease)
        except NotFound:
            return None

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """Bound a request. One that takes longer may have been carried out all the same."""
        try:
            async with asyncio.timeout(self._pace().ask_s):
                yield
        except TimeoutError:
            raise Unavailable(f"{self._ref}: no answer in time") from None
