"""Documents in a store: revisions, status, deletion, and what each kind becomes there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import pytest

from poise.documents import load
from poise.errors import Conflict, NotFound
from poise.jobs.coordinator import Coordinator
from poise.jobs.dividing import divide_stored
from poise.jobs.planning import plan_document
from poise.jobs.stored import delete_document, listed, put_document, read_document
from poise.model import CapacitySplit, PartitionSet, ReplicaDivision, ShardRing
from poise.model.ownership import Terms
from poise.move.executor import register_member
from poise.stores.memory import MemoryStore

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SET = "{apiVersion: poise.dev/v1alpha1, kind: PartitionSet, metadata: {name: orders}, spec: {partitions: 4}}"
RING = """{apiVersion: poise.dev/v1alpha1, kind: ShardRing, metadata: {name: web}, spec: {objects: [a, b],
  policy: balanced, tokens: 7, leaseSeconds: 4, drainTimeoutSeconds: 9,
  onDrainTimeout: force, restartGraceSeconds: 3, brakePercent: 30,
  guards: {movesInFlightMax: 5}}}"""
POOL = """{apiVersion: poise.dev/v1alpha1, kind: TargetPool, metadata: {name: core}, spec: {capacity: 40,
  goneAfterSeconds: 7,   pods: {endpoints: [{name: p0, url: "http://127.0.0.1:1", weight: 2},
  {name: p1, url: "http://127.0.0.1:2", capacity: 9}]},
  targets: {list: [{name: r1}]}}}"""
DIVISION = """{apiVersion: poise.dev/v1alpha1, kind: ReplicaDivision, metadata: {name: shop},
  spec: {clusters: [{name: a}, {name: b}], workloads: [{name: cart, replicas: 7}, {name: pay, replicas: 3}]}}"""
SPLIT = """{apiVersion: poise.dev/v1alpha1, kind: CapacitySplit, metadata: {name: shop}, spec: {
  workloads: [{name: api, replicas: 10, spotPercentage: 70, minOnDemand: 1}],
  guards: {cooldownSeconds: 10, budgets: [{limit: 2, windowSeconds: 600}]}}}"""


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(lambda: 1000.0)


def put(store: MemoryStore, text: str, at: datetime = NOW, if_match: int | None = None) -> int:
    return put_document(store, load(text, "test")[0], at, if_match=if_match).revision


def test_every_kind_is_kept_and_listed_under_its_kind_and_name(store: MemoryStore) -> None:
    for text in (SET, RING, POOL, DIVISION, SPLIT):
        assert put(store, text) == 1
    names = [("CapacitySplit", "shop"), ("PartitionSet", "orders"), ("ReplicaDivision", "shop"), ("ShardRing", "web")]
    assert listed(store) == [*names, ("TargetPool", "core")]
    for kind, name in listed(store):
        found = read_document(store, kind, name, NOW).document
        assert (found.kind, found.metadata.name) == (kind, name)


def test_a_revision_grows_with_a_change_and_only_then(store: MemoryStore) -> None:
    assert [put(store, SET), put(store, SET)] == [1, 1]
    assert put(store, SET.replace("4", "6")) == 2
    with pytest.raises(Conflict, match="orders is at revision 2, not 1"):
        put(store, SET, if_match=1)
    assert put(store, SET, if_match=2) == 3
    with pytest.raises(Conflict, match="at revision 3, not 0"):
        put(store, SET, if_match=0)


def test_what_is_not_there_is_not_found(store: MemoryStore) -> None:
    put(store, SET)
    for kind, name in (("PartitionSet", "none"), ("ShardRing", "orders"), ("Nonsense", "orders")):
        with pytest.raises(NotFound):
            read_document(store, kind, name, NOW)
        with pytest.raises(NotFound):
            delete_document(store, kind, name)


def test_sets_and_rings_share_their_names(store: MemoryStore) -> None:
    put(store, SET)
    with pytest.raises(Conflict, match="orders is a PartitionSet: it cannot become a ShardRing"):
        put(store, RING.replace("web", "orders"))


def test_a_ring_becomes_a_set_with_all_that_it_says(store: MemoryStore) -> None:
    put(store, RING)
    row = store.transact("web", lambda tx: tx.job())
    assert row is not None
    assert (row.kind, row.policy, row.tokens, row.brake_percent, row.count) == ("ShardRing", "balanced", 7, 30, 2)
    assert row.terms == Terms(lease_s=4, grace_s=4, release_s=9, restart_grace_s=3, revoke=True)
    assert (row.guards.moves_in_flight_max, row.guards.per_source_max) == (5, None)


def test_a_pool_becomes_a_set_without_leases(store: MemoryStore) -> None:
    put(store, POOL)
    row = store.transact("TargetPool/core", lambda tx: tx.job())
    assert row is not None
    assert (row.policy, row.weights, row.capacity) == ("sticky", {"p0": 2}, {"p0": 40, "p1": 9})
    assert (row.terms.lease_s, row.terms.leased) == (7, False)


def test_the_status_of_a_set_is_what_the_store_knows_and_can_be_planned(store: MemoryStore) -> None:
    put(store, SET)
    for name in ("n1", "n2"):
        store.transact("orders", partial(register_member, name="orders", member=name, process="p"))
    Coordinator(store, "c").cycle("orders")
    document = read_document(store, "PartitionSet", "orders", NOW).document
    assert isinstance(document, PartitionSet)
    assert [node.state for node in document.status.nodes] == ["active", "active"]
    assert sorted(row.owner or "" for row in document.status.partitions) == ["n1", "n1", "n2", "n2"]
    assert {row.lease_until for row in document.status.partitions} == {NOW + timedelta(seconds=10)}
    planned = plan_document(document, NOW)
    assert (planned.pending, planned.faults) == (False, [])
    later = plan_document(document, NOW + timedelta(seconds=60))
    assert later.pending, "leases and grace have ended by then"


def test_the_status_of_a_ring_tells_the_states_of_its_leases() -> None:
    now_s = [1000.0]
    store = MemoryStore(lambda: now_s[0])
    put(store, RING)
    store.transact("web", lambda tx: register_member(tx, "web", "web-0", "p"))
    Coordinator(store, "c").cycle("web")
    states = []
    for later_s in (1001.0, 1004.0, 1008.0):
        now_s[0] = later_s
        document = read_document(store, "ShardRing", "web", NOW).document
        assert isinstance(document, ShardRing)
        states += [each.state for each in document.status.instances]
        assert document.status.assignment == {"a": "web-0", "b": "web-0"}
    assert states == ["ready", "expired", "uncertain"]


def test_deleting_a_set_takes_its_document_at_once_and_its_items_as_they_are_let_go_of(store: MemoryStore) -> None:
    put(store, SET)
    with pytest.raises(Conflict):
        delete_document(store, "PartitionSet", "orders", if_match=7)
    delete_document(store, "PartitionSet", "orders", if_match=1)
    assert listed(store) == []
    coordinator = Coordinator(store, "c")
    coordinator.cycle("orders")
    assert store.transact("orders", lambda tx: tx.rows()) == {}
    assert store.sets() == ["orders"]
    coordinator.cycle("orders")
    assert store.sets() == [], "nothing is left to plan"
    put(store, SET)
    assert store.sets() == ["orders"]
    assert len(store.transact("orders", lambda tx: tx.rows())) == 4


def test_a_division_keeps_its_decision_as_a_record_and_writes_nothing_while_it_fits(store: MemoryStore) -> None:
    put(store, DIVISION)
    assert divide_stored(store, "shop", NOW) == 2
    assert divide_stored(store, "shop", NOW) == 0
    first = read_document(store, "ReplicaDivision", "shop", NOW).document
    assert isinstance(first, ReplicaDivision)
    assert sorted(first.status.divisions["cart"].result.values()) == [3, 4]
    put(store, DIVISION.replace("replicas: 7", "replicas: 8"))
    assert divide_stored(store, "shop", NOW) == 1
    second = read_document(store, "ReplicaDivision", "shop", NOW).document
    assert isinstance(second, ReplicaDivision)
    assert second.status.divisions["pay"] == first.status.divisions["pay"]
    lines = [(line.item, line.transition) for line in store.journal("ReplicaDivision/shop") if line.item]
    assert lines == [("cart", "divided"), ("pay", "divided"), ("cart", "divided")]
    put(store, DIVISION.replace(", {name: pay, replicas: 3}", ""))
    divide_stored(store, "shop", NOW)
    assert store.journal("ReplicaDivision/shop")[-1].transition == "deleted"


def report(store: MemoryStore, at: datetime, spot: int, on_demand: int) -> CapacitySplit:
    document = load(SPLIT, "test")[0]
    assert isinstance(document, CapacitySplit)
    told = msgspec.convert({"workloads": {"api": {"spot": spot, "onDemand": on_demand}}}, type(document.status))
    found = put_document(store, msgspec.structs.replace(document, status=told), at).document
    assert isinstance(found, CapacitySplit)
    return found


def test_reported_counts_feed_cooldown_and_budgets_and_survive(store: MemoryStore) -> None:
    first = report(store, NOW, 5, 5)
    assert first.status.workloads["api"].actions == [], "the first report has nothing to compare with"
    second = report(store, NOW + timedelta(seconds=30), 6, 4)
    assert [action.count for action in second.status.workloads["api"].actions] == [1]
    entry = plan_document(second, NOW + timedelta(seconds=35)).entry
    waits = msgspec.to_builtins(entry)["workloads"]["api"]["waits"]
    assert (waits["code"], waits["until"]) == ("cooldown", "2026-11-15T12:00:40Z")
    report(store, NOW + timedelta(seconds=60), 7, 3)
    third = report(store, NOW + timedelta(seconds=90), 7, 3)
    assert plan_document(third, NOW + timedelta(seconds=90)).pending is False
    back = report(store, NOW + timedelta(seconds=120), 6, 4)
    assert [action.count for action in back.status.workloads["api"].actions] == [1, 1, 1]
    waits = msgspec.to_builtins(plan_document(back, NOW + timedelta(seconds=200)).entry)["workloads"]["api"]["waits"]
    assert waits["code"] == "budget"
    story = [line.reason for line in store.journal("CapacitySplit/shop", "api")]
    assert story == ["spot 5, on-demand 5", "spot 6, on-demand 4", "spot 7, on-demand 3", "spot 6, on-demand 4"]


def test_the_same_report_again_writes_nothing(store: MemoryStore) -> None:
    report(store, NOW, 5, 5)
    version = store.version()
    report(store, NOW + timedelta(seconds=5), 5, 5)
    assert store.version() == version


def test_a_jump_of_the_total_is_noticed_when_people_ask_for_it(store: MemoryStore) -> None:
    report(store, NOW, 7, 3)
    put(store, SPLIT.replace("replicas: 10", "replicas: 30"), NOW + timedelta(seconds=5))
    found = read_document(store, "CapacitySplit", "shop", NOW).document
    assert isinstance(found, CapacitySplit)
    seen = found.status.workloads["api"].total
    assert seen is not None
    assert (seen.replicas, seen.jumped) == (30, True)


def test_a_ramp_starts_with_the_first_report_and_an_interruption_is_remembered(store: MemoryStore) -> None:
    ramped = SPLIT.replace("guards:", "ramp: {initial: 20}, guards:")
    document = load(ramped, "test")[0]
    assert isinstance(document, CapacitySplit)

    def tell(at: datetime, **counts: int) -> CapacitySplit:
        told = msgspec.convert({"workloads": {"api": counts}}, type(document.status))
        found = put_document(store, msgspec.structs.replace(document, status=told), at).document
        assert isinstance(found, CapacitySplit)
        return found

    first = tell(NOW, spot=2, onDemand=8).status.workloads["api"].ramp
    assert first is not None
    assert (first.percent, first.started_at, first.spot_pods) == (20, NOW, 2)
    lost = tell(NOW + timedelta(minutes=1), spot=1, onDemand=8, interrupted=1).status.workloads["api"]
    assert lost.ramp is not None
    assert lost.ramp.interruptions == 1
    assert lost.interrupted == 0, "it is taken into the history once"
