"""The sentences of a partition plan: why a row has no live owner, and what people should look at."""

from __future__ import annotations

from poise.decide.partition_board import Standing
from poise.decide.partition_facts import Facts, is_barred, seconds
from poise.decide.partition_values import OFFERS_MAX, Partition, ReleaseTimeout
from poise.model.ownership import RELEASING


def unowned(facts: Facts, standing: Standing, ends: dict[str, str | None]) -> dict[str, str]:
    """Say why rows have no live owner once the steps are written."""
    nowhere = "no active node" if not facts.active else ""
    reasons = {row.id: nowhere or barring(row) for row in facts.rows if row.owner is None and ends[row.id] is None}
    for row in standing.awaited:
        assert row.deadline_s is not None, "only a row with a deadline is awaited"
        reasons[row.id] = f"waits {seconds(row.deadline_s - facts.now_s)} more for {row.target} to restart"
    reasons |= {row.id: lost_until(facts, row) for row in standing.lost}
    return {row.id: reasons[row.id] for row in facts.rows if row.id in reasons}


def loss(facts: Facts, row: Partition) -> str:
    """Say why an owner does not renew a row."""
    if facts.is_gone(row.owner):
        return f"{row.owner} is gone"
    return f"{row.owner} has started again" if facts.is_superseded(row) else f"{row.owner} has not renewed it"


def lost_until(facts: Facts, row: Partition) -> str:
    """Say what a lost row waits for."""
    left_s = facts.lease_end_s(row) - facts.now_s
    if left_s > 0:
        return f"{loss(facts, row)}, its lease ends in {seconds(left_s)}"
    if not facts.is_due(row):
        return f"{loss(facts, row)}, its grace ends in {seconds(left_s + facts.policy.grace_s)}"
    return f"{loss(facts, row)}, it is free to be given once this plan is written"


def notices(facts: Facts) -> dict[str, str]:
    """Report T8, an owner past its deadline, and the poison guard."""
    notices = {}
    for row in facts.rows:
        late_s = facts.now_s - row.deadline_s if row.state in RELEASING and row.deadline_s is not None else -1.0
        if late_s >= 0 and not facts.is_lost(row):
            waits = facts.policy.on_release_timeout == ReleaseTimeout.WAIT
            outcome = "the policy waits for it" if waits else "its lease is not renewed any more"
            notices[row.id] = f"{row.owner} is {seconds(late_s)} past its deadline to let go; {outcome}"
        elif row.offers and barring(row):
            notices[row.id] = barring(row)
    return notices


def barring(row: Partition) -> str:
    """Name the nodes that never confirmed a row."""
    refusing = ", ".join(sorted(name for name in row.offers if is_barred(row, name)))
    return f"offered {OFFERS_MAX} times to {refusing} and never confirmed" if refusing else ""
