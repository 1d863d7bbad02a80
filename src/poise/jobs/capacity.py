"""CapacitySplit: replicas of workloads over spot and on-demand capacity, or over pools."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from poise.decide.capacity_check import check_next_action, check_pools, check_split
from poise.decide.capacity_explain import action_reason, explain_pools, explain_split
from poise.decide.fallback import FallbackState, with_substitutes
from poise.decide.pool_steps import next_pool_action, pool_steps
from poise.decide.pools import PoolHealth, PoolSplit, pools_down, split_pools
from poise.decide.ramp import RampPolicy, RampState, RampWhy, next_step_s, ramp
from poise.decide.split import Action, Split, Term, binding_term, next_action, restores_minimum, split, steps
from poise.errors import Fault, InvalidSpec
from poise.jobs.entries import CapacityEntry, Counts, Planned, SplitEntry, Told
from poise.jobs.waiting import waits_of
from poise.jobs.what_if import WhatIf, check_members, check_workloads, refuse
from poise.model import CapacitySplit, Pool
from poise.model.capacity_split import PoolSeen, Ramp, RampRecord, SplitCounts, SplitWorkload
from poise.move.budgets import Started
from poise.move.guards import GuardFacts, Watched, judge, watch_total
from poise.move.refusal import Refusal
from poise.move.safety import SafetyFacts, judge_safety

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SETTLED = {
    Term.PERCENTAGE: "as it should be: the percentage decides",
    Term.MINIMUM: "as it should be: the minimum on on-demand decides",
    Term.MINIMUM_UNMET: "all replicas are on on-demand",
    Term.NO_REPLICAS: "as it should be: there are no replicas",
}


class _Decided(msgspec.Struct, frozen=True):
    """One workload: the split wanted now, the percentage it came from, and the next action."""

    current: Split
    desired: Split
    percentage: int
    minimum: int
    action: Action
    refusal: Refusal | None
    notes: list[str]


def imagine(document: CapacitySplit, what_if: WhatIf) -> CapacitySplit:
    """Give the document of a what-if: other counts, and pools added, taken out or weighted otherwise."""
    spec = document.spec
    refuse(what_if, ["undrain"], "a pool of a CapacitySplit is up or down, which is seen, not said")
    check_workloads(what_if, [workload.name for workload in spec.workloads])
    if not spec.pools:
        refuse(what_if, ["add", "remove", "drain", "weights"], "this CapacitySplit has no pools")
    check_members(what_if, [pool.name for pool in spec.pools], "pool")
    pools = [
        msgspec.structs.replace(pool, weight=what_if.weights.get(pool.name, pool.weight))
        for pool in [*spec.pools, *(Pool(name=name) for name in what_if.add)]
        if pool.name not in what_if.remove
    ]
    workloads = [
        msgspec.structs.replace(workload, replicas=what_if.replicas.get(workload.name, workload.replicas))
        for workload in spec.workloads
    ]
    drained = dict.fromkeys(what_if.drain, PoolSeen(up=False, since=_EPOCH))
    return msgspec.structs.replace(
        document,
        spec=msgspec.structs.replace(spec, pools=pools, workloads=workloads),
        status=msgspec.structs.replace(document.status, pools={**document.status.pools, **drained}),
    )


def plan_capacity(document: CapacitySplit, now_s: float) -> Planned:
    """Split every workload and name its next action, or what it waits for."""
    entries: dict[str, SplitEntry] = {}
    faults: list[str] = []
    for workload in sorted(document.spec.workloads, key=lambda each: each.name):
        entry, broken = _pooled(document, workload, now_s) if document.spec.pools else _sided(document, workload, now_s)
        entries[workload.name] = entry
        faults += [f"{workload.name}: {fault}" for fault in broken]
    pending = any(entry.action != Action.NONE for entry in entries.values())
    return Planned(CapacityEntry(document.kind, document.metadata.name, entries), faults, pending)


def explain_capacity(document: CapacitySplit, name: str, now_s: float) -> Told:
    """Explain one workload."""
    workload = next((each for each in document.spec.workloads if each.name == name), None)
    if workload is None:
        listed = ", ".join(sorted(each.name for each in document.spec.workloads)[:8]) or "none"
        raise InvalidSpec(Fault("", f"no workload {name!r} in {document.metadata.name}; there are {listed}"))
    if document.spec.pools:
        return Told(name, _explain_pooled(document, workload, now_s))
    made = _decide(document, workload, now_s)
    lines = explain_split(
        workload.replicas,
        made.percentage,
        made.minimum,
        made.current,
        desired=made.desired,
        waits=str(made.refusal) if made.refusal else "",
    )
    return Told(name, [*made.notes, *lines])


def _seen(document: CapacitySplit, name: str) -> SplitCounts:
    return document.status.workloads.get(name, SplitCounts())


def _sided(document: CapacitySplit, workload: SplitWorkload, now_s: float) -> tuple[SplitEntry, list[str]]:
    made, total = _decide(document, workload, now_s), workload.replicas
    entry = SplitEntry(
        current=Counts(made.current.spot, made.current.on_demand),
        desired=Counts(made.desired.spot, made.desired.on_demand),
        action=made.action,
        steps=steps(made.current, made.desired),
        waits=waits_of(made.refusal),
        reason=_side_reason(made, total),
    )
    now, then = (made.current.spot, made.current.on_demand), (made.desired.spot, made.desired.on_demand)
    formula = split(total, made.percentage, made.minimum)
    broken = check_split((formula.spot, formula.on_demand), total, made.percentage, made.minimum)
    return entry, broken + check_next_action(made.action, total, made.minimum, current=now, desired=then)


def _side_reason(made: _Decided, total: int) -> str:
    """Say what people must know first: a minimum that cannot be met; then why the action is the next one."""
    term = binding_term(total, made.percentage, made.minimum)
    unmet = f"the minimum cannot be met: {total} for a minimum of {made.minimum} on on-demand"
    settled = made.action is Action.NONE and made.current == made.desired
    why = _SETTLED[term] if settled else action_reason(made.action, made.current, made.desired)
    return "; ".join([*([unmet] if term is Term.MINIMUM_UNMET else []), *made.notes, why])


def _decide(document: CapacitySplit, workload: SplitWorkload, now_s: float) -> _Decided:
    seen, total, minimum = _seen(document, workload.name), workload.replicas, workload.min_on_demand or 0
    percentage, notes = _percentage(document.spec.ramp, workload.spot_percent or 0, seen, now_s)
    current, desired = Split(seen.spot, seen.on_demand), split(total, percentage, minimum)
    if seen.fallback is not None and seen.fallback.substitutes:
        desired = with_substitutes(desired, FallbackState(substitutes=seen.fallback.substitutes))
        notes = [*notes, f"{seen.fallback.substitutes} of spot run on on-demand until spot has room again"]
    action = next_action(total, current, desired)
    refusal = _judge(document, workload, action, now_s)
    return _Decided(current, desired, percentage, minimum, action, refusal, notes)


def _percentage(wanted: Ramp, goal: int, seen: SplitCounts, now_s: float) -> tuple[int, list[str]]:
    """Let the ramp say how far spot adoption has come; without a ramp it is all the way."""
    policy = ramp_policy(wanted, goal)
    if policy is None:
        return goal, []
    state = ramp(ramp_state(seen.ramp) if seen.ramp else None, [], now_s, policy)
    note = f"ramp at {state.percent}% of {goal}%"
    if state.percent < goal:
        note += f", may grow at {datetime.fromtimestamp(next_step_s(state, policy), UTC):%H:%M:%SZ}"
    return state.percent, [note]


def ramp_policy(wanted: Ramp, goal: int) -> RampPolicy | None:
    """Read how a ramp towards a percentage goes; None where there is no ramp."""
    if wanted == Ramp():
        return None
    chosen = {
        "initial": wanted.initial,
        "step": wanted.step,
        "interval_s": wanted.interval_seconds,
        "half_life_h": wanted.half_life_hours,
        "prior_pod_hours": wanted.prior_pod_hours,
        "penalty_pod_hours": wanted.penalty_pod_hours,
        "low": wanted.low,
        "high": wanted.high,
    }
    return msgspec.convert(
        {"spot_percentage": goal} | {name: value for name, value in chosen.items() if value is not None}, RampPolicy
    )


def ramp_state(record: RampRecord) -> RampState:
    """Read how far a ramp has come."""
    return RampState(
        percent=record.percent,
        score=record.score,
        why=RampWhy(record.why),
        start_s=record.started_at.timestamp(),
        as_of_s=record.as_of.timestamp(),
        event_s=record.event_at.timestamp(),
        spot_pods=record.spot_pods,
        pod_hours=record.pod_hours,
        interruptions=record.interruptions,
    )


def _judge(document: CapacitySplit, workload: SplitWorkload, action: Action, now_s: float) -> Refusal | None:
    """Ask safety first, then the guards; counts that nobody reported as Ready are taken as Ready."""
    seen, total, minimum = _seen(document, workload.name), workload.replicas, workload.min_on_demand or 0
    ready = seen.on_demand if seen.ready_on_demand is None else seen.ready_on_demand
    facts = SafetyFacts(
        now_s=now_s,
        total=total,
        ready=seen.spot + ready,
        ready_on_demand=ready,
        min_on_demand=minimum,
    )
    return judge_safety(action, facts) or judge(
        action,
        _guard_facts(document, workload, seen, now_s, restores=restores_minimum(action, total, ready, minimum)),
    )


def _guard_facts(
    document: CapacitySplit, workload: SplitWorkload, seen: SplitCounts, now_s: float, *, restores: bool
) -> GuardFacts:
    guards, everything = document.spec.guards, sum(each.replicas for each in document.spec.workloads)
    ledger = [
        Started(action.started_at.timestamp(), name, count=action.count, in_flight=action.in_flight)
        for name, counts in document.status.workloads.items()
        for action in counts.actions
    ]
    return GuardFacts(
        now_s=now_s,
        windows=guards.windows,
        cooldown_s=guards.cooldown_seconds,
        last_action_s=seen.last_action_at.timestamp() if seen.last_action_at else None,
        total=_watched(seen, workload.replicas, now_s),
        budgets=guards.budgets,
        ledger=ledger,
        replicas={"workload": workload.replicas, "namespace": everything, "cluster": everything},
        workload=workload.name,
        restores_minimum=restores,
    )


def _watched(seen: SplitCounts, total: int, now_s: float) -> Watched | None:
    """Compare the total with the one last seen: a jump holds migrations back until the total is stable."""
    if seen.total is None:
        return None
    return watch_total(Watched(seen.total.replicas, seen.total.since.timestamp(), seen.total.jumped), total, now_s)


def _down(document: CapacitySplit, now_s: float) -> list[str]:
    """Name the pools to leave out: down, or not yet up again for the stable time."""
    named = {pool.name for pool in document.spec.pools}
    health = {name: PoolHealth(seen.up, seen.since.timestamp()) for name, seen in document.status.pools.items()}
    return [name for name in pools_down(health, now_s) if name in named]


class _Pooled(msgspec.Struct, frozen=True):
    """One workload over pools: what it has and should have, and the next action."""

    current: dict[str, int]
    made: PoolSplit
    down: list[str]
    action: str
    steps: int
    refusal: Refusal | None


def _decide_pooled(document: CapacitySplit, workload: SplitWorkload, now_s: float) -> _Pooled:
    """Split over pools; the next step fills or empties one pool, or moves one replica between two."""
    pools, seen, down = document.spec.pools, _seen(document, workload.name), _down(document, now_s)
    made = split_pools(workload.replicas, pools, previous=seen.pools, down=down)
    action = next_pool_action([pool.name for pool in pools], seen.pools, made.replicas)
    short = [pool.name for pool in pools if seen.pools.get(pool.name, 0) < pool.min]
    restores = any(action in (f"scale-up-{name}", f"migrate-to-{name}") for name in short)
    refusal = judge(action, _guard_facts(document, workload, seen, now_s, restores=restores))
    current = {pool.name: seen.pools.get(pool.name, 0) for pool in pools}
    unlisted = {name: count for name, count in sorted(seen.pools.items()) if count and name not in current}
    return _Pooled(current | unlisted, made, down, action, pool_steps(seen.pools, made.replicas), refusal)


def _pooled(document: CapacitySplit, workload: SplitWorkload, now_s: float) -> tuple[SplitEntry, list[str]]:
    decided, previous = _decide_pooled(document, workload, now_s), _seen(document, workload.name).pools
    made, down = decided.made, decided.down
    entry = SplitEntry(
        current=Counts(pools=decided.current),
        desired=Counts(pools=made.replicas),
        action=decided.action,
        steps=decided.steps,
        waits=waits_of(decided.refusal),
        reason=_pool_reason(decided),
        unplaced=made.unplaced,
    )
    plain = [(pool.name, pool.weight, pool.min, pool.max) for pool in document.spec.pools]
    return entry, check_pools(made.replicas, made.unplaced, workload.replicas, plain, previous=previous, down=down)


def _explain_pooled(document: CapacitySplit, workload: SplitWorkload, now_s: float) -> list[str]:
    """Explain the shares, then the next action, how many there are, and what it waits for."""
    decided, previous = _decide_pooled(document, workload, now_s), _seen(document, workload.name).pools
    lines = explain_pools(workload.replicas, document.spec.pools, previous=previous, down=decided.down)
    lines += [f"{name}: 0: it is no longer listed." for name in _unlisted(decided)]
    if decided.action == Action.NONE:
        return [*lines, "Next: none: every pool has what it should have."]
    now = ", ".join(f"{name} {count}" for name, count in decided.current.items())
    lines += [f"Now {now}.", f"Next: {decided.action}: {_next_pool(decided)}."]
    lines.append(f"{decided.steps} step{'' if decided.steps == 1 else 's'} to the goal.")
    return [*lines, f"It {decided.refusal}."] if decided.refusal else lines


def _next_pool(decided: _Pooled) -> str:
    """Say why an action over pools is the next one."""
    missing = sum(decided.made.replicas.values()) - sum(decided.current.values())
    if missing > 0:
        return "the total is too low, and it is the first in the list that has too few"
    if missing < 0:
        return "the total is too high, and it is the last in the list that has too many"
    return "the total is right, and it is the first in the list that has too few"


def _unlisted(decided: _Pooled) -> list[str]:
    return [name for name in decided.current if name not in decided.made.replicas]


def _pool_reason(decided: _Pooled) -> str:
    parts = [f"{name} is down" for name in decided.down]
    parts += [f"{name} is no longer listed" for name in _unlisted(decided)]
    parts += [f"{decided.made.unplaced} fit nowhere"] if decided.made.unplaced else []
    return "; ".join(parts) or "shares by weight within their bounds"
