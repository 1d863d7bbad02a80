"""The pictures of `poise top`: as their goldens, within any terminal, and with any name."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli import top_worlds
from tests.cli.top_worlds import SCENES
from tests.costs import cost_s
from tests.examples import examples

from poise.cli import ink as inks
from poise.cli import picture_items
from poise.cli.ink import Ink, width_of
from poise.cli.picture_items import lanes_of
from poise.cli.pictures import Frame, Shape, job_picture, jobs_picture
from poise.cli.sparks import spark_row
from poise.cli.told import tell
from poise.cli.watching import JobSeen
from poise.jobs.sentences import in_short, lines_happened
from poise.jobs.series import Series
from poise.model.ownership import Line
from poise.move.handoff import Transition
from poise.serve.facade import JobSummary
from poise.serve.page.sentences import tell as told_on_page

GOLDEN = Path(__file__).parent / "golden"
URL = "http://127.0.0.1:7878"
ENDLESS = Frame()
ASCII, UNICODE, COLOUR = Ink(unicode=False), Ink(), Ink(colour=True)
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@cache
def scene(name: str) -> JobSeen:
    return SCENES[name]() if name in SCENES else getattr(top_worlds, name)()


def drawn(seen: JobSeen, frame: Frame = ENDLESS, trouble: str = "") -> list[str]:
    return job_picture(seen, Shape(URL, seen.now, trouble), frame).lines


@pytest.mark.parametrize("name", SCENES)
def test_a_picture_at_80_columns_reads_as_its_golden(name: str) -> None:
    printed = "\n".join([*drawn(scene(name), Frame(80, 24)), "", *drawn(scene(name), Frame(80, 24, ink=ASCII)), ""])
    assert printed == (GOLDEN / f"top-{name}.txt").read_text()


def jobs() -> list[JobSummary]:
    return [
        JobSummary(kind="TargetPool", name="core-routers", revision=1, health="as it should be", items=60),
        JobSummary(kind="ShardRing", name="web", revision=1, health="3 moves in flight", items=9, moves_in_flight=3),
        JobSummary(
            kind="PartitionSet",
            name="orders",
            revision=2,
            health="4 of 64 items have no owner",
            items=64,
            unowned=4,
            problems=["4 of 64 items have no owner"],
        ),
        JobSummary(kind="ReplicaDivision", name="shop", revision=1, health="paused", paused=True, items=200),
        JobSummary(kind="CapacitySplit", name="shop", revision=1, health="changes pending", items=3, pending=1),
    ]


def test_all_jobs_at_80_columns_read_as_their_golden() -> None:
    shape = Shape(URL, top_worlds.NOON)
    printed = [*jobs_picture(jobs(), shape, Frame(80, 12)).lines, "", *jobs_picture([], shape, Frame(ink=ASCII)).lines]
    assert "\n".join([*printed, ""]) == (GOLDEN / "top-jobs.txt").read_text()


def test_what_is_wrong_comes_first() -> None:
    lines = jobs_picture(jobs(), Shape(URL, top_worlds.NOON), Frame()).lines
    assert [line[1:3] for line in lines[2:]] == ["!!", "||", ">>", ">>", "ok"]
    trouble = drawn(scene("trouble"))
    assert trouble[1].startswith("!! 14 of 40 items have no owner")
    assert [lane.member.name for lane in lanes_of(scene("trouble"))] == ["w1", "w2", "w3", "w4"]
    assert [lane.member.name for lane in lanes_of(scene("moving"))] == ["w2", "w10", "w1", "w4"], "draining ones next"


def cells(seen: JobSeen) -> dict[str, int]:
    """Count the cells of all lanes in a picture, as somebody who reads it would."""
    ink = ASCII
    frame = Frame(400, None, ink=ink)
    lanes = [line for line in drawn(seen, frame) if re.match(r" (w\d+|node-\d+|nobody) ", line)]
    text = "".join(re.sub(r"^ \S+ +\S+ +\d+[ \d+-]*  ", "", line) for line in lanes)
    return {state: text.count(ink.sign(state)) for state in ("held", "offered", "asked", "letting", "lost", "unowned")}


@pytest.mark.parametrize("name", ["settled", "trouble", "moving", "unowned"])
def test_every_item_is_one_cell_of_its_state(name: str) -> None:
    seen = scene(name)
    counted = cells(seen)
    assert sum(counted.values()) == seen.summary.items
    assert counted["lost"] + counted["unowned"] == seen.summary.unowned
    if name != "trouble":
        assert counted["asked"] + counted["letting"] == seen.summary.moves_in_flight


def test_a_picture_that_forgets_a_state_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {state: colour for state, colour in picture_items._CELLS.items() if state != "lost"}
    monkeypatch.setattr(picture_items, "_CELLS", kept)
    assert sum(cells(scene("trouble")).values()) < scene("trouble").summary.items


def test_a_cell_of_many_items_hides_no_state() -> None:
    seen = scene("moving")
    members = [msgspec.structs.replace(each, load=each.load * 500) for each in seen.members]
    large = msgspec.structs.replace(seen, members=members, is_complete=False)
    lines = drawn(large)
    assert any(line.endswith("[ floor ] ceiling") and "up to" in line for line in lines)
    lane = next(line for line in lines if line.startswith(" w10"))
    assert "◀" in lane
    assert len(lane) <= 80


def inside(lines: list[str], width: int, height: int | None) -> list[str]:
    """Name what is wrong with the outline of a picture."""
    faults = [f"too wide: {line!r}" for line in lines if measured(_ESCAPES.sub("", line)) > width]
    faults += ["too high"] if height is not None and len(lines) > height else []
    plain = [_ESCAPES.sub("", line) for line in lines]
    return faults + [f"a control character: {line!r}" for line in plain if any(map(is_control, line))]


def is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Zl", "Zp") or character in "\u202a\u202b\u202d\u202e\u2066\u2067"


def measured(text: str) -> int:
    """Measure a line by the Unicode tables, apart from how the product does it."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    none = sum(unicodedata.category(character) in ("Mn", "Me", "Cf") and character != "\ufe0f" for character in text)
    return len(text) + wide - none


