"""Which moves of a plan may begin now, and what the others wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from poise.decide.plan import Move
from poise.jobs.entries import PlannedMove, Waits
from poise.model.common import MoveGuards
from poise.move.budgets import Allowance, allowed_moves
from poise.move.guards import GuardFacts, judge
from poise.move.refusal import Refusal


def waits_of(refusal: Refusal | None) -> Waits | None:
    """Say a refusal in the words of an entry."""
    return None if refusal is None else Waits(refusal.code, refusal.until, refusal.reason)


class Gate(msgspec.Struct, frozen=True):
    """The guards of a job of items at one instant. First placements and recovery pass; hand-overs ask."""

    guards: MoveGuards
    now_s: float

    def refusal(self) -> Refusal | None:
        """Ask the guards that hold for all hand-overs alike."""
        return judge("move", GuardFacts(now_s=self.now_s, windows=self.guards.windows, cooldown_s=0))

    def allowance(self, items: int) -> Allowance:
        """Ask the budgets how many hand-overs may start; nothing is under way in a document."""
        return allowed_moves(self.guards.budgets, [], self.now_s, items)

    def hold(self, moves: Iterable[Move], *, alive: Collection[str], items: int) -> list[PlannedMove]:
        """Mark the moves that must wait; a move from a member that is gone is recovery and never does."""
        closed, allowance = waits_of(self.refusal()), self.allowance(items)
        under_way: Counter[str | None] = Counter()
        held = []
        for move in moves:
            waits = None
            if move.source is not None and move.source in alive:
                waits = closed or self._full(move, under_way, allowance)
                if waits is None:
                    under_way.update({None: 1, f"from {move.source}": 1, f"to {move.target}": 1})
            held.append(PlannedMove(move.item, move.source, move.target, move.reason, waits))
        return held

    def _full(self, move: Move, under_way: Counter[str | None], allowance: Allowance) -> Waits | None:
        """Compare what this plan has already started with the limits."""
        limits = (
            (under_way[None], self.guards.moves_in_flight_max, "moves in flight"),
            (under_way[f"from {move.source}"], self.guards.per_source_max, f"moves in flight from {move.source}"),
            (under_way[f"to {move.target}"], self.guards.per_target_max, f"moves in flight to {move.target}"),
            (under_way[None], allowance.allowed, "moves of the budget used"),
        )
        for used, most, what in limits:
            if most is not None and used >= most:
                return Waits(
                    "budget", allowance.refusal.until if allowance.refusal else None, f"{used} of {most} {what}"
                )
        return None
