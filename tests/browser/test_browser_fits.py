"""What stands on a page has room: on a narrow screen nothing is squeezed or cut off, on a wide one charts share it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.browser_world import EVERY_PAGE, JOBS, World
from tests.browser.visiting_browser import NARROW, visiting

pytestmark = pytest.mark.slow
SQUEEZED = """() => [...document.querySelectorAll("bdi")]
  .map((each) => [each.textContent, each.getBoundingClientRect().width])
  .filter(([text, wide]) => text.length > 3 && wide > 0 && wide < 22)"""
CUT_OFF = """() => [...document.querySelectorAll(".flush")].flatMap((box) => {
  const edge = box.getBoundingClientRect();
  return [...box.querySelectorAll("td, th, p, li, a, bdi, span:not(.unseen)")].filter((each) => {
    const seen = each.getBoundingClientRect();
    const hidden = !seen.width || each.closest(".unseen, thead");
    return !hidden && (seen.right > edge.right + 1 || seen.left < edge.left - 1);
  }).map((each) => each.outerHTML.slice(0, 90));
})"""


@pytest.mark.parametrize("path", EVERY_PAGE)
def test_on_a_narrow_screen_nothing_is_squeezed_or_cut_off(chromium: Browser, world: World, path: str) -> None:
    with visiting(chromium, world.url, size=NARROW) as page:
        page.goto(path)
        assert page.evaluate(SQUEEZED) == []
        assert page.evaluate(CUT_OFF) == []


def test_the_checks_see_a_list_whose_counts_stand_in_columns(chromium: Browser, world: World) -> None:
    with visiting(chromium, world.url, size=NARROW) as page:
        page.goto(f"{JOBS['ReplicaDivision']}/items")
        squeezed, cut_off = page.evaluate(
            f"""() => {{
              for (const cell of document.querySelectorAll("td.counts")) {{
                cell.className = "";
                cell.replaceChildren(...[...cell.querySelectorAll("bdi")].flatMap((each) => [each, " 2, "]));
              }}
              for (const name of document.querySelectorAll("th a")) name.style.cssText = "display: block; width: 900px";
              return [({SQUEEZED})(), ({CUT_OFF})()];
            }}"""
        )
        assert squeezed
        assert cut_off


def test_a_plan_of_counts_has_the_width_of_a_narrow_screen(chromium: Browser, world: World) -> None:
    with visiting(chromium, world.url, size=NARROW) as page:
        for path in (JOBS["CapacitySplit"], f"{JOBS['ReplicaDivision']}?weight=east:1&replicas=cart:9"):
            page.goto(path)
            ways = page.locator(".plan-lines.told .plan-way")
            expect(ways.first).to_be_visible()
            assert min(boxes(page, ".plan-lines.told .plan-way", "width")) > 250


def boxes(page: Page, what: str, side: str) -> list[int]:
    """Measure all of a kind in one call: between two of them the page may have been drawn anew."""
    found: list[int] = page.evaluate(
        "([what, side]) => [...document.querySelectorAll(what)]"
        ".map((each) => Math.round(each.getBoundingClientRect()[side]))",
        [what, side],
    )
    return found


def test_four_charts_stand_in_one_row(chromium: Browser, world: World) -> None:
    with visiting(chromium, world.url) as page:
        page.goto(JOBS["ReplicaDivision"])
        expect(page.locator(".chart-frame")).to_have_count(4)
        assert len(set(boxes(page, ".chart-frame", "bottom"))) == 1
        page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
        assert len(set(boxes(page, ".chart-frame", "left"))) == 1
