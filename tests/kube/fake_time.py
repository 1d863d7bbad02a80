"""A loop whose clock jumps: whoever sleeps is woken at once, and the clock says that the time has passed."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import TypeVar

Result = TypeVar("Result")


class _Jumping(selectors.SelectSelector):
    """Waits for nothing: where nothing happens, the time that would have been waited is added to the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and timeout is None:
            raise AssertionError("everything waits for something that never comes")
        if not found and timeout is not None:
            self.now_s += max(timeout, 0.0)
        return found


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop on a clock that jumps."""

    def __init__(self) -> None:
        """Begin at 0."""
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Read the clock of the selector."""
        return self._jumping.now_s


def run(scenario: Coroutine[object, object, Result]) -> Result:
    """Play a scenario in no time."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(scenario)
