"""Items under four policies: each a pure planner, called again after every event with what it decided before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec
import numpy as np

from poise.decide.balance import fewest_releases, rebalance
from poise.decide.plan import Plan, held_now, plan_towards
from poise.decide.rendezvous import plan_hashed
from poise.decide.ring import Ring
from poise.decide.scores import hashes
from poise.decide.shares import Shares, fair_shares
from poise.sim.ticks import Change, Tick, change, deviations
from poise.sim.worlds import ItemWorld

_TOKENS_MAX = 200_000
Held = Mapping[str, str | None]


def plan_sticky(world: ItemWorld, held: Held) -> Plan:
    """Exact-even with the fewest moves, by weight and capacity."""
    weights = {name: member.weight for name, member in world.members.items()}
    return rebalance(
        world.items,
        world.members,
        held,
        capacity=_capacities(world),
        weights=weights,
        draining=_draining(world),
        seed=f"{world.kind}/{world.name}",
    )


def plan_by_score(world: ItemWorld, held: Held) -> Plan:
    """Bounded-load rendezvous by names alone; it knows no weights."""
    return plan_hashed(world.items, world.members, held, capacity=_capacities(world) or None, draining=_draining(world))


def plan_on_ring(world: ItemWorld, held: Held) -> Plan:
    """Consistent hashing, as `plan_ring` does it; a weight multiplies the tokens, a capacity has no part in it."""
    live, holders = world.live(), held_now(world.items, held)
    ring = _ring(_tokens(world, live))
    wanted = dict(zip(holders, ring.owners(holders), strict=True))
    return plan_towards(wanted, holders, live, _draining(world), 0, "the ring gives it to {target}")


def _tokens(world: ItemWorld, live: list[str]) -> tuple[tuple[str, int], ...]:
    """Multiply tokens by weights; where that is more than a ring can hold, keep the proportions with fewer tokens."""
    wanted = [(name, world.members[name].tokens * world.members[name].weight) for name in live]
    divisor = max(1, -(-sum(count for _, count in wanted) // _TOKENS_MAX))
    return tuple((name, -(-count // divisor)) for name, count in wanted)


@lru_cache(maxsize=2)
def _ring(tokens: tuple[tuple[str, int], ...]) -> Ring:
    """Lay out a ring once for all the events that leave the members as they are."""
    return Ring(dict(tokens))


def plan_modulo(world: ItemWorld, held: Held) -> Plan:
    """Give each item member number xxh3_64(name) % n of the sorted names: what most people write first."""
    live, holders = world.live(), held_now(world.items, held)
    names: list[str | None] = [*live] or [None]
    numbers = hashes(list(holders)) % np.uint64(len(names))
    wanted = dict(zip(holders, map(names.__getitem__, numbers.tolist()), strict=True))
    return plan_towards(wanted, holders, live, _draining(world), 0, "the remainder is that of {target}")


ITEM_POLICIES: dict[str, Callable[[ItemWorld, Held], Plan]] = {
    "sticky": plan_sticky,
    "hashed": plan_by_score,
    "ring": plan_on_ring,
    "modulo": plan_modulo,
}


def _capacities(world: ItemWorld) -> dict[str, int]:
    return {name: each.capacity for name, each in world.members.items() if each.capacity is not None}


def _draining(world: ItemWorld) -> list[str]:
    return [name for name, member in world.members.items() if member.draining]


class Even(msgspec.Struct, frozen=True):
    """The exact share of every live member in one world; the same yardstick for every policy."""

    live: list[str]
    shares: Shares
    change: Change


def measure(world: ItemWorld, before: ItemWorld) -> Even:
    """Work out the exact shares of a world, and who came and went since the one before."""
    live = world.live()
    members = [world.members[name] for name in live]
    shares = fair_shares(
        len(world.items),
        [each.weight for each in members] if any(each.weight for each in members) else [1] * len(live),
        [0] * len(live),
        [each.capacity for each in members],
    )
    return Even(live, shares, change(before.live(), live))


def fewest_moves(world: ItemWorld, even: Even, held: Held) -> int:
    """moves_min = items on members that are gone or draining + what live members above their shares must give up."""
    now = Counter(map(held.get, world.items))
    loads = [now.pop(name, 0) for name in even.live]
    now.pop(None, None)
    return now.total() + fewest_releases(loads, even.shares)


def tick(world: ItemWorld, even: Even, held: Held, plan: Plan) -> Tick:
    """Measure one plan against the state that it began with."""
    loads = [plan.loads[name] for name in even.live]
    under, over = deviations(loads, even.shares.numerators, even.shares.denominator)
    changed = even.change
    innocent = sum(
        move.source is not None and move.source not in changed.gone and move.target not in changed.joined
        for move in plan.moves
    )
    return Tick(
        moves=plan.certificate.moves,
        moves_min=fewest_moves(world, even, held),
        innocent=innocent,
        low=min(loads, default=0),
        high=max(loads, default=0),
        under=under,
        over=over,
        unassigned=len(plan.unassigned),
    )
