"""A store in memory whose line to the members can be cut, slowed down and listened to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from poise.clock import boot_s
from poise.errors import Unavailable
from poise.model.ownership import Line
from poise.stores.base import Answer, Transaction
from poise.stores.memory import MemoryStore


class StubbornStore:
    """What a member sees of a store; the coordinator of a test uses the one within."""

    def __init__(self, within: MemoryStore) -> None:
        self.within = within
        self.cut = False  # Nothing arrives.
        self.deaf = False  # Everything arrives, and no answer comes back.
        self.frozen = False  # Nothing arrives, and nothing is said: whoever asks waits until it thaws.
        self.thaw = threading.Event()
        self.slow_s = 0.0  # Answers take so long to come back.
        self.asked: list[float] = []  # When something was sent.

    def transact(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        self.asked.append(boot_s())
        if self.frozen:
            self.thaw.wait(30)
        if self.cut or self.frozen:
            raise Unavailable("the line is cut")
        answer = self.within.transact(name, work)
        if self.deaf:
            raise Unavailable("no answer")
        if self.slow_s:
            time.sleep(self.slow_s)
        return answer

    def view(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        return self.transact(name, work)

    def sets(self) -> list[str]:
        return self.within.sets()

    def journal(self, name: str, item: str | None = None, after: int = 0, most: int = 1000) -> list[Line]:
        return self.within.journal(name, item, after, most)

    def events(self, after: tuple[int, int], most: int = 1000) -> list[Line]:
        return self.within.events(after, most)

    def version(self) -> int:
        return self.within.version()

    def wait(self, version: int, timeout_s: float) -> int:
        return self.within.wait(version, timeout_s)

    def close(self) -> None:
        self.within.close()
