"""What an event makes of a world, and which events do not fit."""

from __future__ import annotations

import msgspec
import pytest
from tests.sim_worlds import FLEET, POOL, SET, after

from poise.errors import InvalidSpec
from poise.model.replica_division import Cluster
from poise.sim.events import (
    Add,
    Drain,
    Event,
    Join,
    Leave,
    Remove,
    Reweigh,
    Scale,
)
from poise.sim.replay import check_events
from poise.sim.worlds import FleetWorld, ItemWorld, Member, World, new_names


def misfit(world: World, event: Event) -> str:
    with pytest.raises(InvalidSpec) as caught:
        check_events(world, [event], "growth.yaml")
    (fault,) = caught.value.faults
    return str(fault)


def test_a_member_joins_as_the_world_says() -> None:
    world = after(POOL, Join(join=["pod-3"]), Join(join=["pod-4"], weight=3, capacity=9))
    assert isinstance(world, ItemWorld)
    assert world.members["pod-3"] == Member(capacity=40)
    assert world.members["pod-4"] == Member(weight=3, capacity=9)
    assert world.live() == ["pod-0", "pod-1", "pod-3", "pod-4"]


def test_a_draining_member_comes_back() -> None:
    assert after(POOL, Join(join=["pod-2"])).live() == ["pod-0", "pod-1", "pod-2"]
    assert after(FLEET, Join(join=["west"], weight=5)).live() == ["east", "west"]


def test_leaving_and_draining() -> None:
    assert after(POOL, Leave(leave=["pod-0", "pod-2"])).live() == ["pod-1"]
    drained = after(POOL, Drain(drain=["pod-0"]))
    assert isinstance(drained, ItemWorld)
    assert drained.live() == ["pod-1"]
    assert "pod-0" in drained.members
    assert after(FLEET, Leave(leave=["west"])) == msgspec.structs.replace(
        FLEET, clusters={"east": FLEET.clusters["east"]}, draining=frozenset()
    )


def test_items_come_and_go() -> None:
    world = after(POOL, Add(add=2), Remove(remove=["router1"]), Remove(remove=1))
    assert isinstance(world, ItemWorld)
    assert list(world.items) == ["router2", "router3", "router4"]


def test_partitions_come_and_go_at_the_end() -> None:
    world = after(SET, Add(add=9), Remove(remove=1), Add(add=["11"]), Remove(remove=["11", "10"]))
    assert isinstance(world, ItemWorld)
    assert list(world.items) == list("0123456789")


def test_workloads_come_go_and_scale() -> None:
    world = after(FLEET, Add(add={"search": 5}), Scale(scale={"cart": 9}), Remove(remove=["mail"]))
    assert isinstance(world, FleetWorld)
    assert world.workloads == {"cart": 9, "search": 5}


@pytest.mark.parametrize(
    ("world", "event", "fault"),
    [
        (POOL, Join(join=["pod-0"]), '.join: member "pod-0" is there already'),
        (POOL, Join(join=["a", "a"]), ".join: names someone twice"),
        (POOL, Leave(leave=["pod-9"]), '.leave: there is no member "pod-9" at that point'),
        (POOL, Drain(drain=["pod-2"]), '.drain: "pod-2" is draining already'),
        (POOL, Reweigh(weight={"x": 1}), '.weight: there is no member "x" at that point'),
        (POOL, Add(add=["router1"]), '.add: item "router1" is there already'),
        (POOL, Add(add={"a": 1}), ".add: a TargetPool has items without replicas"),
        (POOL, Add(add=2_000_000), ".add: expected at most 2,000,000 items in a world"),
        (POOL, Remove(remove=4), ".remove: there are only 3 items at that point"),
        (POOL, Remove(remove=["x"]), '.remove: there is no item "x" at that point'),
        (POOL, Scale(scale={"a": 1}), ".scale: a TargetPool has items"),
        (SET, Add(add=["7"]), ".add: a PartitionSet grows by its next numbers, from 3 on"),
        (SET, Remove(remove=["0"]), ".remove: a PartitionSet shrinks by its last numbers"),
        (FLEET, Join(join=["east"]), '.join: cluster "east" is there already'),
        (FLEET, Add(add=3), ".add: a ReplicaDivision has workloads"),
        (FLEET, Add(add={"cart": 3}), '.add: workload "cart" is there already'),
        (FLEET, Scale(scale={"x": 3}), '.scale: there is no workload "x" at that point'),
        (
            msgspec.structs.replace(FLEET, strategy="DynamicWeight"),
            Join(join=["north"]),
            ".join: DynamicWeight divides by capacity",
        ),
        (
            msgspec.structs.replace(FLEET, strategy="Duplicated"),
            Reweigh(weight={"east": 3}),
            ".weight: Duplicated does not look at weights",
        ),
        (
            msgspec.structs.replace(FLEET, clusters={"east": Cluster("east", min=5)}, draining=frozenset({"east"})),
            Join(join=["east"], capacity=4),
            '.join: "east" has a minimum of 5, above its capacity of 4',
        ),
    ],
)
def test_an_event_that_does_not_fit_is_refused_with_its_path(world: World, event: Event, fault: str) -> None:
    assert misfit(world, event).startswith(f"growth.yaml: $.events[0]{fault}")


def test_every_misfit_of_a_script_is_told() -> None:
    with pytest.raises(InvalidSpec) as caught:
        check_events(POOL, [Leave(leave=["x"]), Leave(leave=["pod-0"]), Leave(leave=["pod-0"])], "s")
    assert [fault.path for fault in caught.value.faults] == ["$.events[0].leave", "$.events[2].leave"]


def test_new_names_go_on_where_the_old_ones_end() -> None:
    assert new_names(["pod-0", "pod-1"], 2, "x-") == ["pod-2", "pod-3"]
    assert new_names(["r1", "r2", "r4"], 2, "x-") == ["r3", "r5"]
    assert new_names(["a/b"], 1, "x-") == ["x-1"]
    assert new_names([], 1, "x-") == ["x-0"]
