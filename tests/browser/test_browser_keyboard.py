"""Keyboard only: everything can be reached in a sensible order, is seen to be reached, and can be done."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.browser_world import JOBS, ORDERS, World
from tests.browser.visiting_browser import await_live, visiting

pytestmark = pytest.mark.slow
STOPS_MAX = 150
FOCUSED = """() => {
  const at = document.activeElement;
  if (!at || at === document.body) return null;
  const style = getComputedStyle(at), box = at.getBoundingClientRect();
  const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return {
    id: at.id, tag: at.tagName, text: (at.textContent || "").trim().slice(0, 40), top: box.top + window.scrollY,
    seen: outlined && box.width > 0 && box.height > 0 && box.top >= -1 && box.bottom <= window.innerHeight + 1,
  };
}"""


def tab_to(page: Page, wanted: str) -> None:
    """Go on from stop to stop until the one with this id is reached."""
    for _ in range(STOPS_MAX):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == wanted:
            return
    raise AssertionError(f"{wanted} is not reached by Tab")


@pytest.mark.parametrize(
    "path", ["/", "/events", *JOBS.values(), "/jobs/PartitionSet/orders/items", "/jobs/PartitionSet/orders?drain=w1"]
)
def test_every_stop_is_seen_and_the_first_skips_to_the_content(chromium: Browser, world: World, path: str) -> None:
    with visiting(chromium, world.url) as page:
        page.goto(path)
        await_live(page)
        page.keyboard.press("Tab")
        first = page.evaluate(FOCUSED)
        assert (first["text"], first["seen"]) == ("Skip to the content", True)
        stops = []
        for _ in range(STOPS_MAX):
            page.keyboard.press("Tab")
            stop = page.evaluate(FOCUSED)
            if stop is None or stop["text"] == "Skip to the content":
                break
            stops.append(stop)
        assert len(stops) >= 4
        unseen = [stop for stop in stops if not stop["seen"]]
        assert not unseen, unseen[:3]
        page.evaluate("document.querySelector('.skip').focus()")
        page.keyboard.press("Enter")
        expect(page.locator("#main")).to_be_focused()
        page.keyboard.press("Tab")
        assert page.evaluate("document.getElementById('main').contains(document.activeElement)")


def test_a_what_if_is_drawn_and_applied_by_keys_alone(chromium: Browser, world: World) -> None:
    world.put({**ORDERS, "metadata": {"name": "keyed"}})
    world.join("keyed", "key-1", "key-2")
    world.settle("PartitionSet", "keyed")
    with visiting(chromium, world.url) as page:
        page.goto("/")
        await_live(page)
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        for _ in range(STOPS_MAX):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent.trim()") == "keyed":
                break
        page.keyboard.press("Enter")
        expect(page.locator("#job-title")).to_have_text("keyed")
        await_live(page)
        tab_to(page, "what-drain")
        page.keyboard.type("key-2")
        tab_to(page, "what-if-go")
        page.keyboard.press("Enter")
        expect(page.locator("#preview-title")).to_have_text("What if key-2 is drained?")
        await_live(page)
        tab_to(page, "apply")
        page.keyboard.press("Enter")
        expect(page.locator("#done")).to_be_visible()
        assert world.draining("PartitionSet", "keyed") == ["key-2"]
