"""The 64-bit score of (item, member): a wire contract, pinned by vectors, that every process computes alike.

x = xxh3_64(item) xor xxh3_64(member); x = x·A; x = x xor (x >> 32); x = x·B, all modulo 2^64. The higher is preferred.

Every step can be inverted. So the largest score of an item also says which member has it, and no index is carried
through the hot loop: six passes of numpy over a block that stays in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import xxhash

from poise.decide.arrays import np
from poise.inputs import text

if TYPE_CHECKING:
    import numpy.typing as npt

Hashes: TypeAlias = "npt.NDArray[np.uint64]"

_A, _B = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
_MASK = 2**64 - 1
_A_INVERSE, _B_INVERSE = pow(_A, -1, 2**64), pow(_B, -1, 2**64)
_BLOCK = 32_768  # Three blocks of this length stay in a second-level cache; shorter ones pay more calls.
_FEW = 2_048


def score(item: str, member: str) -> int:
    """Score one pair, by the formula above; a seed may be empty text."""
    text("$.item", item)
    text("$.member", member)
    x = (xxhash.xxh3_64_intdigest(item.encode()) ^ xxhash.xxh3_64_intdigest(member.encode())) * _A & _MASK
    return (x ^ x >> 32) * _B & _MASK


def hashes(names: Sequence[str]) -> Hashes:
    """Hash every name once."""
    return np.fromiter(map(xxhash.xxh3_64_intdigest, map(str.encode, names)), np.uint64, len(names))


def scores_on(items: Hashes, member: np.uint64) -> Hashes:
    """Score many hashed items on one hashed member."""
    mixed = items ^ member
    _mix(mixed, np.empty_like(mixed))
    return mixed


def best_hashes(items: Hashes, members: Hashes) -> Hashes:
    """Find, for every hashed item, the hash of the member with the highest score; there must be a member."""
    if len(items) < _FEW:
        return _best_of_few(items, members)
    best = np.zeros_like(items)
    mixed, half = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64)
    for start in range(0, len(items), _BLOCK):
        block, highest = items[start : start + _BLOCK], best[start : start + _BLOCK]
        size = len(block)
        for member in members:
            np.bitwise_xor(block, member, out=mixed[:size])
            _mix(mixed[:size], half[:size])
            np.maximum(highest, mixed[:size], out=highest)
    return _unmix(best) ^ items


def _best_of_few(items: Hashes, members: Hashes) -> Hashes:
    """Score few items on all members at once: a call for every member would cost more than the scores."""
    best = np.empty_like(items)
    step = max(1, _BLOCK // len(members))
    for start in range(0, len(items), step):
        mixed = members[:, np.newaxis] ^ items[start : start + step]
        _mix(mixed, np.empty_like(mixed))
        mixed.max(axis=0, out=best[start : start + step])
    return _unmix(best) ^ items


def _mix(x: Hashes, half: Hashes) -> None:
    np.multiply(x, np.uint64(_A), out=x)
    np.right_shift(x, np.uint64(32), out=half)
    np.bitwise_xor(x, half, out=x)
    np.multiply(x, np.uint64(_B), out=x)


def _unmix(x: Hashes) -> Hashes:
    x = x * np.uint64(_B_INVERSE)
    return (x ^ x >> np.uint64(32)) * np.uint64(_A_INVERSE)
