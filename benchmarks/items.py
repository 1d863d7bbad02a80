"""Placement and rebalance of a million items, against a plain consistent-hash lookup of the same names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random

from uhashring import HashRing

from benchmarks.measure import Row, cpu_s, peak_mb
from poise.decide.balance import rebalance
from poise.decide.explain import explain
from poise.decide.rendezvous import place, place_one_by_one
from poise.decide.scores import best_hashes, hashes

MILLION = 1_000_000
_NAMES = f"""
from random import Random
from poise.decide.rendezvous import place
from poise.decide.balance import rebalance
names = [f"default/router{{i}}" for i in range({MILLION})]
Random(1).shuffle(names)
members = [f"gnmic-{{i}}" for i in range(1000)]
"""


def shuffled(count: int) -> list[str]:
    """Make names in an order that no planner can profit from."""
    names = [f"default/router{number}" for number in range(count)]
    Random(1).shuffle(names)
    return names


def members_of(count: int) -> list[str]:
    """Name the members."""
    return [f"gnmic-{number}" for number in range(count)]


def rows() -> Iterator[Row]:
    """Measure everything about items, the reference first."""
    names, hundred, thousand = shuffled(MILLION), members_of(100), members_of(1000)
    ring = HashRing(hundred)
    lookup = ring.get_node
    reference = cpu_s(lambda: [lookup(name) for name in names])
    yield Row("reference: 1,000,000 plain lookups of uhashring on 100 members", reference, None, "s")
    placed = cpu_s(lambda: place(names, hundred))
    yield Row("place 1,000,000 shuffled names on 100 members / the reference", placed / reference, 1.0, "x")
    bounded = cpu_s(lambda: place(names, hundred, capacity=11_000))
    yield Row("the same with a capacity of 11,000 each / the reference", bounded / reference, 1.0, "x")
    few = names[:20_000]
    one_by_one = cpu_s(lambda: place_one_by_one(few, hundred), times=1) * len(names) / len(few)
    yield Row("place / the sequential form (measured on 20,000, scaled)", placed / one_by_one, 1 / 20, "x")
    hashed = hashes(names)
    for members in (hundred, thousand):
        doors = hashes(members)
        scored = cpu_s(partial(best_hashes, hashed, doors))
        yield Row(f"scores of 1,000,000 x {len(members)}", scored * 1e9 / MILLION / len(members), 2.5, "ns/pair")
    current = place(names, thousand)
    lost = cpu_s(lambda: rebalance(names, thousand[1:], current))
    yield Row("rebalance 1,000,000 on 1,000 after losing one / the reference", lost / reference, 0.5, "x")
    plan = rebalance(names, thousand[1:], current)
    explained = cpu_s(lambda: explain(plan, names[0], thousand[1:], current))
    yield Row("explain one item among 1,000,000", explained * 1000, 100, "ms")
    yield Row(
        "peak memory of place, 1,000,000 x 1,000, over the inputs", peak_mb(_NAMES, "place(names, members)"), 600, "MB"
    )
    setup = _NAMES + "current = place(names, members)"
    peak = peak_mb(setup, "rebalance(names, members[1:], current)")
    yield Row("peak memory of rebalance, 1,000,000 x 1,000, over the inputs", peak, 600, "MB")
    yield from _slopes()


def _slopes() -> Iterator[Row]:
    """Show that the cost grows with the items and not faster: the slope is 1 where it is linear."""
    hundred = members_of(100)
    for what in ("place", "rebalance"):
        costs = []
        for count in (10_000, 100_000, MILLION):
            names = shuffled(count)
            current = place(names, hundred) if what == "rebalance" else {}
            if what == "place":
                cost = cpu_s(partial(place, names, hundred))
            else:
                cost = cpu_s(partial(rebalance, names, hundred[1:], current))
            costs.append(cost)
            yield Row(f"{what} {count:,} on 100 members", cost * 1000, None, "ms")
        yield Row(f"{what}: cost of 1,000,000 / (10 x cost of 100,000)", costs[2] / costs[1] / 10, None, "x")
