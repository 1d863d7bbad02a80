"""One ring read from the API server at once, by whoever asks about it: nothing is watched, and nothing is written.

States of instances are those that the operator shows: only who has watched a Lease for long enough may judge it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from poise import clock
from poise.errors import Forbidden, NotFound
from poise.hold.ring_leases import read_lease
from poise.jobs.sharder.accepting import is_removed, read_ring
from poise.jobs.sharder.mirrors import wanted_resources
from poise.jobs.sharder.orders import Orders, read_orders
from poise.jobs.sharder.report import InstanceSeen, RingReport
from poise.jobs.sharder.selecting import Keys, read_keys, selects
from poise.jobs.sharder.snapshot import RingSnapshot, report_of
from poise.jobs.sharder.view import Kind, Known, View
from poise.kube import LEASES, NAMESPACES, Client, Lease, Missing, Partial, Selection, find_resource
from poise.kube.objects import Custom, KubeValue
from poise.model import ShardRing
from poise.model.sharding import RING_LABEL, LeaseFact, Standing, is_process_of
from poise.observe.leases import Health

_STANDINGS = {Health.READY: Standing.READY, Health.EXPIRED: Standing.LATE}


class ShownInstance(KubeValue, frozen=True):
    """One instance as the status of a ring lists it."""

    name: str = ""
    state: str = "ready"
    tokens: int | None = None


class ShownCondition(KubeValue, frozen=True):
    """One condition of a ring."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class ShownStatus(KubeValue, frozen=True):
    """The status of a ring, as the operator wrote it last."""

    observed_generation: int = 0
    conditions: tuple[ShownCondition, ...] = ()
    summary: str = ""
    objects: dict[str, int] = msgspec.field(default_factory=dict)
    ready: int | None = None
    drains_pending: int | None = None
    oldest_drain_since: str | None = None
    unassigned: int | None = None
    instances: tuple[ShownInstance, ...] = ()

    def condition(self, kind: str) -> ShownCondition:
        """Give one condition; an unknown one where there is none."""
        return next((each for each in self.conditions if each.type == kind), ShownCondition(kind, "Unknown"))


def shown_status(custom: Custom) -> ShownStatus:
    """Read the status of a ring; one that somebody spoilt says nothing."""
    try:
        return msgspec.json.decode(custom.status or b"{}", type=ShownStatus)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ShownStatus()


def moment_of(text: str | None) -> datetime | None:
    """Read a time as the API server writes it; None where there is none, or where somebody wrote nonsense."""
    try:
        at = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return at if at is not None and at.tzinfo is not None else None


