"""What a member says of its own weight ends no job loop, however large it is."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from tests.jobs.test_rings import RingWorld

from poise.decide import homes
from poise.decide.ring import plan_ring
from poise.documents import load
from poise.jobs import snapshots
from poise.jobs.live import with_status
from poise.jobs.snapshots import TOKENS_MAX, plan_snapshot
from poise.model import ShardRing
from poise.move.executor import Snapshot

HEAVIEST = 1_000_000  # The largest weight that a heartbeat may say.


def said(weight: int) -> Snapshot:
    """Let one of two members say a weight."""
    world = RingWorld("web-0", "web-1")
    world.settle(3)
    facts = world.facts()
    heavy = msgspec.structs.replace(facts.members["web-1"], weight=weight)
    return msgspec.structs.replace(facts, members={**facts.members, "web-1": heavy})


def laid_out(facts: Snapshot, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Plan, and say how many tokens each member had; nothing is laid out here, as it may be too much."""
    found: dict[str, int] = {}

    def spy(_keys: object, counts: dict[str, int], *_: object, **__: object) -> object:
        found.update(counts)
        return plan_ring({}, ["web-0"], {})

    monkeypatch.setattr(homes, "plan_ring", spy)
    plan_snapshot(facts)
    return found


@pytest.mark.parametrize(("weight", "tokens"), [(1, 100), (3, 300), (1_000, TOKENS_MAX), (HEAVIEST, TOKENS_MAX)])
def test_a_weight_is_tokens_up_to_a_bound(weight: int, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert laid_out(said(weight), monkeypatch) == {"web-0": 100, "web-1": tokens}


def test_the_heaviest_member_is_planned_like_any_other() -> None:
    plan = plan_snapshot(said(HEAVIEST))
    assert set(plan.assignment.values()) <= {"web-0", "web-1"}


def test_people_are_shown_the_tokens_that_are_planned_with() -> None:
    [written] = load("kind: ShardRing\nmetadata: {name: orders}\nspec: {objects: [a]}", "written")
    shown = with_status(written, said(HEAVIEST), datetime(2026, 1, 1, tzinfo=UTC))
    assert isinstance(shown, ShardRing)
    assert [each.tokens for each in shown.status.instances] == [100, TOKENS_MAX]


def test_mutant_without_a_bound_lays_out_whatever_a_member_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "TOKENS_MAX", 2**62)
    assert laid_out(said(HEAVIEST), monkeypatch)["web-1"] == 100 * HEAVIEST
