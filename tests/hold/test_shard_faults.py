"""What goes wrong beside the reconciles of a shard is told, or ends it; it is never tried for ever without a word."""

from __future__ import annotations

import asyncio

import pytest
from tests.hold.test_shard_in_memory import ASKED_FOR, MINE, put_ring, shard
from tests.jobs_sharder.memory_world import SPACE, D, make_families, until
from tests.kube.fake_time import run
from tests.kube.memory_api import MemoryApi

from poise.errors import Forbidden
from poise.hold import shard_watching
from poise.hold.shard import Held
from poise.hold.shard_terms import RingTerms
from poise.kube import ObjectRef
from poise.kube.objects import Custom
from poise.kube.resources import CONFIG_MAPS, SECRETS


def test_a_right_that_is_missing_to_read_what_left_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def forbid(verb: str, ref: ObjectRef) -> float:
        if verb == "get" and ref.resource == CONFIG_MAPS:
            raise Forbidden("get", "", "configmaps", SPACE)
        return 0.0

    async def scenario() -> None:
        api = MemoryApi(forbid)
        make_families(api, 1, children=1, labels=MINE)

        async def nothing(held: Held) -> None:
            """Leave the object as it is."""

        async with shard(api, reconcile=nothing) as made:
            await until(lambda: len(made.held) == 2)
            api.drop_now(ObjectRef(CONFIG_MAPS, "c000-0", SPACE))
            await until(lambda: "shard.look_again object=configmaps ns/c000-0" in caplog.text)
            assert "may not get configmaps" in caplog.text

    run(scenario())


def test_a_fault_while_the_ring_is_followed_ends_the_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    def misread(ring: Custom) -> RingTerms | str:
        raise ZeroDivisionError(ring.metadata.name)

    async def scenario() -> None:
        api = MemoryApi()
        async with shard(api) as made:
            monkeypatch.setattr(shard_watching, "read_terms", misread)
            put_ring(api, D)
            await asyncio.wait_for(made.run(), 10)

    with pytest.raises(ZeroDivisionError):
        run(scenario())


def test_no_write_may_arrive_after_the_lease() -> None:
    async def scenario() -> None:
        api = MemoryApi()
        make_families(api, 1, children=1, labels=MINE)
        api.put_now(ObjectRef(SECRETS, "asked", SPACE), {"metadata": {"labels": ASKED_FOR}})

        async def reconcile(held: Held) -> None:
            await asyncio.sleep(D / 8)  # Some of the Lease is over by then.
            await held.create(ObjectRef(CONFIG_MAPS, "made", SPACE), {})
            await held.delete(ObjectRef(CONFIG_MAPS, "c000-0", SPACE))

        async with shard(api, reconcile=reconcile) as made:
            await until(lambda: made.counts.handed_over == 1 and any(each.verb == "delete" for each in api.asked))
        renewed_s, bounded = 0.0, set[str]()
        for each in api.asked:
            if each.name == "a-0":
                renewed_s = each.sent_at_s
            elif each.verb != "get":
                assert each.sent_at_s + each.bound_s <= renewed_s + D
                bounded.add(each.verb)
        assert bounded == {"create", "delete", "merge"}

    run(scenario())
