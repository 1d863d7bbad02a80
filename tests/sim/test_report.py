"""The page of a run: complete, escaped, without scripts and requests; and the plots it is made of."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.model.replica_division import Cluster
from poise.sim import svg
from poise.sim.chance import random_events
from poise.sim.events import Add, Event, Join, Leave, Remove, Reweigh, Scale
from poise.sim.findings import finding
from poise.sim.plots import MEMBERS_SHOWN_MAX
from poise.sim.replay import replay
from poise.sim.report import EVENTS_SHOWN_MAX, report
from poise.sim.summary import summarise
from poise.sim.svg import LABEL_PX, POINTS_MAX, Label, band, buckets, dashes, log_scale, offset, plot, scale, steps
from poise.sim.worlds import FleetWorld, ItemWorld, Member, World

VOID = {"meta", "link", "br", "path", "rect"}


class Page(HTMLParser):
    """Reads a page and notes what matters; a tag that is closed in the wrong order fails at once."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def pool(items: int, members: int) -> ItemWorld:
    named = {f"pod-{i}": Member() for i in range(members)}
    return ItemWorld("TargetPool", "core", named, dict.fromkeys(f"router{i}" for i in range(items)))


def fleet() -> FleetWorld:
    clusters = {name: Cluster(name, weight=weight) for name, weight in (("east", 2), ("north", 1), ("west", 1))}
    return FleetWorld("ReplicaDivision", "shop", clusters, {f"w{i}": i % 7 for i in range(12)})


def page_of(world: World, *events: Event, seed: int | None = None) -> Page:
    return Page(report(replay(world, events, seed=seed)))


GROWTH: tuple[Event, ...] = (Join(join=["pod-3"], note="a rack"), Add(add=20), Leave(leave=["pod-0"]), Remove(remove=5))


def test_the_page_has_every_plot_of_items() -> None:
    page = page_of(pool(30, 3), *GROWTH)
    for heading in ("Results", "Load over time", "Moves against the minimum", "Totals against exact shares"):
        assert heading in page.words
    assert page.tags.count("figure") == 4 + 4 + 1
    assert "4 events from a script, the same for every policy: 3 members, 30 → 45 items" in page.words
    assert {"sticky", "hashed", "ring", "modulo", "join pod-3", "a rack", "pod-1", "15"} <= set(page.words)


def test_the_page_has_every_plot_of_a_fleet() -> None:
    page = page_of(fleet(), Scale(scale={"w3": 9}), Reweigh(weight={"west": 3}), seed=5)
    assert "Error over time" in page.words
    assert page.tags.count("figure") == 4 + 4 + 1 + 1
    assert "2 events drawn with seed 5, the same for every policy: 3 clusters, 31 → 37 replicas" in page.words
    assert {"fleet", "exact", "weighted", "name order", "east"} <= set(page.words)


def test_the_first_sentence_says_what_was_found() -> None:
    played = replay(pool(30, 3), GROWTH)
    assert finding(summarise(played)) in Page(report(played)).words


@pytest.mark.parametrize("world", [pool(0, 0), pool(0, 2), pool(3, 0), FleetWorld("ReplicaDivision", "f", {}, {})])
@pytest.mark.parametrize("events", [(), (Join(join=["x"]),)], ids=["none", "one"])
def test_an_empty_world_has_a_page_too(world: World, events: tuple[Event, ...]) -> None:
    assert "Load over time" in page_of(world, *events).words


def test_the_page_runs_nothing_and_asks_for_nothing() -> None:
    page = page_of(pool(30, 3), *GROWTH)
    assert not {"script", "img", "iframe", "object", "embed", "base", "form", "use"} & set(page.tags)
    assert [value for name, value in page.attributes if name in ("src", "href", "xlink:href", "action")] == ["data:,"]
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    text = report(replay(pool(30, 3), GROWTH))
    assert not re.search(r"https?:|//[a-z]|@import|url\(", text)
    assert "default-src 'none'" in text


def test_names_and_notes_are_escaped() -> None:
    evil = '<script>alert("&1")</script>'
    world = ItemWorld("TargetPool", evil, {evil: Member(), "b'": Member()}, dict.fromkeys(["x", "y", "z"]))
    page = page_of(world, Add(add=[evil], note=evil), Join(join=["<b>"]))
    assert "script" not in page.tags
    assert "b" not in page.tags
    assert page.words.count(evil) == 2  # The note, and the member's row.
    assert f"TargetPool {evil}" in page.words
    assert f"add {evil}" in page.words


def test_the_page_is_light_and_dark_and_narrow() -> None:
    text = report(replay(pool(30, 3), GROWTH))
    assert "prefers-color-scheme:dark" in text
    assert "width=device-width" in text
    assert "@media(max-width:720px)" in text


def test_every_picture_is_told_in_words() -> None:
    text = report(replay(pool(30, 3), GROWTH))
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)  # Also proves that it is well formed.
        assert root.get("aria-hidden") == "true" or len(root.get("aria-label") or "") > 20
    assert len(drawings) > 9


def test_colour_is_never_alone() -> None:
    style = re.search(r"<style>(.*?)</style>", report(replay(pool(3, 2), ())), re.DOTALL)
    assert style is not None
    signs = re.findall(r"\.name\.p\d::before\{content:\"(.)\"", style[1])
    assert len(set(signs)) == 4
    patterns = re.findall(r"\.line\.p\d\{stroke-dasharray:([^}]+)\}", style[1])
    assert len(set(patterns)) == 3  # The first line is solid.


def test_a_page_is_the_same_every_time() -> None:
    world = pool(40, 5)
    pages = {report(replay(world, random_events(world, 30, 6), seed=6)) for _ in range(2)}
    assert len(pages) == 1


