"""Every page of every kind: no complaint, nobody else asked, accessible in light and dark, whole on a narrow screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.browser_world import ERRORS, EVERY_PAGE, HOSTILE, JOBS, LONG_JOB, LONG_NAME, World
from tests.browser.visiting_browser import (
    NARROW,
    WIDE,
    Watch,
    await_live,
    axe_findings,
    check_looks,
    find_chromium,
    runs_over,
    visiting,
)
from tests.serve_process import ServedFolder

pytestmark = pytest.mark.slow


def test_a_system_without_a_browser_is_told_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(AssertionError, match="make browser"):
        find_chromium()


@pytest.mark.parametrize("path", EVERY_PAGE)
def test_a_page_loads_without_complaint_and_everybody_can_use_it(chromium: Browser, world: World, path: str) -> None:
    with visiting(chromium, world.url) as page:
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == 200
        await_live(page)
        assert page.locator("h1").count() == 1
        check_looks(page)
        assert page.evaluate("window.hacked") is None


@pytest.mark.parametrize(("path", "status"), ERRORS.items())
def test_a_refusal_is_a_page_too(chromium: Browser, world: World, path: str, status: int) -> None:
    with visiting(chromium, world.url, statuses=[status]) as page:
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == status
        assert page.locator("#error, #impossible").count() == 1
        check_looks(page)


def test_a_server_without_jobs_says_how_to_make_one(chromium: Browser, tmp_path: Path) -> None:
    with ServedFolder(tmp_path) as served, visiting(chromium, served.url) as page:
        page.goto("/")
        await_live(page)
        expect(page.locator("#empty-worker code")).to_contain_text(
            f"poise worker tasks --name w1 --server {served.url}"
        )
        check_looks(page)


def test_without_scripts_every_page_can_be_read(chromium: Browser, world: World) -> None:
    with visiting(chromium, world.url, scripts=False) as page:
        for path in EVERY_PAGE:
            page.goto(path)
            assert page.locator("h1").count() == 1, path
            assert len(page.locator("main").inner_text()) > 60, path
            expect(page.locator("#state-words")).to_contain_text("as of")
        for path in JOBS.values():
            page.goto(path)
            expect(page.locator("#drawing svg.wide").first).to_be_visible()


NAMES_SHOWN = """(all) => all.map((each) => {
  const named = each.querySelector("bdi");
  return named.getAttribute("title") || named.textContent;
})"""


@pytest.mark.parametrize("kind", ["ShardRing", "TargetPool"])
def test_names_that_mean_harm_are_texts_and_lead_to_their_pages(chromium: Browser, world: World, kind: str) -> None:
    with visiting(chromium, world.url) as page:
        page.goto(f"{JOBS[kind]}/items")
        shown = page.locator("#items tbody th a").evaluate_all(NAMES_SHOWN)
        assert sorted(shown) == sorted(HOSTILE)
        for place, name in enumerate(shown):
            page.goto(f"{JOBS[kind]}/items")
            page.locator("#items tbody th a").nth(place).click()
            expect(page.locator("#item-title bdi")).to_have_text(name)
        assert page.evaluate("window.hacked") is None
        assert page.locator("main img, main script").count() == 0


def test_very_long_names_stay_whole_for_those_who_need_them(chromium: Browser, world: World) -> None:
    with visiting(chromium, world.url, size=NARROW) as page:
        page.goto("/")
        page.locator(f"tr[data-job='PartitionSet/{LONG_JOB}'] a.job-name").click()
        expect(page.locator("#job-title")).to_have_text(LONG_JOB)
        page.goto(JOBS["ShardRing"])
        assert LONG_NAME in page.locator("#members tbody th a").evaluate_all(NAMES_SHOWN)
        assert any(LONG_NAME in text for text in page.locator("#drawing svg.tall title").all_text_contents())
        assert not runs_over(page)


def test_lanes_become_rows_on_a_narrow_screen(chromium: Browser, world: World) -> None:
    with visiting(chromium, world.url) as page:
        for path in JOBS.values():
            page.goto(path)
            for size, shown, hidden in ((WIDE, "wide", "tall"), (NARROW, "tall", "wide")):
                page.set_viewport_size({"width": size[0], "height": size[1]})
                expect(page.locator(f"#drawing figure svg.{shown}")).to_be_visible()
                expect(page.locator(f"#drawing figure svg.{hidden}")).to_be_hidden()


def test_dark_is_dark_and_those_who_want_no_motion_get_none(chromium: Browser, world: World) -> None:
    brightness = (
        "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
    )
    moving = """() => [...document.querySelectorAll("*")].filter((each) => {
      const style = getComputedStyle(each);
      return style.animationName !== "none" || parseFloat(style.transitionDuration) > 0;
    }).map((each) => each.outerHTML.slice(0, 80))"""
    with visiting(chromium, world.url) as page:
        page.goto(JOBS["PartitionSet"])
        assert page.evaluate(brightness) > 600
        page.emulate_media(color_scheme="dark", reduced_motion="reduce")
        assert page.evaluate(brightness) < 150
        await_live(page)
        page.evaluate("document.getElementById('state').dataset.state = 'reconnecting'")
        assert page.evaluate(moving) == []


def test_the_watch_and_the_checks_see_what_they_are_for(chromium: Browser, world: World) -> None:
    context = chromium.new_context(base_url=world.url, viewport={"width": NARROW[0], "height": NARROW[1]})
    page = context.new_page()
    watch = Watch(page, world.url, [], interrupted=False)
    page.goto("/")
    page.evaluate("console.error('a complaint')")
    page.evaluate("setTimeout(() => { throw new Error('a fault') })")
    page.evaluate("fetch('http://192.0.2.1/').catch(() => 0)")
    page.route("http://elsewhere.example/**", lambda route: route.fulfill(status=200, body="another host"))
    page.evaluate(
        """() => {
          const wide = document.createElement("p");
          wide.textContent = "wide ".repeat(40);
          wide.setAttribute("class", "too-wide");
          wide.style.width = "900px";
          const image = document.createElement("img");
          image.src = document.querySelector("img").src;
          document.querySelector("main").append(wide, image);
        }"""
    )
    assert any("too-wide" in each for each in runs_over(page))
    assert any(each.startswith("image-alt") for each in axe_findings(page))
    page.goto("http://elsewhere.example/")
    told = " ".join(watch.faults)
    wanted = ("a complaint", "a fault", "Content Security Policy", "asked another host: http://elsewhere.example/")
    assert all(each in told for each in wanted), told
    context.close()
