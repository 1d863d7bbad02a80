"""The lines of `poise top` at 80 columns: whatever the names, what happens and why can be read."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from tests.cli import top_worlds
from tests.cli.test_top_pictures import UNICODE, drawn, line, scene

from poise.cli import picture_items, told
from poise.cli.ink import Ink, width_of
from poise.cli.pictures import Frame
from poise.cli.sparks import spark_row
from poise.cli.told import day_text, tell
from poise.cli.watching import JobSeen
from poise.jobs.series import Series

LONG = "apps/Deployment/reviews-of-the-north/worker-with-a-long-name-{:02}"
WHY = "worker-b over its share (13 of 11)"


def given(many: int, reason: str = WHY) -> list[told.Told]:
    """Tell of several items with long names that were given to somebody at once."""
    lines = [
        line(n, LONG.format(n), "assigned", "instance-with-a-rather-long-name-1", 10.0, reason) for n in range(many)
    ]
    return tell(lines[::-1], top_worlds.NOON, "object", UNICODE, 69)


@pytest.mark.parametrize("many", [1, 2, 3, 40])
def test_verb_and_reason_of_an_event_fit_whatever_the_names(many: int) -> None:
    [each] = given(many)
    assert width_of(each.text) <= 69
    assert " given to insta" in each.text
    assert each.text.endswith((f": {WHY}", ": worker-b over its share"))
    assert each.text.startswith("object apps/" if many == 1 else f"{many} objects")


def test_as_many_items_are_named_as_there_is_room_for() -> None:
    lines = [line(n, str(n), "assigned", "w2", 10.0, "nobody holds it") for n in range(9)]
    texts = {width: tell(lines[::-1], None, "partition", UNICODE, width)[0].text for width in (90, 66, 60, 54, 46)}
    assert texts[90] == "9 partitions (0, 1, 2, 3 and 5 more) given to w2: nobody holds it"
    assert texts[60] == "9 partitions (0, 1 and 7 more) given to w2: nobody holds it"
    assert texts[46] == "9 partitions given to w2: nobody holds it"
    assert all(width_of(text) <= width for width, text in texts.items())


def test_of_a_reason_that_is_too_long_its_first_part_is_said() -> None:
    [each] = given(40, "nobody holds it; instance-with-a-rather-long-name-1 is furthest below its share")
    assert each.text.endswith(": nobody holds it; …")
    assert width_of(each.text) <= 69


def test_items_that_are_not_left_out_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "_fewer", lambda pieces, _many: pieces)
    assert any(width_of(each.text) > 69 for each in given(40))


def renamed(seen: JobSeen) -> JobSeen:
    """Give everything a long name."""
    names = {each.name: f"worker-with-a-rather-long-name-{each.name}" for each in seen.members}
    items = [
        msgspec.structs.replace(
            each,
            item=LONG.format(int(each.item)),
            member=names.get(each.member or ""),
            target=names.get(each.target or ""),
        )
        for each in seen.items
    ]
    members = [msgspec.structs.replace(each, name=names[each.name]) for each in seen.members]
    return msgspec.structs.replace(seen, items=items, members=members)


@pytest.mark.parametrize("ink", [UNICODE, Ink(unicode=False)])
def test_moves_say_what_is_done_and_why_whatever_the_names(ink: Ink) -> None:
    moving = [each for each in drawn(renamed(scene("moving")), Frame(80, 40, ink=ink)) if "asked back" in each]
    ends = ("27 s left: w10 is draining", "29 s left: w2 is draining")
    assert [each.endswith(ends) for each in moving if "left" in each] == [True] * 3
    assert all(len(each) <= 80 for each in moving)


def test_what_waits_says_for_what() -> None:
    [waits] = [each for each in drawn(scene("moving"), Frame(80, 40)) if each.startswith("  || ")]
    assert waits.endswith("waits: 3 of 3 moves in flight")
    names = [LONG.format(number) for number in range(17)]
    told = picture_items._few(names, UNICODE, 40, len(names))
    assert width_of(told) <= 40
    assert told.endswith(" and 16 more")


def test_members_are_called_as_the_page_calls_them() -> None:
    lines = drawn(scene("settled"), Frame(80, 24))
    assert "3 workers" in lines[1]
    assert not any("node" in each for each in lines)
    assert picture_items.NOUNS["ShardRing"] == ("object", "instance")


def test_what_a_repair_would_do_is_said_in_full() -> None:
    lines = [each.strip() for each in drawn(scene("divided"), Frame(80, 24))]
    place = next(place for place, each in enumerate(lines) if each.startswith("Plan"))
    said = " ".join(lines[place + 1 : place + 3])
    assert said.startswith("a repair of 1 move would bring the largest error of a total from 4/3 to ")
    assert said.endswith("(movesMax is 0)")


def test_a_split_counts_missing_replicas_and_reports() -> None:
    series = Series(at=[0, 9_000], series={"unowned": [0, 3], "moves": [0, 2]}, now=10_000)
    text = "".join(span.text for span in spark_row(series, UNICODE, is_split=True))
    assert "   missing ▁" in text
    assert "reports" in text
    assert "no owner" not in text
    seen = msgspec.structs.replace(scene("split"), series=series)
    assert any("missing" in each and each.endswith("2") for each in drawn(seen, Frame(80, 24)))


def test_an_event_of_another_day_says_its_day() -> None:
    noon = top_worlds.NOON
    assert day_text(noon, noon) == "12:00:00Z"
    assert day_text(noon - timedelta(days=3), noon) == f"{noon - timedelta(days=3):%d %b} 12:00Z"
    seen = scene("settled")
    late = msgspec.structs.replace(seen, now=seen.now + timedelta(days=2))
    events = [each for each in drawn(late, Frame(80, 24)) if "joined" in each]
    assert events
    assert all(each.startswith(f" {noon:%d %b} 12:00Z w") for each in events)