class RingReader:
    """Reads rings for one user. `scoped`: objects are looked for in the namespace of the ring only."""

    def __init__(self, client: Client, *, scoped: bool = False) -> None:
        """Ask by this client."""
        self._client, self._scoped = client, scoped
        self._notes: list[str] = []

    async def snapshot(self, custom: Custom) -> RingSnapshot:
        """Look at all of a ring; NotFound where a resource is missing, Forbidden where a right is."""
        self._notes = []
        ring, meta = read_ring(custom), custom.metadata
        status, orders = shown_status(custom), read_orders(meta.annotations)
        view = await self._view(ring, meta.namespace, removing=is_removed(meta))
        leases = await self._leases(ring.metadata.name, meta.namespace)
        instances = _instances(status, leases, view, orders, ring.spec.tokens)
        if not status.observed_generation:
            self._notes.append("no operator has looked at this ring yet: its instances are as their Leases say")
        standings = {each.name: _STANDINGS.get(each.state, Standing.LOST) for each in instances}
        standings |= {name: Standing.LATE for name in view.named if name not in standings}
        return RingSnapshot(
            namespace=meta.namespace,
            ring=ring,
            objects=view.kin.objects,
            rooted=view.kin.rooted(),
            known=view.known,
            instances=instances,
            standings=standings,
            members={each.name: each.tokens for each in instances if _has_place(each, leases)},
            now=clock.now(),
            orders=orders,
            report=_told(report_of(view, instances, orders), status),
            drain_since=_drain_since(view, ring.spec.drain_timeout_seconds),
            notes=tuple(self._notes),
        )

    async def _view(self, ring: ShardRing, namespace: str, *, removing: bool) -> View:
        """List every resource of a ring, and its namespaces where it selects some."""
        keys, selector = read_keys(ring.spec.key), ring.spec.namespace_selector
        kinds = []
        for wanted in wanted_resources(ring.spec):
            found = await find_resource(self._client, wanted.group, wanted.plural)
            if isinstance(found, Missing):
                raise NotFound(f"the ring {ring.metadata.name} names a resource that is not there: {found.why}")
            kinds.append(Kind(found, wanted.shared))
        view = View(ring.metadata.name, tuple(kinds))
        view.removing = removing
        if selector.match_labels or selector.match_expressions:
            view.namespaces = {
                each.metadata.name: selects(selector, each.metadata.labels)
                for each in await self._namespaces(namespace)
            }
        for kind in kinds:
            for known in await self._objects(kind, keys, namespace):
                view.take(known, 0.0)
        return view

    async def _objects(self, kind: Kind, keys: Keys, namespace: str) -> Iterable[Known]:
        """List the objects of one resource; where not all may be listed, those of the ring's namespace."""
        resource = kind.resource
        whole = not (self._scoped and resource.namespaced)
        try:
            found, _ = await self._client.list_all(Selection(resource, "" if whole else namespace), keys.shape)
        except Forbidden as error:
            if not whole or not resource.namespaced:
                raise
            found, _ = await self._client.list_all(Selection(resource, namespace), keys.shape)
            self._notes.append(f"only {resource.plural} of the namespace {namespace} were looked at: you {error}")
        kept = map(keys.keep, found)
        return [Known(kind, each.metadata, keys.read(resource, each)) for each in kept]

    async def _namespaces(self, own: str) -> list[Partial]:
        """List the namespaces; where that is forbidden, what has a label of the ring counts as selected."""
        fields = f"metadata.name={own}" if self._scoped else ""
        try:
            return (await self._client.list_all(Selection(NAMESPACES, fields=fields), Partial))[0]
        except Forbidden as error:
            self._notes.append(f"which namespaces are selected is not known: you {error}")
            return []

    async def _leases(self, ring: str, namespace: str) -> dict[str, LeaseFact] | None:
        """List the Leases of the instances; None where that is forbidden."""
        try:
            found, _ = await self._client.list_all(Selection(LEASES, namespace, labels=f"{RING_LABEL}={ring}"), Lease)
        except Forbidden as error:
            self._notes.append(f"the Leases of instances are not known: you {error}")
            return None
        return {each.metadata.name: read_lease(each) for each in found}


def _instances(
    status: ShownStatus, leases: dict[str, LeaseFact] | None, view: View, orders: Orders, usual: int
) -> tuple[InstanceSeen, ...]:
    """Take the instances that the operator shows; where it never looked, those that have a Lease."""
    states = {each.name: (_health(each.state), each.tokens) for each in status.instances}
    if not status.observed_generation:
        states = {
            name: (Health.READY if is_process_of(fact.holder, name) else Health.EXPIRED, fact.tokens)
            for name, fact in (leases or {}).items()
        }
    return tuple(
        InstanceSeen(
            name=name,
            state=state,
            tokens=usual if tokens is None else tokens,
            objects=len(view.named.get(name, ())),
            drained=name in orders.drained,
            note="objects name it, and it has no Lease" if leases is not None and name not in leases else "",
        )
        for name, (state, tokens) in sorted(states.items())
    )


def _health(state: str) -> Health:
    return Health(state) if state in set(Health) else Health.UNCERTAIN


def _has_place(each: InstanceSeen, leases: dict[str, LeaseFact] | None) -> bool:
    """Say whether an instance is a member: ready, or late by a Lease of its own."""
    if each.state is Health.READY or leases is None:
        return each.state in _STANDINGS
    fact = leases.get(each.name)
    own = fact is not None and (not fact.holder or is_process_of(fact.holder, each.name))
    return each.state in _STANDINGS and own


def _told(report: RingReport, status: ShownStatus) -> RingReport:
    """Add what only the operator knows: whether the brake holds."""
    if status.condition("Ready").reason != "Braked":
        return report
    lost = tuple(each.name for each in report.instances if each.state is not Health.READY and each.objects)
    return msgspec.structs.replace(report, vanished=lost or ("some instances",))


def _drain_since(view: View, timeout_s: int) -> dict[str, datetime]:
    """Say since when each object is asked for, by the label that informs of its deadline."""
    untils = {uid: view.kin.objects[uid].marks.drain_until for uid in view.clocks}
    return {
        uid: datetime.fromtimestamp(until, UTC) - timedelta(seconds=timeout_s)
        for uid, until in untils.items()
        if until is not None and until < 32_503_680_000
    }
