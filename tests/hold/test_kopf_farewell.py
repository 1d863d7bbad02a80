"""The last event of an object that is gone: kopf waits for its handlers, and can end that at any time."""

from __future__ import annotations

import asyncio
from typing import cast

import kopf
import pytest
from tests.hold.test_kopf_gate import Bench, play, settle
from tests.kube.memory_api import MemoryApi

from poise.hold.kopf_inside import Call


class Farewell:
    """A handler of the last event that takes its time."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.ended = self.cancelled = False

    async def process(self, **call: object) -> str | None:
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        self.ended = True
        return cast(Call, call)["raw_event"]["type"]


async def begun(bench: Bench) -> tuple[Farewell, asyncio.Task[str | None]]:
    """Let an object be gone that was held."""

    async def hear(**_: object) -> None:
        """Hear of every event."""

    kopf.on.event("secrets", registry=bench.registry)(hear)
    bench.shard.epoch = 1
    await bench.show("ADDED", 1)
    farewell = Farewell()
    # There is nothing in memory: whoever reads the object finds it gone.
    bench.gate._inner, bench.gate._client = farewell.process, MemoryApi()
    leaving = bench.show("DELETED", 1, "2")
    await settle()
    assert not leaving.done()
    return farewell, leaving


def test_kopf_waits_for_the_last_event() -> None:
    async def scenario(bench: Bench) -> None:
        farewell, leaving = await begun(bench)
        farewell.may_end.set()
        assert await leaving == "DELETED"
        assert farewell.ended

    play(scenario)


def test_kopf_that_ends_is_not_kept_by_the_last_event() -> None:
    async def scenario(bench: Bench) -> None:
        farewell, leaving = await begun(bench)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await settle()
        assert farewell.cancelled

    play(scenario)


def test_a_shard_that_leaves_ends_the_last_event_and_kopf_goes_on() -> None:
    async def scenario(bench: Bench) -> None:
        farewell, leaving = await begun(bench)
        await bench.gate.close()
        assert await leaving is None
        assert farewell.cancelled

    play(scenario)
