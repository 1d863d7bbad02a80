"""Queries, commands and sentences: what stands in an address, and how what happened is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from poise.errors import InvalidSpec
from poise.jobs.sentences import Happened, in_short, lines_happened
from poise.model.ownership import Line
from poise.serve.page.commands import command, plan_command
from poise.serve.page.rendering import moment_text, seconds_text
from poise.serve.page.sentences import tell
from poise.serve.page.what_if import Wish, is_plain, read_pairs, read_wish

ZERO = datetime(2026, 11, 15, 20, 0, tzinfo=UTC)


def line(item: str, transition: str, member: str | None, at_s: float, reason: str = "", number: int = 0) -> Line:
    return Line(
        set="orders",
        item=item,
        transition=transition,
        member=member,
        epoch=1,
        at_s=at_s,
        reason=reason,
        number=number,
    )


def happening(*lines: Line) -> list[Happened]:
    return lines_happened("PartitionSet", "orders", lines, ZERO)


def test_a_query_says_what_the_wish_says() -> None:
    query = "drain=w1&add=x&remove=y&weight=e%3A2&replicas=cart%3A9"
    wish = read_wish(read_pairs(query.encode()))
    assert wish == Wish(drain=("w1",), add=("x",), remove=("y",), weight={"e": 2}, replicas={"cart": 9})
    assert wish.query == query
    assert read_wish(read_pairs(wish.query.encode())) == wish
    assert wish.without("add", "x") == "drain=w1&remove=y&weight=e%3A2&replicas=cart%3A9"


def test_the_last_word_about_a_number_counts() -> None:
    pairs = read_pairs(b"weight=a:1&weight_of=a&weight_is=4&drain=")
    assert read_wish(pairs).weight == {"a": 4}
    assert not is_plain(pairs)


@pytest.mark.parametrize(
    "query", [b"what=1", b"weight=a", b"weight=a:-1", b"weight=a:1.5", b"weight=:1", b"pause=x", b"resume=1", b"a=%ff"]
)
def test_a_query_that_is_no_wish_is_refused(query: bytes) -> None:
    with pytest.raises(InvalidSpec):
        read_wish(read_pairs(query))


def test_commands_are_quoted_for_a_shell() -> None:
    assert command("explain", "a b", "$(rm -rf /)") == "poise explain 'a b' '$(rm -rf /)'"
    told = plan_command("ShardRing/web", Wish(add=("x;y",), weight={"a": 2}), "http://h:1")
    assert told == "poise plan ShardRing/web --add 'x;y' --weight a=2 --server http://h:1"


def test_a_move_is_one_sentence() -> None:
    found = happening(
        line("3", "release requested", "w1", 1, "w1 over its share (9 of 8)"),
        line("3", "releasing", "w1", 2, "w1 over its share (9 of 8)"),
        line("3", "released", "w1", 3, "w1 over its share (9 of 8)"),
        line("3", "assigned", "w2", 3, "w1 over its share (9 of 8)"),
        line("3", "confirmed", "w2", 4, "w1 over its share (9 of 8)"),
    )
    told = tell(in_short(found), 10)
    assert [each.text.striptags() for each in told] == ["partition 3 moved from w1 to w2"]
    assert told[0].at == ZERO + timedelta(seconds=3)
    assert len(tell(found, 10)) == 5, "its story tells every step"


def test_what_comes_back_to_the_same_is_no_move() -> None:
    found = happening(line("3", "released", "w1", 1), line("3", "assigned", "w1", 2))
    assert [each.text.striptags() for each in tell(in_short(found), 10)] == [
        "partition 3 given to w1",
        "w1 has let go of partition 3",
    ]


def test_many_at_once_are_one_sentence() -> None:
    found = happening(*(line(str(item), "expired", "w1", 5 + item / 100, "w1 is gone") for item in range(9)))
    (told,) = tell(found, 10)
    assert told.text.striptags() == "9 partitions (0, 1, 2, 3 and 5 more) left without an owner by w1"
    assert (told.mood, told.reason) == ("bad", "w1 is gone")


def test_what_may_have_begun_before_the_oldest_line_is_not_called_whole() -> None:
    found = happening(
        *(line(str(item), "assigned", "w1", 1) for item in range(6)),
        *(line(str(item), "assigned", "w2", 60) for item in range(7)),
    )
    texts = [each.text.striptags() for each in tell(found, 10, cut=True)]
    assert texts == [
        "7 partitions (0, 1, 2, 3 and 3 more) given to w2",
        "at least 6 partitions (0, 1, 2, 3 and 2 more) given to w1",
    ]
    assert not any("at least" in each.text for each in tell(found, 10))


def test_what_was_counted_twice_is_named_once_with_its_newest_count() -> None:
    twice = [line("api", "reported", None, at_s, f"spot {spot}") for at_s, spot in ((1, 5), (2, 6))]
    (told,) = tell(lines_happened("CapacitySplit", "shop", twice, ZERO), 10)
    assert (told.text.striptags(), told.reason) == ("workload api counted", "spot 6")
    (many,) = tell(lines_happened("CapacitySplit", "shop", [*twice, line("web", "reported", None, 3)], ZERO), 10)
    assert (many.text.striptags(), many.reason) == ("2 workloads (api, web) counted", "")


def test_what_happened_apart_is_told_apart() -> None:
    found = happening(line("1", "expired", "w1", 1), line("2", "expired", "w1", 60))
    assert len(tell(found, 10)) == 2
    assert len(tell(found, 1)) == 1


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("0 items", "The job is written"),
        ("1 items", "The job is written: 1 partition in all"),
        ("16 items", "The job is written: 16 partitions in all"),
        ("w1 registered, incarnation 1", "w1 joined"),
        ("w1 registered, incarnation 4", "w1 came back, as its incarnation 4"),
        ("w1 draining", "w1 is being drained"),
        ("w1 back in service", "w1 takes part again"),
        ("paused, recovery too", "Moves are paused, and recovery too"),
        ("resumed", "Moves go on"),
        ("something new", "The job"),
    ],
)
def test_what_happened_to_the_job_itself(reason: str, told: str) -> None:
    (sentence,) = tell(happening(line("", "set", None, 1, reason)), 5)
    assert sentence.text.striptags() == told


def test_a_sentence_escapes_every_name() -> None:
    found = happening(line("<b>", "<i>", "<u>", 1), line("", "set", None, 2, "<s> draining"))
    text = "".join(each.text for each in tell(found, 10))
    assert "<i>" not in text
    assert "<s>" not in text
    assert "&lt;b&gt;" in text


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (datetime(2026, 11, 15, 2, 0, 1, tzinfo=UTC), "02:00:01"),
        (datetime(2026, 11, 16, 1, 0, 0, tzinfo=timezone(timedelta(hours=2))), "23:00:00"),
        (datetime(2026, 11, 14, 23, 59, 59, tzinfo=UTC), "14 Nov 23:59"),
        (datetime(2026, 12, 31, 2, 0, tzinfo=UTC), "31 Dec 02:00"),
        (datetime(2027, 1, 1, 2, 0, tzinfo=UTC), "1 Jan 2027 02:00"),
    ],
)
def test_a_time_of_another_day_says_its_day(at: datetime, told: str) -> None:
    assert moment_text(at, ZERO) == told


def test_a_length_of_time_is_short() -> None:
    told = [seconds_text(span_s) for span_s in (-1, 7.4, 119, 120, 7_199, 7_200, 200_000)]
    assert told == ["0 s", "7 s", "119 s", "2 min", "119 min", "2 h", "2 days"]
