"""Drills: seeded worlds of faults in which no law may break."""

from __future__ import annotations

import pytest

from poise.cli.main import run
from poise.hold.holding import Holding, Order
from poise.sim import drill_faults, drill_world
from poise.sim.drill import drill
from poise.sim.drill_values import MARGIN_S, RATE_ERROR, STEP_S, STOP_S, TERMS

Printed = pytest.CaptureFixture[str]


def broken_seeds(seeds: range) -> dict[int, list[str]]:
    return {seed: verdict.broken for seed in seeds if (verdict := drill(seed)).broken}


def test_no_law_breaks_in_a_few_worlds() -> None:
    assert broken_seeds(range(4)) == {}


@pytest.mark.slow
def test_no_law_breaks_in_500_worlds() -> None:
    assert broken_seeds(range(500)) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("members", "items"), [(1, 5), (3, 10), (5, 3), (20, 67)])
def test_no_law_breaks_in_worlds_of_other_sizes(members: int, items: int) -> None:
    assert [text for seed in range(8) for text in drill(seed, members=members, items=items).broken] == []


def test_the_same_seed_is_the_same_world() -> None:
    assert drill(3, minutes=3) == drill(3, minutes=3)
    assert drill(3, minutes=3).faults != drill(4, minutes=3).faults


def test_the_settings_keep_the_inequality_of_the_protocol_and_leave_little_of_it() -> None:
    used_s = (TERMS.lease_s - MARGIN_S) * (1 + RATE_ERROR) + STOP_S + STEP_S
    assert TERMS.lease_s + TERMS.grace_s - 0.5 < used_s <= TERMS.lease_s + TERMS.grace_s


def test_every_kind_of_fault_happens() -> None:
    seen = {verb for seed in range(3) for verb in drill(seed).faults}
    assert seen == set(drill_faults.FAULTS)


def test_a_jump_of_a_wall_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    jumped = drill(2)
    assert jumped.faults["wall clock jump"]
    monkeypatch.setattr(drill_faults, "_DAY_S", 0.0)
    assert drill(2) == jumped


def test_the_command_says_what_was_tried(capsys: Printed) -> None:
    assert run(["drill", "--seeds", "2", "--minutes", "3"]) == 0
    assert capsys.readouterr().out.startswith("2 worlds of 3 minutes, 8 members, 64 items: ")
    assert run(["drill", "--seed", "5", "--minutes", "3"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("seed 5, 3 minutes")
    assert printed.err == ""


def test_a_long_run_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setattr("poise.cli.drill.PATIENCE_S", 0.0)
    assert run(["drill", "--seeds", "3", "--minutes", "3"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("3 worlds")
    assert printed.err.splitlines()[-1] == "drill: 3 of 3 worlds, no law broken"


def test_a_failing_seed_prints_itself_and_its_story(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    def careless(holding: Holding, now_s: float) -> tuple[Holding, list[Order]]:
        del now_s
        return holding, []

    monkeypatch.setattr(drill_world, "watch", careless)
    assert run(["drill", "--seeds", "12"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("seed ")
    assert any("assigned" in line for line in lines[1:-1])
    assert lines[-1].startswith("Again: poise drill --seed ")


def test_the_help_teaches(capsys: Printed) -> None:
    assert run(["drill", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for word in (
        "crash",
        "freeze",
        "refuses",
        "jump",
        "two owners",
        "epochs",
        "budgets",
        "fewest",
        "exit 1",
        "--seed 37",
    ):
        assert word in text
