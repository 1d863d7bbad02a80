"""What-ifs: drawn before they are done, refused with the reason, done once, and told as a command that does it."""

from __future__ import annotations

import shlex

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.browser_world import ORDERS, World
from tests.browser.visiting_browser import await_live, await_seen, is_marked, mark, visiting
from tests.serve_process import await_met

pytestmark = pytest.mark.slow
PATH = "/jobs/PartitionSet/stock"
WORKERS = ("s1", "s2", "s3")


@pytest.fixture(scope="module")
def stock(world: World) -> World:
    """Give a set of its own to those who change something, with three members."""
    world.put({**ORDERS, "metadata": {"name": "stock"}})
    world.join("stock", *WORKERS)
    return world


@pytest.fixture(autouse=True)
def rested(stock: World) -> None:
    """Begin with everybody in service and all items held."""
    for name in stock.draining("PartitionSet", "stock"):
        stock.client.post(f"/v1/jobs/PartitionSet/stock/members/{name}/undrain")
    await_met(lambda: stock.is_shared("PartitionSet", "stock", dict.fromkeys(WORKERS, 8)), 60)


def ghosts(page: Page) -> int:
    return page.locator("#drawing svg.wide .c.imagined").count()


def test_a_what_if_is_drawn_then_applied_and_seen_to_happen(chromium: Browser, stock: World) -> None:
    before = stock.held("PartitionSet", "stock")
    with visiting(chromium, stock.url) as page:
        page.goto(PATH)
        assert ghosts(page) == 0
        page.locator("#what-drain").select_option("s1")
        page.locator("#what-if-go").click()
        expect(page).to_have_url(f"{stock.url}{PATH}?drain=s1")
        expect(page.locator("#preview-title")).to_have_text("What if s1 is drained?")
        leaving = sum(who == "s1" for who in before.values())
        assert ghosts(page) == leaving == page.locator("#drawing svg.wide .c.to-imagined").count()
        expect(page.locator("#certificate")).to_contain_text(f"{leaving}")
        expect(page.locator("#plan .plan-line")).to_have_count(leaving)
        expect(page.locator("#command-1 code")).to_contain_text("poise drain s1 --job PartitionSet/stock")
        stock.speak()
        assert stock.held("PartitionSet", "stock") == before
        assert stock.draining("PartitionSet", "stock") == []

        page.locator("#apply").click()
        expect(page.locator("#done")).to_contain_text("the drain has begun")
        assert stock.draining("PartitionSet", "stock") == ["s1"]
        mark(page)
        await_seen(page, lambda: stock.is_shared("PartitionSet", "stock", {"s2": 12, "s3": 12}))
        expect(page.locator("tr[data-member=s1] [data-label=Load]")).to_have_text("0")
        expect(page.locator("tr[data-member=s1] .stop")).to_contain_text("yes")
        assert is_marked(page)


def test_the_command_line_on_the_page_does_the_same(chromium: Browser, stock: World) -> None:
    with visiting(chromium, stock.url) as page:
        page.goto(f"{PATH}?drain=s2")
        line = page.locator("#command-1 code").inner_text()
        program, *arguments = shlex.split(line)
        assert program == "poise"
        begun = stock.served.begin(*arguments)
        await_seen(page, lambda: stock.draining("PartitionSet", "stock") == ["s2"])
        await_seen(page, lambda: stock.is_settled("PartitionSet", "stock") and begun.poll() is not None)
        assert begun.returncode == 0


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("drain=nobody", "nobody"),
        ("remove=nobody-knows-me", "nobody-knows-me"),
        ("undrain=s1", "in service already"),
        ("resume=yes", "not paused"),
    ],
)
def test_an_impossible_what_if_says_why_and_offers_nothing(
    chromium: Browser, stock: World, query: str, why: str
) -> None:
    with visiting(chromium, stock.url, statuses=[400]) as page:
        page.goto(f"{PATH}?{query}")
        expect(page.locator("#impossible li").first).to_be_visible()
        assert why in page.locator("#impossible").inner_text()
        assert page.locator("#apply").count() == 0
        assert ghosts(page) == 0
        await_live(page)


def test_what_poise_cannot_do_itself_is_a_command_instead_of_a_button(chromium: Browser, stock: World) -> None:
    with visiting(chromium, stock.url) as page:
        page.goto(f"{PATH}?add=s9")
        expect(page.locator("#instead-1 code")).to_contain_text("poise worker stock --name s9")
        assert page.locator("#apply").count() == 0
        assert ghosts(page) > 0


