"""The brake by itself: who has vanished at once, and when that is too many."""

from __future__ import annotations

from typing import Literal

import pytest

from poise.model.ownership import MemberRow
from poise.observe.brake import is_braked, vanished_at_once

LEASE_S, NOW_S = 10.0, 1000.0


def member(name: str, until_s: float, leaving: Literal["stop", "restart"] | None = None) -> MemberRow:
    return MemberRow(name=name, incarnation=1, lease_until_s=until_s, leaving=leaving)


def vanished(*members: MemberRow, owners: str = "abcde", released_s: float = 0.0) -> list[str]:
    return vanished_at_once(members, set(owners), NOW_S, LEASE_S, released_s)


@pytest.mark.parametrize(
    ("ends", "at_once"),
    [
        ([980.0, 1000.0], ["a", "b"]),
        ([979.9, 1000.0], ["a"]),
        ([950.0, 970.0, 990.0], ["a", "b"]),
        ([950.0, 975.0, 990.0, 995.0], ["b", "c", "d"]),
        ([1000.0, 1000.1], ["a"]),
        ([1000.1, 1010.0], []),
    ],
)
def test_at_once_is_within_two_leases_and_the_lease_has_ended(ends: list[float], at_once: list[str]) -> None:
    assert vanished(*(member(name, end_s) for name, end_s in zip("abcd", ends, strict=False))) == at_once


def test_whoever_said_that_it_leaves_has_not_vanished() -> None:
    assert vanished(member("a", 990.0), member("b", 990.0, "stop"), member("c", 990.0, "restart")) == ["a"]


def test_whoever_owns_nothing_does_not_count() -> None:
    assert vanished(member("a", 990.0), member("b", 990.0), owners="a") == ["a"]


def test_those_that_vanished_before_a_release_do_not_count() -> None:
    assert vanished(member("a", 980.0), member("b", 985.0), member("c", 986.0), released_s=985.0) == ["c"]


@pytest.mark.parametrize(
    ("gone", "owners", "percent", "braked"),
    [(1, 1, 0, False), (2, 4, 50, False), (3, 4, 50, True), (2, 3, 50, True), (2, 2, 100, False), (2, 100, 0, True)],
)
def test_more_than_one_and_more_than_the_share(gone: int, owners: int, percent: int, braked: bool) -> None:
    assert is_braked(gone, owners, percent) is braked
