"""A store that cannot be trusted to answer: single calls are refused, lose a race, or are done without an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from poise.errors import Conflict, Unavailable
from poise.sim.drill_values import SET
from poise.stores.base import Answer, Transaction
from poise.stores.memory import MemoryStore

Mishap = Literal["refused", "conflict", "unanswered"]


class UnsteadyStore(MemoryStore):
    """The real store in memory, with a mishap drawn for every call; checkers look past it."""

    def __init__(self, clock: Callable[[], float], mishap: Callable[[], Mishap | None]) -> None:
        """Start empty; `mishap` is asked before every call."""
        super().__init__(clock)
        self._mishap = mishap

    def transact(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        """Do the work, or fail as a store does: before it, by a lost race, or after it."""
        mishap = self._mishap()
        if mishap == "refused":
            raise Unavailable("the store does not answer")
        if mishap == "conflict":
            raise Conflict("somebody else wrote first")
        answer = super().transact(name, work)
        if mishap == "unanswered":
            raise Unavailable("the store did not answer; what was written is there")
        return answer

    def view(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        """Read, or fail as a store does."""
        if self._mishap() is not None:
            raise Unavailable("the store does not answer")
        return super().view(name, work)

    def look(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        """Read for a checker, without a mishap."""
        return super().transact(name, work)

    def length(self) -> int:
        """Count the lines of the journal, without copying them."""
        return len(self._sets[SET].lines)
