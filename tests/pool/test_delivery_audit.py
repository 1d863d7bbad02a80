"""The auditor finds what is wrong in logs that were made by hand, and nothing where nothing is."""

from __future__ import annotations

import pytest
from tests.pool.delivery_audit import Event, Silence, audit

WANTED = Event(0.0, "", "wanted", "r1")
SOUND = [
    WANTED,
    Event(0.0, "a", "begin", ""),
    Event(1.0, "a", "start", "r1"),
    Event(5.0, "a", "stop", "r1"),
    Event(5.5, "b", "start", "r1"),
]


def test_a_sound_log_has_no_faults() -> None:
    assert audit(SOUND, [], 10.0, 2.0) == []


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ([*SOUND, Event(5.6, "a", "start", "r1")], "r1 on b and a"),
        ([event for event in SOUND if event.event != "stop"], "r1 on a and b"),
        ([event for event in SOUND if event.pod != "b"], "r1 from 5.000 uncollected for 5.000 s"),
        ([*SOUND, Event(6.0, "b", "killed", "")], "r1 from 6.000 uncollected for 4.000 s"),
        ([*SOUND, Event(6.0, "b", "begin", "")], "r1 from 6.000 uncollected for 4.000 s"),
        ([*SOUND, Event(2.0, "", "wanted", "r2")], "r2 from 2.000 uncollected for 8.000 s"),
    ],
    ids=["two pods", "never stopped", "never given", "killed", "restarted empty", "never collected"],
)
def test_a_broken_log_is_found(broken: list[Event], told: str) -> None:
    found = audit(sorted(broken), [], 10.0, 2.0)
    assert len(found) == 1
    assert told in found[0]


def test_silence_excuses_only_its_own_pod_and_time() -> None:
    doubled = sorted([event for event in SOUND if event.event != "stop"] + [Event(7.0, "a", "stop", "r1")])
    assert audit(doubled, [Silence("a", 5.0, 8.0)], 10.0, 2.0) == []
    assert audit(doubled, [Silence("a", 6.0, 8.0)], 10.0, 2.0)
    assert audit(doubled, [Silence("a", 5.0, 6.5)], 10.0, 2.0)
    assert audit(doubled, [Silence("c", 5.0, 8.0)], 10.0, 2.0)


def test_what_is_no_longer_wanted_may_be_uncollected() -> None:
    gone = [*SOUND, Event(6.0, "", "unwanted", "r1"), Event(6.1, "b", "stop", "r1")]
    assert audit(sorted(gone), [], 100.0, 2.0) == []
