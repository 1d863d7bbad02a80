"""Who plans: a term that grows with every election, checked by every write of a leader."""

from __future__ import annotations

import msgspec

from poise.model.ownership import LeaderRow


def elect(leader: LeaderRow, who: str, now_s: float, lease_s: float) -> LeaderRow | None:
    """Renew the own term, or take the next one once the holder's lease is over; None where another one leads."""
    if leader.holder == who and now_s < leader.lease_until_s:
        return msgspec.structs.replace(leader, lease_until_s=now_s + lease_s)
    if leader.holder and now_s < leader.lease_until_s:
        return None
    return LeaderRow(term=leader.term + 1, holder=who, lease_until_s=now_s + lease_s)


def resign(leader: LeaderRow, who: str) -> LeaderRow | None:
    """Give the lead up at once; None where it was not held."""
    return msgspec.structs.replace(leader, holder="", lease_until_s=0.0) if leader.holder == who else None
