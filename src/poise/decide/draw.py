"""Chance that can be repeated: every draw follows from a seed, in whole numbers only, so that chances are exact.

Word k of a stream is xxh3_64(purpose ":" seed, then k as 8 little-endian bytes). Other purposes are other streams, so
that what a workload drew first says nothing about what it draws later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import count
from math import gcd

import xxhash

from poise.decide.shares import fair_shares


def words(purpose: str, seed: str) -> Iterator[int]:
    """Yield 64-bit words without end, always the same ones for the same purpose and seed."""
    text = f"{purpose}:{seed}".encode()
    for counter in count():
        yield xxhash.xxh3_64_intdigest(text + counter.to_bytes(8, "little"))


def below(stream: Iterator[int], bound: int) -> int:
    """Draw one of 0 … bound - 1, each with exactly the same chance: what would favour the small ones is drawn again."""
    size = (bound.bit_length() + 63) // 64
    limit = (1 << 64 * size) // bound * bound
    while True:
        value = next(stream)
        for _ in range(size - 1):
            value = value << 64 | next(stream)
        if value < limit:
            return value % bound


def shuffled(stream: Iterator[int], size: int) -> list[int]:
    """Put 0 … size - 1 in an order that is drawn, each of the orders with the same chance."""
    order = list(range(size))
    for last in range(size - 1, 0, -1):
        other = below(stream, last + 1)
        order[last], order[other] = order[other], order[last]
    return order


def systematic(stream: Iterator[int], chances: Sequence[int], unit: int) -> list[int]:
    """Take position i with chance exactly chances[i] / unit, and always sum(chances) / unit positions together.

    The chances lie side by side on a line, in a drawn order; every point u, u + unit, u + 2·unit, … takes the one it
    falls on. The sum of the chances must be a multiple of the unit, and no chance may exceed it.
    """
    common = gcd(unit, *chances)
    unit //= common
    order = shuffled(stream, len(chances))
    point, reached, taken = below(stream, unit), 0, []
    for position in order:
        reached += chances[position] // common
        if reached > point:
            taken.append(position)
            point += unit
    return sorted(taken)


def weighted(stream: Iterator[int], weights: Sequence[int], takes: int) -> list[int]:
    """Take positions one by one without replacement, each time with chances by weight; listed in the order taken."""
    common = gcd(*weights) or 1
    left = [weight // common for weight in weights]
    total, sums = sum(left), _partial_sums(left)
    taken = []
    for _ in range(takes):
        position = _find(sums, below(stream, total))
        taken.append(position)
        total -= left[position]
        _subtract(sums, position, left[position])
    return taken


def _partial_sums(values: Sequence[int]) -> list[int]:
    """Build a tree of partial sums: a take then costs the logarithm of the positions, not their number."""
    sums = [0, *values]
    for node in range(1, len(sums)):
        parent = node + (node & -node)
        if parent < len(sums):
            sums[parent] += sums[node]
    return sums


def _find(sums: list[int], point: int) -> int:
    """Find the position on which the point falls when the values lie side by side."""
    node, step = 0, 1 << len(sums).bit_length()
    while step:
        if node + step < len(sums) and sums[node + step] <= point:
            node += step
            point -= sums[node]
        step >>= 1
    return node


def _subtract(sums: list[int], position: int, value: int) -> None:
    node = position + 1
    while node < len(sums):
        sums[node] -= value
        node += node & -node


def highest(stream: Iterator[int], scores: Sequence[int], takes: int) -> list[int]:
    """Take the positions with the highest scores; those that tie for the last places are drawn."""
    edge = sorted(scores, reverse=True)[takes - 1]
    taken = [position for position, score in enumerate(scores) if score > edge]
    tied = [position for position, score in enumerate(scores) if score == edge]
    missing = takes - len(taken)
    if missing < len(tied):
        tied = [tied[place] for place in shuffled(stream, len(tied))[:missing]]
    return sorted(taken + tied)


def tilted(
    fractions: Sequence[int], unit: int, capacities: Sequence[int | None], mix: Fraction
) -> tuple[list[int], int]:
    """Tilt the chances towards capacity: (1 - mix)·fraction + mix·p, and give them with their new unit.

    p = R·capacity share, capped at 1, the excess spread over the others by capacity. Where a capacity is not known the
    fraction stays, and R counts the fractions of the others only.
    """
    known = [position for position, capacity in enumerate(capacities) if capacity is not None]
    if not mix or not known:
        return list(fractions), unit
    sizes = [capacity for capacity in capacities if capacity is not None]
    shares = fair_shares(sum(fractions[i] for i in known), sizes, [0] * len(known), [unit] * len(known))
    chances = [fraction * shares.denominator * mix.denominator for fraction in fractions]
    for position, p in zip(known, shares.numerators, strict=True):
        kept = fractions[position] * shares.denominator * (mix.denominator - mix.numerator)
        chances[position] = kept + p * mix.numerator
    return chances, unit * shares.denominator * mix.denominator
