"""Pictures of what is only counted: clusters against their exact share, and sides against what is wanted."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from html import unescape

import pytest
from tests.serve_page.drawn import cells, classed, forms, shown, text_of
from tests.serve_page.picture_looks import NOW, counted_look

from poise.decide.fleet import divide_fleet
from poise.jobs.what_if import WhatIf
from poise.serve.page.looking import Look, picture
from poise.serve.page.pictures import of_shares, of_split, shares, split
from poise.serve.page.pictures.of_shares import shares_of
from poise.serve.page.pictures.of_split import splits_of
from poise.serve.page.pictures.share_values import mixed

WEIGHTS = {"east": 3, "north": 2, "west": 1}


def division(workloads: int = 12, *, unknown: int = 0, what_if: WhatIf | None = None) -> Look:
    """Look at a division; the last `unknown` workloads were never divided."""
    asked = {f"app-{number}": 1 + number * 7 % 11 for number in range(workloads)}
    known = dict(list(asked.items())[: workloads - unknown])
    results = divide_fleet(known, WEIGHTS)
    weights = ", ".join(f"{name}: {weight}" for name, weight in WEIGHTS.items())
    divided = "".join(
        f"    {name}: {{replicas: {known[name]}, strategy: StaticWeight, weights: {{{weights}}}, result: "
        f"{{{', '.join(f'{place}: {count}' for place, count in each.replicas.items())}}}}}\n"
        for name, each in results.items()
    )
    listed = "".join(f"  - {{name: {name}, replicas: {replicas}}}\n" for name, replicas in asked.items())
    clusters = ", ".join(f"{{name: {name}, weight: {weight}}}" for name, weight in WEIGHTS.items())
    status = f"status:\n  divisions:\n{divided}" if divided else ""
    text = (
        "apiVersion: poise.dev/v1alpha1\nkind: ReplicaDivision\nmetadata: {name: shop}\nspec:\n"
        f"  clusters: [{clusters}]\n  workloads:{'' if listed else ' []'}\n{listed}{status}"
    )
    return counted_look(text, what_if=what_if)


def share_faults(seen: Look) -> list[str]:
    """Compare what both forms say of each cluster with the sums of what was counted, and the cells with workloads."""
    faults = []
    exact = {each.name: Fraction(each.quota or 0) for each in seen.members}
    now = {name: sum(item.counts.get(name, 0) for item in seen.items if item.counts) for name in WEIGHTS}
    planned = shares_of(seen)
    for form, node in forms(picture(seen)).items():
        texts = shown(node)
        faults += [f"{form}: {name}" for name in WEIGHTS if f"{now[name]:,} of {mixed(exact[name])}" not in texts]
        if sum(cells(node).values()) != sum(planned.counts.values()):
            faults.append(f"{form}: {dict(cells(node))}")
    whole = sum(abs(now[name] - exact[name]) for name in WEIGHTS)
    if whole and f"The fleet's error now: {mixed(whole)} in all" not in unescape(picture(seen)):
        faults.append(f"the error {whole} is not said")
    return faults


@pytest.mark.parametrize("workloads", [1, 12, 200, 900])
def test_every_cluster_is_drawn_against_its_exact_share_and_every_workload_is_a_cell(workloads: int) -> None:
    assert share_faults(division(workloads)) == []


def test_a_share_that_is_rounded_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "mixed", lambda value: str(int(value)))
    assert share_faults(division(12)) != []


def test_an_error_that_is_not_the_sum_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_shares, "_error", lambda errors: mixed(max(map(abs, errors.values()))))
    assert share_faults(division(12)) != []


def test_what_is_new_and_what_moves_is_marked_counted_and_listed() -> None:
    seen = division(12, unknown=2)
    for node in forms(picture(seen)).values():
        assert cells(node)["offered"] == 2
    markup = str(picture(seen))
    assert "2 to be divided first" in markup
    assert "app-11" in markup.split("These change")[1]
    assert "By the plan:" in markup


def test_a_what_if_of_a_weight_shows_before_and_after_and_who_would_change() -> None:
    seen = division(12, what_if=WhatIf(weights={"west": 3}))
    markup = str(picture(seen))
    assert "what if: weight 3" in markup
    assert "What if: these would change" in markup
    assert "If it were so, the fleet's error would be" in unescape(markup)
    for node in forms(picture(seen)).values():
        west = next(row for row in classed(node, "row") if "west" in text_of(row))
        assert any("→" in text for text in shown(west))
        assert list(classed(west, "gain"))


def test_a_cluster_taken_out_by_a_what_if_stays_drawn_until_it_is_empty() -> None:
    markup = str(picture(division(12, what_if=WhatIf(drain=["west"]))))
    assert "what if: taken out" in markup


def test_an_impossible_what_if_shows_the_shares_as_they_are() -> None:
    seen = division(12, what_if=WhatIf(weights={"nowhere": 3}))
    assert seen.planned is None
    assert "weight 3" in str(picture(seen))
    assert share_faults(seen) == []


def test_very_many_clusters_are_told_by_the_worst() -> None:
    clusters = ", ".join(f"{{name: c{number}}}" for number in range(300))
    text = (
        "apiVersion: poise.dev/v1alpha1\nkind: ReplicaDivision\nmetadata: {name: shop}\nspec:\n"
        f"  clusters: [{clusters}]\n  workloads: [{{name: cart, replicas: 7}}]\n"
    )
    seen = counted_look(text)
    assert len(shares_of(seen).shares) == 40
    assert "260 more clusters not drawn" in str(picture(seen))
    assert len(picture(seen).encode()) < 180_000


def test_an_empty_division_teaches() -> None:
    markup = str(picture(division(0)))
    assert "There is no workload yet" in markup
    assert "poise apply shop.yaml" in markup


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(950, 3), "316 2/3"),
        (Fraction(4), "4"),
        (Fraction(-1, 2), "−1/2"),
        (Fraction(0), "0"),
        (Fraction(1, 1001), "≈0.00"),
        (Fraction(12_345), "12,345"),
    ],
)
def test_fractions_read_as_people_write_them(value: Fraction, text: str) -> None:
    assert mixed(value) == text


SPLIT = """
apiVersion: poise.dev/v1alpha1
kind: CapacitySplit
metadata: {name: shop}
spec:
  workloads:
  - {name: api, replicas: 10, spotPercentage: 70, minOnDemand: 1}
  - {name: web, replicas: 24, spotPercentage: 50, minOnDemand: 4}
  - {name: search, replicas: 8, spotPercentage: 90, minOnDemand: 2}
  guards:
    windows: [{schedule: "0 2 * * *", duration: 4h, timezone: UTC}]
