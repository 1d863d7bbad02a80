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

# An address bar that nobody sees would draw its two lists anew for each visit, which costs more than most pages do.
_UNSEEN = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup", "PreloadTopChromeWebUI")
# The browser heeds only the last such list, so what Playwright itself switches off is said again.
_OFF_ANYWAY = (
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable",
    "LensOverlay",
    "MediaRouter",
    "PaintHolding",
    "ThirdPartyStoragePartitioning",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "OptimizationHints",
    "NetworkTimeServiceQuerying",
    "AimEnabled",
    "PreconnectToSearch",
)
_ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", f"--disable-features={','.join((*_OFF_ANYWAY, *_UNSEEN))}"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Start the browser; as root it cannot lock itself in, and it is shown only pages of ours."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=_ARGUMENTS, timeout=PATIENCE_MS)
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