PLACES = st.tuples(st.integers(40, 200), st.none() | st.integers(6, 60), st.integers(0, 50), st.booleans())


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from([*SCENES, "hostile"]), PLACES, st.sampled_from(["", "it is away " * 20]))
def test_every_picture_stays_within_its_terminal(
    name: str, place: tuple[int, int | None, int, bool], trouble: str
) -> None:
    width, height, offset, unicode = place
    frame = Frame(width, height, offset, Ink(unicode=unicode, colour=True))
    lines = drawn(scene(name), frame, trouble)
    assert inside(lines, width, height) == []
    assert unicode or all(line.isascii() for line in lines)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=6), NAMES, st.integers(40, 120))
def test_no_name_breaks_a_picture(names: list[str], reason: str, width: int) -> None:
    seen = scene("moving")
    items = [
        msgspec.structs.replace(item, item=name, reason=reason)
        for item, name in zip(sorted(seen.items, key=lambda item: item.state, reverse=True), names * 6, strict=False)
    ]
    lines = [msgspec.structs.replace(line, item=names[0], reason=reason) for line in seen.lines]
    odd = msgspec.structs.replace(seen, items=items, lines=lines)
    for ink in (UNICODE, ASCII):
        assert inside(drawn(odd, Frame(width, 30, 0, ink)), width, 30) == []


def test_a_name_that_is_not_made_safe_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inside(drawn(scene("hostile")), 80, None) == []
    monkeypatch.setattr(inks.Ink, "name", lambda _ink, text: text)
    assert any("control character" in fault for fault in inside(drawn(scene("hostile")), 80, None))


