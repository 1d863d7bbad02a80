"""The guard of a shard goes by the Lease as others may see it, also while an answer is not here yet."""

from __future__ import annotations

import asyncio

import pytest
from tests.hold.test_shard_in_memory import put_ring
from tests.jobs_sharder.memory_world import RING, SPACE, until
from tests.kube.fake_time import run
from tests.kube.memory_api import MemoryApi

from poise.hold import shard
from poise.hold.guard import Guard
from poise.hold.shard import Shard
from poise.kube import ObjectRef

LONG_S, SHORT_S, NEVER_S = 60, 10, 1000.0


@pytest.fixture
def guards(monkeypatch: pytest.MonkeyPatch) -> list[Guard]:
    """The guards of shards, which end no process here."""
    made: list[Guard] = []

    def harmless(_clock: object) -> Guard:
        made.append(Guard(asyncio.get_running_loop().time, abort=lambda _late_s: None))
        return made[-1]

    monkeypatch.setattr(shard, "Guard", harmless)
    return made


def guarded(api: MemoryApi) -> Shard:
    clock = asyncio.get_running_loop().time
    return Shard(ring=RING, resources=["secrets"], name="a-0", namespace=SPACE, client=api, clock=clock)


def test_the_guard_follows_a_shorter_lease_before_it_is_sent(guards: list[Guard]) -> None:
    silent: list[str] = []

    def takes_s(verb: str, _ref: ObjectRef) -> float:
        return NEVER_S if verb in silent else 0.0

    async def scenario() -> None:
        api = MemoryApi(takes_s)
        put_ring(api, LONG_S)
        async with guarded(api):
            put_ring(api, SHORT_S)
            silent.append("replace")
            await until(lambda: api.asked[-1].verb == "replace")
            limit_s, sent_at_s = guards[0].limit_s, api.asked[-1].sent_at_s
            silent.clear()  # It can go in order.
        assert limit_s is not None
        assert limit_s <= sent_at_s + SHORT_S

    run(scenario())


def test_a_renewal_that_is_answered_while_it_leaves_does_not_arm_the_guard_again(guards: list[Guard]) -> None:
    async def scenario() -> None:
        api = MemoryApi(lambda verb, _ref: 1.0 if verb == "replace" else 0.0)
        put_ring(api, SHORT_S)
        async with guarded(api):
            await until(lambda: api.asked[-1].verb == "replace")
        assert guards[0].limit_s is None
        assert guards[0]._closed.is_set(), "whoever has left in order is not ended"

    run(scenario())
