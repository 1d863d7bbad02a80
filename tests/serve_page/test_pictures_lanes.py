"""The signature picture: every item and every move is drawn, in both forms, in words too, whatever there is to draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
from tests.costs import cost_s
from tests.serve_page.drawn import arcs, cells, classed, forms, linked_items, shown, text_of
from tests.serve_page.picture_looks import (
    NOW,
    held_rows,
    member,
    partition_look,
    pool_look,
    releasing,
    ring_look,
    row,
)

from poise.jobs.what_if import WhatIf
from poise.serve.page.looking import Look, picture
from poise.serve.page.pictures import courses, gathering, ink, lane_parts, lanes, of_items
from poise.serve.page.pictures.lane_values import Cell

WORKERS = [f"worker-{letter}" for letter in "abcde"]


def busy(what_if: WhatIf | None = None) -> Look:
    """One worker is late, one has just joined, two partitions are on their way to it and others wait."""
    rows = [row(number, WORKERS[number % 5]) for number in range(64)]
    rows[3] = releasing(3, "worker-d", "worker-f", acknowledged=False)
    rows[8] = releasing(8, "worker-d", "worker-f", acknowledged=True)
    rows[11] = row(11, "worker-b", confirmed=False)
    members = [member(name, lease_s=3.0 if name == "worker-c" else 9.0) for name in WORKERS]
    return partition_look(rows, [*members, member("worker-f", since=NOW - timedelta(seconds=2))], what_if=what_if)


def killed() -> Look:
    """A worker is gone: some of its partitions have no owner, two are still its own until its lease ends."""
    rows = [row(number, WORKERS[number % 5] if number % 5 != 2 else None) for number in range(30)]
    rows[2], rows[7] = row(2, "worker-c"), row(7, "worker-c")
    members = [member(name, state="gone", lease_s=-3.0) if name == "worker-c" else member(name) for name in WORKERS]
    return partition_look([msgspec.structs.replace(each, reason="worker-c is gone") for each in rows], members)


def draining() -> Look:
    """One of four collectors drains."""
    pods = [member(f"gnmic-{n}", state="ready", lease_s=28.0, since=NOW - timedelta(hours=1)) for n in range(4)]
    pods[1] = msgspec.structs.replace(pods[1], state="draining", draining=True)
    return pool_look({f"router{n}": f"gnmic-{n % 4}" for n in range(20)}, pods)


def many(items: int = 10_000, members: int = 50, what_if: WhatIf | None = None) -> Look:
    """Very many partitions, a few of them on their way."""
    names = [f"worker-{number:03}" for number in range(members)]
    rows = [row(number, names[number % members]) for number in range(items)]
    for number in range(0, 40, 5):
        to = names[(number + 7) % members]
        rows[number] = releasing(number, names[number % members], to, acknowledged=number % 2 == 0)
    here = [member(name, lease_s=3.0 if name == "worker-002" else 9.0) for name in names]
    return partition_look(rows, here, what_if=what_if)


LOOKS: dict[str, Callable[[], Look]] = {
    "busy": busy,
    "killed": killed,
    "draining": draining,
    "many": many,
    "some hundred": lambda: many(300, 12),
    "one": lambda: partition_look(held_rows({"worker-a": 3}), [member("worker-a")]),
    "what if": lambda: busy(WhatIf(drain=["worker-b"])),
    "what if among many": lambda: many(2000, 20, WhatIf(drain=["worker-005"], add=["worker-new"])),
}


def states_of(seen: Look) -> Counter[str]:
    """Say by the facts alone how many items are in each state."""
    tones = {each.name: each for each in seen.members}
    found: Counter[str] = Counter()
    for each in seen.items:
        owner = tones.get(each.member or "")
        if each.member is None:
            found["unowned"] += 1
        elif owner is None or owner.state == "gone":
            found["lost"] += 1
        elif owner.lease_s is not None and owner.lease_s < 4 and owner.state == "active":
            found["late"] += 1
        elif each.state in ("RequestedRelease", "PendingRelease"):
            found["asked" if each.state == "RequestedRelease" else "releasing"] += 1
        else:
            found["held" if each.confirmed else "offered"] += 1
    return found


def faults_of(seen: Look) -> list[str]:
    """Compare both forms of a picture with the facts: every broken promise as a sentence."""
    faults = []
    for form, node in forms(picture(seen)).items():
        drawn, wanted = cells(node), states_of(seen)
        ghosts = sum(drawn.pop(ghost, 0) for ghost in ("reserved", "planned", "imagined"))
        if drawn != wanted:
            faults.append(f"{form}: drawn {dict(drawn)}, there are {dict(wanted)}")
        moves = courses.courses_of(seen)
        if ghosts != len(moves):
            faults.append(f"{form}: {ghosts} cells wait for {len(moves)} moves")
        if set(arcs(node)) != {each.style for each in moves}:
            faults.append(f"{form}: arcs {dict(arcs(node))}")
        if form == "wide" and len(moves) <= 16 and arcs(node) != Counter(each.style for each in moves):
            faults.append(f"wide: {arcs(node)} for {len(moves)} moves")
        if len(seen.items) < 400 and linked_items(node) != Counter({each.item: 1 for each in seen.items}):
            faults.append(f"{form}: not every item has one link")
    return faults


@pytest.mark.parametrize("name", LOOKS)
def test_every_item_and_every_move_is_drawn_in_both_forms(name: str) -> None:
    seen = LOOKS[name]()
    assert set(forms(picture(seen))) == {"wide", "tall"}
    assert faults_of(seen) == []


@pytest.mark.parametrize("name", LOOKS)
def test_nothing_is_inline_that_the_page_refuses_and_no_id_exists_twice(name: str) -> None:
    markup = str(picture(LOOKS[name]()))
    assert [bad for bad in (" style=", "<style", "<script", " id=", " onclick=", "url(") if bad in markup] == []


@pytest.mark.parametrize(
    ("module", "piece", "broken"),
    [
        (gathering, "_state", lambda item, tones: "held"),  # noqa: ARG005 - It must be called as the real one is.
        (of_items, "courses_of", lambda seen: courses.courses_of(seen)[1:]),
        (lanes, "over", lambda *_: ""),
        (lanes, "beside", lambda *_: ""),
        (gathering, "_single", lambda *of: msgspec.structs.replace(Cell("held", ""), item=of[1].item)),
        (gathering, "_ghosts", lambda *_, **__: {}),
    ],
)
def test_the_checker_sees_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch, module: object, piece: str, broken: Callable[..., object]
) -> None:
    monkeypatch.setattr(module, piece, broken)
    assert faults_of(busy()) != []


def test_an_item_that_is_lost_on_the_way_to_a_large_picture_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = gathering._several
    monkeypatch.setattr(gathering, "_several", lambda name, lane, *more: real(name, lane[1:], *more))
    assert faults_of(many()) != []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("busy", ["13 held", "share 10 or 11", "late: 7 s of 10", "joined 2 s ago"]),
        ("killed", ["No owner", "4 partitions", "worker-c is gone", "gone for 3 s: its lease", "6 held"]),
        ("draining", ["draining: 5 to go", "5 held, share 6 or 7"]),
        ("what if", ["13 → 0 held", "what if: drained"]),
    ],
)
def test_what_is_drawn_is_said_in_words(name: str, words: list[str]) -> None:
    for form, node in forms(picture(LOOKS[name]())).items():
        told = " ".join(shown(node))
        missing = [each for each in words if each not in told]
        assert not missing, (form, missing, told)


def test_the_legend_and_the_label_say_the_picture() -> None:
    markup = str(picture(busy()))
    for words in ("13 whose owner is late", "1 asked back", "1 being released", "1 offered, not confirmed yet"):
        assert words in markup.split("<figcaption>")[1]
        assert words in markup.split('aria-label="')[1].split('"')[0]
    assert "2 moves in flight" in markup


def test_the_lane_of_what_has_no_owner_comes_first_and_only_where_there_is_something() -> None:
    for node in forms(picture(killed())).values():
        assert next(classed(node, "col")).get("class") == "col unowned"
    for node in forms(picture(busy())).values():
        assert not list(classed(node, "unowned"))


def test_arcs_say_what_moves_where_and_why_it_waits() -> None:
    wide = forms(picture(busy()))["wide"]
    titles = [text_of(arc) for arc in classed(wide, "arc")]
    assert any(title.startswith("8: worker-d → worker-f, being released, due by 20:14:32 UTC") for title in titles)
    waiting = [text_of(arc) for arc in classed(wide, "waits")]
    assert any("waits: 4 of 4 moves to worker-f in flight" in title for title in waiting)


def test_a_what_if_is_drawn_as_imagined_with_loads_before_and_after() -> None:
    for node in forms(picture(busy(WhatIf(drain=["worker-b"])))).values():
        assert set(arcs(node)) == {"imagined", "flight"}
        assert "13 → 0 held" in shown(node)
        assert any(text_of(arc).startswith("what if: ") for arc in classed(node, "imagined") if arc.tag == "g")
    assert "imagined: nothing moves until it is applied" in str(picture(busy(WhatIf(drain=["worker-b"]))))


def test_an_impossible_what_if_leaves_the_picture_as_it_is() -> None:
    seen = busy(WhatIf(drain=["nobody"]))
    assert seen.planned is None
    assert "nobody" in seen.refused
    for node in forms(picture(seen)).values():
        assert cells(node)["held"] > 0
        assert not list(classed(node, "imagined"))


def test_member_states_in_words() -> None:
    ring = ring_look(
        {f"key-{n}": f"web-{n % 4}" for n in range(8)},
        [
            member("web-0", state="ready", lease_s=14.0),
            member("web-1", state="expired", lease_s=-3.0),
            member("web-2", state="uncertain", lease_s=-17.0),
            member("web-3", state="ready", lease_s=14.0, leaving="stop"),
            member("web-4", state="ready", lease_s=14.0, draining=True),
        ],
    )
    told = " ".join(shown(forms(picture(ring))["tall"]))
    for words in (
        "late: silent for 18 s",
        "late: silent for 32 s, it may still work",
        "stopping: 2 to go",
        "drained: it may stop",
    ):
        assert words in told


def test_a_member_long_gone_that_holds_nothing_is_not_drawn() -> None:
    members = [member("worker-a"), member("worker-b", state="gone", lease_s=-900.0)]
    seen = partition_look(held_rows({"worker-a": 3}), members)
    assert "worker-b" not in str(picture(seen))
    recent = [member("worker-a"), member("worker-b", state="gone", lease_s=-9.0)]
    assert "gone for 9 s" in str(picture(partition_look(held_rows({"worker-a": 3}), recent)))


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (partition_look(held_rows({None: 8}), []), ["No worker has come yet", "poise worker orders -- COMMAND"]),
        (partition_look([], [member("worker-a")]), ["There is no partition yet", "poise apply orders.yaml"]),
        (pool_look({"router1": None}, []), ["No pod has come yet", "spec.pods", "poise apply core-routers.yaml"]),
    ],
)
def test_where_there_is_nothing_to_draw_it_teaches(seen: Look, words: list[str]) -> None:
    markup = str(picture(seen))
    assert [each for each in words if each not in markup] == []
    assert forms(picture(seen)) == {}


HOSTILE = [
    "<script>alert(1)</script>",
    "a&b\"c'd",
    "\u0645\u0631\u062d\u0628\u0627",
    "x" * 253,
    "\U0001f469\u200d\U0001f469\u200d\U0001f467-\U0001f680",
    "\u202egnirts\x00\x1b[31m",
    "]]>--><!--",
]


def hostile() -> Look:
    pods = [member(name, state="ready", lease_s=28.0, since=NOW - timedelta(hours=1)) for name in HOSTILE]
    return pool_look({f"{name}/{n}": name for name in HOSTILE for n in range(3)}, pods, name="<b>&")


def escape_faults(seen: Look) -> list[str]:
    markup = str(picture(seen))
    faults = [bad for bad in ("<script", "\u202e", "\x00", "\x1b", "<b>") if bad in markup]
    try:
        drawn = forms(picture(seen))
    except SyntaxError as broken:
        return [*faults, f"not well-formed: {broken}"]
    titles = [text_of(title) for title in drawn["wide"].iter("title")]
    whole = (HOSTILE[0], "x" * 253, f"\u2068{HOSTILE[2]}")
    faults += [name for name in whole if not any(name in title for title in titles)]
    faults += [text for text in shown(drawn["wide"]) if len(text) > 60]
    return faults


def test_names_are_escaped_kept_apart_and_cut_and_their_titles_say_them_in_full() -> None:
    assert escape_faults(hostile()) == []


def test_a_name_that_is_not_escaped_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "said", lambda name: name)
    assert escape_faults(hostile()) != []


def test_a_name_that_is_not_escaped_in_a_lane_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_parts, "inked", lambda text: text)
    assert escape_faults(hostile()) != []


def test_long_names_do_not_make_a_large_page() -> None:
    names = {f"{'n' * 1000}-{n}": f"pod-{n % 3}" for n in range(500)}
    pods = [member(f"pod-{n}", state="ready", lease_s=28.0) for n in range(3)]
    assert len(picture(pool_look(names, pods)).encode()) < 180_000


@pytest.mark.parametrize(
    ("items", "members"), [(10_000, 50), (10_000, 3), (460, 6), (500, 60), (4_000, 400), (3_000, 1_000)]
)
def test_pictures_stay_small(items: int, members: int) -> None:
    assert len(picture(many(items, members)).encode()) < 180_000


def test_a_what_if_on_ten_thousand_items_stays_small_and_quick() -> None:
    drained = WhatIf(drain=["worker-005"])
    large, small = many(what_if=drained), many(1_000, what_if=drained)
    assert len(picture(large).encode()) < 180_000
    assert cost_s(lambda: picture(large)) < 30 * cost_s(lambda: picture(small)), "ten times the items"


def test_very_many_members_are_told_by_their_load_and_what_is_wrong_keeps_its_lane() -> None:
    for node in forms(picture(many(4_000, 400))).values():
        names = shown(node)
        assert {"worker-002", "late: 7 s of 10"} <= set(names)
        assert len(list(classed(node, "col"))) <= 25
        told = [text_of(tile) for tile in node.iter("a") if list(classed(tile, "tile"))] + names
        assert any("hold 10" in text for text in told)


def test_the_same_facts_give_the_same_picture_whatever_the_order_of_members() -> None:
    seen = busy()
    turned = msgspec.structs.replace(seen, members=seen.members[::-1])
    assert picture(seen) == picture(busy()) == picture(turned)


def test_natural_order_and_short_numbers() -> None:
    assert sorted(["pod-10", "pod-9", "pod-1a"], key=ink.natural) == ["pod-1a", "pod-9", "pod-10"]
    assert [ink.short(value) for value in (1.0, 1.25, 0.04, 10)] == ["1", "1.2", "0", "10"]
    assert [ink.span(value) for value in (0.2, 7, 600, 20_760, 400_000)] == [
        "less than 1 s",
        "7 s",
        "10 min",
        "5 h 46 min",
        "4 days",
    ]
    assert ink.fitted("b" * 10 + "a" * 40 + "z", 60, 12) == "bbb…az"
