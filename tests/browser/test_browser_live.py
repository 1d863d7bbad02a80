"""A page that is left open: it lives without a reload, survives its server, says when its job is gone, never grows."""

from __future__ import annotations

import signal

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.browser_world import ORDERS, World
from tests.browser.moving import Shuffle, grow
from tests.browser.visiting_browser import await_live, await_seen, is_marked, mark, visiting
from tests.serve_process import ServedFolder

pytestmark = pytest.mark.slow
MOVED_S = 12.0


def own_job(world: World, name: str) -> str:
    """Make a set that a test may change as it likes, and give the address of its page."""
    world.put({**ORDERS, "metadata": {"name": name}})
    return f"/jobs/PartitionSet/{name}"


def test_what_happens_is_shown_without_a_reload(chromium: Browser, world: World) -> None:
    path = own_job(world, "lively")
    with visiting(chromium, world.url) as page:
        page.goto(path)
        await_live(page)
        mark(page)
        assert page.locator("tr[data-member]").count() == 0
        world.join("lively", "l1")
        await_seen(page, lambda: world.is_settled("PartitionSet", "lively"))
        expect(page.locator("tr[data-member=l1] [data-label=Load]")).to_have_text("24")
        expect(page.locator("#drawing svg.wide .c.held")).to_have_count(24)
        world.join("lively", "l2")
        await_seen(page, lambda: world.is_shared("PartitionSet", "lively", {"l1": 12, "l2": 12}))
        expect(page.locator("tr[data-member=l2] [data-label=Load]")).to_have_text("12")
        expect(page.locator("#events li").first).to_be_visible()
        expect(page.locator("#charts canvas").first).to_be_visible()
        assert is_marked(page)


def test_a_reader_keeps_the_place_while_the_page_lives(chromium: Browser, world: World) -> None:
    path = own_job(world, "kept")
    world.join("kept", "k1")
    world.settle("PartitionSet", "kept")
    with visiting(chromium, world.url) as page:
        page.goto(path)
        await_live(page)
        page.locator("#drain-k1").focus()
        page.locator("#what-add").fill("half a na")
        page.locator("#drain-k1").focus()
        world.join("kept", "k2")
        await_seen(page, lambda: world.is_shared("PartitionSet", "kept", {"k1": 12, "k2": 12}))
        expect(page.locator("tr[data-member=k2] [data-label=Load]")).to_have_text("12")
        expect(page.locator("#drain-k1")).to_be_focused()
        expect(page.locator("#what-add")).to_have_value("half a na")


def test_a_job_that_is_deleted_under_its_page_is_said_to_be_gone(chromium: Browser, world: World) -> None:
    path = own_job(world, "brief")
    with visiting(chromium, world.url, statuses=[404]) as page, visiting(chromium, world.url) as overview:
        page.goto(path)
        overview.goto("/")
        for each in (page, overview):
            await_live(each)
        mark(page)
        expect(overview.locator("tr[data-job='PartitionSet/brief']")).to_be_visible()
        assert world.client.delete("/v1/jobs/PartitionSet/brief").status_code in (200, 202, 204)
        expect(page.locator("#state-words")).to_have_text("ended: it is gone")
        expect(page.locator("#error")).to_contain_text("There is nothing here")
        expect(page.locator("#say")).to_have_text("ended: it is gone")
        assert page.locator("#drawing").count() == 0
        assert is_marked(page)
        expect(overview.locator("tr[data-job='PartitionSet/brief']")).to_have_count(0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
def test_a_page_finds_its_server_again_and_shows_what_is_so_then(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory, number: signal.Signals
) -> None:
    with ServedFolder(tmp_path_factory.mktemp("restarted")) as served:
        world = World(served)
        with world.client, visiting(chromium, served.url, interrupted=True) as page:
            path = own_job(world, "orders")
            world.join("orders", "w1", "w2")
            world.settle("PartitionSet", "orders")
            page.goto(path)
            await_live(page)
            mark(page)
            served.stop(number)
            expect(page.locator("#state-words")).to_have_text("reconnecting…")
            expect(page.locator("#say")).to_have_text("The connection is lost. Trying again.")
            expect(page.locator("#drawing svg.wide .c.held")).to_have_count(24)
            served.start()
            world.client.post("/v1/jobs/PartitionSet/orders/members/w1/drain")
            await_seen(page, lambda: world.is_shared("PartitionSet", "orders", {"w2": 24}))
            await_live(page)
            expect(page.locator("tr[data-member=w1] [data-label=Load]")).to_have_text("0")
            expect(page.locator("tr[data-member=w2] [data-label=Load]")).to_have_text("24")
            assert is_marked(page)


def test_a_page_does_not_grow_while_much_moves(chromium: Browser, world: World) -> None:
    guards = {"movesInFlightMax": None, "perSourceMax": None, "perTargetMax": None}
    spec = {"partitions": 200, "leaseSeconds": 600, "guards": guards}
    world.put({"kind": "PartitionSet", "metadata": {"name": "shuffled"}, "spec": spec})
    shuffle = Shuffle(world.client, "shuffled")
    with visiting(chromium, world.url) as page:
        page.goto("/jobs/PartitionSet/shuffled")
        await_live(page)
        first, *_, last = grow(page, shuffle, MOVED_S)
        assert shuffle.moves > 200, "much has moved"
        assert last.megabytes < first.megabytes + 2.0, (first, last)
        assert last.nodes < first.nodes * 1.5 + 500, (first, last)
