"""What the ring says and what the clock says reach the decisions: a whole sharder over objects in memory."""

from __future__ import annotations

import asyncio

import pytest
from tests.jobs_sharder.memory_world import (
    ME,
    RING,
    SPACE,
    D,
    holder_of,
    lease_of,
    lease_ref,
    make_families,
    own_lease,
    owned,
    owners,
    put_lease,
    renewing,
    sharding,
    until,
)
from tests.kube.fake_time import run
from tests.kube.memory_api import MemoryApi, loop_s

from poise.decide.ring import Ring
from poise.jobs.sharder.sharder import RingSharder
from poise.jobs.sharder.writing import WRITES_MAX
from poise.kube import LEASES, ObjectRef
from poise.kube.resources import SECRETS
from poise.model.sharding import label_names
from poise.observe.leases import ORPHANED_AFTER, Health


def slow_leases(verb: str, ref: ObjectRef) -> float:
    """Let writes of Leases take almost as long as they may."""
    return 0.6 if ref.resource == LEASES and verb != "get" else 0.0


def standing_of(sharder: RingSharder, name: str) -> Health | None:
    return next((each.state for each in sharder.report.instances if each.name == name), None)


def held_from_s(sharder: RingSharder, name: str) -> float | None:
    return sharder._instances.watched[name].held_from_s


@pytest.mark.parametrize(
    ("percent", "gone", "of", "braked"),
    [
        pytest.param(50, 2, 2, True, id="half: two of two brake"),
        pytest.param(100, 2, 2, False, id="all: nothing ever brakes"),
        pytest.param(50, 2, 5, False, id="half: two of five move"),
        pytest.param(30, 2, 5, True, id="less: two of five brake"),
    ],
)
def test_the_brake_goes_by_the_percentage_of_the_ring(percent: int, gone: int, of: int, braked: bool) -> None:
    async def scenario() -> None:
        api, names = MemoryApi(), [f"a-{number}" for number in range(of)]
        make_families(api, 40)
        async with sharding(api, brakePercent=percent) as sharder, renewing(api, *names[gone:]):
            async with renewing(api, *names[:gone]):
                await until(lambda: set(owners(api).values()) == set(names))
                await asyncio.sleep(1)
            before = owners(api)
            put_lease(api, "late", duration_s=600)
            await asyncio.sleep(6 * D)
            assert bool(sharder.report.vanished) == braked
            now = owners(api)
            assert all(now[name] == who for name, who in before.items() if who in names[:gone]) == braked
            assert bool(sharder.counts.lease_writes) != braked

    run(scenario())


def test_the_tokens_of_the_ring_count_where_a_lease_names_none() -> None:
    tokens = {"a-0": 3, "a-1": 3, "a-2": 50}

    async def scenario() -> dict[str, str | None]:
        api = MemoryApi()
        make_families(api, 60)
        for name in tokens:
            put_lease(api, name, duration_s=600, tokens="50" if name == "a-2" else "")
        async with sharding(api, tokens=3) as sharder:
            await until(owned(api, tokens))
            assert {each.name: each.tokens for each in sharder.report.instances} == tokens
        return owners(api)

    found = run(scenario())
    by_ring, usual = Ring(tokens), Ring({**tokens, "a-0": 100, "a-1": 100})
    keys = {name: f"/Secret/{SPACE}/{name}" for name in found}
    assert found == {name: by_ring.owner(key) for name, key in keys.items()}
    assert found != {name: usual.owner(key) for name, key in keys.items()}, "the number matters"


def test_a_hold_counts_from_the_moment_it_was_sent() -> None:
    async def scenario() -> None:
        api = MemoryApi(slow_leases)
        make_families(api, 6)
        async with sharding(api) as sharder:
            async with renewing(api, "a-0"):
                await until(owned(api, ["a-0"]))
            put_lease(api, "a-1", duration_s=600)
            await until(lambda: held_from_s(sharder, "a-0") is not None)
            sent_at_s = next(each.sent_at_s for each in api.asked if each.verb == "replace")
            assert loop_s() > sent_at_s + 0.5, "the answer came later"
            assert held_from_s(sharder, "a-0") == sent_at_s

    run(scenario())


def test_a_lease_is_not_written_by_a_request_that_takes_longer_than_the_margin() -> None:
    async def scenario() -> None:
        # It would land after half of that, which is later than the sharder waits.
        api = MemoryApi(lambda verb, _ref: 2.0 if verb == "replace" else 0.0)
        make_families(api, 6)
        async with sharding(api) as sharder:
            async with renewing(api, "a-0"):
                await until(owned(api, ["a-0"]))
            await until(lambda: sharder.counts.failures >= 3)
            assert sharder.counts.lease_writes == {}
            assert holder_of(api, "a-0") == "a-0_1"

    run(scenario())


