"""Consistent hashing with virtual nodes: a key belongs to the next token clockwise.

Law: a member that joins takes keys only to itself, one that leaves gives away only its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from poise.decide.arrays import np
from poise.decide.plan import Plan, held_now, plan_towards
from poise.decide.scores import hashes
from poise.inputs import sorted_names, text_names, unique_names, whole


class Ring:
    """Tokens xxh3_64("<member>#<i>") on a circle of 2^64; equal tokens go to the bytewise smaller name."""

    def __init__(self, members: Iterable[str] | Mapping[str, int], tokens: int = 100) -> None:
        """Lay out the tokens: the same number for every member, or each member's own where a mapping is given."""
        self.tokens = token_counts(members, tokens)
        # The separator matters: without it "foo-1" + "10" and "foo-11" + "0" would be the same text.
        labels = [f"{member}#{index}" for member, count in self.tokens.items() for index in range(count)]
        laid = hashes(labels)
        order = np.argsort(laid, kind="stable")
        self._laid = laid[order]
        holders = [member for member, count in self.tokens.items() for _ in range(count)]
        self._owners = [holders[place] for place in order.tolist()]

    def owner(self, key: str) -> str | None:
        """Find the member of one key; None where the ring is empty."""
        return self.owners([key])[0]

    def owners(self, keys: Iterable[str]) -> list[str | None]:
        """Find the member of every key, in the order of the keys."""
        listed = text_names("$.keys", keys)
        if not self._owners:
            return [None] * len(listed)
        places = np.searchsorted(self._laid, hashes(listed)) % len(self._laid)
        return [self._owners[place] for place in places.tolist()]

    def distance(self, key: str, member: str) -> int:
        """Measure how far clockwise the member's next token is; the member must have one."""
        at = int(hashes([key])[0])
        return min(
            (
                (int(token) - at) % 2**64
                for token, owner in zip(self._laid, self._owners, strict=True)
                if owner == member
            )
        )

    def successors(self, key: str) -> list[str]:
        """List the members in the order in which they would take over the key, its owner first."""
        start = int(np.searchsorted(self._laid, hashes([key])[0])) if self._owners else 0
        return list(dict.fromkeys(self._owners[start:] + self._owners[:start]))


def token_counts(members: Iterable[str] | Mapping[str, int], tokens: int) -> dict[str, int]:
    """Say how many tokens each member has, in bytewise order of the names."""
    own = members if isinstance(members, Mapping) else {}
    each = whole("$.tokens", tokens)
    return {
        member: whole(f"$.members[{member!r}]", own[member]) if own else each
        for member in sorted_names("$.members", members)
    }


def plan_ring(
    items: Iterable[str],
    members: Iterable[str] | Mapping[str, int],
    current: Mapping[str, str | None],
    *,
    tokens: int = 100,
    draining: Iterable[str] = (),
) -> Plan:
    """Plan every key to its ring owner; the fewest moves are the keys whose next token is not their holder's."""
    leaving = set(unique_names("$.draining", draining))
    every = token_counts(members, tokens)
    ring = Ring({member: count for member, count in every.items() if member not in leaving})
    held = held_now(items, current)
    wanted = dict(zip(held, ring.owners(held), strict=True))
    moves_min = sum(holder is not None and holder != wanted[item] for item, holder in held.items())
    return plan_towards(wanted, held, list(ring.tokens), leaving, moves_min, "the ring gives it to {target}")
