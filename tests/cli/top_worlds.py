"""Jobs of every kind at an interesting moment, as `poise top` sees them: from the real facade on a store in memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
from tests.set_world import World

from poise.cli.remote import Job
from poise.cli.watching import ITEMS_MAX, JobSeen
from poise.documents import load
from poise.jobs.dividing import divide_stored
from poise.jobs.series import Sampler
from poise.jobs.stored import put_document
from poise.model.ownership import OwnerState
from poise.move.executor import drain_member
from poise.serve.jobs_api import StoreJobs

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
ORDERS = """{apiVersion: poise.dev/v1alpha1, kind: PartitionSet, metadata: {name: orders}, spec: {partitions: %d,
  guards: {movesInFlightMax: 3, perSourceMax: 2, perTargetMax: 3}}}"""
SHOP = """{apiVersion: poise.dev/v1alpha1, kind: ReplicaDivision, metadata: {name: shop}, spec: {
  clusters: [{name: east, weight: %d}, {name: north}, {name: west}],
  workloads: [{name: cart, replicas: 7}, {name: mail, replicas: 3}, {name: shop/search, replicas: 10}]}}"""
SPOT = """{apiVersion: poise.dev/v1alpha1, kind: CapacitySplit, metadata: {name: services}, spec: {
  workloads: [{name: api, replicas: 10, spotPercentage: 70, minOnDemand: 1}, {name: batch, replicas: 6,
  spotPercentage: 100}, {name: web, replicas: 6, spotPercentage: 50}],
  guards: {windows: [{schedule: "0 22 * * *", duration: 4h}]}},
  status: {workloads: {api: {spot: 5, onDemand: 5}, batch: {spot: 6}, web: {spot: 4, onDemand: 2}}}}"""
POOLS = """{apiVersion: poise.dev/v1alpha1, kind: CapacitySplit, metadata: {name: tiers}, spec: {
  workloads: [{name: api, replicas: 40}], pools: [{name: on, weight: 2, min: 2}, {name: spot-a, weight: 5},
  {name: spot-b, weight: 1}]}, status: {workloads: {api: {pools: {on: 12, spot-a: 20, spot-b: 5}}}}}"""


class Scene(World):
    """A set of partitions with a clock of its own, and what else is in its store."""

    def __init__(self, count: int, *members: str) -> None:
        super().__init__(count)
        self.write(ORDERS % count)
        for name in members:
            self.join(name)
        self.api = StoreJobs(self.store, now=self.wall, ready=lambda: True)
        self.sampler = Sampler(self.store, lambda: ["orders"], now=self.wall, boot_s=lambda: self.now_s)

    def wall(self) -> datetime:
        """Read the wall clock, which goes with the store's."""
        return NOON + timedelta(seconds=self.now_s - 1000.0)

    def write(self, text: str) -> None:
        put_document(self.store, load(text, "test")[0], self.wall())

    def pass_s(self, seconds: int, *beating: str) -> None:
        """Let time go by, in which some members are heard."""
        for _ in range(seconds):
            self.now_s += 1
            for name in beating:
                self.beat(name)
            self.sampler.sample()

    def look(self, kind: str = "PartitionSet", name: str = "orders") -> JobSeen:
        """Look as `poise top` does."""
        job, api = Job(kind, name), self.api
        summary = api.summary(kind, name)
        is_complete = summary.items <= ITEMS_MAX
        items = api.items(kind, name, member=None, state=None)
        apart = [item for item in items if item.state != OwnerState.ASSIGNED.value]
        return JobSeen(
            job=job,
            summary=summary,
            members=api.members(kind, name),
            items=items if is_complete else apart,
            is_complete=is_complete,
            planned=api.plan(kind, name, None),
            refused="",
            lines=api.history(kind, name, most=100, newest=True),
            zero=NOON - timedelta(seconds=1000.0),
            series=api.series(kind, name),
            now=self.wall(),
        )


def settled() -> JobSeen:
    """Give a set that is as it should be."""
    scene = Scene(22, "w1", "w2", "w3")
    scene.settle(12)
    scene.pass_s(30, "w1", "w2", "w3")
    return scene.look()


def in_trouble() -> JobSeen:
    """Give a set with a member that is not heard, moves in flight and others that wait."""
    scene = Scene(40, "w1", "w2", "w3")
    scene.settle(12)
    scene.pass_s(300, "w1", "w2", "w3")
    scene.join("w4")
    scene.coordinator.cycle("orders")
    scene.beat("w4")
    holding = scene.members["w1"]
    scene.pass_s(5, "w2", "w4")
    scene.members["w1"] = holding
    scene.coordinator.cycle("orders")
    scene.pass_s(6, "w2", "w3", "w4")
    return scene.look()


def moving() -> JobSeen:
    """Give a set from which a member is drained while another one comes: some moves run, others wait."""
    scene = Scene(30, "w1", "w2", "w10")
    scene.settle(12)
    scene.join("w4")
    scene.store.transact("orders", lambda tx: drain_member(tx, "orders", "w10", True))
    scene.coordinator.cycle("orders")
    scene.pass_s(2, "w4")
    scene.beat("w1")
    scene.store.transact("orders", lambda tx: drain_member(tx, "orders", "w2", True))
    scene.coordinator.cycle("orders")
    scene.pass_s(1, "w4")
    return scene.look()


def unowned() -> JobSeen:
    """Give a set that nobody works on."""
    scene = Scene(12)
    scene.coordinator.cycle("orders")
    scene.pass_s(2)
    return scene.look()


def divided() -> JobSeen:
    """Give a division that a change of a weight is about to move."""
    scene = Scene(1)
    scene.write(SHOP % 2)
    divide_stored(scene.store, "shop", scene.wall())
    scene.write(SHOP % 4)
    return scene.look("ReplicaDivision", "shop")


def split() -> JobSeen:
    """Give a split outside of its windows."""
    scene = Scene(1)
    scene.write(SPOT)
    return scene.look("CapacitySplit", "services")


def pooled() -> JobSeen:
    """Give a split over pools."""
    scene = Scene(1)
    scene.write(POOLS)
    return scene.look("CapacitySplit", "tiers")


def many(members: int, items: int) -> JobSeen:
    """Give a large set; its members are as many rows as a terminal has not."""
    scene = Scene(items, *(f"node-{number}" for number in range(members)))
    scene.settle(2)
    return scene.look()


def hostile() -> JobSeen:
    """Give a ring whose objects have names that would break a picture if they could."""
    names = ["👩\u200d🚀 rocket", "שלום עולם", "\\u001b[31mred", "日本語の名前", "<b>bold</b>", "é" * 300, "a\u202eb"]
    seen = unowned()
    items = [msgspec.structs.replace(item, item=name) for item, name in zip(seen.items, names, strict=False)]
    items.append(msgspec.structs.replace(items[0], item="line\nbreak \x1b[2J\x07", reason="מילה \x9b31m"))
    lines = [
        msgspec.structs.replace(seen.lines[0], item=item.item, transition="expired", member="w1", reason=item.reason)
        for item in items
    ]
    return msgspec.structs.replace(seen, items=items, lines=[*lines, *seen.lines])


SCENES: dict[str, Callable[[], JobSeen]] = {
    "settled": settled,
    "trouble": in_trouble,
    "moving": moving,
    "unowned": unowned,
    "divided": divided,
    "split": split,
    "pools": pooled,
}
