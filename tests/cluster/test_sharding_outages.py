"""Outages under real processes: an API server or etcd that fails, wrong clocks, storms, an instance frozen or killed.

One fleet serves all tests of this file, each of which judges everything since the beginning.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from tests.cluster.audit_case import Fault, Reconcile
from tests.cluster.audit_lines import boot_s
from tests.cluster.faulty_proxy import FaultyProxy, ProxyBeside
from tests.cluster.fleet import Fleet
from tests.cluster.late_writes import deliver_late, stuck_reconciles
from tests.cluster.outage_world import (
    CHILD_PERIOD_S,
    CURT,
    FAMILIES,
    HOUR_S,
    INSTANCES,
    LEASE_S,
    OPTIONS,
    PERIOD_S,
    SLOW_S,
    Outages,
    gives_a_root,
)
from tests.cluster.ring_world import Observer, make_world
from tests.cluster.world import Cluster, install_definitions

from poise.kube.resources import CONFIG_MAPS, SECRETS, Resource

MANY = 1_000_000
# What an admin writes on objects of `late`. Another running instance as the shard of a root is not among it: that can
# make two act, as docs/sharding.md says.
TAMPERED: tuple[tuple[Resource, dict[str, str | None]], ...] = (
    (SECRETS, {"drain": "right"}),
    (SECRETS, {"drain": "right", "until": "99"}),
    (SECRETS, {"drain": "", "until": "soon"}),
    (SECRETS, {"shard": None}),
    (SECRETS, {"shard": None, "drain": "right", "until": "0"}),
    (SECRETS, {"epoch": "seven"}),
    (CONFIG_MAPS, {"epoch": None}),
    (CONFIG_MAPS, {"drain": "right"}),
    (CONFIG_MAPS, {"shard": "right"}),
)


@pytest.fixture(scope="module")
def outages(breakable: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outages]:
    """Start everything once."""
    folder, namespace, plane = tmp_path_factory.mktemp("outages"), "outages", breakable.plane
    breakable.run(install_definitions)
    breakable.run(lambda client: make_world(client, namespace, FAMILIES, leaseSeconds=LEASE_S))
    with (
        ProxyBeside(plane.port, plane.ca_file) as beside,
        Fleet(breakable, namespace, folder) as fleet,
        Observer(breakable.kubeconfig(), namespace) as observer,
    ):
        fleet.start_operator("op")
        fleet.start_shard("right", *OPTIONS, url=beside.url)
        fleet.start_shard("early", *OPTIONS, "--clock-off", str(-HOUR_S))
        fleet.start_shard("late", *OPTIONS, "--clock-off", str(HOUR_S), "--slow", str(SLOW_S))
        started = Outages(breakable, fleet, observer, beside)
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


def test_labels_tampered_with_by_an_admin_while_reconciles_run_make_no_two_act(outages: Outages) -> None:
    fleet, at_s = outages.fleet, boot_s()
    # Nobody mends anything for a while: what the labels say is up to the shards alone.
    fleet.freeze("op")
    hit: list[Reconcile] = []
    written_s: list[float] = []
    for resource, labels in TAMPERED:
        hit.append(outages.tamper(resource, labels, {each.family for each in hit}))
        written_s.append(boot_s())
    asked = {hit[0].family, hit[1].family}
    fleet.wait(lambda: asked <= outages.acted_on("right", at_s), 10, "what is asked for is handed over")
    fleet.thaw("op")
    fleet.faults.append(Fault(at_s, "leader", until_s=boot_s()))
    outages.rest(steady_s=PERIOD_S)
    ends = {(each.process, each.object, each.start_s): each.end_s or 0.0 for each in outages.judge().reconciles}
    caught = [ends[each.process, each.object, each.start_s] > w_s for each, w_s in zip(hit, written_s, strict=True)]
    assert any(caught), "reconciles ran while their labels changed"


def test_a_lease_that_somebody_else_took_ends_its_process_in_time(outages: Outages) -> None:
    fleet, robbed = outages.fleet, outages.fleet.parts["late"]
    renewed_s = outages.steal_lease("late", HOUR_S)
    fleet.wait(lambda: not robbed.runs, 2 * LEASE_S, "the end of who is robbed")
    assert robbed.until_s < renewed_s + LEASE_S, "it stops before its Lease would have ended"
    mine = {uid for uid, owner in outages.wanted().items() if owner == "late"}
    fleet.wait(lambda: mine <= outages.acted_on("late", robbed.until_s), 6 * LEASE_S, "what it had is reconciled again")
    outages.rest(steady_s=PERIOD_S)
    outages.judge()


def test_storms_of_410_and_429_while_an_instance_comes_and_goes(outages: Outages) -> None:
    fleet, before, at_s = outages.fleet, outages.wanted(), boot_s()
    struck = fleet.parts["right"]
    guest = fleet.start_shard("guest", *OPTIONS)
    given = {uid for uid, owner in outages.wanted().items() if (before[uid], owner) == ("right", "guest")}
    assert given
    outages.storm_until(outages.resting())
    outages.storm_until(lambda: given <= outages.acted_on("guest", at_s))
    fleet.stop("guest")
    outages.storm_until(outages.resting())
    fleet.wait(lambda: not guest.runs, 10, "the guest leaves")
    outages.beside.do(FaultyProxy.calm)
    # For whoever is behind the proxy no API server could be counted on: what its reconciles wrote was refused, too.
    fleet.faults.append(Fault(at_s, "api", "right", until_s=boot_s()))
    outages.rest(steady_s=PERIOD_S)
    outages.judge()
    assert fleet.parts["right"] is struck, "who is refused now and then keeps its Lease"
    assert {line.split()[0] for line in outages.beside.proxy.refused} == {"GET", "PUT", "PATCH"}


def test_an_instance_killed_between_the_children_and_the_roots_of_a_hand_over(outages: Outages) -> None:
    fleet, beside = outages.fleet, outages.beside
    beside.do(lambda proxy: proxy.refuse(CURT, when=gives_a_root, times=MANY))
    fleet.start_shard("guest", *OPTIONS)
    fleet.wait(lambda: bool(outages.torn("right", "guest")), 30, "children are handed over")
    fleet.kill("right")
    assert outages.torn("right", "guest"), "no root was handed over"
    beside.do(FaultyProxy.calm)
    outages.rest(steady_s=PERIOD_S)
    outages.judge()
