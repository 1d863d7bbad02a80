"""The system's Chromium, and real servers to look at with it.

The browser lasts for a module: its loop runs in this thread, and other tests of the same run have loops of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright
from tests.browser.browser_world import World
from tests.browser.visiting_browser import PATIENCE_MS, find_chromium
from tests.serve_process import ServedFolder


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Start the browser; as root it cannot lock itself in, and it is shown only pages of ours."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"], timeout=PATIENCE_MS
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Serve a job of each kind that is at rest; tests that change something make a job of their own."""
    with ServedFolder(tmp_path_factory.mktemp("world")) as served:
        found = World(served)
        with found.client:
            found.fill()
            yield found
