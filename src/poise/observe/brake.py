"""The brake: when too many members vanish at once, the fault is probably not theirs, and nothing of theirs moves.

A member has vanished when its lease has ended without its saying that it leaves. The brake is a pure function of what
the store knows: it holds as long as the vanished own something, and opens when enough of them return or when somebody
who has looked releases it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from poise.model.ownership import MemberRow

WINDOW_LEASES = 2  # So many leases long is the time within which vanishing counts as at once.


def vanished_at_once(
    members: Iterable[MemberRow], owners: Collection[str], now_s: float, lease_s: float, released_s: float = 0.0
) -> list[str]:
    """Find the most owners that vanished within two leases of each other; those before a release do not count."""
    gone = sorted(
        (member.lease_until_s, member.name)
        for member in members
        if member.name in owners and member.leaving is None and released_s < member.lease_until_s <= now_s
    )
    most: list[tuple[float, str]] = []
    first = 0
    for last, (at_s, _) in enumerate(gone):
        while at_s - gone[first][0] > WINDOW_LEASES * lease_s:
            first += 1
        if last + 1 - first > len(most):
            most = gone[first : last + 1]
    return [name for _, name in most]


def is_braked(vanished: int, owners: int, percent: int) -> bool:
    """Judge: more than one, and more than this share of the members that own something."""
    return vanished > 1 and vanished * 100 > owners * percent
