"""The story of an item: owners as bars in the order of time, with epochs, phases and reasons."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from tests.serve_page.drawn import classed, forms, shown, text_of
from tests.serve_page.picture_looks import NOW

from poise.model.ownership import GENERATION, Line
from poise.serve.page.looking import draw_story
from poise.serve.page.pictures import spans, story
from poise.serve.page.pictures.spans import epoch_text, spans_of

ZERO = NOW - timedelta(seconds=4806)


def line(at_s: float, transition: str, member: str | None, epoch: int, reason: str = "") -> Line:
    return Line(set="orders", item="7", transition=transition, member=member, epoch=epoch, at_s=at_s, reason=reason)


STORY = [
    line(0, "assigned", "worker-a", 1, "nobody holds it"),
    line(1, "confirmed", "worker-a", 1),
    line(4000, "release requested", "worker-a", 1, "worker-a over its share (13 of 11)"),
    line(4000.5, "retargeted", "worker-a", 1, "worker-e is gone"),
    line(4001, "releasing", "worker-a", 1),
    line(4003, "released", "worker-a", 1),
    line(4004, "assigned", "worker-f", 2, "reserved for worker-f"),
    line(4005, "confirmed", "worker-f", 2),
    line(4600, "expired", "worker-f", 2, "lease and grace are over"),
]


def test_a_story_is_spans_without_gaps() -> None:
    told = spans_of(STORY, ZERO)
    phases = ["offered", "held", "asked", "releasing", "unowned", "offered", "held", "unowned"]
    assert [each.phase for each in told] == phases
    assert [each.owner for each in told] == [*["worker-a"] * 4, "", "worker-f", "worker-f", ""]
    assert all(before.end == after.start for before, after in pairwise(told))
    assert told[-1].end is None


def story_faults(lines: list[Line]) -> list[str]:
    """Compare the drawn story with its spans: each has a bar, with its title, in the order of time."""
    told = [each.told(NOW) for each in spans_of(lines, ZERO)]
    drawn = forms(draw_story(lines, NOW, ZERO))
    faults = []
    bars = [(bar, text_of(next(bar.iter("title")))) for bar in drawn["wide"].iter("g") if list(bar.iter("title"))]
    bars = [(bar, title) for bar, title in bars if any("s" in (r.get("class") or "").split() for r in bar)]
    if [title for _, title in bars] != told:
        faults.append(f"wide: {[title for _, title in bars]}")
    edges = [float(next(classed(bar, "s")).get("x", "0")) for bar, _ in bars]
    if edges != sorted(edges):
        faults.append("wide: bars are not in the order of time")
    if len(list(classed(drawn["tall"], "s"))) != len(told):
        faults.append("tall: a phase is not listed")
    return faults


def test_every_phase_is_drawn_in_both_forms() -> None:
    assert story_faults(STORY) == []


def test_a_phase_that_is_left_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "spans_of", lambda lines, zero: spans_of(lines, zero)[1:])
    assert story_faults(STORY) != []


def test_a_release_that_counts_as_held_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "_PHASES", {"assigned": "held"})
    assert [each.phase for each in spans_of(STORY, ZERO)][2] != "asked"


def test_owners_epochs_and_reasons_are_said() -> None:
    drawn = forms(draw_story(STORY, NOW, ZERO))
    assert {"worker-a", "worker-f", "no owner"} <= set(shown(drawn["wide"]))
    assert "epoch 1, 67 min" in shown(drawn["wide"])
    tall = " ".join(shown(drawn["tall"]))
    assert "held, epoch 2" in tall
    assert "worker-a over its share (13 of 11)" in tall
    label = next(each.get("aria-label", "") for each in drawn["wide"].iter("g") if each.get("role") == "img")
    assert label.startswith("Now: without an owner, since 20:10:38 UTC")
    assert label.endswith("2 grants to 2 owners so far.")


def test_nothing_to_tell_teaches_and_counts_are_told_by_their_reason() -> None:
    assert "Nothing has happened to it yet" in str(draw_story([], NOW, ZERO))
    counts = [line(0, "divided", None, 0, "east 4, west 3"), line(600, "divided", None, 0, "east 3, west 4")]
    texts = shown(forms(draw_story(counts, NOW, ZERO))["wide"])
    assert {"what changed", "east 4, west 3", "east 3, west 4"} <= set(texts)


def test_a_long_story_is_cut_and_says_so() -> None:
    markup = draw_story(STORY * 50, NOW, ZERO)
    assert "360 earlier changes not drawn." in str(markup)
    assert len(markup) < 40_000


def test_names_and_reasons_are_escaped() -> None:
    bad = "<script>alert(1)</script>"
    markup = draw_story([line(0, "assigned", bad, 1, bad), line(1, "confirmed", bad, 1)], NOW, ZERO)
    assert "<script" not in str(markup)
    assert bad in text_of(forms(markup)["tall"])


def test_store_time_without_a_zero_counts_from_1970_and_days_ago_say_their_day() -> None:
    told = spans_of([line(NOW.timestamp() - 90_000, "assigned", "worker-a", 1)], None)
    assert told[0].start == NOW - timedelta(seconds=90_000)
    assert "since 14 Nov 19:14 UTC" in told[0].told(NOW)


def test_an_epoch_says_its_generation_only_where_there_is_one() -> None:
    assert epoch_text(7) == "7"
    assert epoch_text(2 * GENERATION + 7) == "7 of generation 2"
