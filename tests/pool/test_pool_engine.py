"""The engine with real collectors on the loopback: every fault, and what people see of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pool.pool_setting import NAMES, Setting, play
from tests.pool.pool_world import POOL, SET, listed
from tests.pool.served import engine_on, until

from poise.clock import boot_s
from poise.errors import Unavailable
from poise.jobs.pool.engine import PoolEngine
from poise.jobs.pool.settings import PODS_NOTE
from poise.stores.base import Answer, Transaction
from poise.stores.memory import MemoryStore

HTTP: dict[str, object] = {"kind": "http"}


def test_targets_are_shared_out_and_each_change_is_one_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "poise.pool")

    async def work(now: Setting) -> None:
        now.want()
        async with engine_on(now.store) as engine:
            await until(now.shared(3, 3), engine.state)
            await until(lambda: [pod.targets for pod in engine.state().pods] == [3, 3])
            assert [pod.state for pod in engine.state().pods] == ["ready", "ready"]
            assert engine.state().unassigned == {}
            assert engine.state().source.targets == 6

    play(tmp_path, "p1 p2", work)
    lines = [record.getMessage() for record in caplog.records if "config applied" in record.getMessage()]
    assert sorted(lines) == ["config applied to pod  pod=p1  targets=3", "config applied to pod  pod=p2  targets=3"]


def test_the_plain_delivery_drives_any_collector(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        now.want(delivery=HTTP)
        async with engine_on(now.store) as engine:
            await until(now.shared(3, 3), engine.state)

    play(tmp_path, "p1 p2", work)


def test_a_pod_that_hangs_delays_nobody(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        now.served[1].pod.control({"hang": True})
        now.want()
        async with engine_on(now.store) as engine:
            await until(now.shared(3, 3, 0), engine.state)
            await until(lambda: "was not answered within" in now.pod(engine, "p2").error, engine.state)
            await until(lambda: now.pod(engine, "p2").state == "gone", engine.state)
            now.served[1].pod.control({"hang": False})
            await until(now.shared(2, 2, 2), engine.state)
            await until(lambda: now.pod(engine, "p2").error == "", engine.state)

    play(tmp_path, "p1 p2 p3", work)


def test_a_pod_that_restarts_empty_is_filled_again(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        now.want()
        async with engine_on(now.store) as engine:
            await until(now.shared(3, 3), engine.state)
            before = now.live()
            now.served[0].pod.control({"restart": True})
            assert now.live()[0] == []
            await until(lambda: now.live() == before, engine.state)
            assert now.served[1].writes == 1, "the other one was not written to"

    play(tmp_path, "p1 p2", work)


def test_a_collector_that_accepts_and_then_times_out_is_read_back_before_anything_is_sent_again(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        now.served[0].pod.control({"acceptThenHang": True})
        now.want()
        async with engine_on(now.store) as engine:
            await until(now.shared(6), engine.state)
            await until(lambda: "was not answered" in now.pod(engine, "p1").error, engine.state)
            await until(lambda: now.pod(engine, "p1").error == "", engine.state)
            assert now.served[0].writes == 1
            assert now.pod(engine, "p1").targets == 6

    play(tmp_path, "p1", work)


@pytest.mark.slow
def test_a_pod_that_says_it_is_not_healthy_is_emptied_with_proof(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        now.want()
        async with engine_on(now.store) as engine:
            await until(now.shared(3, 3), engine.state)
            now.served[0].pod.control({"unhealthy": True})
            await until(lambda: now.pod(engine, "p1").error == "healthz answered 503", engine.state)
            await until(lambda: [len(each) for each in now.live()] == [0, 6], engine.state)
            await until(lambda: now.pod(engine, "p1").state == "gone", engine.state)
            now.served[0].pod.control({"unhealthy": False})
            await until(now.shared(3, 3), engine.state)
            await until(lambda: now.pod(engine, "p1").error == "", engine.state)

    play(tmp_path, "p1 p2", work)


@pytest.mark.slow
def test_what_a_pod_refuses_for_too_long_goes_to_others(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        now.served[0].pod.control({"applyStatus": 500})
        now.want()
        async with engine_on(now.store) as engine:
            await until(lambda: "answered 500" in now.pod(engine, "p1").error, engine.state)
            await until(lambda: [len(each) for each in now.live()] == [0, 6], engine.state)

    play(tmp_path, "p1 p2", work)


def test_a_document_that_every_pod_refuses_moves_nothing(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        now.want(delivery={"kind": "gnmic"})
        async with engine_on(now.store) as engine:
            await until(lambda: "at least one subscription is required" in now.pod(engine, "p1").error, engine.state)
            await asyncio.sleep(1.5)
            rows = now.store.transact(SET, lambda tx: tx.rows())
            assert {row.epoch for row in rows.values()} == {1}
            now.want()
            await until(now.shared(3, 3), engine.state)

    play(tmp_path, "p1 p2", work)


def test_a_restart_writes_nothing_to_unchanged_pods(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        now.want()
        async with engine_on(now.store) as engine:
            await until(now.shared(3, 3), engine.state)
            await until(now.confirmed, engine.state)
            await until(lambda: now.note(PODS_NOTE).count('"digest":""') == 0, engine.state)
        lines = len(now.store.journal(SET))
        async with engine_on(now.store) as engine:
            await until(lambda: engine.state().said != "", engine.state)
            await asyncio.sleep(0.8)
            assert [each.writes for each in now.served] == [1, 1]
            assert len(now.store.journal(SET)) == lines, "nothing idle writes"

    play(tmp_path, "p1 p2", work)


def test_an_engine_may_run_again_and_ends_at_once(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        now.want()
        engine = PoolEngine(now.store, POOL)
        for reached in (now.shared(3, 3), now.shared(2, 2)):
            task = asyncio.create_task(engine.run())
            await until(reached, engine.state)
            task.cancel()
            async with asyncio.timeout(1.0):
                await asyncio.wait([task])
            assert now.store.transact(SET, lambda tx: tx.leader()).holder == "", "the next one need not wait"
            now.want(targets=listed(NAMES[:4]))

    play(tmp_path, "p1 p2", work)


class Away(MemoryStore):
    """A store that can be out of reach."""

    away = False

    def transact(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        if self.away:
            raise Unavailable("the store is away")
        return super().transact(name, work)


@pytest.mark.slow
def test_the_store_may_be_away_for_longer_than_a_pod(tmp_path: Path) -> None:
    store = Away(boot_s)

    async def work(now: Setting) -> None:
        now.want()
        async with engine_on(store) as engine:
            await until(now.shared(3, 3), engine.state)
            await until(now.confirmed, engine.state)
            before, lines = now.live(), len(store.journal(SET))
            store.away = True
            await until(lambda: "the store is away" in engine.state().error, engine.state)
            await asyncio.sleep(1.5)
            store.away = False
            await until(lambda: engine.state().error == "", engine.state)
            await asyncio.sleep(1.0)
            assert now.live() == before
            moved = [line for line in store.journal(SET)[lines:] if line.item]
            assert moved == [], "nobody counts as gone because the store was away"
            assert [each.writes for each in now.served] == [1, 1]

    play(tmp_path, "p1 p2", work, store)


def test_a_pod_that_crashes_again_and_again_delays_nobody(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        async def crash() -> None:
            while True:
                now.served[1].pod.control({"restart": True})
                await asyncio.sleep(0.05)

        crashing = asyncio.create_task(crash())
        now.want()
        async with engine_on(now.store) as engine:
            await until(lambda: [len(each) for each in now.live()][::2] == [2, 2], engine.state)
            now.want(targets=listed(NAMES[:3]))
            await until(lambda: [len(each) for each in now.live()][::2] == [1, 1], engine.state)
            assert max(now.served[0].writes, now.served[2].writes) <= 2
            await until(lambda: now.served[1].writes > 3, engine.state)  # It is filled again each time.
            assert max(now.served[0].writes, now.served[2].writes) <= 2
            crashing.cancel()
            await until(now.shared(1, 1, 1), engine.state)

    play(tmp_path, "p1 p2 p3", work)
