"""Single turns of a pod: pauses between attempts, streams that do not end, and what an engine says at its start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.pool.pool_fakes import GONE_AFTER_S, PODS, FakePool
from tests.pool.pool_world import SET

from poise.jobs.pool import facts
from poise.jobs.pool.settings import TEARDOWN_S, pace_of
from poise.model.ownership import RELEASING


@pytest.fixture
def pool() -> Iterator[FakePool]:
    found = FakePool()
    settle(found)
    yield found
    found.close()


def settle(pool: FakePool) -> None:
    for _ in range(5):
        for name in PODS:
            pool.turn(name)
            pool.fakes[name].finish()
        pool.coordinator.cycle(SET)
        pool.now_s += 0.2


def wait_of(pool: FakePool, name: str) -> float:
    return pool.loop.run_until_complete(pool.pods[name].turn())


def test_pauses_grow_to_a_limit_and_differ(pool: FakePool) -> None:
    pod = pool.pods["a"]
    pod.pace = pace_of(600)
    pool.fakes["a"].silent = True
    pool.now_s += 1000
    waits = [wait_of(pool, "a") for _ in range(12)]
    most = [min(pod.pace.backoff_max_s, 0.25 * 2.0**failures) for failures in range(1, 13)]
    assert all(limit_s / 2 <= wait_s <= limit_s for wait_s, limit_s in zip(waits, most, strict=True))
    assert len(set(waits[6:])) > 1, "pods that fail together would come back together"
    assert pod.error == "no answer"
    pool.fakes["a"].silent = False
    wait_of(pool, "a")
    assert pod.error == ""
    pool.fakes["a"].silent = True
    pool.now_s += 1000
    assert wait_of(pool, "a") <= most[0], "after a success it begins anew"


def test_a_pod_that_does_not_end_its_streams_is_told_again_and_reported_and_nothing_is_given_away(
    pool: FakePool,
) -> None:
    pool.draining.add("a")
    pool.turn("a")
    pool.pods["a"].spoken_s = None
    pool.now_s += 0.6
    pool.turn("a")
    pool.coordinator.cycle(SET)
    kept = set(pool.fakes["a"].live)
    pool.turn("a")
    writes = pool.fakes["a"].writes
    for _ in range(int(TEARDOWN_S) + 2):
        for name in PODS:
            pool.turn(name)
        pool.coordinator.cycle(SET)
        pool.now_s += 1.0
    assert "after it was told to stop" in pool.pods["a"].error
    assert pool.fakes["a"].writes == writes + 1, "it is told once more after each bound, not all the time"
    rows = pool.store.transact(SET, lambda tx: tx.rows())
    assert {name for name, row in rows.items() if row.owner == "a" and row.state in RELEASING} == kept
    assert not any(kept & pool.fakes[name].live for name in "bc")
    settle(pool)
    assert pool.fakes["a"].live == set()
    pool.turn("a")
    assert pool.pods["a"].error == ""


def test_an_engine_that_starts_gives_every_pod_its_time(pool: FakePool) -> None:
    pool.now_s += GONE_AFTER_S + 1
    assert not pool.active("a")
    pool.store.transact(SET, lambda tx: facts.renew_all(tx, SET, PODS))
    assert all(map(pool.active, PODS))
    assert pool.coordinator.cycle(SET).written == 0


def test_a_pod_that_lost_everything_must_be_looked_at_first(pool: FakePool) -> None:
    pool.act_desert("a")
    assert not pool.active("a")
    pool.store.transact(SET, lambda tx: facts.renew_all(tx, SET, PODS))
    assert not pool.active("a"), "it may still collect what others have now"
    assert pool.active("b")


def test_an_idle_pool_writes_nothing_but_signs_of_life(pool: FakePool) -> None:
    settle(pool)
    lines, writes = len(pool.store.journal(SET)), [fake.writes for fake in pool.fakes.values()]
    settle(pool)
    settle(pool)
    assert len(pool.store.journal(SET)) == lines
    assert [fake.writes for fake in pool.fakes.values()] == writes
