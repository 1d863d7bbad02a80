"""A set that is served and led, and members that keep a diary of what they were told."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from tests.hold.leading import SHORT, leading, put
from tests.serve.live_server import LiveServer

from poise.clock import boot_s
from poise.hold.http_link import HttpLink
from poise.hold.member import Member
from poise.model.ownership import Terms
from poise.serve.settings import ServeSettings


class Diary:
    """What a member was told, and when."""

    def __init__(self) -> None:
        self.has: dict[str, int] = {}
        self.changed_s = 0.0

    async def gain(self, item: str, epoch: int) -> None:
        self.has[item], self.changed_s = epoch, boot_s()

    async def lose(self, item: str, epoch: int) -> None:
        assert self.has.pop(item) == epoch
        self.changed_s = boot_s()

    def member(self, where: str | HttpLink, name: str = "w1", token: str | None = None) -> Member:
        return Member(where, set="orders", name=name, on_gain=self.gain, on_loss=self.lose, token=token)


@contextmanager
def serving(count: int = 4, terms: Terms = SHORT, settings: ServeSettings | None = None) -> Iterator[LiveServer]:
    """Serve a set that somebody leads."""
    with LiveServer(settings) as live:
        put(live.store, count, terms)
        with leading(live.store):
            yield live


def token_line(name: str, role: str) -> str:
    return f"{name} {role} {hashlib.sha256(f'{name}-token'.encode()).hexdigest()}"
