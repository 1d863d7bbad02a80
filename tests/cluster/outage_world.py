"""A fleet that outages hit: three shards, two of which have wrong clocks and one a faulty proxy, and one operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from tests.cluster.audit_case import Case, Reconcile, Terms
from tests.cluster.audit_lines import boot_s, read_audit
from tests.cluster.auditor import audit
from tests.cluster.faulty_proxy import FaultyProxy, ProxyBeside, refusal
from tests.cluster.fleet import Fleet
from tests.cluster.ring_world import Observer, read_finals, wanted_owners
from tests.cluster.world import Cluster

from poise.kube import LEASES, ObjectRef
from poise.kube.resources import CONFIG_MAPS, SECRETS, Resource
from poise.model.sharding import label_names

LEASE_S, PERIOD_S, CHILD_PERIOD_S, FAMILIES = 4, 3.0, 6.0, 40
INSTANCES = ("right", "early", "late")
OPTIONS = ("--period", str(PERIOD_S), "--child-period", str(CHILD_PERIOD_S))
HOUR_S, SLOW_S = 3600, 1  # By how much clocks are wrong, and how long each reconcile of `late` takes.
# An instance that comes back has so much to reconcile first, twelve objects at once.
CATCH_UP_S = 2 * FAMILIES / len(INSTANCES) / 12 * SLOW_S
CURT = refusal("429 Too Many Requests")
_GONE = refusal("410 Gone", body='{"kind":"Status","message":"too old","reason":"Expired","code":410}')
_BUSY = refusal("429 Too Many Requests", "Retry-After: 1")
_STRIKE_S = 1.0
_MERGE = {"Content-Type": "application/merge-patch+json"}


class Outages:
    """What runs, what is done to it, and the judgement."""

    def __init__(self, cluster: Cluster, fleet: Fleet, observer: Observer, beside: ProxyBeside) -> None:
        """Take what runs."""
        self.cluster, self.fleet, self.observer, self.beside = cluster, fleet, observer, beside
        self.from_s = boot_s()

    def wanted(self) -> dict[str, str]:
        """Compute whom each root belongs to, among those that should run now."""
        instances = self.fleet.names()
        return self.cluster.run(lambda client: wanted_owners(client, self.fleet.namespace, instances))

    def resting(self) -> Callable[[], bool]:
        """Give the question whether every root is where it belongs now."""
        wanted = self.wanted()

        def rests() -> bool:
            marks = self.observer.marks
            return len(marks) == 2 * FAMILIES and all(
                marks[uid].shard == owner and marks[uid].drain is None for uid, owner in wanted.items()
            )

        return rests

    def rest(self, within_s: float = 90.0, steady_s: float = 3.0 * LEASE_S) -> None:
        """Wait until every root is where it belongs, stays there, and was written there.

        What is seen first may be older than the outage: whoever lost a Lease in it loses objects some seconds later.
        """
        rests = self.resting()
        until_s, since_s = boot_s() + within_s, boot_s()
        while boot_s() < since_s + steady_s:
            if not rests():
                self.fleet.wait(rests, until_s - boot_s(), "rest")
                since_s = boot_s()
            self.fleet.sleep(0.2)

    def judge(self) -> Case:
        """Let the auditor judge everything since the beginning."""
        case = Case(
            Terms(LEASE_S, PERIOD_S, CHILD_PERIOD_S, CATCH_UP_S),
            self.from_s,
            boot_s(),
            *read_audit(self.fleet.audit),
            self.fleet.processes(),
            tuple(self.fleet.faults),
            tuple(self.observer.sightings),
            self.cluster.run(lambda client: read_finals(client, self.fleet.namespace)),
            self.wanted(),
            tuple(self.observer.stalls),
        )
        findings = audit(case)
        assert not findings, "\n".join([*findings[:40], self.fleet.told()])
        return case

    def acted_on(self, instance: str, since_s: float) -> set[str]:
        """Find what an instance has begun to reconcile since then."""
        begun, _ = read_audit(self.fleet.audit)
        return {each.object for each in begun if each.instance == instance and each.start_s > since_s}

    # What is done.

    def tamper(self, resource: Resource, labels: Mapping[str, str | None], spared: set[str]) -> Reconcile:
        """Write labels on a root, or on its child, while the slow instance reconciles one of both."""
        found: list[Reconcile] = []

        def begun() -> bool:
            since_s = boot_s() - SLOW_S / 4
            fresh = [each for each in read_audit(self.fleet.audit)[0] if each.start_s > since_s and each.end_s is None]
            found[:] = [each for each in fresh if each.instance == "late" and each.family not in spared]
            return bool(found)

        self.fleet.wait(begun, 10, "a reconcile")
        root = self.observer.refs[found[0].family]
        self._relabel(ObjectRef(resource, root.name, root.namespace), labels)
        return found[0]

    def _relabel(self, ref: ObjectRef, labels: Mapping[str, str | None]) -> None:
        """Write labels of the ring as an admin does, over whatever is there."""
        names = dict(zip(("shard", "epoch", "drain", "until"), label_names(self.fleet.ring), strict=True))
        change = {"metadata": {"labels": {names[name]: value for name, value in labels.items()}}}
        with self.cluster.plane.client() as client:
            client.patch(ref.path, json=change, headers=_MERGE).raise_for_status()

    def steal_lease(self, name: str, clock_off_s: float) -> float:
        """Make somebody else the holder of a Lease; gives when its last renewal was written, by the clock of all."""
        ref = ObjectRef(LEASES, name, self.fleet.namespace)
        with self.cluster.plane.client() as client:
            answer = client.patch(ref.path, json={"spec": {"holderIdentity": "somebody_else"}}, headers=_MERGE)
        told = datetime.fromisoformat(answer.raise_for_status().json()["spec"]["renewTime"])
        return boot_s() - (datetime.now(UTC) - told + timedelta(seconds=clock_off_s)).total_seconds()

    def storm_until(self, holds: Callable[[], bool], within_s: float = 60.0) -> None:
        """Strike again and again until something holds."""
        until_s = boot_s() + within_s
        while not holds():
            assert boot_s() < until_s, f"not within {within_s} s\n{self.fleet.told()}"
            self.beside.do(_strike)
            self.fleet.sleep(_STRIKE_S)

    def torn(self, source: str, target: str) -> set[str]:
        """Find the families whose child was handed over already and whose root was not."""
        marks, refs = self.observer.marks, self.observer.refs
        owners = {(refs[uid].resource, refs[uid].name): each.shard for uid, each in marks.items()}
        names = {name for resource, name in owners if resource == SECRETS}
        return {name for name in names if (owners[SECRETS, name], owners.get((CONFIG_MAPS, name))) == (source, target)}


def _strike(proxy: FaultyProxy) -> None:
    """End every watch; those that follow are too old, and of the writes some are refused, with and without a time.

    What an earlier strike has left over is dropped: else refusals would pile up, and nobody could ever write.
    """
    proxy.calm()
    proxy.refuse(_GONE, when=lambda head: "watch=1" in head, times=3)
    proxy.refuse(_BUSY, when=lambda head: head.startswith("PATCH"), times=1)
    proxy.refuse(CURT, when=lambda head: head.startswith("PATCH"), times=3)
    proxy.refuse(CURT, when=lambda head: head.startswith("PUT"), times=2)
    proxy.cut()


def gives_a_root(head: str) -> bool:
    """Say whether a request hands a Secret over; what a reconcile writes is no merge patch."""
    return head.startswith("PATCH") and "/secrets/" in head and "merge-patch" in head