def test_longer_work_renews_the_hold_and_nobody_gets_the_lease_meanwhile() -> None:
    async def scenario() -> None:
        # So many patches, 32 at a time, take much longer than the hold of 2·D.
        api = MemoryApi(lambda verb, _ref: 0.5 if verb == "merge" else 0.0)
        make_families(api, 480)
        async with sharding(api) as sharder:
            async with renewing(api, "a-0"):
                await until(owned(api, ["a-0"]))
            put_lease(api, "a-1", duration_s=600)
            await until(lambda: holder_of(api, "a-0") == ME)
            held_s, again = loop_s(), own_lease(api, "a-0", "2")
            taking = asyncio.create_task(again.take())
            while holder_of(api, "a-0") == ME:
                assert again.grip is None
                await asyncio.sleep(0.02)
            assert loop_s() - held_s > 2 * D, "the work outlasts a hold"
            assert "a-0" not in owners(api).values(), "all was moved while the Lease was held"
            assert sharder.counts.lease_writes["hold"] >= 2
            assert sharder.counts.lease_writes["empty"] == 1
            await taking
            assert holder_of(api, "a-0") == "a-0_2"

    run(scenario())


def test_many_writes_are_in_flight_and_never_more_than_the_bound() -> None:
    async def scenario() -> int:
        api = MemoryApi(lambda verb, _ref: 0.1 if verb == "merge" else 0.0)
        make_families(api, 60, children=4)
        put_lease(api, "a-0", duration_s=600)
        async with sharding(api):
            await until(owned(api, ["a-0"]))
        return api.most_at_once["merge"]

    assert 1 < run(scenario()) <= WRITES_MAX


@pytest.mark.parametrize("how", ["renewed", "made anew"])
def test_an_orphan_that_lives_is_not_deleted_by_a_sharder_that_does_not_see_it(how: str) -> None:
    async def scenario() -> None:
        api = MemoryApi()
        async with sharding(api) as sharder:
            put_lease(api, "a-0")
            await until(lambda: standing_of(sharder, "a-0") is Health.READY)
            await until(lambda: "empty" in sharder.counts.lease_writes)
            api.deaf.add("leases")
            if how == "made anew":
                api.drop_now(lease_ref("a-0"))
            put_lease(api, "a-0", process="2")
            await until(lambda: "delete" in api.refused)
            assert holder_of(api, "a-0") == "a-0_2"
            assert "delete" not in sharder.counts.lease_writes
            api.hear("leases")
            await until(lambda: standing_of(sharder, "a-0") is Health.READY)

    run(scenario())


def test_a_crashed_instance_is_held_emptied_and_deleted_10d_after_its_last_renewal() -> None:
    async def scenario() -> None:
        api = MemoryApi()
        make_families(api, 6)
        async with sharding(api) as sharder:
            async with renewing(api, "a-0"):
                await until(owned(api, ["a-0"]))
            silent_s = loop_s()
            put_lease(api, "a-0")
            put_lease(api, "a-1", duration_s=600)
            await until(owned(api, ["a-1"]))
            await until(lambda: sharder.counts.lease_writes == {"hold": 1, "empty": 1})
            emptied = lease_of(api, "a-0")
            assert emptied is not None
            await until(lambda: "delete" in sharder.counts.lease_writes)
            (deleted_s,) = [each.sent_at_s for each in api.asked if each.verb == "delete"]
            assert ORPHANED_AFTER * D <= deleted_s - silent_s < (ORPHANED_AFTER + 1) * D
            assert lease_of(api, "a-0") is None
            assert standing_of(sharder, "a-0") is None

    run(scenario())


def test_a_hold_that_may_have_been_ended_is_not_used() -> None:
    async def scenario() -> None:
        written = 0

        def takes_s(verb: str, _ref: ObjectRef) -> float:
            """Lose the answer to the second write of a Lease, which empties it: it lands before nobody waits."""
            nonlocal written
            written += verb == "replace"
            return 1.2 if verb == "replace" and written == 2 else 0.0

        api = MemoryApi(takes_s)
        make_families(api, 6)
        async with sharding(api) as sharder:
            async with renewing(api, "a-0"):
                await until(owned(api, ["a-0"]))
            put_lease(api, "a-1", duration_s=600)
            await until(lambda: holder_of(api, "a-0") == ME)
            api.deaf.add("leases")
            await until(lambda: holder_of(api, "a-0") == "" and sharder.counts.failures >= 1)
            assert "empty" not in sharder.counts.lease_writes
            # Its instance is back, and is handed something: the sharder sees that, and not the Lease.
            put_lease(api, "a-0", duration_s=600, process="2")
            labels = dict(zip(label_names(RING), ("a-0", "5"), strict=False))
            api.put_now(ObjectRef(SECRETS, "late", SPACE), {"metadata": {"labels": labels}})
            await asyncio.sleep(3 * D)
            assert owners(api)["late"] == "a-0", "nothing is taken from who holds its Lease"
            api.hear("leases")
            await until(lambda: standing_of(sharder, "a-0") is Health.READY)

    run(scenario())