def test_a_long_run_has_a_page_of_bounded_size() -> None:
    world = pool(10, 3)
    played = replay(world, random_events(world, 1200, 6), seed=6)
    text = report(played)
    assert len(text) < 600_000
    page = Page(text)
    assert f"first {EVENTS_SHOWN_MAX} are listed, 700 more are not" in page.text
    assert "Items moved at each 6 events." in page.text


def test_of_many_members_those_furthest_off_are_shown() -> None:
    page = page_of(pool(200, 60))
    assert f"Shown: the {MEMBERS_SHOWN_MAX} of 60 members that are furthest off." in page.text
    shown = [word for word in page.words if word.startswith("pod-")]
    assert len(shown) == MEMBERS_SHOWN_MAX
    assert shown == sorted(shown, key=lambda name: int(name[4:]))
    loads = replay(pool(200, 60), ()).tracks["ring"].loads
    assert max(loads, key=lambda name: (loads[name], name)) in shown


# Plots.


@pytest.mark.parametrize(
    ("values", "height", "ends", "ticks"),
    [
        ([0, 27], 150, (0, 30), [0, 10, 20, 30]),
        ([3], 150, (0, 3), [0, 1, 2, 3]),
        ([], 150, (0, 1), [0, 1]),
        ([-69, 60], 150, (-100, 100), [-100, -50, 0, 50, 100]),
        ([0.25], 150, (0, 1), [0, 1]),
    ],
)
def test_an_axis_has_round_ends_and_labels(
    values: list[float], height: int, ends: tuple[float, float], ticks: list[float]
) -> None:
    axis = scale(values, height)
    assert (axis.low, axis.high) == ends
    assert axis.ticks() == ticks
    assert (axis.y(ends[0]), axis.y(ends[1])) == (height, 0)


def test_an_axis_of_powers_of_ten_has_a_place_for_zero() -> None:
    axis = log_scale([0, 89], 150)
    assert axis.ticks() == [0, 1, 10, 100]
    assert axis.y(0) == 150
    assert axis.y(0) - axis.y(1) > axis.y(1) - axis.y(2)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(-500, 100_000), min_size=1, max_size=40), st.booleans())
def test_an_axis_holds_all_its_values_in_order(values: list[int], log: bool) -> None:
    axis = log_scale([abs(value) for value in values], 150) if log else scale(values, 150)
    placed = [axis.y(value) for value in sorted(map(abs, values) if log else values)]
    assert all(0 <= y <= 150 for y in placed)
    assert all(upper >= lower for upper, lower in pairwise(placed))
    assert 2 <= len(axis.ticks()) <= 9


@given(st.integers(0, 5000))
def test_buckets_cover_every_place_once(count: int) -> None:
    groups = buckets(count)
    assert [place for group in groups for place in group] == list(range(count))
    assert len(groups) <= POINTS_MAX
    assert len({len(group) for group in groups[:-1]}) <= 1
    assert count > POINTS_MAX or len(groups) == count


def test_an_axis_of_powers_of_ten_may_begin_higher() -> None:
    axis = log_scale([14_593, 390_528], 230, low=1000)
    assert axis.ticks() == [1000, 10_000, 100_000, 500_000]
    assert axis.y(5) == axis.y(1000) == 230


def test_labels_of_an_axis_never_touch() -> None:
    places = [axis.y(value) for axis in [log_scale([400_000], 150)] for value in axis.ticks()]
    assert all(lower - upper >= LABEL_PX for lower, upper in pairwise(places))


def test_steps_bands_and_dashes_are_drawn_as_they_read() -> None:
    axis = scale([0, 3], 120)
    assert steps([1, 1, 3], axis) == "M0,80H666.7V0H1000"
    assert band([0, 0, 1], [1, 1, 3], axis) == "M0,80H666.7V0H1000L1000,80H666.7V120H0Z"
    assert dashes([None, 2], axis) == "M500,40H1000"
    assert steps([], axis) == band([], [], axis) == dashes([], axis) == ""


@given(st.lists(st.floats(0, 10), max_size=6))
def test_labels_never_cover_each_other(values: list[float]) -> None:
    axis = scale([0, 10], 230)
    text = plot(axis, [], range(3), "", [Label(value, f"n{i}", "x") for i, value in enumerate(values)])
    tops = sorted(float(top) for top in re.findall(r'class="x" style="top:(-?[0-9.]+)px"', text))
    assert len(tops) == len(values)
    assert all(lower - upper >= LABEL_PX - 0.2 for upper, lower in pairwise(tops))


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        (range(0), []),
        (range(1), ["0"]),
        (range(1, 2), ["1"]),
        (range(16), ["0", "5", "10", "15"]),
        (range(1, 201), ["1", "50", "100", "150", "200"]),
        (range(1001), ["0", "500", "1,000"]),
    ],
)
def test_the_places_across_are_numbered(numbers: range, shown: list[str]) -> None:
    text = plot(scale([1], 100), [], numbers, "")
    assert re.findall(r'left:[0-9.]+%">([0-9,]+)<', text) == shown


@pytest.mark.parametrize(
    ("value", "bar"),
    [(5, 'x="50%" y="1" width="25%"'), (-10, 'x="0%" y="1" width="50%"'), (0, 'x="50%" y="1" width="0%"')],
)
def test_a_bar_shows_to_which_side_and_how_far(value: float, bar: str) -> None:
    assert bar in offset(value, 10)
    assert 'width="0%"' in offset(0, 0)


def test_a_plot_that_forgets_to_escape_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    text = plot(scale([1], 100), [], range(2), '"><script>', [Label(1, "<b>", "x")])
    assert "script" not in Page(text).tags
    monkeypatch.setattr(svg, "escape", str)
    assert "<b>" in plot(scale([1], 100), [], range(2), "", [Label(1, "<b>", "x")])
