"""A member that notes what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from poise.clock import boot_s
from poise.hold.member import Member
from poise.stores.base import Store

MARGIN_S, STOP_S = 0.5, 0.5


class Diary:
    """What happened to each item, in order, with the time."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, int, float]] = []
        self.held: dict[str, int] = {}

    async def gain(self, item: str, epoch: int) -> None:
        self.lines.append(("gain", item, epoch, boot_s()))
        self.held[item] = epoch

    async def lose(self, item: str, epoch: int) -> None:
        self.lines.append(("loss", item, epoch, boot_s()))
        assert self.held.pop(item) == epoch

    def story(self, item: str) -> list[tuple[str, int]]:
        return [(word, epoch) for word, name, epoch, _ in self.lines if name == item]

    def member(self, store: str | Store, name: str = "w1") -> Member:
        return Member(
            store, set="orders", name=name, on_gain=self.gain, on_loss=self.lose, margin_s=MARGIN_S, stop_s=STOP_S
        )


def run(work: Coroutine[object, None, None]) -> None:
    """Run the asynchronous part of a test."""
    asyncio.run(work)
