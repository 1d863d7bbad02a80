"""What windows, cooldown and budgets of a set let begin now; recovery and what is under way never ask.

Windows look at the wall clock. Cooldown and budgets look at store time and at the ledger that the set keeps of when
moves began: one plan's moves are one action.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from math import inf

import msgspec

from poise.decide.partition_values import Step, StepKind
from poise.model.ownership import OwnerState, Row
from poise.move.budgets import UNLIMITED, Started, allowed_moves
from poise.move.executor import Snapshot
from poise.move.guards import in_window


class OpenGate(msgspec.Struct, frozen=True):
    """How many hand-overs may begin, and when (by store time) to ask again if that is not enough."""

    free: int = UNLIMITED
    opens_s: float = inf
    halted: bool = False

    def let_pass(self, steps: list[Step], rows: Mapping[str, Row]) -> list[Step]:
        """Keep of a plan what may be written now."""
        if self.halted:
            return []
        passed, left = [], self.free
        for step in steps:
            row = rows.get(step.partition)
            if step.kind is StepKind.RELEASE and row is not None and row.state is OwnerState.ASSIGNED:
                if left <= 0:
                    continue
                left -= 1
            passed.append(step)
        return passed


def open_gate(facts: Snapshot, now: datetime) -> OpenGate:
    """Judge the guards of a set at one instant."""
    guards, started = facts.job.guards, facts.job.started
    if facts.job.halted:
        return OpenGate(halted=True)
    window = in_window(guards.windows, now)
    if not window.open:
        waits_s = inf if window.opens_at is None else (window.opens_at - now).total_seconds()
        return OpenGate(0, facts.now_s + waits_s)
    cool_s = max(started, default=-inf) + guards.cooldown_seconds
    if facts.now_s < cool_s:
        return OpenGate(0, cool_s)
    ledger = [Started(at_s) for at_s in started]
    allowance = allowed_moves(guards.budgets, ledger, facts.now_s, len(facts.rows))
    until = allowance.refusal.until if allowance.refusal else None
    return OpenGate(allowance.allowed, until.timestamp() if until else inf)
