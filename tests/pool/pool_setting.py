"""One store, some collectors in the test's own event loop, and documents for the engine on them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.pool.pool_world import SET, document, listed, put
from tests.pool.served import Served, collectors

from poise.clock import boot_s
from poise.jobs.pool.engine import PoolEngine
from poise.jobs.pool.state import PodState
from poise.stores.memory import MemoryStore

NAMES = [f"r{number}" for number in range(6)]
Endpoints = list[str | dict[str, object]]


class Setting:
    """One store, some collectors, and the engine on them."""

    def __init__(self, served: list[Served], store: MemoryStore, folder: Path) -> None:
        self.served, self.store, self.folder = served, store, folder

    def want(self, *, pods: list[Served] | None = None, **spec: object) -> None:
        endpoints: Endpoints = [each.endpoint for each in (self.served if pods is None else pods)]
        self.want_pods(endpoints, **spec)

    def want_pods(self, endpoints: Endpoints, **spec: object) -> None:
        targets = spec.pop("targets", listed(NAMES))
        assert isinstance(targets, dict)
        wanted = {"goneAfterSeconds": 1, **spec}
        put(self.store, document(endpoints, targets, **wanted))  # type: ignore[arg-type]  # Fields of a document.

    def live(self) -> list[list[str]]:
        return [sorted(each.pod.live) for each in self.served]

    def shared(self, *sizes: int) -> Callable[[], bool]:
        """Say whether every target is collected once, and the loads are these."""

        def reached() -> bool:
            live = self.live()
            held = sorted(name for each in live for name in each)
            return sorted(map(len, live)) == sorted(sizes) and held == NAMES[: sum(sizes)]

        return reached

    def confirmed(self) -> bool:
        """Say whether every target was seen on its pod."""
        rows = self.store.transact(SET, lambda tx: tx.rows())
        return all(row.confirmed for row in rows.values())

    def note(self, key: str) -> str:
        return self.store.transact(SET, lambda tx: tx.note(key)) or ""

    def pod(self, engine: PoolEngine, name: str) -> PodState:
        found = [pod for pod in engine.state().pods if pod.name == name]
        return found[0] if found else PodState(name, "gone", "")


def play(
    folder: Path, names: str, work: Callable[[Setting], Awaitable[None]], store: MemoryStore | None = None
) -> None:
    async def run() -> None:
        async with collectors(folder, *names.split()) as served:
            await work(Setting(served, store or MemoryStore(boot_s), folder))

    asyncio.run(run())