status:
  workloads:
    api: {spot: 6, onDemand: 4, readyOnDemand: 4}
    web: {spot: 12, onDemand: 12, readyOnDemand: 12}
    search: {spot: 6, onDemand: 1, readyOnDemand: 1}
"""
POOLS = """
apiVersion: poise.dev/v1alpha1
kind: CapacitySplit
metadata: {name: pooled}
spec:
  workloads: [{name: api, replicas: 20}]
  pools: [{name: on, weight: 2, min: 2}, {name: spot-a, weight: 5}, {name: spot-b, weight: 3}]
status:
  workloads: {api: {pools: {on: 6, spot-a: 9, spot-b: 5}}}
  pools: {spot-b: {up: false, since: "2026-11-15T20:00:00Z"}}
"""


def split_faults(seen: Look) -> list[str]:
    """Compare what runs and what is wanted by the plan with the titles of the bars."""
    faults = []
    for form, node in forms(picture(seen)).items():
        told = text_of(node)
        for row in splits_of(seen).rows:
            wanted = [f"{side.name}: {side.now:,} run" for side in row.sides if side.now]
            wanted += [f"{side.name}: {side.wanted:,} wanted" for side in row.sides if side.wanted]
            faults += [f"{form}: {each}" for each in wanted if each not in told]
    return faults


def test_both_sides_are_drawn_now_and_as_wanted() -> None:
    seen = counted_look(SPLIT)
    assert split_faults(seen) == []
    assert split_faults(counted_look(POOLS)) == []


def test_a_side_that_is_not_drawn_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = split._segment
    monkeypatch.setattr(split, "_segment", lambda fill, *more: "" if fill == "hatched" else real(fill, *more))
    assert split_faults(counted_look(SPLIT)) != []


def test_the_next_action_is_said_with_why_it_waits_and_until_when() -> None:
    rows = {row.name: row for row in splits_of(counted_look(SPLIT)).rows}
    assert rows["api"].next == "next: migrate to spot"
    assert rows["api"].why.startswith("waits until 16 Nov 02:00 UTC, in 5 h 46 min: outside of its windows")
    assert rows["api"].tone == "waits"
    assert (rows["web"].next, rows["web"].why) == ("as it should be", "the percentage decides")
    assert (rows["search"].next, rows["search"].tone) == ("next: scale up on-demand", "acts")
    for node in forms(picture(counted_look(SPLIT))).values():
        told = " ".join(shown(node))
        assert "waits until 16 Nov 02:00 UTC, in 5 h 46 min" in told
    assert "Workloads: 1 wait, 1 act next, 1 as they should be." in str(picture(counted_look(SPLIT)))


def test_sides_differ_by_more_than_colour_and_pools_are_named() -> None:
    markup = picture(counted_look(POOLS))
    for node in forms(markup).values():
        assert list(classed(node, "hatched"))
        assert list(classed(node, "lines"))
        assert list(classed(node, "plain"))
    rows = splits_of(counted_look(POOLS)).rows
    assert rows[0].next == "next: migrate to spot-a, 5 steps to go"
    assert rows[0].why == "spot-b is down"


def test_a_what_if_of_replicas_is_said() -> None:
    seen = counted_look(SPLIT, what_if=WhatIf(replicas={"api": 20}))
    assert "what if: 10 → 20 replicas" in str(picture(seen))


def test_a_time_far_away_says_its_day() -> None:
    later = datetime(2026, 11, 18, 2, tzinfo=UTC)
    assert of_split.opens(later, NOW) == " until 18 Nov 02:00 UTC, in 2 days"
    assert of_split.opens(None, NOW) == ""


def test_very_many_workloads_show_first_what_is_to_do() -> None:
    listed = "".join(f"  - {{name: w{n}, replicas: 2, spotPercentage: 50, minOnDemand: 1}}\n" for n in range(100))
    status = "".join(f"    w{n}: {{spot: {1 if n < 90 else 0}, onDemand: 1}}\n" for n in range(100))
    text = (
        "apiVersion: poise.dev/v1alpha1\nkind: CapacitySplit\nmetadata: {name: shop}\nspec:\n  workloads:\n"
        f"{listed}status:\n  workloads:\n{status}"
    )
    drawn = splits_of(counted_look(text))
    assert len(drawn.rows) == 30
    assert [row.tone for row in drawn.rows[:10]] == ["acts"] * 10
    assert drawn.notes == ["70 more workloads not drawn: 70 as they should be."]


def test_an_empty_split_teaches() -> None:
    text = "apiVersion: poise.dev/v1alpha1\nkind: CapacitySplit\nmetadata: {name: shop}\nspec: {workloads: []}\n"
    assert "There is no workload yet" in str(picture(counted_look(text)))


def test_an_impossible_what_if_of_a_split_shows_what_was_counted() -> None:
    seen = counted_look(SPLIT, what_if=WhatIf(replicas={"nobody": 3}))
    assert seen.planned is None
    assert split_faults(seen) == []
    assert "spot 6" in " ".join(shown(forms(picture(seen))["wide"]))
