"""Outages under real processes: the API server restarted, etcd slow, clocks that are wrong, an instance frozen.

One fleet serves all tests of this file, each of which judges everything since the beginning.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from tests.cluster.audit_case import Case, Fault, Terms
from tests.cluster.audit_lines import boot_s, read_audit
from tests.cluster.auditor import audit
from tests.cluster.fleet import Fleet
from tests.cluster.late_writes import deliver_late, stuck_reconciles
from tests.cluster.ring_world import Observer, make_world, read_finals, wanted_owners
from tests.cluster.world import Cluster, install_definitions

LEASE_S, PERIOD_S, CHILD_PERIOD_S, FAMILIES = 4, 3.0, 6.0, 40
INSTANCES = ("right", "early", "late")
OPTIONS = ("--period", str(PERIOD_S), "--child-period", str(CHILD_PERIOD_S))
HOUR_S = "3600"


class Outages:
    """A fleet of three shards, two of which have wrong clocks, and one operator."""

    def __init__(self, cluster: Cluster, fleet: Fleet, observer: Observer) -> None:
        """Take what runs."""
        self.cluster, self.fleet, self.observer = cluster, fleet, observer
        self.from_s = boot_s()

    def rest(self, within_s: float = 90.0) -> None:
        """Wait until every root is where it belongs, stays there, and was written there.

        What is seen first may be older than the outage: whoever lost a Lease in it loses objects some seconds later.
        """
        wanted = self.wanted()

        def rests() -> bool:
            marks = self.observer.marks
            return len(marks) == 2 * FAMILIES and all(
                marks[uid].shard == owner and marks[uid].drain is None for uid, owner in wanted.items()
            )

        until_s, since_s = boot_s() + within_s, boot_s()
        while boot_s() < since_s + 3 * LEASE_S:
            if not rests():
                self.fleet.wait(rests, until_s - boot_s(), "rest")
                since_s = boot_s()
            self.fleet.sleep(0.2)

    def wanted(self) -> dict[str, str]:
        """Compute whom each root belongs to."""
        return self.cluster.run(lambda client: wanted_owners(client, self.fleet.namespace, INSTANCES))

    def judge(self) -> Case:
        """Let the auditor judge everything since the beginning."""
        case = Case(
            Terms(LEASE_S, PERIOD_S, CHILD_PERIOD_S),
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
        assert audit(case) == [], self.fleet.told()
        return case


@pytest.fixture(scope="module")
def outages(breakable: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outages]:
    """Start everything once."""
    folder, namespace = tmp_path_factory.mktemp("outages"), "outages"
    breakable.run(install_definitions)
    breakable.run(lambda client: make_world(client, namespace, FAMILIES, leaseSeconds=LEASE_S))
    with Fleet(breakable, namespace, folder) as fleet, Observer(breakable.kubeconfig(), namespace) as observer:
        fleet.start_operator("op")
        fleet.start_shard("right", *OPTIONS)
        fleet.start_shard("early", *OPTIONS, "--clock-off", f"-{HOUR_S}")
        fleet.start_shard("late", *OPTIONS, "--clock-off", HOUR_S, "--slow", "1")
        started = Outages(breakable, fleet, observer)
        started.rest()
        started.from_s = boot_s()
        yield started


def test_clocks_that_are_wrong_by_an_hour_change_nothing(outages: Outages) -> None:
    began_s = boot_s()
    outages.fleet.sleep(CHILD_PERIOD_S + 1)
    case = outages.judge()
    assert len(case.processes) == len(INSTANCES), "nobody had to start again"
    assert {each.instance for each in case.reconciles if each.start_s > began_s} == set(INSTANCES)


def test_an_instance_that_wakes_up_too_late_is_refused(outages: Outages) -> None:
    fleet = outages.fleet
    fleet.freeze("late")
    stuck = stuck_reconciles(fleet.audit, fleet.parts["late"].pid, boot_s())
    taken = {uid for uid, owner in outages.wanted().items() if owner == "late"}
    fleet.wait(lambda: all(outages.observer.marks[uid].shard != "late" for uid in taken), 30, "others take over")
    fleet.sleep(PERIOD_S)
    fleet.thaw("late")
    late = deliver_late(outages.cluster, outages.observer, fleet.ring, stuck)
    assert stuck
    assert [each.outcome for each in late] == ["refused"] * len(stuck)
    outages.rest()
    outages.judge()


def test_the_api_server_restarted(outages: Outages) -> None:
    at_s = boot_s()
    outages.cluster.plane.end("kube-apiserver", signal.SIGKILL)
    outages.cluster.plane.start_api()
    outages.fleet.faults.append(Fault(at_s, "api", until_s=boot_s()))
    outages.rest()
    outages.judge()


def test_a_slow_etcd(outages: Outages) -> None:
    etcd, at_s = outages.cluster.plane.pid("etcd"), boot_s()
    try:
        for _ in range(6):
            os.kill(etcd, signal.SIGSTOP)
            time.sleep(0.3 * LEASE_S)
            os.kill(etcd, signal.SIGCONT)
            outages.fleet.sleep(0.2)
    finally:
        os.kill(etcd, signal.SIGCONT)
    outages.fleet.faults.append(Fault(at_s, "api", until_s=boot_s()))
    outages.rest()
    outages.judge()
