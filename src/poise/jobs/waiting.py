"""Which moves of a plan may begin now, and what the others wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from poise.decide.plan import Move
from poise.jobs.entries import PlannedMove, Waits
from poise.model.common import MoveGuards
from poise.move.budgets import Started, allowed_moves
from poise.move.guards import GuardFacts, judge
from poise.move.refusal import Refusal


def waits_of(refusal: Refusal | None) -> Waits | None:
    """Say a refusal in the words of an entry."""
    return None if refusal is None else Waits(refusal.code, refusal.until, refusal.reason)


class Turns:
    """The hand-overs that windows and budgets allow, counted as a plan starts them one after the other."""

    def __init__(self, guards: MoveGuards, now_s: float, items: int, in_flight: int) -> None:
        """Ask once before the first start; the answer changes only when the budgets are spent."""
        self._guards, self._now_s, self._items, self._in_flight = guards, now_s, items, in_flight
        self._free = allowed_moves(guards.budgets, self._ledger(0), now_s, items).allowed
        self._refused = self._ask(0)
        self._started = 0

    def take(self) -> Waits | None:
        """Start one more, or say what it waits for."""
        waits = self.refusal()
        if waits is None:
            self._started += 1
            if self._started == self._free:
                self._refused = self._ask(self._started)
        return waits

    def refusal(self) -> Waits | None:
        """Say what the next one would wait for."""
        return self._refused

    def _ask(self, started: int) -> Waits | None:
        facts = GuardFacts(
            now_s=self._now_s,
            windows=self._guards.windows,
            cooldown_s=0,
            budgets=self._guards.budgets,
            ledger=self._ledger(started),
            replicas=self._items,
        )
        return waits_of(judge("move", facts))

    def _ledger(self, started: int) -> list[Started]:
        """Tell the budgets what is under way, and what this plan starts."""
        return [Started(self._now_s, count=self._in_flight, in_flight=True)] * bool(self._in_flight) + [
            Started(self._now_s, count=started)
        ] * bool(started)


class Gate(msgspec.Struct, frozen=True):
    """The guards of a job of items at one instant. First placements and recovery pass; hand-overs ask."""

    guards: MoveGuards
    now_s: float

    def turns(self, items: int, in_flight: int = 0) -> Turns:
        """Begin to count the hand-overs of one plan; `in_flight` are under way already."""
        return Turns(self.guards, self.now_s, items, in_flight)

    def notes(self) -> list[str]:
        """Say what cannot be judged here: a document does not know when the last move was."""
        seconds = self.guards.cooldown_seconds
        return [f"the cooldown of {seconds} s is judged where plans are carried out"] if seconds else []

    def hold(self, moves: Iterable[Move], *, alive: Collection[str], items: int) -> list[PlannedMove]:
        """Mark the moves that must wait; a move from a member that is gone is recovery and never does."""
        turns = self.turns(items)
        under_way: Counter[str | None] = Counter()
        held = []
        for move in moves:
            waits = None
            if move.source is not None and move.source in alive:
                waits = turns.refusal() or self._full(move, under_way) or turns.take()
                if waits is None:
                    under_way.update({None: 1, f"from {move.source}": 1, f"to {move.target}": 1})
            held.append(PlannedMove(move.item, move.source, move.target, move.reason, waits))
        return held

    def _full(self, move: Move, under_way: Counter[str | None]) -> Waits | None:
        """Compare what this plan has already started with the limits; only the end of a move frees those."""
        limits = (
            (under_way[None], self.guards.moves_in_flight_max, "moves in flight"),
            (under_way[f"from {move.source}"], self.guards.per_source_max, f"moves in flight from {move.source}"),
            (under_way[f"to {move.target}"], self.guards.per_target_max, f"moves in flight to {move.target}"),
        )
        for used, most, what in limits:
            if most is not None and used >= most:
                return Waits("budget", None, f"{used} of {most} {what}")
        return None
