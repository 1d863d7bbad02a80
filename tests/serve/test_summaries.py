"""A job in one line: its numbers are true, and what is wrong with it is said, the worst first."""

from __future__ import annotations

import json

import msgspec
import pytest
from tests.serve.live_server import DIVISION, ORDERS, POOL, SHOP
from tests.serve.told_store import START, ToldStore

from poise.documents import load
from poise.jobs.dividing import divide_stored
from poise.jobs.pool.settings import PODS_NOTE, SOURCE_NOTE
from poise.jobs.pool.state import PodNote, SourceState, write_notes
from poise.jobs.stored import Stored
from poise.move.executor import put_set
from poise.serve.looks import FORGOTTEN_S
from poise.serve.summaries import count_job
from poise.stores.base import Transaction

RING = {"kind": "ShardRing", "metadata": {"name": "web"}, "spec": {"policy": "balanced", "objects": list("abcdef")}}
DAY_S = FORGOTTEN_S


@pytest.fixture
def told() -> ToldStore:
    return ToldStore()


def test_a_job_in_order_has_no_problems(told: ToldStore) -> None:
    told.put(ORDERS)
    told.join("orders", "n1", "n2")
    told.settle("orders", "n1", "n2")
    summary = told.api.summary("PartitionSet", "orders")
    assert (summary.health, summary.problems, summary.members) == ("as it should be", [], {"active": 2})
    assert (summary.items, summary.unowned, summary.moves_in_flight, summary.spread) == (4, 0, 0, 0)
    assert summary == told.api.jobs()[0], "the list says the same"
    assert "replicas" not in msgspec.to_builtins(summary), "only kinds that count say how many"


def test_unowned_items_come_first_and_who_still_holds_them_next(told: ToldStore) -> None:
    told.put(ORDERS)
    told.join("orders", "n1", "n2")
    told.settle("orders", "n1", "n2")
    told.now_s += 9
    told.beat("orders", "n1")
    told.now_s += 2
    summary = told.api.summary("PartitionSet", "orders")
    assert summary.problems == ["2 of 4 items have no owner", "n2 is gone and still holds 2 items"]
    assert summary.health == summary.problems[0]


def test_a_member_that_has_missed_its_time_to_speak_is_said_before_its_lease_ends(told: ToldStore) -> None:
    told.put(ORDERS)
    told.join("orders", "n1", "n2")
    told.settle("orders", "n1", "n2")
    told.now_s += 5
    assert told.api.summary("PartitionSet", "orders").late == 0
    told.beat("orders", "n1")
    told.now_s += 2
    summary = told.api.summary("PartitionSet", "orders")
    assert (summary.late, summary.problems) == (1, [])
    assert summary.health == "n2 is late: nothing of it moves for 5 s"
    told.beat("orders", "n2")
    assert told.api.summary("PartitionSet", "orders").health == "as it should be"


def test_what_was_kept_still_is_answered_as_it_was(told: ToldStore) -> None:
    told.put(ORDERS)
    told.join("orders", "n1", "n2")
    told.settle("orders", "n1", "n2")
    still, job = told.api.still("PartitionSet", "orders"), ("PartitionSet", "orders")
    before = (still.summary(*job), still.items(*job, member=None, state=None), still.members(*job), still.get(*job))
    told.now_s += 20
    told.join("orders", "n3")
    assert told.api.summary(*job).members == {"gone": 2, "active": 1}
    assert (
        still.summary(*job),
        still.items(*job, member=None, state=None),
        still.members(*job),
        still.get(*job),
    ) == before


def test_many_absent_members_are_counted_not_listed(told: ToldStore) -> None:
    told.put(ORDERS, partitions=12)
    names = [f"n{number}" for number in range(6)]
    told.join("orders", *names)
    told.settle("orders", *names)
    told.now_s += 11
    assert told.api.summary("PartitionSet", "orders").problems == [
        "12 of 12 items have no owner",
        "n0 is gone and still holds 2 items",
        "n1 is gone and still holds 2 items",
        "n2 is gone and still holds 2 items",
        "3 other members are not heard of and still hold items",
    ]


def test_a_brake_is_said_and_is_the_health(told: ToldStore) -> None:
    told.put(RING, brakePercent=50)
    told.join("web", "a", "b", "c")
    told.settle("web", "a", "b", "c")
    lease_s = told.member("web", "a").lease_until_s - told.now_s
    told.now_s += lease_s - 1
    told.beat("web", "a")
    told.now_s += 2
    summary = told.api.summary("ShardRing", "web")
    brake = "the brake holds: 2 instances vanished at once; resume lets their items move"
    assert summary.problems == [
        "4 of 6 items have no owner",
        "b is expired and still holds 2 items",
        "c is expired and still holds 2 items",
        brake,
    ]
    assert summary.health == brake


def test_a_hand_over_that_takes_too_long_is_named(told: ToldStore) -> None:
    told.put(ORDERS, releaseSeconds=5, onReleaseTimeout="wait")
    told.join("orders", "n1")
    told.settle("orders", "n1")
    told.join("orders", "n2")
    told.cycle("orders")
    for _ in range(3):
        assert not told.api.summary("PartitionSet", "orders").problems
        told.now_s += 2
        told.beat("orders", "n1", lets_go=False)
        told.beat("orders", "n2")
    summary = told.api.summary("PartitionSet", "orders")
    told.now_s += 4
    told.beat("orders", "n1", lets_go=False)
    later = told.api.summary("PartitionSet", "orders")
    assert (summary.problems, later.moves_in_flight) == ([], 2)
    assert later.problems == ["2 hand-overs take longer than 5 s: 2 (n1 -> n2) has waited for 8 s"]


