"""A pool whose way of delivery changes: the old collectors are free, with proof, before anybody is given anything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.pool.delivery_audit import doubles, read_log, spans
from tests.pool.pool_world import POOL, SET, CollectorProcess, document, free_ports, listed, put
from tests.pool.served import engine_on, until

from poise.clock import boot_s
from poise.jobs.pool import former as formers
from poise.jobs.pool.engine import PoolEngine
from poise.jobs.pool.pull import answer_pull
from poise.stores.memory import MemoryStore

NAMES = [f"r{number}" for number in range(6)]
PULL: dict[str, object] = {"kind": "pull"}
HTTP: dict[str, object] = {"kind": "http"}
GONE_AFTER_S = 2
TEARDOWN_S = 1.0


class Changing:
    """Collectors as processes, pods that fetch beside them, and one log of who collects what."""

    def __init__(self, folder: Path) -> None:
        self.log, self.store = folder / "log", MemoryStore(boot_s)
        ports = free_ports(4)
        self.pods = [
            CollectorProcess(f"p{number}", port, self.log, teardown_s=TEARDOWN_S) for number, port in enumerate(ports)
        ]
        for pod in self.pods:
            pod.wait()
        self.fetched: dict[str, list[str]] = {}

    def want(self, pods: list[CollectorProcess], delivery: dict[str, object] | None = None) -> None:
        """Want two pods of these names, wherever they are."""
        endpoints: list[str | dict[str, object]] = [
            {**pod.endpoint, "name": f"pod-{number}"} for number, pod in enumerate(pods)
        ]
        put(self.store, document(endpoints, listed(NAMES), delivery=delivery, goneAfterSeconds=GONE_AFTER_S))

    def live(self, *pods: CollectorProcess) -> list[str]:
        found = [pod.control()["live"] for pod in pods]
        return sorted(name for each in found for name in each)  # type: ignore[attr-defined]  # A list of names.

    def ask(self, pod: str) -> list[str]:
        groups = self.store.transact(SET, lambda tx: answer_pull(tx, POOL, pod))
        self.fetched[pod] = sorted(group.labels["__meta_poise_target"] for group in groups)
        return self.fetched[pod]

    def owners(self) -> set[str | None]:
        return {row.owner for row in self.store.view(SET, lambda tx: tx.rows()).values()}

    @asynccontextmanager
    async def asking(self, *pods: str) -> AsyncIterator[None]:
        """Let these pods fetch while the block runs, and never take what a collector still has."""

        async def ask() -> None:
            while True:
                for pod in pods:
                    await asyncio.sleep(0.2)
                    taken = self.ask(pod)
                    still = await asyncio.to_thread(self.live, *self.pods)
                    assert not set(taken) & set(still), "fetched while a collector still has it"

        task = asyncio.create_task(ask())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Changing]:
    made = Changing(tmp_path)
    try:
        yield made
    finally:
        for pod in made.pods:
            pod.end()


async def settle(world: Changing, engine: PoolEngine) -> None:
    await until(lambda: world.live(*world.pods[:2]) == NAMES, engine.state)


@pytest.mark.slow
@pytest.mark.parametrize("before", [None, HTTP], ids=["gnmic", "http"])
def test_from_pushing_to_fetching(world: Changing, before: dict[str, object] | None) -> None:
    async def work() -> None:
        async with engine_on(world.store) as engine:
            world.want(world.pods[:2], before)
            await settle(world, engine)
            epochs = {row.epoch for row in world.store.view(SET, lambda tx: tx.rows()).values()}
            world.want(world.pods[:2], PULL)
            assert world.ask("pod-0") == [], "nobody was freed yet"
            async with world.asking("pod-0", "pod-1"):
                await until(
                    lambda: sorted(world.fetched["pod-0"] + world.fetched.get("pod-1", [])) == NAMES, engine.state
                )
            assert world.live(*world.pods) == []
            assert {row.epoch for row in world.store.view(SET, lambda tx: tx.rows()).values()} == epochs, "none moved"

    asyncio.run(work())
    assert doubles(spans(read_log(world.log))) == []


@pytest.mark.slow
def test_from_fetching_to_pushing(world: Changing) -> None:
    async def work() -> None:
        async with engine_on(world.store) as engine:
            world.want(world.pods[:2], PULL)
            async with world.asking("pod-0", "pod-1"):
                await until(
                    lambda: sorted(world.fetched.get("pod-0", []) + world.fetched.get("pod-1", [])) == NAMES,
                    engine.state,
                )
            world.want(world.pods[:2])
            assert world.ask("pod-0") == []
            assert world.ask("pod-1") == []
            await asyncio.sleep(0.5)
            assert world.live(*world.pods) == [], "they were told, and may not have heard it"
            for _ in range(3):  # The engine may have read the new document only after the first asking.
                for pod in ("pod-0", "pod-1"):
                    assert world.ask(pod) == []
                await asyncio.sleep(0.2)
            await settle(world, engine)

    asyncio.run(work())


@pytest.mark.slow
def test_one_that_fetched_and_asks_no_more_is_borne_as_long_as_any_silence(world: Changing) -> None:
    async def work() -> None:
        async with engine_on(world.store) as engine:
            world.want(world.pods[:2], PULL)
            async with world.asking("pod-0", "pod-1"):
                await until(
                    lambda: sorted(world.fetched.get("pod-0", []) + world.fetched.get("pod-1", [])) == NAMES,
                    engine.state,
                )
            world.want(world.pods[:2])
            changed_s = time.monotonic()
            await settle(world, engine)
            assert time.monotonic() - changed_s >= GONE_AFTER_S

    asyncio.run(work())


@pytest.mark.slow
def test_new_addresses_and_another_kind_at_once(world: Changing) -> None:
    """The old collectors take longer to stop than a pod may be silent: they answer, so nobody counts as gone."""

    async def work() -> None:
        for pod in world.pods:
            pod.control(teardownS=GONE_AFTER_S + 1.5)
        async with engine_on(world.store) as engine:
            world.want(world.pods[:2])
            await settle(world, engine)
            world.want(world.pods[2:], HTTP)
            await until(lambda: world.live(*world.pods[2:]) == NAMES, engine.state)
            assert world.live(*world.pods[:2]) == []

    asyncio.run(work())
    assert doubles(spans(read_log(world.log))) == []


@pytest.mark.slow
def test_an_old_place_that_is_gone_holds_nobody_up_for_longer_than_a_pod_that_is_gone(world: Changing) -> None:
    async def work() -> None:
        async with engine_on(world.store) as engine:
            world.want(world.pods[:2])
            await settle(world, engine)
            world.pods[0].kill()
            world.want(world.pods[2:])
            await until(lambda: any("former place" in pod.error for pod in engine.state().pods), engine.state)
            await until(lambda: world.live(*world.pods[2:]) == NAMES, engine.state)

    asyncio.run(work())
    assert doubles(spans(read_log(world.log))) == []


@pytest.mark.slow
def test_an_engine_that_does_not_free_the_old_place_is_found(world: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    async def trust(_former: formers.Former) -> bool:
        return True

    monkeypatch.setattr("poise.jobs.pool.pod.vacate", trust)

    async def work() -> None:
        async with engine_on(world.store) as engine:
            world.want(world.pods[:2])
            await settle(world, engine)
            world.want(world.pods[2:])
            await until(lambda: world.live(*world.pods[2:]) == NAMES, engine.state)

    asyncio.run(work())
    assert doubles(spans(read_log(world.log))) != []
