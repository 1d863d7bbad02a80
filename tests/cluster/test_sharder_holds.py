"""How long a hold is used, and how many must vanish for the brake, against a real API server; D is two seconds."""

from __future__ import annotations

import asyncio

import pytest
from tests.cluster.played_shard import D
from tests.cluster.sharder_world import bare_lease, labelled, lease_of, make_families, state, world
from tests.cluster.world import Cluster, until

from poise.errors import Unavailable
from poise.jobs.sharder.instances import Instances
from poise.jobs.sharder.lease_writing import LeaseWriter
from poise.jobs.sharder.selecting import Keys
from poise.jobs.sharder.view import View
from poise.jobs.sharder.writing import Writer
from poise.kube import Client, Lease
from poise.model.sharding import LeaseWrite, Step, Write

SLOW_S = 0.2


def test_dead_the_hold_is_renewed_for_longer_work(
    cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            shard = await w.mortal("a-0")
            await make_families(client, 24, namespace)
            await w.settled(["a-0"])
            one, write = asyncio.Semaphore(1), Writer._write

            async def slowly(self: Writer, step: Step, each: Write, view: View, keys: Keys) -> None:
                async with one:
                    await asyncio.sleep(SLOW_S)
                    await write(self, step, each, view, keys)

            monkeypatch.setattr(Writer, "_write", slowly)
            await shard.crash()
            await bare_lease(w, "a-1")
            while "a-0" in (await w.owners()).values():
                assert await lease_of(w, "a-0") is not None
                await asyncio.sleep(0.05)
            monkeypatch.undo()
            await w.settled(["a-1"])
            assert 48 * SLOW_S > 2 * D, "the work outlasts a hold"
            await until(lambda: "empty" in w.sharder.counts.lease_writes)
            assert w.sharder.counts.lease_writes["hold"] >= 2

    cluster.run(scenario)


def test_dead_a_hold_that_may_have_been_ended_is_not_used(
    cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the write that empties the Lease is lost, and its instance is back before the sharder sees it."""

    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            shard = await w.mortal("a-0")
            await bare_lease(w, "a-1")
            await make_families(client, 4, namespace)
            await w.settled()
            send = LeaseWriter._send

            async def unheard(self: LeaseWriter, write: LeaseWrite) -> Lease | None:
                answer = await send(self, write)
                if write.kind == "empty":
                    raise Unavailable("the answer is lost")
                return answer

            monkeypatch.setattr(LeaseWriter, "_send", unheard)
            await shard.crash()
            await until(lambda: "hold" in w.sharder.counts.lease_writes, 2 * D + 30)
            monkeypatch.setattr(Instances, "see", lambda *_: None)
            await until(lambda: w.sharder.counts.failures >= 1)
            await w.mortal("a-0")
            await labelled(w, "late", "a-0", 5)
            await asyncio.sleep(D)
            assert (await w.owners())["late"] == "a-0", "nothing is taken from who holds its Lease"
            monkeypatch.undo()
            await until(lambda: state(w, "a-0") == "ready")

    cluster.run(scenario)


def test_brake_the_share_is_the_rings(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace, brakePercent=100) as w:
            await bare_lease(w, "a-9")
            shards = [await w.mortal(f"a-{number}") for number in range(2)]
            await make_families(client, 12, namespace)
            await w.settled()
            for shard in shards:
                await shard.crash()
            await w.settled(["a-9"], 2 * D + 30)
            assert w.sharder.report.vanished == ()

    cluster.run(scenario)
