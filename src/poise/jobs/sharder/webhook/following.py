"""What every process knows of rings, also one that stands by: mirrors that only read, and Leases timed by itself.

Only what was seen to live is believed to be ready: a Lease counts from a change that this process has seen itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable

import msgspec

from poise import clock
from poise.errors import InvalidSpec
from poise.jobs.sharder.accepting import is_accepted, is_removed, read_ring, rightful
from poise.jobs.sharder.instances import Instances
from poise.jobs.sharder.orders import NO_ORDERS, Orders, read_orders
from poise.jobs.sharder.report import RingCounts
from poise.jobs.sharder.ring_run import RESTART_PACE, told
from poise.jobs.sharder.session import Session
from poise.jobs.sharder.sharder import lease_terms
from poise.jobs.sharder.webhook.choosing import Chooser
from poise.kube import LEASES, Added, Client, Deleted, Event, Lease, Modified, Reflector, Selection, Synced
from poise.kube.crds import custom_resource
from poise.kube.mirror import Key
from poise.kube.objects import Custom
from poise.model import ShardRing
from poise.model.shard_ring import ShardRingSpec
from poise.model.sharding import RING_LABEL, is_process_of

_LOOK_EVERY_S = 1.0
_PATIENCE = 2  # So many looks a sharder of this process is waited for, before own mirrors begin.
_log = logging.getLogger("poise.webhook")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a ring is followed from; `lend` gives the mirrors of its sharder, where that runs in this process."""

    client: Client
    namespace: str
    me: str
    scope: str | None
    lend: Callable[[], Session | None]
    now_s: Callable[[], float]


def digest(spec: ShardRingSpec) -> str:
    """Name what a ring looks at, and how: whoever knows another one does not know this ring."""
    seen = (spec.resources, spec.key, spec.namespace_selector)
    return hashlib.sha256(msgspec.json.encode(seen)).hexdigest()[:16]


class RingFollower:
    """One ring as this process sees it. Where it leads, its sharder lends its mirrors; else there are own ones."""

    def __init__(self, place: Place, ring: ShardRing) -> None:
        """Prepare; nothing is asked yet."""
        self.ring, self.orders, self.digest = ring, NO_ORDERS, digest(ring.spec)
        self._place = place
        self._instances = Instances(lease_terms(ring, place.me))
        self._proven: set[str] = set()
        chosen = Selection(LEASES, place.namespace, labels=f"{RING_LABEL}={ring.metadata.name}")
        self._leases = Reflector(place.client, chosen, Lease, self._take_lease)
        self._own: Session | None = None
        self.chooser = Chooser(self._instances, self._proven)

    @property
    def session(self) -> Session | None:
        """What is known of the objects; None where not all were seen once."""
        session = self._lent() or self._own
        return session if session is not None and session.synced and self._leases.lists > 0 else None

    def _lent(self) -> Session | None:
        lent = self._place.lend()
        fits = lent is not None and lent.synced and digest(lent.deciding.spec) == self.digest
        return lent if fits else None

    async def run(self) -> None:
        """Follow until cancelled, or until a resource is no longer served as it was."""
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._leases.run())
            mirroring: asyncio.Task[None] | None = None
            looks = 0
            while self._own is None or not self._own.mirrors.lost:
                looks = 0 if self._lent() is not None else looks + 1
                if looks > _PATIENCE and mirroring is None:
                    self._own = self._new_session()
                    mirroring = group.create_task(self._own.mirrors.run())
                elif not looks and mirroring is not None:
                    mirroring.cancel()
                    self._own = mirroring = None
                await asyncio.sleep(_LOOK_EVERY_S)
            for task in filter(None, (following, mirroring)):
                task.cancel()

    def _new_session(self) -> Session:
        place = self._place
        return Session(
            place.client,
            self.ring,
            place.scope,
            self._instances,
            RingCounts(),
            now_s=place.now_s,
            wake=self._forget_what_is_due,
        )

    def _forget_what_is_due(self) -> None:
        """Forget which families would be decided on: nothing is decided here."""
        if self._own is not None:
            self._own.deciding.touched.clear()

    def update(self, ring: ShardRing, orders: Orders) -> None:
        """Take another document that looks at the same objects, and what people ask of the ring beside it."""
        self.ring, self.orders = ring, orders
        self._instances.terms, self._instances.orders = lease_terms(ring, self._place.me), orders
        self.chooser.changed = True

    def _take_lease(self, event: Event[Lease]) -> None:
        now_s, self.chooser.changed = self._place.now_s(), True
        match event:
            case Added(object=lease):
                self._proven.discard(lease.metadata.name)
                self._instances.see(lease, now_s)
            case Modified(object=lease):
                if is_process_of(lease.spec.holder_identity or "", lease.metadata.name):
                    self._proven.add(lease.metadata.name)
                self._instances.see(lease, now_s)
            case Deleted(old=lease):
                self._proven.discard(lease.metadata.name)
                self._instances.miss(lease, now_s)


