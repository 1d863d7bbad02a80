"""Drills: seeded worlds of faults in which no law may break, and broken protocols that the drill must find."""

from __future__ import annotations

from importlib import import_module

import msgspec
import pytest

from poise.cli.main import run
from poise.hold.holding import Holding, Order
from poise.model.ownership import Row
from poise.move import executor, handoff
from poise.move.handoff import Event, Expire, Outcome
from poise.sim import drill_world
from poise.sim.drill import drill

Printed = pytest.CaptureFixture[str]


def broken_seeds(seeds: range) -> dict[int, list[str]]:
    return {seed: verdict.broken for seed in seeds if (verdict := drill(seed)).broken}


# A reply that came after its own lease had ended once started work in these worlds.
@pytest.mark.parametrize("seed", [37, 53, 77, 96, 101, 110])
def test_seeds_that_once_failed(seed: int) -> None:
    assert drill(seed).broken == []


def test_no_law_breaks_in_a_few_worlds() -> None:
    assert broken_seeds(range(10)) == {}


@pytest.mark.slow
def test_no_law_breaks_in_100_worlds() -> None:
    assert broken_seeds(range(10, 110)) == {}


def test_the_same_seed_is_the_same_world() -> None:
    assert drill(3) == drill(3)
    assert drill(3).faults != drill(4).faults


def test_a_member_that_does_not_fence_itself_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(holding: Holding, now_s: float) -> tuple[Holding, list[Order]]:
        del now_s
        return holding, []

    monkeypatch.setattr(drill_world, "watch", careless)
    assert any("acted on by" in text for broken in broken_seeds(range(12)).values() for text in broken)


def test_a_leader_that_does_not_wait_for_leases_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = handoff.step

    def hasty(row: Row, event: Event) -> Outcome:
        if isinstance(event, Expire):
            event = msgspec.structs.replace(event, now_s=event.now_s + 60)
        return honest(row, event)

    monkeypatch.setattr(executor, "step", hasty)
    planned = import_module("poise.jobs.coordinator").plan_snapshot

    def impatient(facts: executor.Snapshot) -> object:
        rows = {
            item: msgspec.structs.replace(row, lease_until_s=row.lease_until_s - 9) for item, row in facts.rows.items()
        }
        return planned(msgspec.structs.replace(facts, rows=rows))

    monkeypatch.setattr("poise.jobs.coordinator.plan_snapshot", impatient)
    assert any("acted on by" in text for broken in broken_seeds(range(12)).values() for text in broken)


def test_the_command_says_what_was_tried(capsys: Printed) -> None:
    assert run(["drill", "--seeds", "2", "--minutes", "4"]) == 0
    assert capsys.readouterr().out.startswith("2 worlds of 4 minutes, 8 members, 64 items: ")
    assert run(["drill", "--seed", "5"]) == 0
    assert capsys.readouterr().out.startswith("seed 5, 5 minutes")


def test_a_failing_seed_prints_itself_and_its_story(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    def careless(holding: Holding, now_s: float) -> tuple[Holding, list[Order]]:
        del now_s
        return holding, []

    monkeypatch.setattr(drill_world, "watch", careless)
    assert run(["drill", "--seeds", "12"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("seed ")
    assert any("assigned" in line for line in lines[1:])
