"""The lease table: what an observer concludes, by its own clock."""

from __future__ import annotations

import pytest

from poise.observe.leases import Health, SeenLease, health, next_change_s

SEEN = SeenLease(seen_at_s=100.0, duration_s=15.0)
VANISHED = SeenLease(100.0, 15.0, vanished=True)
ACQUIRED = SeenLease(100.0, 15.0, acquired=True)


@pytest.mark.parametrize(
    ("lease", "after_s", "expected", "next_s"),
    [
        pytest.param(SEEN, 0.0, Health.READY, 15.0, id="ready: renewed within D"),
        pytest.param(SEEN, 14.999, Health.READY, 15.0, id="ready to the end of D"),
        pytest.param(SEEN, 15.0, Health.EXPIRED, 30.0, id="expired: not renewed for D"),
        pytest.param(SEEN, 29.999, Health.EXPIRED, 30.0, id="expired until 2·D"),
        pytest.param(SEEN, 30.0, Health.UNCERTAIN, None, id="uncertain: not renewed for 2·D"),
        pytest.param(SEEN, 1000.0, Health.UNCERTAIN, None, id="uncertain until it is acquired, however long"),
        pytest.param(VANISHED, 0.0, Health.EXPIRED, 30.0, id="expired: the lease has vanished"),
        pytest.param(VANISHED, 29.999, Health.EXPIRED, 30.0, id="a vanished lease waits for 2·D, too"),
        pytest.param(VANISHED, 30.0, Health.UNCERTAIN, None, id="a vanished lease is uncertain after 2·D"),
        pytest.param(ACQUIRED, 30.0, Health.DEAD, 150.0, id="dead: this observer holds it"),
        pytest.param(ACQUIRED, 149.999, Health.DEAD, 150.0, id="dead until 10·D"),
        pytest.param(ACQUIRED, 150.0, Health.ORPHANED, None, id="orphaned: 10·D past its last renewal"),
    ],
)
def test_the_lease_table(lease: SeenLease, after_s: float, expected: Health, next_s: float | None) -> None:
    now_s = lease.seen_at_s + after_s
    assert health(lease, now_s) is expected
    assert next_change_s(lease, now_s) == (None if next_s is None else lease.seen_at_s + next_s)


def test_a_released_lease_that_was_acquired_is_dead_at_once() -> None:
    assert health(ACQUIRED, 100.0) is Health.DEAD


def test_nothing_is_dead_or_orphaned_that_was_not_acquired() -> None:
    for lease in (SEEN, VANISHED):
        judged = {health(lease, 100.0 + seconds) for seconds in range(1000)}
        assert judged.isdisjoint({Health.DEAD, Health.ORPHANED})


@pytest.mark.parametrize("lease", [SEEN, VANISHED, ACQUIRED])
def test_the_judgement_changes_exactly_at_the_next_change(lease: SeenLease) -> None:
    now_s = lease.seen_at_s
    while (change_s := next_change_s(lease, now_s)) is not None:
        assert health(lease, change_s - 0.001) is health(lease, now_s)
        assert health(lease, change_s) is not health(lease, now_s)
        now_s = change_s