class _Followed:
    """A follower and its task."""

    def __init__(self, follower: RingFollower, task: asyncio.Task[None]) -> None:
        self.follower, self.task = follower, task


class Followers:
    """All rings that are run, as this process sees them."""

    def __init__(
        self,
        client: Client,
        me: str,
        scope: str | None,
        *,
        lend: Callable[[Key], Session | None] = lambda _key: None,
        now_s: Callable[[], float] = clock.boot_s,
    ) -> None:
        """Prepare; `lend` gives the mirrors of a sharder that runs in this process."""
        self._client, self._me, self._scope, self._lend, self._now_s = client, me, scope, lend, now_s
        self._followed: dict[Key, _Followed] = {}
        self._changed, self._synced = asyncio.Event(), False
        chosen = Selection(custom_resource("ShardRing"), scope or "")
        self._rings = Reflector(client, chosen, Custom, self._take)

    def find(self, namespace: str, name: str) -> RingFollower | None:
        """Give a ring that is run; None where this process knows none."""
        found = self._followed.get((namespace, name))
        return None if found is None else found.follower

    def is_removed(self, key: Key) -> bool:
        """Say whether somebody removes a ring, as far as this process knows."""
        seen = self._rings.objects.get(key)
        return seen is not None and is_removed(seen.metadata)

    async def run(self) -> None:
        """Follow until cancelled; every task of it ends then."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._rings.run())
                while True:
                    await self._changed.wait()
                    self._changed.clear()
                    self._settle(group)
        finally:
            self._followed.clear()

    def _take(self, event: Event[Custom]) -> None:
        self._synced = self._synced or isinstance(event, Synced)
        self._changed.set()

    def _settle(self, group: asyncio.TaskGroup) -> None:
        """Begin to follow rings that are run now, and end with others."""
        wanted = self._wanted() if self._synced else {}
        for key in [key for key, each in self._followed.items() if _is_other(each, wanted.get(key))]:
            self._followed.pop(key).task.cancel()
        for key, ring in wanted.items():
            if key not in self._followed:
                follower = RingFollower(self._at(key), ring)
                self._followed[key] = _Followed(follower, group.create_task(self._run(follower)))
            follower, orders = self._followed[key].follower, read_orders(self._rings.objects[key].metadata.annotations)
            if (follower.ring, follower.orders) != (ring, orders):
                follower.update(ring, orders)

    def _at(self, key: Key) -> Place:
        return Place(
            client=self._client,
            namespace=key[0],
            me=self._me,
            scope=self._scope,
            lend=lambda: self._lend(key),
            now_s=self._now_s,
        )

    def _wanted(self) -> dict[Key, ShardRing]:
        """Read the rings that were accepted, that nobody removes, and whose name is theirs."""
        wanted = {}
        for key, custom in self._rings.objects.items():
            meta = custom.metadata
            first = rightful(each.metadata for each in self._rings.objects.values() if each.metadata.name == meta.name)
            if first.key != key or not is_accepted(meta) or is_removed(meta):
                continue
            try:
                wanted[key] = read_ring(custom)
            except InvalidSpec:
                continue  # Its status says why.
        return wanted

    async def _run(self, follower: RingFollower) -> None:
        """Follow one ring; a fault of ours costs this ring its webhook for a while, and nobody else anything."""
        try:
            await follower.run()
        except Exception as error:
            _log.error("webhook.ring_failed name=%s reason=%s", follower.ring.metadata.name, told(error))
        # Whatever ended: all begins anew, a little later.
        await asyncio.sleep(RESTART_PACE.first_s)
        for key, each in list(self._followed.items()):
            if each.follower is follower:
                del self._followed[key]
        self._changed.set()


def _is_other(followed: _Followed, ring: ShardRing | None) -> bool:
    return ring is None or followed.follower.digest != digest(ring.spec)
