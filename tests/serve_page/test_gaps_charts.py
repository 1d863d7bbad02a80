"""The charts of a job: titles that say what is counted, the colours of the picture, and times with their day."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Page, sync_playwright
from tests.browser.visiting_browser import find_chromium

from poise.jobs.series import Series
from poise.serve.page.series_shown import series_shown

SCRIPT = Path(__file__).parents[2] / "src" / "poise" / "serve" / "page" / "static" / "poise.js"
DAY_S = 86_400
NOON_S = 1_794_744_000  # Noon of 15 November 2026, in UTC.
SPLIT = Series(
    at=[NOON_S - 60, NOON_S],
    series={
        "unowned": [1, 0],
        "moves": [1, 2],
        "spot": [6, 7],
        "onDemand": [3, 3],
        "desiredSpot": [7, 7],
        "desiredOnDemand": [3, 3],
    },
    now=NOON_S + 5,
)
ITEMS = Series(
    at=[NOON_S],
    series={"unowned": [0], "moves": [4], "loadMin": [3], "loadMean": [3.5], "loadMax": [4]},
    now=NOON_S + 5,
)
FLEET = Series(at=[NOON_S], series={"unowned": [0], "moves": [4], "replicas": [9], "error": [0.5]}, now=NOON_S + 5)
# A page of the least that the script needs; what would draw notes what it is asked to draw.
PAGE = """<html><head><style>
:root { --ok: rgb(1, 2, 3); --held: rgb(4, 5, 6); --bad: red; --moving: orange; }
</style></head>
<body data-stream="/none"><div id="state"><span id="state-words"></span></div><div id="say"></div><div id="live"></div>
<section id="series" data-src="/series"><div id="charts" hidden></div><p id="series-empty"></p></section>
</body></html>"""
STUBS = """
window.htmx = { config: {}, trigger() {} };
window.EventSource = class { close() {} addEventListener() {} };
window.made = [];
window.uPlot = class { constructor(options) { window.made.push(options); } setData() {} setSize() {} destroy() {} };
window.uPlot.paths = { stepped: () => null };
window.fetch = async () => ({ ok: true, json: async () => window.told });
"""
LINES = (
    """made.map((options) => options.series.slice(1).map((line) => [line.stroke, line.dash ? "dashed" : "solid"]))"""
)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


def draw(page: Page, told: Series) -> list[str]:
    """Draw a history, and give the titles of its charts."""
    page.goto("about:blank")
    page.set_content(PAGE)
    page.evaluate(STUBS)
    page.evaluate("told => { window.told = told }", msgspec.to_builtins(told))
    page.add_script_tag(path=SCRIPT)
    page.evaluate("document.dispatchEvent(new Event('DOMContentLoaded'))")
    page.wait_for_selector(".chart-title")
    titles: list[str] = page.eval_on_selector_all(
        ".chart-title", "all => all.map((each) => each.firstChild.textContent)"
    )
    return titles


@pytest.mark.slow
def test_a_split_counts_missing_replicas_and_reports(page: Page) -> None:
    assert draw(page, SPLIT) == ["Missing replicas", "Reports so far", "Replicas"]
    assert draw(page, ITEMS) == ["No owner", "Moves so far", "Load: smallest, mean, largest"]
    assert draw(page, FLEET) == ["No owner", "Moves so far", "Replicas", "Largest error"]


@pytest.mark.slow
def test_sides_have_the_colours_of_the_picture_and_what_is_desired_is_dashed(page: Page) -> None:
    draw(page, SPLIT)
    green, blue = "rgb(1, 2, 3)", "rgb(4, 5, 6)"
    wanted = [[green, "solid"], [blue, "solid"], [green, "dashed"], [blue, "dashed"]]
    assert page.evaluate(LINES)[2] == wanted
    style = "(each) => [getComputedStyle(each).borderBottomColor, each.style.borderBottomStyle]"
    assert page.eval_on_selector_all(".key", f"all => all.map({style})") == wanted
    words = page.eval_on_selector_all(".key", "all => all.map((each) => each.textContent)")
    assert words == ["spot", "on-demand", "desired spot", "desired on-demand"]


@pytest.mark.slow
def test_the_times_of_other_days_have_their_day(page: Page) -> None:
    draw(page, SPLIT)
    marks = [NOON_S - 45 * DAY_S, NOON_S - DAY_S, NOON_S]
    told = page.evaluate("marks => made[0].axes[0].values(null, marks)", marks)
    assert told == ["1 Oct 12:00", "14 Nov 12:00", "12:00"]
    assert page.evaluate("marks => made[0].axes[0].values(null, marks)", [NOON_S, NOON_S + 1]) == [
        "12:00:00",
        "12:00:01",
    ]


def test_the_table_says_the_same() -> None:
    split = ["Missing replicas", "Reports so far", "Spot", "On-demand", "Desired spot", "Desired on-demand"]
    assert series_shown(SPLIT).names == split
    assert series_shown(ITEMS).names[:2] == ["No owner", "Moves so far"]
    assert series_shown(FLEET).names == ["No owner", "Moves so far", "Replicas", "Largest error"]
