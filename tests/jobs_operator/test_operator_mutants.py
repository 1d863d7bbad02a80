"""What is broken on purpose is seen by the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.jobs_operator import test_operator_accepting, test_operator_events, test_operator_status

from poise.jobs.sharder import accepting, happenings, status
from poise.kube.objects import Meta

Break = Callable[[pytest.MonkeyPatch], None]


def youngest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        test_operator_accepting, "rightful", lambda claims: max(claims, key=lambda meta: meta.creation_timestamp)
    )


def forgets_acceptance(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_meta: Meta) -> bool:
        return False

    monkeypatch.setattr(accepting, "is_accepted", never)


def overlooks_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_meta: Meta, _home: str) -> str:
        return ""

    monkeypatch.setattr(accepting, "run_elsewhere", nobody)


def choose_what_runs_elsewhere() -> None:
    here = test_operator_accepting.claimed(test_operator_accepting.OLD, "here")
    there = test_operator_accepting.claimed(test_operator_accepting.YOUNG, "there")
    test_operator_accepting.test_a_ring_that_another_installation_runs_has_the_name([here, there], there)


def choose_rightful() -> None:
    old, twin = test_operator_accepting.OLD, test_operator_accepting.accepted(test_operator_accepting.TWIN)
    test_operator_accepting.test_the_ring_that_was_accepted_is_run_else_the_oldest([old, twin], twin)
    young = test_operator_accepting.YOUNG
    test_operator_accepting.test_the_ring_that_was_accepted_is_run_else_the_oldest([old, young], old)


@pytest.mark.parametrize(
    ("breaks", "law"),
    [
        (
            lambda patch: patch.setattr(status, "_STEADY_S", -1.0),
            test_operator_status.test_the_same_facts_later_are_the_same_text,
        ),
        (
            lambda patch: patch.setattr(status, "put_condition", lambda old, new: [*old, new]),
            test_operator_status.test_every_status_keeps_the_rules_of_the_schema_and_is_steady,
        ),
        (
            lambda patch: patch.setattr(status, "clipped", str),
            test_operator_status.test_messages_are_bounded_and_printable,
        ),
        (
            lambda patch: patch.setattr(happenings, "_WRITES_MAX", 1e9),
            test_operator_events.test_an_instance_that_flaps_is_counted_and_seldom_written,
        ),
        (lambda patch: patch.setattr(happenings, "ALONE_MAX", 1_000), test_operator_events.test_many_at_once_are_one),
        (
            lambda patch: patch.setattr(happenings, "_REMEMBERED_MAX", 10_000),
            test_operator_events.test_memory_is_bounded,
        ),
        (youngest_first, choose_rightful),
        (forgets_acceptance, choose_rightful),
        (overlooks_others, choose_what_runs_elsewhere),
        (
            lambda patch: patch.setattr(status, "_STOPPED", ""),
            test_operator_status.test_a_removal_that_the_brake_holds_up_names_it_and_its_annotation,
        ),
    ],
)
def test_a_broken_rule_is_seen(breaks: Break, law: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    law()
    breaks(monkeypatch)
    with pytest.raises((AssertionError, ExceptionGroup)):
        law()