def test_a_weight_and_a_number_of_replicas_are_imagined_and_then_written(chromium: Browser, world: World) -> None:
    document = "/v1/jobs/ReplicaDivision/sized"
    clusters = [{"name": "north"}, {"name": "south"}]
    spec = {"clusters": clusters, "workloads": [{"name": "cart", "replicas": 8}]}
    world.put({"kind": "ReplicaDivision", "metadata": {"name": "sized"}, "spec": spec})
    with visiting(chromium, world.url) as page:
        page.goto("/jobs/ReplicaDivision/sized")
        page.locator("#what-weight-of").select_option("north")
        page.locator("#what-weight-is").fill("3")
        page.locator("#what-replicas-of").select_option("cart")
        page.locator("#what-replicas-are").fill("12")
        page.locator("#what-if-go").click()
        expect(page.locator("#preview-title")).to_contain_text("north weighs 3")
        expect(page.locator("#preview-title")).to_contain_text("cart has 12 replicas")
        assert "weight" not in world.client.get(document).json()["spec"]["clusters"][0]
        page.locator("#apply").click()
        expect(page.locator("#done")).to_contain_text("the document is written")
        written = world.client.get(document).json()["spec"]
        assert (written["clusters"][0]["weight"], written["workloads"][0]["replicas"]) == (3, 12)
        expect(page.locator("tr[data-member=north] [data-label=Load]")).to_have_text("9")


def test_of_two_people_the_later_sees_that_the_world_has_moved(chromium: Browser, stock: World) -> None:
    with (
        visiting(chromium, stock.url) as first,
        visiting(chromium, stock.url, statuses=[409]) as later,
        visiting(chromium, stock.url, scripts=False, statuses=[409]) as reader,
    ):
        for page, who in ((first, "s1"), (later, "s2"), (reader, "s2")):
            page.goto(f"{PATH}?drain={who}")
        await_live(later)
        expect(later.locator("#changed")).to_be_hidden()
        first.locator("#apply").click()
        expect(first.locator("#done")).to_be_visible()
        expect(later.locator("#changed")).to_contain_text("The world has moved")
        for page in (later, reader):
            with page.expect_navigation() as went:
                page.locator("#apply").click()
            assert went.value is not None
            assert went.value.status == 409
            expect(page.locator("#moved")).to_contain_text("the world has moved since you looked: nothing was done")
            expect(page.locator("#plan-title")).to_have_text("The plan of this what-if")
            assert stock.draining("PartitionSet", "stock") == ["s1"]
        # What is shown now is what would be done now.
        reader.locator("#apply").click()
        expect(reader.locator("#done")).to_be_visible()
        assert stock.draining("PartitionSet", "stock") == ["s1", "s2"]


def test_every_button_leads_to_a_plan_first(chromium: Browser, stock: World) -> None:
    with visiting(chromium, stock.url) as page:
        page.goto(PATH)
        page.locator("#ask-pause").click()
        expect(page.locator("#nothing-yet")).to_contain_text("Nothing has been done")
        page.locator("#apply").click()
        expect(page.locator("#ask-resume")).to_be_visible()
        page.locator("#ask-resume").click()
        page.locator("#apply").click()
        expect(page.locator("#ask-pause")).to_be_visible()
        page.locator("#drain-s3").click()
        expect(page.locator("#nothing-yet")).to_be_visible()
        page.locator("#cancel").click()
        expect(page).to_have_url(f"{stock.url}{PATH}")
        assert stock.draining("PartitionSet", "stock") == []


def test_without_scripts_forms_work(chromium: Browser, stock: World) -> None:
    with visiting(chromium, stock.url, scripts=False) as page:
        page.goto(PATH)
        page.locator("#what-drain").select_option("s3")
        page.locator("#what-if-go").click()
        assert ghosts(page) > 0
        page.locator("#apply").click()
        expect(page.locator("#done")).to_be_visible()
        assert stock.draining("PartitionSet", "stock") == ["s3"]
        page.goto(f"{PATH}/items")
        page.locator("#filter-member").select_option("s2")
        page.locator("#filter-go").click()
        held = stock.held("PartitionSet", "stock")
        expect(page.locator("#items tbody tr")).to_have_count(sum(who == "s2" for who in held.values()))
        page.goto("/events")
        page.locator("#filter-job").fill("stock")
        page.locator("#filter-go").click()
        assert set(page.locator(".event-job").all_inner_texts()) == {"stock"}