def note_pool(tx: Transaction, pods: dict[str, PodNote], source: SourceState) -> None:
    job = tx.job()
    assert job is not None
    put_set(tx, job, ["router/1"])
    tx.write_note(PODS_NOTE, write_notes(pods))
    tx.write_note(SOURCE_NOTE, msgspec.json.encode(source).decode())


def test_a_pool_says_what_its_engine_knows_of_source_and_pods(told: ToldStore) -> None:
    told.put(POOL)
    where = "TargetPool/core"
    told.join(where, "gnmic-0")
    pods = {"gnmic-0": PodNote(state="ready", error="apply answered 500", since="2026-01-01T00:00:00Z")}
    source = SourceState(targets=1, error="it lists 0 targets, 100 % fewer")
    told.store.transact(where, lambda tx: note_pool(tx, pods, source))
    told.settle(where, "gnmic-0")
    assert told.api.summary("TargetPool", "core").problems == [
        "the source of targets is not obeyed: it lists 0 targets, 100 % fewer",
        "gnmic-0: apply answered 500",
    ]
    pod = told.api.members("TargetPool", "core")[0]
    assert (pod.error, str(pod.since)) == ("apply answered 500", "2026-01-01 00:00:00+00:00")


def test_a_division_says_its_numbers(told: ToldStore) -> None:
    told.put(DIVISION)
    before = told.api.summary("ReplicaDivision", "shop")
    assert (before.replicas, before.pending, before.health) == (0, 1, "changes pending")
    while divide_stored(told.store, "shop", told.now()):
        pass
    after = told.api.summary("ReplicaDivision", "shop")
    assert (after.items, after.members, after.replicas, after.spread) == (1, {"ready": 2}, 7, 1)
    assert (after.unplaced, after.pending, after.problems, after.health) == (0, 0, [], "as it should be")


def test_a_division_without_room_says_so(told: ToldStore) -> None:
    told.put(DIVISION, clusters=[{"name": "m1", "max": 2}, {"name": "m2", "max": 3}])
    summary = told.api.summary("ReplicaDivision", "shop")
    assert (summary.unplaced, summary.problems) == (2, ["there is no room for 2 replicas of cart"])
    assert summary.health == summary.problems[0]


def test_a_split_says_its_numbers_and_what_does_not_work(told: ToldStore) -> None:
    told.put(SHOP)
    told.put({**SHOP, "status": {"workloads": {"api": {"spot": 6, "onDemand": 4}}}})
    summary = told.api.summary("CapacitySplit", "shop")
    assert (summary.replicas, summary.pending, summary.problems) == (10, 1, [])
    assert (summary.members, summary.spread) == ({"ready": 2}, 2)
    told.api.pause("CapacitySplit", "shop", paused=True, everything=False)
    assert told.api.summary("CapacitySplit", "shop").health == "paused"


def test_members_long_gone_that_hold_nothing_are_left_out_and_never_forgotten(told: ToldStore) -> None:
    told.put(ORDERS)
    told.join("orders", "n1", "n2", "n3")
    told.settle("orders", "n1", "n2", "n3")
    ends_s = told.member("orders", "n3").lease_until_s
    for _ in range(8):
        told.now_s += 5
        told.settle("orders", "n1", "n2")
    assert told.api.summary("PartitionSet", "orders").members == {"active": 2, "gone": 1}
    told.now_s = ends_s + DAY_S
    assert len(told.api.members("PartitionSet", "orders")) == 3
    told.now_s += 1
    shown = told.api.members("PartitionSet", "orders")
    assert [member.name for member in shown] == ["n1", "n2"], "who still holds something is shown, however long gone"
    assert told.api.summary("PartitionSet", "orders").members == {"gone": 2}
    assert told.member("orders", "n3").incarnation == 1, "its row stays"
    drained = told.api.drain("PartitionSet", "orders", "n3", True)
    assert drained.draining, "who knows its name can still ask for it"


def test_one_of_something_is_said_in_the_singular(told: ToldStore) -> None:
    told.put(ORDERS, partitions=2)
    assert told.api.summary("PartitionSet", "orders").health == "2 of 2 items have no owner"
    told.join("orders", "n1")
    told.settle("orders", "n1")
    told.join("orders", "n2")
    told.cycle("orders")
    assert told.api.summary("PartitionSet", "orders").health == "1 move in flight"
    assert told.api.stoppable("PartitionSet", "orders", "n2").reasons == ["1 more is on its way to it"]
    told.settle("orders", "n1", "n2")
    assert told.api.stoppable("PartitionSet", "orders", "n2").reasons[0] == "it holds 1 item"
    told.now_s += 9
    told.beat("orders", "n1")
    told.now_s += 2
    assert told.api.summary("PartitionSet", "orders").health == "1 of 2 items has no owner"


def test_one_more_than_is_named_is_named_too(told: ToldStore) -> None:
    told.put(ORDERS)
    names = [f"n{number}" for number in range(4)]
    told.join("orders", *names)
    told.settle("orders", *names)
    told.now_s += 11
    assert told.api.summary("PartitionSet", "orders").problems == [
        "4 of 4 items have no owner",
        *(f"{name} is gone and still holds 1 item" for name in names),
    ]


@pytest.mark.parametrize(("many", "says"), [(1, "1 spot replica of api runs"), (2, "2 spot replicas of api run")])
def test_what_runs_elsewhere_is_counted_in_words(many: int, says: str) -> None:
    seen = {"spot": 0, "onDemand": 3, "fallback": {"substitutes": many}}
    document = load(json.dumps({**SHOP, "status": {"workloads": {"api": seen}}}).encode(), "test")[0]
    found = count_job(Stored(document, 1), START, paused=False).summary.problems
    assert f"{says} on on-demand until spot works again" in found
