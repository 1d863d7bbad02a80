"""The 64-bit score: pinned vectors, one formula in every shape, and a mixing that a chi-square test can judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import sqrt

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.decide import scores
from poise.decide.rendezvous import place
from poise.decide.scores import Hashes, best_hashes, hashes, score, scores_on

ROUTERS = [f"default/router{index}" for index in range(20_000)]
WORDS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), min_size=1, max_size=30)
FEW, BLOCK = scores._FEW, scores._BLOCK


@pytest.mark.parametrize(
    ("item", "member", "expected"),
    [
        pytest.param("router1", "pod-0", 0xABDEF10CB2740B66, id="router1 on pod-0"),
        pytest.param("default/router17", "gnmic-2", 0xDED9C21EDE2D2999, id="default/router17 on gnmic-2"),
    ],
)
def test_the_pinned_vectors(item: str, member: str, expected: int) -> None:
    assert score(item, member) == expected
    assert scores_on(hashes([item]), hashes([member])[0]).tolist() == [expected]


@pytest.mark.parametrize(("item", "member"), [("routeur-é", "pod-0"), ("路由器", "узел"), ("😀", "a"), ("", "pod-0")])
def test_the_formula_over_utf_8_bytes(item: str, member: str) -> None:
    x = xxhash.xxh3_64_intdigest(item.encode("utf-8")) ^ xxhash.xxh3_64_intdigest(member.encode("utf-8"))
    x = x * 0x9E3779B97F4A7C15 % 2**64
    x = x ^ (x >> 32)
    assert score(item, member) == x * 0xD6E8FEB86659FD93 % 2**64


@given(items=WORDS, members=WORDS)
@settings(max_examples=examples(60), deadline=None)
def test_vectorised_scores_are_the_scores_one_by_one(items: list[str], members: list[str]) -> None:
    hashed = hashes(items)
    for member, door in zip(members, hashes(members), strict=True):
        assert scores_on(hashed, door).tolist() == [score(item, member) for item in items]


def test_scoring_leaves_the_hashes_as_they_were() -> None:
    """The hot loop works in place on its own copies: an overwritten hash would spoil the next round."""
    items, members = hashes(ROUTERS[:100]), hashes(["a", "b"])
    before = items.copy(), members.copy()
    scores_on(items, members[0])
    best_hashes(items, members)
    best_hashes(np.tile(items, 30), members)
    assert (items == before[0]).all()
    assert (members == before[1]).all()


@pytest.mark.parametrize(
    ("item_count", "member_count"),
    [
        pytest.param(1, 1, id="one on one"),
        pytest.param(500, 3, id="few on three"),
        pytest.param(300, 200, id="few, in several steps"),
        pytest.param(3, BLOCK + 5, id="few on more members than a block holds"),
        pytest.param(FEW - 1, 9, id="the most that are few"),
        pytest.param(FEW, 9, id="the least that are many"),
        pytest.param(BLOCK, 2, id="exactly one block"),
        pytest.param(BLOCK + 1, 4, id="one more than a block"),
        pytest.param(2 * BLOCK + 77, 3, id="several blocks"),
    ],
)
def test_best_hashes_finds_the_highest_score_again(item_count: int, member_count: int) -> None:
    items = hashes([f"default/router{index}" for index in range(item_count)])
    members = hashes([f"gnmic-{index}" for index in range(member_count)])
    highest = np.zeros(item_count, np.uint64)
    winner = np.zeros(item_count, np.uint64)
    for member in members:
        scored = scores_on(items, member)
        winner[scored > highest] = member
        highest = np.maximum(highest, scored)
    assert (best_hashes(items, members) == winner).all()


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
@settings(max_examples=examples(100), deadline=None)
def test_unmix_undoes_mix(values: list[int]) -> None:
    wanted = np.array([0, 1, 2**32, 2**63, 2**64 - 1, *values], np.uint64)
    mixed: Hashes = wanted.copy()
    scores._mix(mixed, np.empty_like(mixed))
    assert (scores._unmix(mixed) == wanted).all()


def chi_square(counts: Sequence[int]) -> float:
    """Measure how far counts are from even: the sum of (count - mean)² / mean."""
    mean = sum(counts) / len(counts)
    return sum((count - mean) ** 2 / mean for count in counts)


def passes(counts: Sequence[int]) -> bool:
    """Compare with a generous quantile: mean of the distribution plus four standard deviations."""
    freedom = len(counts) - 1
    return chi_square(counts) <= freedom + 4 * sqrt(2 * freedom)


@pytest.mark.parametrize("names", ["gnmic-{}", "pod-{}", "default/collector{}"])
@pytest.mark.parametrize("member_count", [3, 7, 50, 200])
def test_first_choices_pass_a_chi_square_test(member_count: int, names: str) -> None:
    members = [names.format(index) for index in range(member_count)]
    chosen = Counter(place(ROUTERS, members, capacity=len(ROUTERS)).values())
    assert passes([chosen[member] for member in members])


def test_the_order_of_second_choices_is_even_too() -> None:
    """Whoever is best says nothing about who comes next: each of the six orders of three members is as frequent."""
    members = ["gnmic-0", "gnmic-1", "gnmic-2"]
    table = np.stack([scores_on(hashes(ROUTERS), door) for door in hashes(members)])
    orders = Counter(map(tuple, np.argsort(table, axis=0).T.tolist()))
    assert len(orders) == 6
    assert passes(list(orders.values()))


def fnv_1a(text: bytes, start: int = 0xCBF29CE484222325) -> int:
    for byte in text:
        start = (start ^ byte) * 0x100000001B3 % 2**64
    return start


def fnv_first_choices(names: Iterable[str], member_count: int) -> list[int]:
    """Count who wins by FNV-1a over `name:index`."""
    counts, tails = [0] * member_count, [f":{index}".encode() for index in range(member_count)]
    for name in names:
        begun = fnv_1a(name.encode())
        scored = [fnv_1a(tail, begun) for tail in tails]
        counts[scored.index(max(scored))] += 1
    return counts


@pytest.mark.parametrize("member_count", [3, 7, 50])
def test_fnv_over_name_and_index_fails_the_same_test(member_count: int) -> None:
    """The test above can fail, and this is the score that it is there to refuse."""
    assert not passes(fnv_first_choices(ROUTERS[:2_000], member_count))


def test_how_badly_fnv_splits() -> None:
    of_three = [count / 2_000 for count in fnv_first_choices(ROUTERS[:2_000], 3)]
    assert of_three == pytest.approx([0.25, 0.25, 0.5], abs=0.02)
    assert max(fnv_first_choices(ROUTERS[:2_000], 50)) > 5.5 * 2_000 / 50
