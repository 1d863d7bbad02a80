"""Every page of every kind: it loads, is well formed, asks nobody else, and shows any name as text."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime

import httpx2
import pytest
from markupsafe import Markup
from tests.serve.live_server import LiveServer
from tests.serve_page.page_world import HOSTILE, JOBS, Seen, check_page, every_page, item_path, speak

from poise.serve.page import page_routes
from poise.serve.page.rendering import mixed_shares, moment_text, named
from poise.serve.settings import ServeSettings


@pytest.mark.parametrize("path", every_page())
def test_a_page_loads_and_is_well_formed(page: httpx2.Client, path: str) -> None:
    response = page.get(path)
    assert response.status_code == 200, response.text[:400]
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'self'" in response.headers["content-security-policy"]
    assert response.headers["cache-control"] == "no-store"
    seen = check_page(response.text)
    assert {"main", "state", "live", "say"} <= set(seen.ids)


@pytest.mark.parametrize("path", every_page())
def test_the_living_part_comes_alone(page: httpx2.Client, path: str) -> None:
    whole, part = page.get(path), page.get(path, headers={"HX-Request": "true"})
    assert part.status_code == 200
    assert "<html" not in part.text
    assert "HX-Request" in part.headers["vary"]
    assert len(part.content) < len(whole.content)
    check_page(part.text)


def test_the_checker_of_pages_sees_what_is_wrong() -> None:
    for broken in ("<p><b></p>", '<p onclick="x()"></p>', '<p style="x"></p>', "<script>1</script>", "<div>"):
        assert Seen(broken).faults, broken
    for strange in ('<a href="https://example.com/">x</a>', '<img src="//example.com/x.png">'):
        with pytest.raises(AssertionError):
            check_page(strange)
    with pytest.raises(AssertionError):
        check_page('<p id="a"></p><p id="a"></p>')


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_is_shown_as_text(page: httpx2.Client, name: str) -> None:
    listed = page.get(f"{JOBS['ShardRing']}/items").text
    shown = str(named(name))
    assert "<script>" not in shown
    assert html.unescape(shown).count(name) == 1
    assert shown in listed
    links = re.findall(r'href="(/jobs/ShardRing/web/items/[^"?]+)"', listed)
    pages = [page.get(html.unescape(link)) for link in dict.fromkeys(links)]
    assert [each.status_code for each in pages] == [200] * len(HOSTILE)
    titles = [check_page(each.text).text for each in pages]
    assert any(name in title for title in titles)


def test_hostile_members_and_workloads_do_not_break_a_what_if(page: httpx2.Client) -> None:
    response = page.get("/jobs/PartitionSet/orders", params={"add": '"><script>alert(1)</script>'})
    assert response.status_code == 400
    assert "<script>alert" not in response.text
    check_page(response.text)


def test_what_is_wrong_comes_first(page: httpx2.Client) -> None:
    rows = re.findall(r'data-job="([^"]+)" data-mood="([^"]+)"', page.get("/").text)
    assert rows[0] == ("PartitionSet/lonely", "bad"), "nobody holds its partitions"
    assert [mood for _, mood in rows] == sorted((mood for _, mood in rows), key=["bad", "wait", "good"].index)
    assert "2 of 2 items have no owner" in page.get("/jobs/PartitionSet/lonely").text


def test_without_a_job_the_page_teaches(page_server: LiveServer) -> None:
    page_server.reset()
    with page_server.client() as client:
        seen = check_page(client.get("/").text)
    assert "There is no job yet" in seen.text
    assert f"poise worker tasks --name w1 --server {page_server.url}" in seen.text


def test_a_job_says_who_holds_what_and_proves_its_plan(page: httpx2.Client) -> None:
    seen = check_page(page.get(JOBS["PartitionSet"]).text)
    for words in ("orders", "12 partitions", "3 workers", "Fewest possible: 0. Spread 0.", "Last events", "Guards"):
        assert words in seen.text, words
    assert {"plan", "certificate", "members", "guards", "events", "series", "what-if-form", "drain-w1"} <= set(seen.ids)


def test_a_guard_says_when_it_opens(page: httpx2.Client) -> None:
    text = page.get(JOBS["CapacitySplit"]).text
    assert 'data-guard="window" data-open="no"' in text
    opens = re.search(r"opens at <b><time datetime=\"(\d{4})-12-31T02:00:00Z\">([^<]+)</time>", text)
    assert opens is not None
    assert opens[2] == moment_text(datetime(int(opens[1]), 12, 31, 2, tzinfo=UTC), datetime.now(UTC))
    assert opens[2].startswith("31 Dec ") or datetime.now(UTC).timetuple()[1:3] == (12, 31)


@pytest.mark.parametrize(
    ("kind", "counts", "empty"),
    [("ReplicaDivision", "east 5, west 2", "cart"), ("CapacitySplit", "spot 5, on-demand 5", "api")],
)
def test_the_list_of_what_is_only_counted_has_no_empty_parts(
    page: httpx2.Client, kind: str, counts: str, empty: str
) -> None:
    seen = check_page(page.get(f"{JOBS[kind]}/items").text)
    assert "filters" not in seen.ids, "there is nothing to choose by"
    assert counts in seen.text
    for words in ("Since", "Epoch", "onDemand"):
        assert words not in seen.text, words
    item = check_page(page.get(f"{JOBS[kind]}/items/{empty}").text)
    assert "onDemand" not in item.text
    assert "filters" in check_page(page.get(f"{JOBS['PartitionSet']}/items").text).ids


def test_a_job_is_told_in_its_own_nouns(page: httpx2.Client) -> None:
    for kind, words in (
        ("ShardRing", "Add an instance"),
        ("PartitionSet", "Add a worker"),
        ("TargetPool", "Add a pod"),
    ):
        assert words in check_page(page.get(JOBS[kind]).text).text
    told = check_page(page.get(JOBS["PartitionSet"]).text).text
    assert re.search(r"4 partitions \([\d, ]+\) given to w1", told)
    assert "12 partitions in all" in told
    assert "items" not in re.sub(r".*Last events", "", told)


def test_large_numbers_are_read_in_groups(page_server: LiveServer) -> None:
    page_server.reset()
    with page_server.client() as client:
        many = {"kind": "PartitionSet", "metadata": {"name": "many"}, "spec": {"partitions": 2468}}
        page_server.put(many, client)
        speak(client, "many", "w1")
        text = client.get("/jobs/PartitionSet/many").text
    assert re.search(r'<li class="changes"><bdi>w1</bdi> <b>0<span aria-label="to">→</span>2,468</b>', text)


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("127.0.0.1", "local, no login"),
        ("localhost", "local, no login"),
        ("0.0.0.0", "! open to the network, no login"),
    ],
)
def test_a_server_without_login_says_who_can_reach_it(host: str, told: str) -> None:
    with LiveServer(ServeSettings(host=host, insecure=True, hosts=("127.0.0.1",))) as live, live.client() as client:
        found = re.search(r'<span id="who" class="([^"]*)">(.*)</span>\s*</div>', client.get("/").text)
    assert found is not None
    assert Seen(found[2]).text == told
    assert ("bad" in found[1]) == ("network" in told)


def test_shares_are_written_alike_everywhere() -> None:
    assert mixed_shares("w1 holds 11 of its share 32/3") == "w1 holds 11 of its share 10 2/3"
    assert (
        mixed_shares("its share 2/3, share 7, share/1/0 and a/32/3") == "its share 2/3, share 7, share/1/0 and a/32/3"
    )


def test_an_item_says_who_why_and_what_would_move_it(page: httpx2.Client) -> None:
    seen = check_page(page.get(item_path("ShardRing")).text)
    for words in ("Held by", "Epoch", "Why it is here", "Why not there", "What would move it", "Its story"):
        assert words in seen.text, words
    assert {"ranking", "would-move", "story", "held-by", "epoch"} <= set(seen.ids)


def test_an_item_that_is_gone_still_has_its_story(page: httpx2.Client, page_server: LiveServer) -> None:
    fewer = {"kind": "ShardRing", "metadata": {"name": "web"}, "spec": {"policy": "balanced", "objects": HOSTILE[1:]}}
    page_server.put(fewer, page)
    for _ in range(3):
        page_server.cycle("web")
    assert page.get(item_path("ShardRing")).status_code == 200


def test_items_page_and_filter(page_server: LiveServer) -> None:
    page_server.reset()
    with page_server.client() as client:
        many = {"kind": "PartitionSet", "metadata": {"name": "orders"}, "spec": {"partitions": 250}}
        page_server.put(many, client)
        first = check_page(client.get("/jobs/PartitionSet/orders/items").text)
        last = check_page(client.get("/jobs/PartitionSet/orders/items?page=3").text)
        beyond = check_page(client.get("/jobs/PartitionSet/orders/items?page=99").text)
        nothing = check_page(client.get("/jobs/PartitionSet/orders/items?state=Assigned").text)
        assert client.get("/jobs/PartitionSet/orders/items?page=x").status_code == 400
    assert "250 partitions" in first.text
    assert "Page 1 of 3" in first.text
    assert "page-after" in first.ids
    assert "page-after" not in last.ids
    # A second may have passed between the two: their clocks are not compared.
    shown, again = ([each for each in seen.addresses if "/items/" in each] for seen in (last, beyond))
    assert shown == again
    assert shown[-1] == "/jobs/PartitionSet/orders/items/249"
    assert "Nothing fits" in nothing.text


def test_events_can_be_chosen(page: httpx2.Client) -> None:
    everything = check_page(page.get("/events").text)
    some = check_page(page.get("/events?kind=ReplicaDivision&job=shop").text)
    assert "w1 joined" in everything.text
    assert "w1 joined" not in some.text
    assert "The job is written" in some.text


def test_static_files_are_kept_by_what_is_in_them(page: httpx2.Client) -> None:
    links = re.findall(r'"(/static/[^"]+)"', page.get(JOBS["PartitionSet"]).text)
    assert len(set(links)) >= 6
    for link in set(links):
        response = page.get(html.unescape(link))
        assert response.status_code == 200, link
        assert "immutable" in response.headers["cache-control"]
        again = page.get(link, headers={"If-None-Match": response.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    old = page.get("/static/poise.css?v=old")
    assert old.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", ["/static/none.css", "/static/../app.py", "/static/%2e%2e/app.py", "/static/"])
def test_no_other_file_is_served(page: httpx2.Client, path: str) -> None:
    assert page.get(path).status_code == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/jobs/PartitionSet/none", 404),
        ("/jobs/Nonsense/orders", 404),
        ("/jobs/PartitionSet/orders/items/99", 404),
        ("/jobs/PartitionSet/orders?darin=w1", 400),
        ("/jobs/PartitionSet/orders?weight=w1", 400),
        ("/jobs/PartitionSet/orders?pause=often", 400),
    ],
)
def test_a_refusal_wears_the_same_clothes(page: httpx2.Client, path: str, status: int) -> None:
    response = page.get(path, headers={"Accept": "text/html,*/*"})
    assert response.status_code == status
    seen = check_page(response.text)
    assert "To the overview" in seen.text


def test_programs_still_get_problems(page: httpx2.Client) -> None:
    for path in ("/nothing", "/v1/jobs/PartitionSet/none"):
        response = page.get(path)
        assert response.status_code == 404
        assert response.headers["content-type"] == "application/problem+json"
    browser = page.get("/v1/jobs/PartitionSet/none", headers={"Accept": "text/html"})
    assert browser.headers["content-type"] == "application/problem+json"


def test_a_store_that_is_away_is_said_in_a_page(page: httpx2.Client, page_server: LiveServer) -> None:
    page_server.store.away = True
    try:
        response = page.get(JOBS["PartitionSet"])
    finally:
        page_server.store.away = False
    assert response.status_code == 503
    assert "retry-after" in response.headers
    assert "Not now" in check_page(response.text).text


def test_a_job_that_was_deleted_says_so_to_an_open_page(page: httpx2.Client) -> None:
    assert page.delete("/v1/jobs/ReplicaDivision/shop").status_code == 204
    response = page.get(JOBS["ReplicaDivision"], headers={"HX-Request": "true"})
    assert response.status_code == 404
    assert "may have been deleted" in Seen(response.text).text
    assert "<html" not in response.text


def test_a_strip_stands_on_overview_and_jobs_and_lives(page: httpx2.Client, page_server: LiveServer) -> None:
    routes = page_routes(page_server.site, lambda: Markup('<p id="guide">kill a worker</p>'))
    before, router = list(page_server.app.routes), page_server.app.router
    router.routes[:] = [*routes, *before]
    try:
        for path in ("/", JOBS["PartitionSet"]):
            assert "guide" in check_page(page.get(path).text).ids
            assert "guide" in Seen(page.get(path, headers={"HX-Request": "true"}).text).ids
        assert "guide" not in check_page(page.get("/events").text).ids
    finally:
        router.routes[:] = before
