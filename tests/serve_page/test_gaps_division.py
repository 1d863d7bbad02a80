"""What a plan of a division says of the cycles after it: a repair that movesMax cuts short goes on."""

from __future__ import annotations

import re
from fractions import Fraction
from html import unescape

import msgspec
import pytest
from tests.serve_page.picture_looks import NOW, counted_look

from poise.decide.fleet import divide_fleet
from poise.documents import load
from poise.jobs import planning
from poise.jobs.clusters import plan_clusters
from poise.jobs.entries import DivisionEntry
from poise.jobs.planning import plan_document
from poise.jobs.what_if import WhatIf
from poise.model import DivisionRecord, ReplicaDivision
from poise.model.replica_division import ReplicaDivisionStatus
from poise.serve.page.looking import picture, plan_lines

WEIGHTS = {"east": 3, "north": 2, "west": 1}
WISH = WhatIf(weights={"west": 3})


def fleet(moves_max: int, workloads: int = 60) -> str:
    """Write a fleet that was divided by WEIGHTS."""
    asked = {f"app-{number}": 1 + number * 7 % 11 for number in range(workloads)}
    weights = ", ".join(f"{name}: {weight}" for name, weight in WEIGHTS.items())
    divided = "".join(
        f"    {name}: {{replicas: {asked[name]}, strategy: StaticWeight, weights: {{{weights}}}, result: "
        f"{{{', '.join(f'{place}: {count}' for place, count in each.replicas.items())}}}}}\n"
        for name, each in divide_fleet(asked, WEIGHTS).items()
    )
    listed = "".join(f"  - {{name: {name}, replicas: {replicas}}}\n" for name, replicas in asked.items())
    clusters = ", ".join(f"{{name: {name}, weight: {weight}}}" for name, weight in WEIGHTS.items())
    return (
        "apiVersion: poise.dev/v1alpha1\nkind: ReplicaDivision\nmetadata: {name: shop}\nspec:\n"
        f"  movesMax: {moves_max}\n  clusters: [{clusters}]\n  workloads:\n{listed}status:\n  divisions:\n{divided}"
    )


def cycles(text: str) -> list[tuple[int, Fraction]]:
    """Apply the weight, and carry out one cycle after the other: how many replicas moved, and the error after it."""
    document = load(text.replace("{name: west, weight: 1}", "{name: west, weight: 3}"), "test")[0]
    assert isinstance(document, ReplicaDivision)
    found: list[tuple[int, Fraction]] = []
    for _ in range(20):
        planned = plan_document(document, NOW)
        assert isinstance(planned.entry, DivisionEntry)
        moved = sum(each.moved for each in planned.entry.divisions.values())
        if not moved:
            return found
        found.append(
            (moved, max(abs(total.replicas - Fraction(total.exact)) for total in planned.entry.totals.values()))
        )
        done = {
            name: DivisionRecord(1, {}, "StaticWeight", dict(each.replicas))
            for name, each in planned.entry.divisions.items()
        }
        document = msgspec.structs.replace(document, status=ReplicaDivisionStatus(done))
    raise AssertionError("it does not settle")


def later_faults(moves_max: int) -> list[str]:
    """Compare what the what-if says of later cycles with what they do."""
    text = fleet(moves_max)
    (_, first_error), *others = cycles(text)
    told = plan_lines(counted_look(text, what_if=WISH))
    found = re.search(
        r"Then a repair of (\d+) moves? brings .* from ([\d /]+) to ([\d /]+) in the next", told.certificate
    )
    if not others:
        return [told.certificate] if found or not told.proven else []
    if found is None or told.proven:
        return [f"{told.certificate} says nothing of {others}"]
    said = (int(found[1]), sum(map(Fraction, found[2].split())), sum(map(Fraction, found[3].split())))
    truth = (sum(moved for moved, _ in others), first_error, others[-1][1])
    return [] if said == truth else [f"said {said}, done {truth}"]


@pytest.mark.parametrize("moves_max", [6, 8, 10, 1_000])
def test_a_what_if_says_what_the_cycles_after_it_do(moves_max: int) -> None:
    assert later_faults(moves_max) == []


def test_there_are_later_cycles_to_be_told_of() -> None:
    assert len(cycles(fleet(8))) > 1
    assert len(cycles(fleet(1_000))) == 1


def test_a_plan_that_forgets_later_cycles_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_plan_cycles", plan_clusters)
    assert later_faults(8) != []


def test_the_picture_says_it_too_and_no_note_says_it_again() -> None:
    seen = counted_look(fleet(8), what_if=WISH)
    markup = unescape(str(picture(seen)))
    assert "; so it is after the first cycle." in markup
    assert "Then a repair of" in markup
    assert plan_lines(seen).notes == []
    settled = unescape(str(picture(counted_look(fleet(1_000), what_if=WISH))))
    assert "after the first cycle" not in settled


def test_without_moves_max_it_only_would() -> None:
    told = plan_lines(counted_look(fleet(0), what_if=WISH))
    assert any("would bring the largest error" in note for note in told.notes)
    assert "Then a repair" not in told.certificate