def test_widths_of_wide_narrow_and_joined_signs() -> None:
    assert [width_of(text) for text in ("abc", "日本", "é", "e\u0301", "👩", "☺\ufe0f")] == [3, 4, 1, 1, 2, 2]
    assert UNICODE.fit("日本語", 4) == "日…"
    assert UNICODE.cell("日本語", 8) == "日本語  "
    assert UNICODE.name("שלום") == "\u200eשלום\u200e", "a terminal that turns it does not turn the line"
    assert ASCII.name("日本") == "\\u65e5\\u672c"


def test_colours_say_nothing_that_words_do_not() -> None:
    for name in SCENES:
        plain, coloured = drawn(scene(name), Frame(80, 24)), drawn(scene(name), Frame(80, 24, ink=COLOUR))
        assert [_ESCAPES.sub("", line).rstrip() for line in coloured] == plain
        assert any("\x1b[" in line for line in coloured)


def test_400_members_are_turned_page_by_page() -> None:
    seen = many()
    frame = Frame(80, 24)
    first = job_picture(seen, Shape(URL, seen.now), frame)
    assert first.lines[-1] == f" q quits   1–{400 - first.offset_max} of 400: p or arrows for the others"
    found: set[str] = set()
    for offset in range(0, first.offset_max + 10, 10):
        lines = job_picture(seen, Shape(URL, seen.now), frame._replace(offset=offset)).lines
        assert inside(lines, 80, 24) == []
        found |= {line.split()[0] for line in lines if line.startswith(" node-")}
    assert len(found) == 400
    once = drawn(seen)
    assert " 1–60 of 400 are shown; all: poise get members, poise get items" in once
    assert len(once) < 90


@cache
def many() -> JobSeen:
    return top_worlds.many(400, 800)


def test_ten_times_the_items_cost_about_ten_times_as_much_to_draw() -> None:
    seen = scene("moving")
    moved = [item for item in seen.items if item.state == "RequestedRelease"]

    def many(count: int) -> JobSeen:
        load = count // 2
        members = [msgspec.structs.replace(each, load=load, floor=load, ceiling=load) for each in seen.members]
        items = [msgspec.structs.replace(moved[0], item=f"item {number}") for number in range(count)]
        return msgspec.structs.replace(seen, members=members, items=items, is_complete=False)

    large, small = many(5_000), many(500)
    lines = drawn(large, Frame(80, 24))
    assert cost_s(lambda: drawn(large, Frame(80, 24))) < 30 * cost_s(lambda: drawn(small, Frame(80, 24)))
    assert inside(lines, 80, 24) == []
    assert any("a cell: up to " in line for line in lines)
    assert any("more moves" in line for line in lines)


def test_of_a_large_job_the_numbers_come_from_its_members() -> None:
    seen = scene("unowned")
    summary = msgspec.structs.replace(seen.summary, items=9_000, unowned=9_000)
    large = msgspec.structs.replace(seen, summary=summary, is_complete=False)
    lines = drawn(large)
    assert "   9000 have no owner: 0, 1, 2, 3, 4, 5 and 8994 more: no active node" in lines
    assert any(re.match(r" nobody +!! +9000 +!+$", line) for line in lines)
    other = msgspec.structs.replace(large.items[0], reason="no room")
    lines = drawn(msgspec.structs.replace(large, items=[other, *large.items[1:]]))
    assert "   no owner, such as: 1, 2, 3, 4, 5, 6 and 5 more: no active node" in lines


def test_a_plan_that_is_not_there_yet_or_cannot_be_says_so() -> None:
    seen = msgspec.structs.replace(scene("settled"), planned=None)
    assert "Plan   is being asked for" in drawn(seen)
    assert "Plan   none: its targets were not read" in drawn(
        msgspec.structs.replace(seen, refused="its targets were not read")
    )
    for name in ("divided", "split"):
        assert any("no plan: not yet" in line for line in drawn(msgspec.structs.replace(scene(name), planned=None)))


def test_the_picture_in_the_docs_is_a_real_one() -> None:
    shown = (Path(__file__).parents[2] / "docs" / "top.md").read_text().split("```text\n")[1].split("```")[0]
    real = drawn(scene("moving"), Frame(80, 24))
    assert shown.splitlines() == real[: len(shown.splitlines())]


