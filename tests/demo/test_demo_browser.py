"""The strip in a real browser: one click breaks something, and the page shows it heal without being loaded again."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright
from tests.demo.demo_process import Demo

pytestmark = pytest.mark.slow
SEEN_MS, HEALS_MS, WAKES_MS = 15_000, 30_000, 60_000


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with Demo(tmp_path_factory.mktemp("demo")) as running:
        running.await_well()
        yield running


@pytest.fixture(scope="module")
def page(demo: Demo) -> Iterator[Page]:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("needs Chromium: make test installs it where it can (on Debian: apt-get install chromium)")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=Path(found), args=arguments)
        opened = browser.new_page(base_url=demo.url)
        opened.set_default_timeout(SEEN_MS)
        yield opened
        browser.close()


@pytest.fixture(autouse=True)
def begun(demo: Demo, page: Page) -> None:
    """Begin each step on the overview, with all well."""
    demo.await_well()
    page.goto("/")
    expect(page.locator("#state")).to_have_attribute("data-state", "live", timeout=HEALS_MS)


def click(page: Page, step: str, where: str) -> None:
    """Click a step; the page of its job opens, and is marked so that another load would be noticed."""
    page.locator(f"#demo-{step}").click()
    page.wait_for_url(f"**{where}")
    page.evaluate("document.body.dataset.loaded = 'once'")


def await_told(page: Page, text: str, within_ms: float) -> None:
    """See a sentence on the strip, on the page that was loaded once."""
    expect(page.locator("#demo")).to_contain_text(re.compile(text), timeout=within_ms)
    expect(page.locator("body")).to_have_attribute("data-loaded", "once")


def test_a_killed_worker_is_seen_to_heal(page: Page) -> None:
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    expect(page.locator("#demo .primary")).to_contain_text("Kill a worker")
    click(page, "kill-worker", "/jobs/PartitionSet/orders")
    await_told(page, r"worker-. was killed \d+ s ago", SEEN_MS)
    await_told(page, r"Healed in \d", HEALS_MS)
    expect(page.locator("#demo .primary")).to_contain_text("Freeze a worker")
    assert wrong == []


def test_late_writes_are_seen_to_be_refused(page: Page) -> None:
    click(page, "freeze-worker", "/jobs/PartitionSet/orders")
    await_told(page, r"worker-. is frozen since \d+ s", SEEN_MS)
    await_told(page, r"late writes? carried old epochs, and the sink refused every one", WAKES_MS)


def test_a_drained_collector_is_seen_to_be_emptied(page: Page) -> None:
    click(page, "drain-collector", "/jobs/TargetPool/routers")
    await_told(page, r"collector-. is empty after \d", HEALS_MS)
    expect(page.locator("#demo-drain-collector")).to_contain_text("Bring the collector back", timeout=SEEN_MS)
    click(page, "drain-collector", "/jobs/TargetPool/routers")
    await_told(page, r"collector-. is back in service", SEEN_MS)


def test_a_restart_is_seen_and_the_page_goes_on(page: Page) -> None:
    click(page, "restart-server", "/jobs/PartitionSet/orders")
    await_told(page, r"The server was restarted in \d.*kept owner and epoch", HEALS_MS)
    expect(page.locator("#state")).to_have_attribute("data-state", "live", timeout=HEALS_MS)
