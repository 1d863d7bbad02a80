"""The example of a lightkube operator as its users run it, and the lines of the page that make it a shard."""

from __future__ import annotations

import hashlib
import re
import signal
import sys
from pathlib import Path

import msgspec
import pytest
from tests.cluster.kopf_world import LIGHTKUBE, ROOT, D, Instances, Ring, hold, play
from tests.cluster.test_conformance import is_starved, told
from tests.cluster.world import Cluster

from poise.conformance.check import Wanted, check
from poise.conformance.rules import RULES, Report
from poise.errors import NotFound
from poise.kube import Client, Partial
from poise.kube.patches import Operation

pytestmark = pytest.mark.usefixtures("definitions")


class _Config(msgspec.Struct):
    data: dict[str, str] = {}


def test_the_page_shows_what_makes_the_example_a_shard() -> None:
    shown = re.search(r"^```diff\n(.*?)^```$", (ROOT / "docs/lightkube.md").read_text(), re.M | re.S)
    assert shown is not None
    lines = shown[1].splitlines()
    assert "\n".join(line[1:] for line in lines if line[0] == "+") in (ROOT / LIGHTKUBE).read_text()


def test_two_instances_of_the_example_hand_over_and_leave(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        world = Ring(client, namespace, f"light-{namespace[-8:]}", {})
        instances = Instances(cluster, namespace, world.ring, tmp_path)
        try:
            await world.make_ring(D)
            for name in "ab":
                instances.start(name, LIGHTKUBE)
            await hold(world, "ab")
            for name, owner in (("x", "a"), ("y", "b")):
                await world.give(name, owner)
                await _right(world, name, "dmFsdWU=")
            await world.move("x", "b")
            await world.is_with("x", "b")
            await client.patch(world.secret("x"), [Operation("add", "/data", {"key": "bmV3"})], Partial)
            await _right(world, "x", "bmV3")
            for name in "ab":
                instances.signal(name, signal.SIGTERM)
                assert await instances.ended(name) == 0, instances.said(name)
                assert not await world.holder(name)
        finally:
            instances.stop()

    play(cluster, scenario)


def test_the_example_keeps_every_rule_of_the_contract(cluster: Cluster, tmp_path: Path) -> None:
    reports: list[Report] = []

    async def scenario(client: Client) -> None:
        command = ("env", "RING={ring}", sys.executable, str(ROOT / LIGHTKUBE))
        for lease_s, at_once in ((4, 6), (8, 3)):
            wanted = Wanted(
                command=command, ring="e-light", lease_s=lease_s, at_once=at_once, logs=tmp_path, timeout_s=140.0
            )
            reports[:] = [await check(client, wanted, lambda _: None, lambda _: None)]
            if not is_starved(reports[0], ""):
                break  # Else the machine was too busy for Leases as short as these.

    play(cluster, scenario)
    assert [each.name for each in reports[0].rules] == list(RULES)
    assert {each.outcome for each in reports[0].rules} == {"passed"}, told(reports[0])


async def _right(world: Ring, name: str, value: str) -> None:
    wanted = hashlib.sha256(msgspec.json.encode({"key": value})).hexdigest()

    async def right() -> bool:
        try:
            return (await world.client.get(world.config(name), _Config)).data.get("sha256") == wanted
        except NotFound:
            return False

    await world.eventually(right, 60.0)