def line(number: int, item: str, transition: str, member: str | None, at_s: float, reason: str = "") -> Line:
    return Line(
        set="s", item=item, transition=transition, member=member, epoch=1, at_s=at_s, reason=reason, number=number
    )


def test_what_happened_to_many_at_once_is_one_sentence() -> None:
    lines = [
        line(8, "9", "assigned", "w2", 100.5, "w1 over its share (6 of 4)"),
        line(7, "9", "released", "w1", 100.5, "w1 over its share (6 of 4)"),
        line(6, "8", "expired", "w3", 100.4, "w3 is gone"),
        line(5, "7", "assigned", "w2", 100.3, "w1 over its share (5 of 4)"),
        line(4, "7", "released", "w1", 100.3, "w1 over its share (5 of 4)"),
        line(3, "9", "release requested", "w1", 99.0, "w1 over its share (6 of 4)"),
        line(2, "7", "confirmed", "w2", 10.0),
        line(1, "7", "assigned", "w1", 9.5, "nobody holds it"),
        line(0, "", "set", None, 9.0, "paused"),
    ]
    told = tell(lines, top_worlds.NOON, "partition", UNICODE)
    assert [each.text for each in told] == [
        "2 partitions (7, 9) moved from w1 to w2: w1 over its share (6 of 4)",
        "partition 8 left without an owner by w3: w3 is gone",
        "partition 7 given to w1: nobody holds it",
        "Moves are paused",
    ]
    assert [each.colour for each in told] == ["move", "bad", "good", "move"]


def test_the_page_says_it_in_the_same_words() -> None:
    words = [each.value for each in Transition] + ["divided", "deleted", "reported", "something new"]
    for word in words:
        one = line(1, "a<b>", word, "w&1", 10.0, "why")
        found = in_short(lines_happened("PartitionSet", "orders", [one], None))
        shown = [(each.text.striptags(), each.reason) for each in told_on_page(found, 9)]
        said = [f"{text}: {reason}" if reason else text for text, reason in shown]
        assert [each.text for each in tell([one], None, "partition", UNICODE)] == said
        assert bool(found) != (word in ("confirmed", "release requested", "releasing", "cancelled")), word


def test_an_unknown_transition_is_told_as_it_is() -> None:
    [told] = tell([line(1, "7", "teleported\x1b", "w2", 10.0)], None, "item", UNICODE)
    assert told.text == "item 7: teleported\\x1b"
    assert told.at is None


def test_the_last_half_hour_in_small_bars() -> None:
    series = Series(
        at=[10_000, 11_000, 11_060, 11_500],
        series={"unowned": [0, 7, 0, 0], "moves": [3, 3, 10, 12]},
        now=11_700,
    )
    text = "".join(span.text for span in spark_row(series, UNICODE))
    assert text == "Last 30 min   no owner ▁▁▁▁▁▁▁▁▁█▁▁▁▁▁ most 7   moves ▁▁▁▁▁▁▁▁▁█▁▁▁▃▁ 9"
    assert spark_row(None, UNICODE) == ()
    assert spark_row(Series(at=[], series={}, now=5), UNICODE) == ()


def test_moves_in_the_first_minutes_of_a_history_count() -> None:
    series = Series(at=[9_900, 9_910, 9_950], series={"unowned": [9, 0, 0], "moves": [0, 0, 12]}, now=9_960)
    text = "".join(span.text for span in spark_row(series, UNICODE))
    assert text.endswith("moves               █ 12")


def test_an_outage_of_a_second_is_still_a_bar() -> None:
    series = Series(at=[0, 9_000, 9_001], series={"unowned": [0, 1, 0], "moves": [0, 0, 0]}, now=10_000)
    assert "█" in "".join(span.text for span in spark_row(series, UNICODE))


def test_pictures_in_a_terminal_need_nothing_of_the_page() -> None:
    code = "import sys, poise.cli.pictures; print(*{'jinja2', 'markupsafe', 'starlette'}.intersection(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
