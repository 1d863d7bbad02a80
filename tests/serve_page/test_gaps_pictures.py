"""What is drawn stays inside what it is drawn in, numbers read alike, and a what-if shows the shares it would leave."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import combinations
from math import ceil, floor

import msgspec
import pytest
from tests.serve_page.drawn import Node, classed, forms, shown, text_of
from tests.serve_page.picture_looks import (
    NOW,
    counted_look,
    held_rows,
    member,
    partition_look,
    pool_look,
    ring_look,
    row,
)

from poise.decide.shares import fair_shares
from poise.jobs.entries import ItemsEntry, Waits
from poise.jobs.what_if import WhatIf
from poise.model.ownership import Line
from poise.serve.page.looking import Look, draw_story, picture, plan_lines
from poise.serve.page.pictures import arcs, lane_parts, marks, of_items
from poise.serve.page.pictures.lane_values import Lane
from poise.serve.page.pictures.of_items import lanes_of

# How wide letters are in a wide font that many systems have, bold, for each unit of its height.
BOLD = {"m": 1.042, "e": 0.678, "b": 0.716, "r": 0.493, "n": 0.712, "w": 0.924, "a": 0.675, "o": 0.687, "s": 0.595}
BOLD |= {"t": 0.478, "c": 0.593, "l": 0.343, "i": 0.343, "g": 0.716, "h": 0.712, "y": 0.652, "u": 0.712, "d": 0.716}
BOLD |= dict.fromkeys("0123456789", 0.696) | {"-": 0.415, "…": 1.0, "+": 0.838, ".": 0.38, "k": 0.665, " ": 0.348}
BOLD |= {",": 0.38, ":": 0.4, "f": 0.435, "v": 0.652, "p": 0.716}


def bold(text: str, size: float) -> float:
    """Measure a text as a browser draws it in bold."""
    return size * sum(BOLD[sign] for sign in text)


# Shares of a what-if.


def imagined_faults(seen: Look) -> list[str]:
    """Compare the marks of every lane with the shares of those who would take part, and with the planned loads."""
    assert seen.planned is not None
    entry = seen.planned.entry
    assert isinstance(entry, ItemsEntry)
    assert seen.what_if is not None
    weights = [seen.what_if.weights.get(name, 1) for name in entry.loads]
    exact = fair_shares(len(entry.assignment), weights, [0] * len(weights), [None] * len(weights)).fractions()
    bounds = {name: (floor(share), ceil(share)) for name, share in zip(entry.loads, exact, strict=True)}
    drawn = {lane.name: lane for lane in lanes_of(seen).lanes}
    faults = [
        f"{name}: {lane.floor} to {lane.ceiling}, not {bounds.get(name, (0, 0))}"
        for name, lane in drawn.items()
        if (lane.floor, lane.ceiling) != bounds.get(name, (0, 0))
    ]
    faults += [f"{name} has no share in words" for name in bounds if not drawn[name].share.startswith("share ")]
    return faults + [
        f"{name} would end with {load}" for name, load in entry.loads.items() if not _within(drawn[name], load)
    ]


def _within(lane: Lane, load: int) -> bool:
    return lane.floor is not None and lane.ceiling is not None and lane.floor <= load <= lane.ceiling


def imagined(what_if: WhatIf) -> Look:
    return partition_look(
        held_rows({"w1": 11, "w2": 11, "w3": 10}), [member(f"w{n}") for n in (1, 2, 3)], what_if=what_if
    )


WISHES = [
    WhatIf(drain=["w1"]),
    WhatIf(remove=["w2"]),
    WhatIf(add=["w4"]),
    WhatIf(weights={"w3": 2}),
    WhatIf(add=["w4"], drain=["w1"], weights={"w4": 3}),
]


@pytest.mark.parametrize("what_if", WISHES)
def test_a_what_if_is_drawn_with_the_shares_that_it_would_leave(what_if: WhatIf) -> None:
    seen = imagined(what_if)
    assert imagined_faults(seen) == []
    for node in forms(picture(seen)).values():
        assert list(classed(node, "mark"))


def test_a_what_if_of_a_pool_shares_what_its_pods_can_take() -> None:
    pods = [member(f"p{n}", state="ready", lease_s=28.0) for n in range(4)]
    seen = pool_look({f"r{n}": f"p{n % 4}" for n in range(20)}, pods, what_if=WhatIf(drain=["p1"]))
    assert imagined_faults(seen) == []


def test_a_ring_that_hashes_has_no_shares_in_a_what_if() -> None:
    pods = [member(f"i{n}", state="ready", lease_s=28.0) for n in range(3)]
    seen = ring_look({f"o{n}": f"i{n % 3}" for n in range(9)}, pods, what_if=WhatIf(drain=["i1"]))
    hashed = (
        seen.planned is not None and seen.planned.view is not None and seen.planned.view.policy in ("ring", "hashed")
    )
    assert all((lane.floor is None) == hashed for lane in lanes_of(seen).lanes)


def test_shares_as_they_are_in_a_what_if_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_items, "_with_shares", lambda views, *_: views)
    assert imagined_faults(imagined(WISHES[0])) != []


# What stands inside of what.


def many(what_if: WhatIf | None = None, name: str = "m{}") -> Look:
    names = [name.format(number) for number in range(1, 7)]
    return partition_look(
        [row(n, names[n % 6]) for n in range(10_000)], [member(each) for each in names], what_if=what_if
    )


def ghost_faults(seen: Look) -> list[str]:
    """Find numbers that are wider than their cell, and cells that lie on others or outside of their lane."""
    faults = []
    for form, node in forms(picture(seen)).items():
        for column in classed(node, "col"):
            ground = next(classed(column, "lane"))
            left, right = float(ground.get("x", 0)), float(ground.get("x", 0)) + float(ground.get("width", 0))
            boxes = [box for path in classed(column, "c") for box in _boxes(path)]
            faults += [f"{form}: outside of its lane" for x, _, wide, _ in boxes if x < left or x + wide > right]
            faults += [f"{form}: {one} on {other}" for one, other in combinations(boxes, 2) if _covers(one, other)]
            for text in [text for group in classed(column, "n") for text in group.iter("text")]:
                x, y, wide = float(text.get("x", 0)), float(text.get("y", 0)), bold(text.text or "", 10)
                if not any(a <= x - wide / 2 and x + wide / 2 <= a + w and b <= y <= b + h for a, b, w, h in boxes):
                    faults.append(f"{form}: {text.text} is wider than its cell")
    return faults


def _boxes(path: Node) -> list[tuple[float, float, float, float]]:
    """Read the boxes of a path, with the outline that is drawn around them."""
    found = re.findall(r"M([\d.]+),([\d.]+)h([\d.]+)v([\d.]+)", path.get("d", ""))
    return [(float(x) - 1, float(y) - 1, float(wide) + 2, float(high) + 2) for x, y, wide, high in found]


def _covers(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return all(one[at] < other[at] + other[at + 2] and other[at] < one[at] + one[at + 2] for at in (0, 1))


@pytest.mark.parametrize("what_if", [None, WhatIf(drain=["m1"]), WhatIf(add=["m7"]), WhatIf(remove=["m1", "m2", "m3"])])
def test_a_number_is_inside_of_its_cell(what_if: WhatIf | None) -> None:
    assert ghost_faults(many(what_if)) == []


def test_a_ghost_that_is_too_narrow_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "_spans", lambda *_: 1)
    assert ghost_faults(many(WhatIf(drain=["m1"]))) != []


def name_faults(seen: Look) -> list[str]:
    """Find names that reach out of their lane."""
    faults = []
    for form, node in forms(picture(seen)).items():
        for column in classed(node, "col"):
            ground, name = next(classed(column, "lane")), next(classed(column, "name"))
            edge = float(ground.get("x", 0)) + float(ground.get("width", 0))
            if float(name.get("x", 0)) + bold(name.text or "", 13) > edge - 4:
                faults.append(f"{form}: {name.text}")
    return faults


LONG = ["member-" * 36 + "1", "n" * 253, "mm" * 100, "0" * 253, "web-0"]


@pytest.mark.parametrize("members", [2, 4, 5])
def test_no_name_pokes_out_of_its_lane(members: int) -> None:
    names = LONG[:members]
    seen = partition_look(held_rows(dict.fromkeys(names, 3)), [member(name) for name in names])
    assert name_faults(seen) == []


def test_a_name_that_is_measured_too_narrow_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_parts, "NAME_SIZE", 12.0)
    seen = partition_look(held_rows(dict.fromkeys(LONG[:2], 3)), [member(name) for name in LONG[:2]])
    assert name_faults(seen) != []


def test_load_and_share_are_whole_on_a_narrow_screen() -> None:
    for seen in (many(), many(WhatIf(drain=["m1"])), many(name="a-longer-name-{}")):
        texts = shown(forms(picture(seen))["tall"])
        assert not [text for text in texts if text.endswith("…")]
        assert sum("share " in text for text in texts) >= 5
    assert any(text == "1,667 held, share 1,666 or 1,667" for text in shown(forms(picture(many()))["tall"]))


def apart_faults(seen: Look) -> list[str]:
    """Find numbers of arcs that cover each other."""
    faults = []
    for form, node in forms(picture(seen)).items():
        places = [(float(each.get("x", 0)), float(each.get("y", 0)), each.text or "") for each in classed(node, "many")]
        faults += [
            f"{form}: {one} covers {other}"
            for one, other in combinations(places, 2)
            if abs(one[1] - other[1]) < 11 and abs(one[0] - other[0]) < bold(one[2], 11)
        ]
    return faults


def crossing() -> Look:
    """Two neighbours leave at once: what goes from them to the others passes the same places."""
    return many(WhatIf(drain=["m2", "m3"]))


def test_the_numbers_of_arcs_do_not_cover_each_other() -> None:
    assert len(list(classed(forms(picture(crossing()))["tall"], "many"))) == 8
    assert apart_faults(crossing()) == []


def test_numbers_that_cover_each_other_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arcs, "_PARTS", ())
    assert apart_faults(crossing()) != []


def test_the_words_of_a_story_stay_inside_of_their_bar() -> None:
    reason = (
        "north 2, east 2, west 1: there is no last result: 4 of 5 clusters get one more, by what the clusters are owed "
    )
    for end in range(60, len(reason) + 60):
        told = (reason + "and so on and so on and so on and so on and so on and so on")[:end]
        line = Line(set="f", item="cart", transition="divided", member=None, epoch=0, at_s=0.0, reason=told)
        wide = forms(draw_story([line], NOW, NOW - timedelta(hours=1)))["wide"]
        bar, text = next(classed(wide, "s")), next(classed(wide, "in"))
        assert bold((text.text or "").strip(), 11) <= float(bar.get("width", 0)) - 2, text.text


def test_the_clocks_of_a_story_do_not_cover_each_other() -> None:
    lines = [
        Line(set="f", item="a", transition="assigned", member=f"w{n}", epoch=n, at_s=n * 90_000.0, reason="")
        for n in range(1, 30)
    ]
    wide = forms(draw_story(lines, NOW, NOW - timedelta(days=40)))["wide"]
    clocks = [text for text in classed(wide, "sub") if text.text and ":" in text.text]
    ends = [float(text.get("x", 0)) + 0.61 * 12 * len(text.text or "") for text in clocks]
    assert len(clocks) > 3
    assert all(end <= float(after.get("x", 0)) for end, after in zip(ends, clocks[1:], strict=False))
    assert re.fullmatch(r"\d+ [A-Z][a-z]{2} \d\d:\d\d", clocks[0].text or "")


# Words and numbers.


def test_numbers_of_a_plan_are_read_in_thousands() -> None:
    told = plan_lines(many(WhatIf(drain=["m1"])))
    assert "8,333 stay" in told.certificate
    assert "Fewest possible: 1,667." in told.certificate
    assert told.more.startswith("… 1,655 more")
    assert str(told.loads[1]) == "m2 1,667→2,000"
    assert not re.search(r"\d{4}", told.certificate + told.more + " ".join(map(str, told.loads)))


def test_who_is_gone_is_not_counted_as_there() -> None:
    here = [member(f"w{n}") for n in range(1, 6)]
    seen = partition_look(held_rows({"w1": 3, "w6": 1}), [*here, member("w6", state="gone", lease_s=-1.0)])
    about = lanes_of(seen).about
    assert "on 5 of 6 workers" in about
    assert "on 5 workers" in lanes_of(partition_look(held_rows({"w1": 3}), here)).about
    assert about in text_of(forms(picture(seen))["wide"]) or about in str(picture(seen))


WINDOW = """
apiVersion: poise.dev/v1alpha1
kind: CapacitySplit
metadata: {name: shop}
spec:
  workloads: [{name: api, replicas: 10, spotPercentage: 70, minOnDemand: 1}]
  guards: {windows: [{schedule: "0 %s", duration: 1h, timezone: UTC}]}
status: {workloads: {api: {spot: 6, onDemand: 4, readyOnDemand: 4}}}
"""


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ("22 * * *", "until 22:00:00 UTC"),
        ("2 * * *", "until 16 Nov 02:00 UTC"),
        ("2 1 1 *", "until 1 Jan 2027 02:00 UTC"),
    ],
)
def test_a_plan_line_says_the_day_when_it_is_not_today(schedule: str, said: str) -> None:
    [line] = plan_lines(counted_look(WINDOW % schedule)).lines
    assert line.reason.endswith(said)


def test_moves_in_flight_and_waiting_say_the_day_too() -> None:
    seen = imagined(WISHES[0])
    assert seen.planned is not None
    entry = seen.planned.entry
    assert isinstance(entry, ItemsEntry)
    waits = Waits("window", NOW + timedelta(days=44), "outside of its windows")
    moves = [msgspec.structs.replace(move, waits=waits) for move in entry.moves]
    planned = msgspec.structs.replace(seen.planned, entry=msgspec.structs.replace(entry, moves=moves))
    markup = str(picture(msgspec.structs.replace(seen, planned=planned)))
    assert "until 29 Dec 20:14 UTC" in markup
