"""The tests of the gate can fail: each finds its law broken on purpose."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.hold import test_kopf_gate as laws

from poise.hold import kopf_gate
from poise.hold.kopf_inside import Call
from poise.hold.kopf_stays import Job, Stay


async def _let_run(_tasks: object) -> None:
    """See nothing end."""


def _take_any(stay: Stay, _epoch: int) -> Job | None:
    job, stay.job = stay.job, None
    return job


def _show_all(call: Call) -> Call:
    return call


@pytest.mark.parametrize(
    ("place", "name", "broken", "law"),
    [
        (Stay, "take", _take_any, laws.test_an_event_of_an_earlier_owner_is_dropped_and_a_later_one_waits),
        (
            Stay,
            "put_back",
            lambda _stay, _job: None,
            laws.test_a_request_cuts_pauses_short_and_its_event_is_processed_again_if_the_request_is_gone,
        ),
        (
            Stay,
            "consistency_s",
            lambda _stay, _call: None,
            laws.test_a_request_cuts_pauses_short_and_its_event_is_processed_again_if_the_request_is_gone,
        ),
        (
            Job,
            "under_pressure",
            lambda job: job.call,
            laws.test_a_newer_event_cuts_the_pause_short_of_one_that_kopf_does_not_wait_for,
        ),
        (kopf_gate, "end_all", _let_run, laws.test_a_cancelled_run_ends_only_when_the_handler_has),
        (kopf_gate, "without_ring_labels", _show_all, laws.test_labels_of_rings_are_hidden_and_others_are_not),
    ],
    ids=["stale events", "no second try", "own writes forgotten", "one signal for all", "nothing is ended", "labels"],
)
def test_a_broken_law_is_found(
    monkeypatch: pytest.MonkeyPatch, place: object, name: str, broken: object, law: Callable[[], None]
) -> None:
    monkeypatch.setattr(place, name, broken)
    monkeypatch.setattr(laws, "PATIENCE_S", 0.5)
    with pytest.raises((AssertionError, TimeoutError)):
        law()
