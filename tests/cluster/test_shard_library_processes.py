"""Shards as real processes: the example operator from the command line, killed ones, and those that hang."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.cluster.shard_library_world import World
from tests.cluster.world import Cluster

from poise.clock import boot_s
from poise.errors import NotFound
from poise.hold.guard import EXIT_CODE
from poise.kube import Client, Partial
from poise.kube.patches import Operation
from poise.model.sharding import Marks

pytestmark = pytest.mark.usefixtures("definitions")
ROOT = Path(__file__).parents[2]
D = 3


class _Config(msgspec.Struct):
    data: dict[str, str] = {}


class Processes:
    """Shard processes of one test; all that are left are killed by their ids."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        self._folder = folder
        self._all: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        out = self._folder / f"{len(self._all)}.txt"
        with out.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, *arguments], stdout=file, stderr=file, env=self._environment, cwd=ROOT
            )
        self._all.append(process)
        return process

    def operator(self, world: World, name: str) -> subprocess.Popen[bytes]:
        named = ("--ring", world.ring, "--namespace", world.namespace, "--name", name)
        return self.start("examples/checksum_operator.py", *named)

    def bad(self, world: World, how: str) -> subprocess.Popen[bytes]:
        return self.start("-m", "tests.cluster.shard_library_process", world.ring, world.namespace, "a", how)

    def said(self, process: subprocess.Popen[bytes]) -> str:
        return (self._folder / f"{self._all.index(process)}.txt").read_text()

    async def until_said(self, process: subprocess.Popen[bytes], text: str, within_s: float = 60.0) -> None:
        end_s = boot_s() + within_s
        while text not in self.said(process):
            assert boot_s() < end_s, self.said(process)
            await asyncio.sleep(0.02)

    async def ended(self, process: subprocess.Popen[bytes], within_s: float = 60.0) -> int:
        end_s = boot_s() + within_s
        while process.poll() is None:
            assert boot_s() < end_s, self.said(process)
            await asyncio.sleep(0.02)
        return process.returncode

    def stop(self) -> None:
        for process in self._all:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


@pytest.fixture
def processes(cluster: Cluster, tmp_path: Path) -> Iterator[Processes]:
    """Start processes that end with the test."""
    started = Processes(cluster.kubeconfig(), tmp_path)
    try:
        yield started
    finally:
        started.stop()


async def _checksum(world: World, name: str) -> str:
    try:
        return (await world.client.get(world.config(name), _Config)).data.get("sha256", "")
    except NotFound:
        return ""


def _wanted(value: str) -> str:
    return hashlib.sha256(msgspec.json.encode({"key": value})).hexdigest()


def test_the_example_operator_survives_restarts_and_moves(
    cluster: Cluster, namespace: str, processes: Processes
) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(D)
        await world.make("x", "y")
        first, second = processes.operator(world, "a"), processes.operator(world, "b")
        await world.eventually(lambda: _both_hold(world), 20.0)
        await world.share({"x": "a", "y": "b"}.get)
        await world.eventually(lambda: _all_right(world, "dmFsdWU="))
        await world.share({"x": "a", "y": "b"}.get)  # The sharder gives the new ConfigMaps along.
        await _change(client, world, "x", "bmV3")
        await world.eventually(lambda: _right(world, "x", "bmV3"))

        holder = await world.holder("a")
        first.kill()
        await processes.ended(first)
        killed_s = boot_s()
        first = processes.operator(world, "a")
        await world.eventually(lambda: _held_by_another(world, holder))
        assert boot_s() - killed_s >= D - 0.5, "it waits for the hold of its earlier process"
        await _change(client, world, "x", "bmV3ZXI=")
        await world.eventually(lambda: _right(world, "x", "bmV3ZXI="))
        assert await world.marks(world.secret("x")) == Marks("a", 2), "it did not move; its first patch fenced it"

        await world.share("b")
        await world.eventually(lambda: _is_of(world, "x", "b"))
        await _change(client, world, "x", "bGFzdA==")
        await world.eventually(lambda: _right(world, "x", "bGFzdA=="))
        for process, name in ((first, "a"), (second, "b")):
            process.send_signal(signal.SIGTERM)
            assert await processes.ended(process) == 0
            lease = await world.lease(name)
            assert lease is not None
            assert not lease.spec.holder_identity
            assert lease.metadata.annotations["poise.dev/released"] == "stop"

    cluster.run(scenario)


async def _change(client: Client, world: World, name: str, value: str) -> None:
    await client.patch(world.secret(name), [Operation("add", "/data", {"key": value})], Partial)


async def _both_hold(world: World) -> bool:
    return bool(await world.holder("a") and await world.holder("b"))


async def _held_by_another(world: World, holder: str) -> bool:
    return await world.holder("a") not in ("", holder)


async def _right(world: World, name: str, value: str) -> bool:
    return await _checksum(world, name) == _wanted(value)


async def _all_right(world: World, value: str) -> bool:
    return await _right(world, "x", value) and await _right(world, "y", value)


async def _is_of(world: World, name: str, owner: str) -> bool:
    marks = [await world.marks(ref) for ref in (world.secret(name), world.config(name))]
    return {(each.shard, each.drain) for each in marks} == {(owner, None)}


def test_a_process_whose_event_loop_hangs_ends_before_its_lease(
    cluster: Cluster, namespace: str, processes: Processes
) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(D)
        await world.make("x")
        process = processes.bad(world, "blocks")
        await processes.until_said(process, "holds")
        await world.share("a")
        await processes.until_said(process, "begun x")
        begun_s = boot_s()
        assert await processes.ended(process) == EXIT_CODE
        assert boot_s() - begun_s < D
        assert await world.holder("a"), "nobody else may begin sooner than the Lease ends"

    cluster.run(scenario)


def test_a_process_that_does_not_let_go_of_a_drained_object_ends(
    cluster: Cluster, namespace: str, processes: Processes
) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(D, drain_s=1)
        await world.make("x")
        process = processes.bad(world, "ignores")
        await processes.until_said(process, "holds")
        await world.share("a")
        await processes.until_said(process, "begun x")
        await world.share("b")
        assert await processes.ended(process) == EXIT_CODE
        assert (await world.marks(world.secret("x"))).shard == "a"

    cluster.run(scenario)


def test_a_process_that_was_paused_past_its_lease_writes_nothing_and_ends(
    cluster: Cluster, namespace: str, processes: Processes
) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(D)
        await world.make("x")
        process = processes.bad(world, "sleeps")
        await processes.until_said(process, "holds")
        await world.share("a")
        await processes.until_said(process, "begun x 1")
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(D + 0.5)
        await world.mark(world.secret("x"), Marks("b", 2))
        process.send_signal(signal.SIGCONT)
        assert await processes.ended(process) != 0
        assert "late" not in (await world.meta(world.secret("x"))).annotations
        assert "wrote" not in processes.said(process)

    cluster.run(scenario)
