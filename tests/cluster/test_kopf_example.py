"""The example of a kopf operator as its users run it: plain, then as shards that come, are killed, and go."""

from __future__ import annotations

import asyncio
import hashlib
import re
import signal
from pathlib import Path

import msgspec
import pytest
from tests.cluster.kopf_world import EXAMPLE, ROOT, Instances, hold, play
from tests.cluster.shard_library_world import World
from tests.cluster.sharder_world import World as Sharding
from tests.cluster.sharder_world import ring
from tests.cluster.world import Cluster, make_secrets

from poise.errors import NotFound
from poise.kube import Client, Partial
from poise.kube.patches import Operation
from poise.model.sharding import Marks

pytestmark = pytest.mark.usefixtures("definitions")
D = 4  # Somebody is killed here, which takes two of them.
NAMES = [f"s{number:02}" for number in range(16)]


class _Config(msgspec.Struct):
    data: dict[str, str] = {}


def shown_lines() -> tuple[list[str], list[str]]:
    """Read the change that the page shows: what is there afterwards, and what of it is new."""
    shown = re.search(r"^## The lines\n```diff\n(.*?)^```$", (ROOT / "docs/kopf.md").read_text(), re.M | re.S)
    assert shown is not None
    lines = shown[1].splitlines()
    assert all(line[0] in " +" for line in lines)
    return [line[1:] for line in lines], [line[1:] for line in lines if line.startswith("+")]


def plain_operator() -> str:
    """Take the lines of the page out of the example."""
    after, new = shown_lines()
    before = [line for line in after if line not in new or not line]
    text = (ROOT / EXAMPLE).read_text()
    assert "\n".join(after) in text, "the page shows the example"
    return text.replace("\n".join(after), "\n".join(before))


def test_the_page_shows_all_that_makes_the_example_a_shard() -> None:
    after, new = shown_lines()
    assert len([line for line in new if line]) <= 3
    assert "poise" not in plain_operator()
    assert len(after) > len(new)


def test_the_example_plain_and_then_as_shards_that_come_and_go(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    plain = tmp_path / "plain.py"
    plain.write_text(plain_operator())

    async def scenario(client: Client) -> None:
        world = World(client, namespace)
        instances = Instances(cluster, namespace, world.ring, tmp_path)
        sharding = Sharding(client, namespace, ring(world.ring, leaseSeconds=D))
        try:
            await _run_plain(world, instances, plain)
            await world.make_ring(D)
            await _share(world, instances, sharding)
            await _join_and_die(world, instances, sharding)
            await _leave(world, instances, sharding)
            await _freeze(world, instances)
        finally:
            instances.stop()
            await sharding.close()

    play(cluster, scenario)


async def _run_plain(world: World, instances: Instances, plain: Path) -> None:
    """Before there is a ring: one plain operator."""
    await make_secrets(world.client, NAMES, world.namespace)
    instances.start("plain", plain)
    await _all_right(world, instances, "dmFsdWU=")
    instances.signal("plain", signal.SIGTERM)
    assert await instances.ended("plain") == 0


async def _share(world: World, instances: Instances, sharding: Sharding) -> None:
    """Two instances share the objects; each is resumed by exactly one of them, and created by none."""
    for name in "ab":
        instances.start(name, EXAMPLE)
    await hold(world, "ab")
    await sharding.start_sharder()
    owners = await _owned_by(world, sharding, {"a", "b"})
    await instances.noted(lambda: all(handlers(instances, each) for each in NAMES))
    assert {name: handlers(instances, name) for name in NAMES} == {name: {owners[name]} for name in NAMES}
    assert not any("Creation is processed" in instances.said(name) for name in "ab")
    await _change_all(world, "Yg==")
    await _all_right(world, instances, "Yg==")


async def _join_and_die(world: World, instances: Instances, sharding: Sharding) -> None:
    """A third one joins, and takes objects over; then one is killed, and the others take over."""
    before = await _owned_by(world, sharding, {"a", "b"})
    instances.start("c", EXAMPLE)
    await hold(world, "c")
    after = await _owned_by(world, sharding, {"a", "b", "c"})
    assert {after[name] for name in NAMES if after[name] != before[name]} == {"c"}
    await _change_all(world, "Yw==")
    await _all_right(world, instances, "Yw==")
    instances.signal("b", signal.SIGKILL)
    await instances.ended("b")
    await _owned_by(world, sharding, {"a", "c"})
    await _change_all(world, "ZA==")
    await _all_right(world, instances, "ZA==")


async def _leave(world: World, instances: Instances, sharding: Sharding) -> None:
    """One is told to stop: it releases its Lease, and its objects move."""
    instances.signal("a", signal.SIGTERM)
    assert await instances.ended("a") == 0, instances.said("a")
    lease = await world.lease("a")
    assert lease is not None
    assert not lease.spec.holder_identity or "sharder" in lease.spec.holder_identity
    assert "shard.released name=a reason=stop" in instances.said("a")
    await _owned_by(world, sharding, {"c"})
    await _change_all(world, "ZQ==")
    await _all_right(world, instances, "ZQ==")
    await sharding.stop_sharder()


async def _freeze(world: World, instances: Instances) -> None:
    """The last one is frozen past its Lease: it wakes up, handles nothing, and ends with an error."""
    handled = instances.said("c").count("succeeded")
    instances.signal("c", signal.SIGSTOP)
    await asyncio.sleep(D + 0.5)
    await world.mark(world.secret(NAMES[0]), Marks("a", 100))
    await _change_all(world, "Zg==")
    instances.signal("c", signal.SIGCONT)
    assert await instances.ended("c") != 0
    assert instances.said("c").count("succeeded") == handled


def handlers(instances: Instances, name: str) -> set[str]:
    """Name the instances whose handler was called for a Secret."""
    line = re.compile(rf"\[[^]]*/{name}\] Handler 'write_checksum[^']*' succeeded")
    return {each for each in "abc" if instances.has_begun(each) and line.search(instances.said(each))}


async def _owned_by(world: World, sharding: Sharding, names: set[str]) -> dict[str, str | None]:
    """Wait until the objects are shared out over these instances, and nothing moves."""
    owners: dict[str, str | None] = {}

    async def holds() -> bool:
        owners.update(await sharding.settled(within_s=60.0))
        return set(owners.values()) == names

    await world.eventually(holds, 60.0)
    return owners


async def _change_all(world: World, value: str) -> None:
    for name in NAMES:
        await world.client.patch(world.secret(name), [Operation("add", "/data", {"key": value})], Partial)


async def _all_right(world: World, instances: Instances, value: str) -> None:
    wanted = hashlib.sha256(msgspec.json.encode({"key": value})).hexdigest()

    async def right() -> bool:
        try:
            found = [(await world.client.get(world.config(name), _Config)).data for name in NAMES]
        except NotFound:
            return False
        return all(data.get("sha256") == wanted for data in found)

    try:
        await world.eventually(right, 60.0)
    except AssertionError as error:
        raise AssertionError(instances.told()) from error
