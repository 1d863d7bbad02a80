"""A shard measures its Lease from the moment it sent what succeeded, however late the answer comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.jobs_sharder.memory_world import D, lease_of, own_lease, put_lease, until
from tests.kube.fake_time import run
from tests.kube.memory_api import MemoryApi, loop_s

from poise.hold.shard_lease import OwnLease
from poise.hold.shard_terms import ShardPace
from poise.kube import ObjectRef

TAKES_S = 0.5


def slow_writes(verb: str, _ref: ObjectRef) -> float:
    return 0.0 if verb == "get" else TAKES_S


def check(api: MemoryApi, lease: OwnLease, verb: str) -> None:
    """See that the grip counts from the last request, which was sent long ago."""
    last = api.asked[-1]
    assert last.verb == verb
    assert loop_s() >= last.sent_at_s + TAKES_S, "the answer came later"
    assert lease.grip is not None
    assert lease.grip.sent_at_s == last.sent_at_s
    assert lease.grip.until_s == last.sent_at_s + D - ShardPace(float(D)).margin_s


@pytest.mark.parametrize("verb", ["create", "replace"])
def test_a_lease_that_is_taken_counts_from_the_moment_it_was_asked_for(verb: str) -> None:
    async def scenario() -> None:
        api = MemoryApi(slow_writes)
        if verb == "replace":
            put_lease(api, "a-0", process="0")
        lease = own_lease(api, "a-0", "1")
        await lease.take()
        check(api, lease, verb)

    run(scenario())


def test_a_renewal_counts_from_the_moment_it_was_sent() -> None:
    async def scenario() -> None:
        api = MemoryApi(slow_writes)
        lease = own_lease(api, "a-0", "1")
        await lease.take()
        told: list[None] = []

        def tell() -> None:
            told.append(None)
            check(api, lease, "replace")

        renewing = asyncio.create_task(lease.renew_on(lambda: None, tell))
        await until(lambda: lease.renewals >= 3 or renewing.done())
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        assert renewing.cancelled(), renewing
        assert len(told) >= 3

    run(scenario())


@asynccontextmanager
async def shortened(api: MemoryApi, to_s: float) -> AsyncIterator[OwnLease]:
    """Hold a Lease of a minute, and renew it while the block runs; the ring wants a shorter one by now."""
    paces = [ShardPace(60.0)]
    lease = own_lease(api, "a-0", "1", lambda: paces[-1])
    await lease.take()
    renewing = asyncio.create_task(lease.renew_on(lambda: None, lambda: None))
    paces.append(ShardPace(to_s))
    try:
        yield lease
        assert not renewing.done(), renewing
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


def test_a_shorter_lease_counts_from_the_moment_it_is_sent() -> None:
    async def scenario() -> None:
        api, margin_s = MemoryApi(slow_writes), ShardPace(15.0).margin_s
        async with shortened(api, 15.0) as lease:
            while lease.renewals < 3:
                # Also while the first short renewal, 20 s after the last long one, is under way.
                assert lease.may_act()
                assert lease.grip is not None
                assert lease.grip.until_s <= max(api.asked[-1].sent_at_s + 15.0, TAKES_S + 60.0) - margin_s
                await asyncio.sleep(0.05)
        stored = lease_of(api, "a-0")
        assert stored is not None
        assert stored.spec.lease_duration_seconds == 15

    run(scenario())


def test_what_was_granted_for_long_is_not_used_longer_than_a_short_request_under_way_allows() -> None:
    async def scenario() -> None:
        api = MemoryApi(slow_writes)
        async with shortened(api, 3.0) as lease:
            await until(lambda: len(api.asked) > 2)
            assert lease.renewals == 0, "its answer is not here yet"
            assert lease.grip is not None
            assert lease.grip.until_s == pytest.approx(api.asked[-1].sent_at_s + 3.0 - ShardPace(3.0).margin_s)

    run(scenario())
