"""One ring at one instant: its document, its instances and its objects, for all who ask about it. Pure.

A sharder gives it from what it watches, the command line from what it lists; whoever explains or plans does not care.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cached_property

import msgspec

from poise.jobs.sharder.orders import NO_ORDERS, Orders
from poise.jobs.sharder.report import InstanceSeen, RingReport
from poise.jobs.sharder.view import Known, View
from poise.model import ShardRing
from poise.model.sharding import SeenObject, Standing


class RingSnapshot(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What is known of a ring. Everything is shared with whoever gave it, and nobody changes it.

    `members` gives the tokens of who has a place: ready, or late by its own Lease; those who are drained included.
    `drain_since` says since when an object, by its uid, is being asked for; `silent_s` for how long the Lease of an
    instance has not changed.
    """

    namespace: str
    ring: ShardRing
    objects: Mapping[str, SeenObject]
    rooted: Mapping[str, str | None]
    known: Mapping[str, Known]
    instances: tuple[InstanceSeen, ...]
    standings: Mapping[str, Standing]
    members: Mapping[str, int]
    now: datetime
    orders: Orders = NO_ORDERS
    report: RingReport = RingReport()
    drain_since: Mapping[str, datetime] = {}
    silent_s: Mapping[str, float] = {}
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the ring."""
        return self.ring.metadata.name

    @cached_property
    def roots(self) -> list[SeenObject]:
        """The objects whose keys decide and that the ring wants."""
        found = (self.objects[uid] for uid, root in self.rooted.items() if uid == root)
        return [root for root in found if root.selected]

    @cached_property
    def by_key(self) -> dict[str, list[SeenObject]]:
        """The roots of every key."""
        found: dict[str, list[SeenObject]] = {}
        for root in self.roots:
            found.setdefault(root.key, []).append(root)
        return found

    @cached_property
    def followers(self) -> Counter[str]:
        """How many objects follow each root."""
        return Counter(root for uid, root in self.rooted.items() if root is not None and uid != root)

    def children(self, root: str) -> Iterator[SeenObject]:
        """Give what follows a root."""
        return (self.objects[uid] for uid, above in self.rooted.items() if above == root and uid != root)


def report_of(view: View, instances: tuple[InstanceSeen, ...], orders: Orders) -> RingReport:
    """Count what a look at everything shows, as a sharder would tell it."""
    return RingReport(
        synced=True,
        instances=instances,
        roots=view.roots,
        children=view.children,
        unassigned=len(view.unassigned),
        waiting=len(view.waiting),
        drains=len(view.clocks),
        in_flight=len(view.moving),
        paused=orders.paused,
    )
