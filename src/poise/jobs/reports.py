"""Reports of a CapacitySplit: observed counts come in, and the ledgers of its guards follow from them.

A report says how many replicas run where. What differs from the report before has been done since: it counts for
cooldown and budgets from this instant on, whoever did it. Nothing idle writes: the same report again changes nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from poise.decide.ramp import Interruption, RampEvent, RampState, SpotPods, ramp
from poise.jobs.capacity import ramp_policy, ramp_state
from poise.model import CapacitySplit
from poise.model.capacity_split import (
    CapacitySplitStatus,
    PoolSeen,
    RampRecord,
    SplitCounts,
    SplitWorkload,
    StartedAction,
    TotalSeen,
)
from poise.move.guards import Watched, watch_total


def merge_report(document: CapacitySplit, before: CapacitySplitStatus, now: datetime) -> CapacitySplitStatus:
    """Take what the status of a document reports into what is known; a workload without a report stays as it was."""
    told = document.status
    workloads = {
        each.name: _merge(document, each, before.workloads.get(each.name), told.workloads.get(each.name), now)
        for each in document.spec.workloads
        if each.name in before.workloads or each.name in told.workloads
    }
    pools = {
        pool.name: _seen(before.pools.get(pool.name), told.pools.get(pool.name))
        for pool in document.spec.pools
        if pool.name in before.pools or pool.name in told.pools
    }
    return CapacitySplitStatus(workloads, {name: seen for name, seen in pools.items() if seen is not None})


def _seen(before: PoolSeen | None, told: PoolSeen | None) -> PoolSeen | None:
    """Keep since when a pool is as it is."""
    if told is None or (before is not None and before.up == told.up):
        return before
    return told


def _merge(
    document: CapacitySplit, asked: SplitWorkload, before: SplitCounts | None, told: SplitCounts | None, now: datetime
) -> SplitCounts:
    known = before or SplitCounts()
    total = _total(known, asked.replicas, now)
    if told is None:
        return known if total == known.total else msgspec.structs.replace(known, total=total)
    done = 0 if before is None else _changes(known, told)
    return msgspec.structs.replace(
        known,
        spot=told.spot,
        on_demand=told.on_demand,
        ready_on_demand=told.ready_on_demand,
        pools=told.pools,
        total=total,
        last_action_at=now if done else known.last_action_at,
        actions=_ledger(document, known, done, now),
        ramp=_ramp(document, asked, known, told, now),
        fallback=told.fallback if told.fallback is not None else known.fallback,
    )


def _changes(before: SplitCounts, after: SplitCounts) -> int:
    """Count the single actions between two reports: on each side what came and what went, a migration once."""
    sides = [(before.spot, after.spot), (before.on_demand, after.on_demand)]
    sides += [(before.pools.get(pool, 0), after.pools.get(pool, 0)) for pool in {*before.pools, *after.pools}]
    came = sum(max(0, later - earlier) for earlier, later in sides)
    went = sum(max(0, earlier - later) for earlier, later in sides)
    return max(came, went)


def _ledger(document: CapacitySplit, known: SplitCounts, done: int, now: datetime) -> list[StartedAction]:
    """Add what was done, and forget what no budget counts any more."""
    longest_s = max((each.window_seconds for each in document.spec.guards.budgets), default=0)
    kept = [each for each in known.actions if (now - each.started_at).total_seconds() < longest_s]
    fresh = [StartedAction(now, done)] if done and longest_s else []
    return kept + fresh if done or len(kept) != len(known.actions) else known.actions


def _total(known: SplitCounts, replicas: int, now: datetime) -> TotalSeen:
    """Note the total that people ask for: a jump holds migrations back until it is stable."""
    seen = known.total
    before = None if seen is None else Watched(seen.replicas, seen.since.timestamp(), seen.jumped)
    after = watch_total(before, replicas, now.timestamp())
    if seen is not None and after == before:
        return seen
    return TotalSeen(after.total, datetime.fromtimestamp(after.since_s, UTC), after.jumped)


def _ramp(
    document: CapacitySplit, asked: SplitWorkload, known: SplitCounts, told: SplitCounts, now: datetime
) -> RampRecord | None:
    """Tell the ramp how many spot replicas run, and how many were taken away."""
    policy = ramp_policy(document.spec.ramp, asked.spot_percent or 0)
    if policy is None:
        return None
    state = ramp_state(known.ramp) if known.ramp else None
    if state is not None and not told.interrupted and told.spot == state.spot_pods:
        return known.ramp
    now_s = now.timestamp()
    lost: list[RampEvent] = [Interruption(now_s)] * told.interrupted
    return _record(ramp(state, [*lost, SpotPods(now_s, told.spot)], now_s, policy))


def _record(state: RampState) -> RampRecord:
    def moment(at_s: float) -> datetime:
        return datetime.fromtimestamp(at_s, UTC)

    return RampRecord(
        percent=state.percent,
        started_at=moment(state.start_s),
        as_of=moment(state.as_of_s),
        event_at=moment(state.event_s),
        score=state.score,
        why=state.why.value,
        spot_pods=state.spot_pods,
        pod_hours=state.pod_hours,
        interruptions=state.interruptions,
    )
