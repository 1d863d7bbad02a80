"""Every metric of the contract is scraped from a real server, and is true."""

from __future__ import annotations

import time

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.serve.live_server import LiveServer
from tests.serve.talking_member import TalkingMember, settle

from poise.model.ownership import Line
from poise.move.handoff import Transition
from poise.serve.facade import Event
from poise.serve.moves import Ended, Moves, reason_of

# The name and the labels, as the contract has them.
NAMED = {
    "poise_members": ("gauge", {"job", "state"}),
    "poise_items": ("gauge", {"job"}),
    "poise_load": ("gauge", {"job", "member"}),
    "poise_unowned": ("gauge", {"job"}),
    "poise_spread": ("gauge", {"job"}),
    "poise_moves_total": ("counter", {"job", "reason", "outcome"}),
    "poise_moves_in_flight": ("gauge", {"job"}),
    "poise_moves_min_total": ("counter", {"job"}),
    "poise_handoff_seconds": ("histogram", set[str]()),
    "poise_unowned_seconds": ("histogram", set[str]()),
    "poise_cycle_seconds": ("histogram", set[str]()),
    "poise_cycle_errors_total": ("counter", set[str]()),
    "poise_lease_renew_seconds": ("histogram", set[str]()),
    "poise_build_info": ("gauge", {"version", "python"}),
}
JOB = "PartitionSet/orders"
Scraped = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(client: httpx2.Client) -> Scraped:
    """Read every sample."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def value(found: Scraped, name: str, **labels: str) -> float:
    return found.get((name, frozenset(labels.items())), 0.0)


@pytest.fixture
def scraped(server: LiveServer, client: httpx2.Client) -> Scraped:
    """Move things about, and scrape."""
    members = [TalkingMember(client, "n1"), TalkingMember(client, "n2")]
    settle(server, *members)
    client.post("/v1/jobs/PartitionSet/orders/members/n2/drain")
    server.cycle()
    server.site.metrics.on_cycle("PartitionSet", "orders", 0.002, moves_min=2)
    server.site.metrics.on_cycle("PartitionSet", "orders", 0.5, failed=True)
    return scrape(client)


def test_every_metric_is_there_with_its_type_and_labels_and_no_other(scraped: Scraped, client: httpx2.Client) -> None:
    found = {
        family.name: (family.type, {frozenset(one.labels) - {"le"} for one in family.samples})
        for family in text_string_to_metric_families(client.get("/metrics").text)
    }
    told = {f"{name}_total" if kind == "counter" else name: (kind, labels) for name, (kind, labels) in found.items()}
    assert {name: kind for name, (kind, _) in told.items()} == {name: kind for name, (kind, _) in NAMED.items()}
    for name, (_, labels) in told.items():
        assert labels <= {frozenset(NAMED[name][1])}, name
    assert scraped


def test_the_gauges_say_what_is_true_now(scraped: Scraped) -> None:
    assert value(scraped, "poise_items", job=JOB) == 4
    assert value(scraped, "poise_items", job="ShardRing/web") == 5
    assert value(scraped, "poise_unowned", job=JOB) == 0
    assert value(scraped, "poise_unowned", job="ShardRing/web") == 5
    assert value(scraped, "poise_load", job=JOB, member="n1") == 2
    assert value(scraped, "poise_members", job=JOB, state="active") == 1
    assert value(scraped, "poise_members", job=JOB, state="draining") == 1
    assert value(scraped, "poise_moves_in_flight", job=JOB) == 2


def test_no_item_is_a_label(scraped: Scraped) -> None:
    assert not any(label in ("item", "target", "partition") for _, labels in scraped for label, _ in labels)


def test_counts_of_cycles_and_heartbeats(scraped: Scraped) -> None:
    assert value(scraped, "poise_cycle_seconds_count") >= 2
    assert value(scraped, "poise_cycle_errors_total") >= 1
    assert value(scraped, "poise_moves_min_total", job=JOB) >= 2
    assert value(scraped, "poise_lease_renew_seconds_count") >= 12


def moved(found: Scraped, reason: str, outcome: str) -> float:
    """Sum the moves of all jobs; the store knows sets by their name alone."""
    return sum(
        number
        for (name, labels), number in found.items()
        if name == "poise_moves_total" and {("reason", reason), ("outcome", outcome)} <= labels
    )


def test_moves_and_their_times_are_counted_from_the_journal(server: LiveServer, client: httpx2.Client) -> None:
    before = scrape(client)
    members = [TalkingMember(client, "n1"), TalkingMember(client, "n2")]
    settle(server, *members)
    client.post("/v1/jobs/PartitionSet/orders/members/n2/drain")
    settle(server, *members)
    end_s = time.monotonic() + 5
    while moved(scrape(client), "drain", "done") == moved(before, "drain", "done") and time.monotonic() < end_s:
        time.sleep(0.05)
    after = scrape(client)
    assert moved(after, "drain", "done") - moved(before, "drain", "done") == 2
    assert value(after, "poise_handoff_seconds_count") - value(before, "poise_handoff_seconds_count") >= 2
    assert value(after, "poise_unowned_seconds_count") - value(before, "poise_unowned_seconds_count") >= 2
    assert value(after, "poise_spread", job=JOB) == 0
    assert value(after, "poise_load", job=JOB, member="n1") == 4


def told_by(moves: Moves, *story: tuple[float, Transition, str | None, str]) -> list[Ended]:
    """Tell a story of one item, and give what each transition ended."""
    return [
        moves.take(
            Event(
                id=str(at_s),
                kind="PartitionSet",
                job="orders",
                line=Line(set="orders", item="0", transition=kind, member=member, epoch=1, at_s=at_s, reason=reason),
            )
        )
        for at_s, kind, member, reason in story
    ]


def test_a_hand_over_lasts_from_the_request_to_the_grant() -> None:
    ended = told_by(
        Moves(),
        (10.0, Transition.T3, "n1", "n1 over its share (4 of 3)"),
        (11.0, Transition.T4, "n1", ""),
        (13.0, Transition.T5, "n1", ""),
        (13.5, Transition.T1, "n2", ""),
    )
    assert ended == [Ended(), Ended(), Ended(), Ended("balance", "done", 3.5, 0.5)]


def test_a_first_placement_is_no_move() -> None:
    assert told_by(Moves(), (1.0, Transition.T1, "n1", "new item")) == [Ended()]


def test_coming_back_to_the_same_member_is_no_move() -> None:
    ended = told_by(Moves(), (1.0, Transition.T7, "n1", "n1 has started again"), (3.0, Transition.T1, "n1", ""))
    assert ended == [Ended(), Ended(unowned_s=2.0)]


def test_a_lost_item_that_goes_elsewhere_is_a_move() -> None:
    ended = told_by(Moves(), (1.0, Transition.T7, "n1", "n1 is gone"), (3.0, Transition.T1, "n2", ""))
    assert ended[1] == Ended("gone", "done", None, 2.0, forced=True)


@pytest.mark.parametrize(
    ("reason", "told"),
    [("n2 is draining", "stop"), ("nobody holds it; n1 is its home", "stop"), ("restart", "restart")],
)
def test_what_nobody_asked_for_went_because_its_member_stops(reason: str, told: str) -> None:
    """The line of such a release still has the reason for which the member had got the item."""
    ended = told_by(Moves(), (1.0, Transition.T5, "n1", reason), (3.0, Transition.T1, "n2", ""))
    assert ended[1] == Ended(told, "done", None, 2.0, forced=True)


def test_a_cancelled_move_and_one_that_expired_say_so() -> None:
    moves = Moves()
    ended = told_by(moves, (1.0, Transition.T3, "n1", "n1 is draining"), (2.0, Transition.T6, "n1", ""))
    assert ended[1] == Ended("drain", "cancelled")
    ended = told_by(
        moves, (3.0, Transition.T3, "n1", ""), (9.0, Transition.T7, "n1", "n1 is gone"), (9.0, Transition.T1, "n2", "")
    )
    assert ended[2] == Ended("balance", "expired", 6.0, 0.0)


def test_a_retired_item_ends_its_move() -> None:
    ended = told_by(
        Moves(), (1.0, Transition.T3, "n1", "retire"), (2.0, Transition.T5, "n1", ""), (3.0, Transition.T9, None, "")
    )
    assert ended[2] == Ended("retire", "retired", forced=True)


@pytest.mark.parametrize("text", ["n1 over its share (4 of 3)", "x" * 1000, "", "pod-17 has 12 of 3"])
def test_reasons_are_few_words_whatever_names_they_hold(text: str) -> None:
    assert reason_of(text) == "balance"
