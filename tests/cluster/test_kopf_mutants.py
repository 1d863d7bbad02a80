"""The tests of the kopf adapter can fail: an operator whose gate was broken on purpose has two owners at once."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from tests.cluster.kopf_world import D, Instances, Ring, hold, play
from tests.cluster.world import Cluster

from poise.kube import Client

pytestmark = pytest.mark.usefixtures("definitions")


def test_without_its_gate_or_with_deaf_daemons_there_are_two_owners(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    async def scenario(client: Client) -> None:
        world = Ring(client, namespace, f"kopf-{uuid.uuid4().hex[:8]}", {})
        instances = Instances(cluster, namespace, world.ring, tmp_path)
        try:
            await world.make_ring(D)
            instances.start("a", MUTANT="ungated")
            instances.start("b", MUTANT="deaf")
            await hold(world, "ab")
            await world.give("x", "a", slow="60")
            await world.give("y", "b", daemon="yes")
            await instances.noted(lambda: bool(instances.notes("x", "create") and instances.notes("y", "daemon")))
            await world.change("x", touched="once")
            await instances.noted(lambda: bool(instances.notes("x", "update")))
            await world.move("x", "b")
            await world.move("y", "a")
            await instances.noted(lambda: len({each.instance for each in instances.notes("x")}) == 2)
            await instances.noted(lambda: len({each.instance for each in instances.notes("y", "daemon")}) == 2)
            found = instances.findings()
            assert any(each.startswith("overlap: family x: b") for each in found), found
            assert any(each.startswith("overlap: family y: a") for each in found), found
        finally:
            instances.stop()

    play(cluster, scenario)
