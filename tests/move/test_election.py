"""Who leads: one at a time, with a term that grows at every election."""

from __future__ import annotations

import pytest

from poise.model.ownership import LeaderRow
from poise.move.election import elect, resign

NOBODY = LeaderRow(term=3)
X = LeaderRow(term=4, holder="x", lease_until_s=10.0)


@pytest.mark.parametrize(
    ("leader", "who", "now_s", "elected"),
    [
        pytest.param(LeaderRow(), "x", 0.0, LeaderRow(term=1, holder="x", lease_until_s=5.0), id="the first one"),
        pytest.param(NOBODY, "y", 7.0, LeaderRow(term=4, holder="y", lease_until_s=12.0), id="nobody leads"),
        pytest.param(X, "x", 9.0, LeaderRow(term=4, holder="x", lease_until_s=14.0), id="the leader renews its term"),
        pytest.param(X, "y", 9.999, None, id="another one leads"),
        pytest.param(X, "y", 10.0, LeaderRow(term=5, holder="y", lease_until_s=15.0), id="its lease has ended"),
        pytest.param(X, "x", 10.0, LeaderRow(term=5, holder="x", lease_until_s=15.0), id="too late for its own term"),
    ],
)
def test_an_election(leader: LeaderRow, who: str, now_s: float, elected: LeaderRow | None) -> None:
    assert elect(leader, who, now_s, 5.0) == elected


def test_resigning_frees_the_lead_at_once_and_keeps_the_term() -> None:
    free = resign(X, "x")
    assert free == LeaderRow(term=4, holder="", lease_until_s=0.0)
    assert elect(free, "y", 1.0, 5.0) == LeaderRow(term=5, holder="y", lease_until_s=6.0)


def test_only_the_leader_can_resign() -> None:
    assert resign(X, "y") is None
