"""Leads while its Lease lasts: take it, renew it, stop the work before it can end, let go of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from poise import clock
from poise.errors import Conflict, Hung, NotFound, PoiseError
from poise.kube.client import Client
from poise.kube.leadership import LeadTerms, SeenLead, claim, is_free, leads_until_s, look, release, wrote
from poise.kube.objects import Lease
from poise.kube.resources import LEASES, ObjectRef


class Lead:
    """One candidate. Order for safety: lease before work, stop the work before the lease can end, then let go."""

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        terms: LeadTerms,
        *,
        now_s: Callable[[], float] = clock.boot_s,
        tell: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        """Stand for the Lease of this name; the clock counts suspend, and only differences of it are used."""
        self._client, self._ref, self._terms = client, ObjectRef(LEASES, name, namespace), terms
        self._now_s, self._tell = now_s, tell
        self._seen: SeenLead | None = None
        self._held_until_s = float("-inf")
        self._working: asyncio.Future[None] | None = None

    def may_act(self) -> bool:
        """Say whether this process may act as the leader now; ask before every write."""
        return self._now_s() < leads_until_s(self._seen, self._terms)

    @property
    def holder(self) -> str:
        """Who holds the Lease as last seen; empty for nobody."""
        lease = None if self._seen is None else self._seen.lease
        return "" if lease is None else lease.spec.holder_identity or ""

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lead, work while it lasts, and stand again when it is lost. Ends when the work ends.

        Hung where the work does not stop before the Lease can end: then this process must end at once.
        """
        try:
            while True:
                await self._campaign()
                if await self._lead(work):
                    return
        finally:
            await self._let_go()

    async def _campaign(self) -> None:
        """Look at the Lease until it is free, and take it; what is in the way is told when it changes."""
        told = ""
        while not self.may_act():
            trouble = ""
            try:
                await self._try()
            except Conflict:
                pass  # Somebody else was faster.
            except PoiseError as error:
                trouble = str(error)
            if trouble and trouble != told:
                self._tell(f"cannot stand for the lead: {trouble}")
            told = trouble
            if not self.may_act():
                await asyncio.sleep(self._terms.renew_s)
        self._tell(f"leads as {self._terms.me}")

    async def _try(self) -> None:
        """Read the Lease; write it where it is free or the own."""
        self._seen = look(self._seen, await self._read(), self._terms.me, self._now_s())
        if is_free(self._seen, self._terms, self._now_s()):
            await self._claim(self._seen)

    async def _read(self) -> Lease | None:
        try:
            return await self._client.get(self._ref, Lease)
        except NotFound:
            return None

    async def _claim(self, seen: SeenLead) -> None:
        """Take or renew the lead by one write over the version that was seen."""
        sent_at_s = self._now_s()
        told = clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        lease = claim(seen, self._terms, (self._ref.namespace, self._ref.name), told)
        if seen.lease is None:
            answer = await self._client.create(self._ref, lease, Lease)
        else:
            answer = await self._client.replace(self._ref, lease, Lease)
        self._seen = wrote(answer, self._terms.me, sent_at_s)
        self._held_until_s = sent_at_s + self._terms.duration_s

    async def _lead(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Work and renew side by side; True when the work has ended by itself, False when the lead is lost."""
        self._working = working = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew())
        try:
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working
                return True
            renewing.result()
            self._tell("the lead is lost: it could not be renewed in time")
            return False
        finally:
            await self._stop(working, renewing)

    async def _stop(self, working: asyncio.Future[None], renewing: asyncio.Task[None]) -> None:
        """Stop the work while the Lease still lasts; whoever outlasts it must not live on."""
        renewing.cancel()
        working.cancel()
        left_s = self._held_until_s - self._now_s()
        await asyncio.wait((working, renewing), timeout=min(max(left_s, 0.0), self._terms.margin_s))
        if not working.done():
            raise Hung("the work of the leader did not stop before its Lease ends")

    async def _renew(self) -> None:
        """Renew until the lead is lost: somebody else wrote the Lease, or the time is over."""
        while True:
            left_s = leads_until_s(self._seen, self._terms) - self._now_s()
            if left_s <= 0:
                return
            await asyncio.sleep(min(self._terms.renew_s, left_s))
            with suppress(PoiseError, TimeoutError):
                async with asyncio.timeout(max(leads_until_s(self._seen, self._terms) - self._now_s(), 0.0)):
                    await self._renew_once()

    async def _renew_once(self) -> None:
        assert self._seen is not None, "only a leader renews"
        try:
            await self._claim(self._seen)
        except (Conflict, NotFound):
            # A write of which the answer was lost is the own; anything else ends the lead now.
            self._seen = look(self._seen, await self._read(), self._terms.me, self._now_s())

    async def _let_go(self) -> None:
        """Empty the holder where the Lease is still the own, so that the next leader need not wait.

        While any work still runs the Lease is kept: it must lapse, since nobody else may begin sooner.
        """
        seen, self._seen = self._seen, None
        if seen is None or seen.lease is None or seen.held_from_s is None:
            return
        if self._working is not None and not self._working.done():
            return
        with suppress(PoiseError, TimeoutError):
            async with asyncio.timeout(self._terms.margin_s):
                await self._client.replace(self._ref, release(seen.lease), Lease)
