"""The sharder of one ring: it sees objects and Leases, decides, and writes labels and the Leases of the dead.

Order in one evaluation: judge the instances, plan the homes, decide on every family that something touched, and only
then on the Leases: a hold ends only when it is known that nothing needs it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import islice

from poise import clock
from poise.jobs.sharder.instances import Instances
from poise.jobs.sharder.lease_writing import LeaseWriter
from poise.jobs.sharder.orders import NO_ORDERS, Orders
from poise.jobs.sharder.report import RingCounts, RingReport
from poise.jobs.sharder.session import Session, same_objects
from poise.jobs.sharder.snapshot import RingSnapshot
from poise.jobs.sharder.telling import told_report, told_snapshot
from poise.jobs.sharder.working import FamilyWorker
from poise.kube import LEASES, Added, Client, Deleted, Event, Lease, Modified, Reflector, Selection
from poise.model import ShardRing
from poise.model.sharding import RING_LABEL
from poise.observe.leases import LeaseTerms

_SLICE = 200  # So many families are decided on before other tasks get their turn.
_LOOK_EVERY_S = 1.0
_PLAN_PAUSE_S = 0.7


def lease_terms(ring: ShardRing, me: str) -> LeaseTerms:
    """Say what Leases are judged by: a hold is used for its first three quarters, so requests may take D / 2."""
    duration_s = float(ring.spec.lease_seconds)
    grace_s = float(ring.spec.restart_grace_seconds)
    return LeaseTerms(me=me, duration_s=duration_s, margin_s=duration_s / 2, restart_grace_s=grace_s)


class RingSharder:
    """Runs one ring. One loop owns all that it knows; requests are tasks of their own."""

    def __init__(
        self,
        client: Client,
        ring: ShardRing,
        *,
        namespace: str,
        me: str,
        may_act: Callable[[], bool],
        scope: str | None = None,
        changed: Callable[[], None] = lambda: None,
        now_s: Callable[[], float] = clock.boot_s,
    ) -> None:
        """Prepare; nothing is asked yet. `changed` is called when the report may say something else."""
        self.counts = RingCounts()
        self._client, self._ring, self._scope, self._me = client, ring, scope, me
        self._changed, self._now_s, self._namespace = changed, now_s, namespace
        self._brake_released, self._removing = "", False
        self._woken, self._restart = asyncio.Event(), asyncio.Event()
        self._judge, self._was_synced, self._leases_due = True, False, False
        self._plan_at_s = float("-inf")
        self._instances = Instances(lease_terms(ring, me))
        chosen = Selection(LEASES, namespace, labels=f"{RING_LABEL}={ring.metadata.name}")
        self._leases = Reflector(client, chosen, Lease, self._take_lease)
        self._session = self._new_session()
        self._families = FamilyWorker(
            client, self._instances, self.counts, lambda: self._session, may_act=may_act, now_s=now_s, wake=self._wake
        )
        self._lease_writer = LeaseWriter(
            client,
            self._instances,
            self.counts,
            (namespace, ring.metadata.name),
            lambda: self._session,
            may_act=may_act,
            now_s=now_s,
            wrote=self._wake_to_judge,
        )

    @property
    def session(self) -> Session:
        """What is seen of the objects now; others only read it."""
        return self._session

    @property
    def synced(self) -> bool:
        """Say whether all objects and Leases were seen once; before that nothing is decided."""
        return self._leases.lists > 0 and self._session.synced

    @property
    def faults(self) -> tuple[str, ...]:
        """Say what is in the way, in sentences for people."""
        leases = () if self._leases.trouble is None else (str(self._leases.trouble),)
        return tuple(
            dict.fromkeys((*leases, *self._session.faults, *self._families.faults, *self._lease_writer.faults))
        )

    @property
    def report(self) -> RingReport:
        """Tell how the ring stands now."""
        return told_report(
            self._session,
            self._instances,
            self.faults,
            synced=self.synced,
            idle=self._families.idle,
            now_s=self._now_s(),
        )

    @property
    def revision(self) -> int:
        """Give a number that is another one when objects, or their labels of this ring, are."""
        return self._session.view.revision

    @property
    def snapshot(self) -> RingSnapshot:
        """Give all that is seen now, for those who ask about the ring; what is given does not change any more."""
        return told_snapshot(self._session, self._instances, self._ring, self._namespace, self.report, self._now_s())

    def update(self, ring: ShardRing, *, removing: bool, brake_released: str, orders: Orders = NO_ORDERS) -> None:
        """Take what people want now."""
        old, self._ring = self._ring, ring
        self._instances.orders = orders
        self._removing = self._removing or removing
        if brake_released != self._brake_released:
            self._brake_released = brake_released
            self._instances.released_s = self._now_s()
        self._instances.terms = lease_terms(ring, self._me)
        if not same_objects(old, ring):
            self._restart.set()
        else:
            self._session.update(ring)
        if self._removing:
            self._session.remove()
        self._wake_to_judge()

    async def run(self) -> None:
        """Shard until cancelled; every task of it ends then."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._leases.run())
            group.create_task(self._follow_objects())
            group.create_task(self._families.run())
            group.create_task(self._lease_writer.run())
            group.create_task(self._look_around())
            group.create_task(self._evaluate())

    def _new_session(self) -> Session:
        session = Session(
            self._client,
            self._ring,
            self._scope,
            self._instances,
            self.counts,
            now_s=self._now_s,
            wake=self._wake,
        )
        if self._removing:
            session.remove()
        return session

    async def _follow_objects(self) -> None:
        """Follow the objects; anew when the document names others, or a resource is no longer served as it was."""
        while True:
            following = asyncio.create_task(self._session.mirrors.run())
            restart = asyncio.create_task(self._restart.wait())
            try:
                await asyncio.wait((following, restart), return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    await following
            finally:
                following.cancel()
                restart.cancel()
                await asyncio.gather(following, restart, return_exceptions=True)
            self._restart.clear()
            self._session, self._was_synced = self._new_session(), False

    def _take_lease(self, event: Event[Lease]) -> None:
        """Take what the mirror tells of a Lease; a plain renewal changes no judgement."""
        self.counts.watch_events += 1
        now_s = self._now_s()
        match event:
            case Added(object=lease) | Modified(object=lease):
                name = lease.metadata.name
                said = self._instances.said(name)
                self._instances.see(lease, now_s)
                if self._instances.said(name) == said and self._instances.is_current(name, now_s):
                    return
            case Deleted(old=lease):
                self._instances.miss(lease, now_s)
            case _:
                pass
        self._wake_to_judge()

    def _wake(self) -> None:
        self._woken.set()

    def _wake_to_judge(self) -> None:
        self._judge = True
        self._woken.set()

    async def _look_around(self) -> None:
        """Notice what nobody tells: mirrors that cannot follow, and resources that are gone."""
        seen: tuple[str, ...] = ()
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if self._session.mirrors.lost:
                self._restart.set()
            if self.faults != seen:
                seen = self.faults
                self._changed()

    async def _evaluate(self) -> None:
        """Evaluate whenever something happened, or is due."""
        while True:
            await self._wait()
            self.counts.passes += 1
            if self.synced:
                self._evaluate_once()
            self._changed()
            await asyncio.sleep(0)

    async def _wait(self) -> None:
        """Sleep until something happens or is due; before all was seen nothing is due."""
        deciding, due_s = self._session.deciding, float("inf")
        if self._was_synced:
            due_s = min(self._instances.next_s, deciding.next_s)
            if deciding.unplanned and self._ring.spec.policy == "balanced":
                due_s = min(due_s, self._plan_at_s)
        left_s = None if due_s == float("inf") else max(due_s - self._now_s(), 0.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._woken.wait()
        self._woken.clear()

    def _evaluate_once(self) -> None:
        """Judge, plan, decide on a slice of the families, and when all are decided on the Leases."""
        now_s, deciding = self._now_s(), self._session.deciding
        if not self._was_synced:
            self._was_synced = self._judge = True
            deciding.touch_all()
        judged = self._judge_all(now_s)
        if deciding.unplanned and (judged or now_s >= self._plan_at_s):
            self._plan(now_s)
        deciding.touch_overdue(now_s)
        deciding.make_room()
        self._decide_some()
        self._leases_due = self._leases_due or judged or deciding.needs_changed
        deciding.needs_changed = False
        if deciding.touched:
            self._woken.set()
        elif self._leases_due:
            self._leases_due = False
            self._lease_writer.look()

    def _judge_all(self, now_s: float) -> bool:
        """Judge every instance where something speaks for it; gives whether it was done."""
        view, instances = self._session.view, self._instances
        if not (self._judge or view.names_changed or now_s >= instances.next_s):
            return False
        self._judge = view.names_changed = False
        braked = instances.braked
        changed = instances.judge_all(view.named.keys(), self._ring.spec.brake_percent, now_s)
        self._session.deciding.judged(changed, braked)
        return True

    def _decide_some(self) -> None:
        """Decide on the next families; what there is to write is written by tasks of its own."""
        loop_s = asyncio.get_running_loop().time()
        for root in list(islice(self._session.deciding.touched, _SLICE)):
            if steps := self._families.decide(root):
                self._families.ask(root, steps, loop_s)

    def _plan(self, now_s: float) -> None:
        """Plan the homes anew; the next time not before this one's cost is small against the pause."""
        self._session.deciding.plan()
        cost_s = self._now_s() - now_s
        self._plan_at_s = now_s + min(10 * cost_s, _PLAN_PAUSE_S)
