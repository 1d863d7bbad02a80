"""The next single action over pools, in the order of safety that the list of pools says: the safest pool stands first.

With two pools named on-demand and spot, in this order, the actions are those of `next_action`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def next_pool_action(pools: Sequence[str], current: Mapping[str, int], desired: Mapping[str, int]) -> str:
    """Mend the total first (up from the first pool, down from the last), then migrate, one replica at a time."""
    short = [name for name in pools if current.get(name, 0) < desired.get(name, 0)]
    over = [name for name in [*pools, *_strangers(pools, current)] if current.get(name, 0) > desired.get(name, 0)]
    missing = sum(desired.values()) - sum(current.values())
    if missing > 0 and short:
        return f"scale-up-{short[0]}"
    if missing < 0 and over:
        return f"scale-down-{over[-1]}"
    return f"migrate-to-{short[0]}" if short and over else "none"


def pool_steps(current: Mapping[str, int], desired: Mapping[str, int]) -> int:
    """Count the actions to desired: a migration mends one too many and one too few at once."""
    drifts = [current.get(name, 0) - desired.get(name, 0) for name in {*current, *desired}]
    return max(sum(drift for drift in drifts if drift > 0), -sum(drift for drift in drifts if drift < 0))


def _strangers(pools: Sequence[str], current: Mapping[str, int]) -> list[str]:
    """List pools that hold replicas and are no longer named: they are emptied first."""
    return sorted(set(current) - set(pools))
