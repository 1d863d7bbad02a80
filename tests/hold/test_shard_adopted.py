"""A child that another instance's object adopts is handed over when it is asked for, not at some later renewal."""

from __future__ import annotations

import asyncio

import pytest
from tests.hold.test_shard_in_memory import DRAIN, DRAIN_UNTIL, EPOCH, MINE, SHARD, shard
from tests.jobs_sharder.memory_world import SPACE, make_families, owners, until
from tests.kube.fake_time import run
from tests.kube.memory_api import MemoryApi

from poise.hold.shard import Held
from poise.kube import ObjectRef, Partial
from poise.kube.resources import CONFIG_MAPS, SECRETS

LEASE_S = 600  # The next renewal is minutes away.
CHILD = ObjectRef(CONFIG_MAPS, "c000-0", SPACE)
GRANDCHILD = ObjectRef(CONFIG_MAPS, "d000", SPACE)


def family(api: MemoryApi) -> None:
    """Create a root with a child and a grandchild, and a root of another instance."""
    make_families(api, 1, children=1, labels=MINE)
    api.put_now(ObjectRef(SECRETS, "other", SPACE), {"metadata": {"labels": {SHARD: "a-1", EPOCH: "4"}}})
    put_below(api, CHILD, GRANDCHILD, MINE)


def put_below(api: MemoryApi, above: ObjectRef, ref: ObjectRef, labels: dict[str, str]) -> None:
    """Let one object be controlled by another."""
    owner = api.get_now(above, Partial).metadata
    named = {"apiVersion": "v1", "kind": above.resource.kind, "name": owner.name, "uid": owner.uid, "controller": True}
    api.put_now(ref, {"metadata": {"labels": labels, "ownerReferences": [named]}})


def adopt(api: MemoryApi) -> None:
    """Let the other root take the child, and ask for it."""
    labels = api.get_now(CHILD, Partial).metadata.labels | {DRAIN: "a-1", DRAIN_UNTIL: "1800000000"}
    put_below(api, ObjectRef(SECRETS, "other", SPACE), CHILD, labels)


def branch(api: MemoryApi) -> set[str | None]:
    """Say who has the child and what is below it."""
    return {owners(api)[ref.name] for ref in (CHILD, GRANDCHILD)}


def test_an_adopted_child_is_handed_over_as_soon_as_it_is_asked_for() -> None:
    async def scenario() -> None:
        api = MemoryApi()
        family(api)

        async def nothing(held: Held) -> None:
            """Leave the object as it is."""

        async with shard(api, lease_s=LEASE_S, reconcile=nothing) as made:
            await until(lambda: len(made.held) == 3, within_s=10)
            adopt(api)
            await until(lambda: branch(api) == {"a-1"}, within_s=10)
            assert owners(api)["s000"] == "a-0"

    run(scenario())


@pytest.mark.parametrize("busy", [CHILD.name, GRANDCHILD.name])
def test_the_hand_over_of_an_adopted_child_follows_the_end_of_what_runs_in_its_branch(busy: str) -> None:
    async def scenario() -> None:
        api, began, may_end = MemoryApi(), asyncio.Event(), asyncio.Event()
        family(api)

        async def reconcile(held: Held) -> None:
            if held.meta.name == busy and not began.is_set():
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    await may_end.wait()

        async with shard(api, lease_s=LEASE_S, resources=["secrets", "configmaps"], reconcile=reconcile):
            await asyncio.wait_for(began.wait(), 10)
            adopt(api)
            await asyncio.sleep(5)
            assert branch(api) == {"a-0"}, "something of it still runs"
            may_end.set()
            await until(lambda: branch(api) == {"a-1"}, within_s=10)

    run(scenario())
