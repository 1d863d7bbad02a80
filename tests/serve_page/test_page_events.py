"""Last events: those worth telling are found behind any number of confirmations, and those of one job behind others."""

from __future__ import annotations

import re

import httpx2
import pytest
from tests.serve.live_server import LiveServer
from tests.serve_page.page_world import JOBS, check_page, speak

from poise.jobs.sentences import in_short, lines_happened
from poise.model.ownership import Line
from poise.serve.page import newest
from poise.serve.page.newest import KEPT, Newest
from poise.serve.page.sentences import tell
from poise.stores.base import Transaction

SET, SPLIT = "PartitionSet", "CapacitySplit"
DAY_S = 86_400.0


def start(server: LiveServer, client: httpx2.Client, name: str, member: str) -> None:
    """Make a set with one member that is given four partitions."""
    server.put({"kind": SET, "metadata": {"name": name}, "spec": {"partitions": 4, "leaseSeconds": 600}}, client)
    speak(client, name, member)
    server.cycle(name)


def write(server: LiveServer, name: str, transition: str, number: int, ago_s: float = 0.0) -> None:
    """Write lines of one sort, as a large set does in a moment."""

    def work(tx: Transaction) -> None:
        tx.write_lines(
            Line(
                set=name, item=f"i{item}", transition=transition, member="w1", epoch=1, at_s=tx.now_s - ago_s, reason=""
            )
            for item in range(number)
        )

    server.store.transact(name, work)


def events_of(client: httpx2.Client, path: str) -> str:
    """Read the list of events of a page."""
    found = re.search(
        r'<section class="card"[^>]* aria-labelledby="events-title">.*?</section>', client.get(path).text, re.S
    )
    assert found is not None
    return check_page(found[0]).text


def test_what_happened_is_found_behind_very_many_confirmations(page: httpx2.Client, page_server: LiveServer) -> None:
    start(page_server, page, "busy", "b1")
    for _ in range(3):
        write(page_server, "busy", "confirmed", 900)
        told = events_of(page, f"/jobs/{SET}/busy")
        assert "4 partitions (0, 1, 2, 3) given to b1" in told
        assert "b1 joined" in told
    write(page_server, "busy", "expired", 2)
    assert "2 partitions (i0, i1) left without an owner by w1" in events_of(page, f"/jobs/{SET}/busy")


def test_where_only_confirmations_came_for_long_the_page_says_so(
    page: httpx2.Client, page_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(page_server, page, "calm", "c1")
    write(page_server, "calm", "confirmed", 900)
    monkeypatch.setattr(newest, "_LINES_MAX", 500)
    monkeypatch.setattr(newest, "_LINES_PAGE", 400)
    told = events_of(page, f"/jobs/{SET}/calm")
    assert "Only confirmations came lately." in told
    assert "Nothing has happened" not in told


def test_a_look_reads_only_what_is_new_and_keeps_no_more_than_its_bounds(
    page: httpx2.Client, page_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, kept = page_server.api, Newest()
    read: list[int] = []
    plain = api.history

    def noted(*args: str, after: int | None = None, most: int = 0, newest: bool = False) -> list[Line]:
        found = plain(*args, after=after, most=most, newest=newest)
        read.append(len(found))
        return found

    monkeypatch.setattr(api, "history", noted)
    start(page_server, page, "busy", "b1")
    write(page_server, "busy", "assigned", 2_500)
    first = kept.lines(api, SET, "busy", lambda _: False)
    assert (len(first.lines), first.cut) == (newest._LINES_KEPT, True)
    assert sum(read) > 2_500
    del read[:]
    assert kept.lines(api, SET, "busy", lambda _: False) == first
    write(page_server, "busy", "expired", 3)
    again = kept.lines(api, SET, "busy", lambda _: False)
    assert [line.transition for line in again.lines[-4:]] == ["assigned", *["expired"] * 3]
    assert (sum(read), len(again.lines)) == (1 + 4, newest._LINES_KEPT)
    told = tell(in_short(lines_happened(SET, "busy", again.lines, None)), 12, cut=again.cut)
    assert told[-1].text.striptags().startswith("at least 1,997 partitions (i"), "not 2,500, and not called all"
    for number in range(newest._JOBS_KEPT + 3):
        name = f"more-{number}"
        page_server.put({"kind": SET, "metadata": {"name": name}, "spec": {"partitions": 1}}, page)
        kept.lines(api, SET, name, lambda _: False)
    assert len(kept._jobs) == newest._JOBS_KEPT


def test_a_store_that_began_anew_is_read_anew(page: httpx2.Client, page_server: LiveServer) -> None:
    start(page_server, page, "busy", "old")
    assert "old joined" in events_of(page, f"/jobs/{SET}/busy")
    page_server.reset()
    start(page_server, page, "busy", "new")
    write(page_server, "busy", "confirmed", 20)
    told = events_of(page, f"/jobs/{SET}/busy")
    assert "new joined" in told
    assert "old joined" not in told


def test_the_events_of_one_job_are_found_behind_those_of_others(page: httpx2.Client, page_server: LiveServer) -> None:
    start(page_server, page, "quiet", "q1")
    write(page_server, "orders", "expired", KEPT + 100)
    assert "q1 joined" not in events_of(page, "/events")
    told = events_of(page, f"/events?kind={SET}&job=quiet")
    assert "q1 joined" in told
    assert "given to q1" in told
    of_member = events_of(page, f"/events?kind={SET}&job=quiet&member=q1")
    assert "given to q1" in of_member
    assert "The job is written" not in of_member
    assert "Nothing of the last 6 events of this job fits." in events_of(
        page, f"/events?kind={SET}&job=quiet&member=nobody"
    )
    assert f"Nothing of the last {KEPT:,} events of all jobs fits." in events_of(page, f"/events?kind={SET}&job=none")


def test_the_events_of_a_job_that_was_deleted_can_still_be_chosen(page: httpx2.Client) -> None:
    assert page.delete("/v1/jobs/ReplicaDivision/shop").status_code == 204
    assert "The job is written" in events_of(page, "/events?kind=ReplicaDivision&job=shop")


def test_counts_that_come_all_the_time_leave_room_on_the_overview(page: httpx2.Client, page_server: LiveServer) -> None:
    assert "w3 joined" in events_of(page, "/")
    for _ in range(3):
        write(page_server, f"{SPLIT}/services", "reported", 500)
        told = events_of(page, "/")
        assert "w3 joined" in told
        assert "counted" not in told
    assert "counted" in events_of(page, "/events")
    assert "counted" in events_of(page, JOBS[SPLIT])


def test_an_event_of_another_day_says_its_day(page: httpx2.Client, page_server: LiveServer) -> None:
    write(page_server, "orders", "expired", 1, ago_s=0.0)
    write(page_server, "orders", "deleted", 1, ago_s=2 * DAY_S)
    times = re.findall(r'<time datetime="[^"]+">([^<]+)</time>', page.get(f"/events?kind={SET}&job=orders").text)
    assert [each for each in times if re.fullmatch(r"\d{1,2} [A-Z][a-z]{2} (\d{4} )?\d\d:\d\d", each)]
    assert [each for each in times if re.fullmatch(r"\d\d:\d\d:\d\d", each)]
