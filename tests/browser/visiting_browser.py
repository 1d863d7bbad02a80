"""One person with a browser: what the page complains of, whom it asks, and what stands on it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources

import msgspec
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

PATIENCE_MS = 60_000  # Every wait ends when its condition holds; the machine may have other things to do.
WIDE, NARROW = (1280, 900), (390, 844)
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_STATUS = re.compile(r"Failed to load resource: the server responded with a status of (\d+)")
# A server that ends takes its connections along; browsers say so, whatever a page does, and so does what asked for it.
_INTERRUPTED = re.compile(
    r"net::ERR_(CONNECTION_\w+|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE|NETWORK_IO_SUSPENDED)"
    r"|^htmx:(sendError|afterRequest),"
)


def find_chromium() -> str:
    """Find the browser of this system; without it nothing here can be tested, so that is a failure."""
    found = next((path for path in map(shutil.which, _NAMES) if path), None)
    assert found, f"the tests of the page need Chromium ({', '.join(_NAMES)}): run `make browser`, which installs it"
    return found


class Watch:
    """Notes what goes wrong on a page: errors, warnings, and requests to anybody but its own server."""

    def __init__(self, page: Page, origin: str, statuses: Sequence[int], *, interrupted: bool) -> None:
        """Watch a page of this origin; refusals with one of `statuses` are what the test is about."""
        self.faults: list[str] = []
        self.asked: list[str] = []
        self._origin, self._statuses, self._interrupted = origin, statuses, interrupted
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", self._see)

    def _hear(self, said: ConsoleMessage) -> None:
        status = _STATUS.match(said.text)
        if status and int(status[1]) in self._statuses:
            return
        if self._interrupted and _INTERRUPTED.search(said.text):
            return
        if said.type in ("error", "warning"):
            self.faults.append(f"{said.type}: {said.text} ({said.location.get('url', '')})")

    def _see(self, request: Request) -> None:
        self.asked.append(request.url)
        if not request.url.startswith((f"{self._origin}/", "data:", "blob:")):
            self.faults.append(f"asked another host: {request.url}")


@contextmanager
def visiting(
    browser: Browser,
    origin: str,
    *,
    size: tuple[int, int] = WIDE,
    dark: bool = False,
    scripts: bool = True,
    statuses: Sequence[int] = (),
    interrupted: bool = False,
) -> Iterator[Page]:
    """Open a browser of one's own, and see at the end that nothing went wrong in it."""
    context = browser.new_context(
        base_url=origin,
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        java_script_enabled=scripts,
    )
    context.set_default_timeout(PATIENCE_MS)
    try:
        page = context.new_page()
        watch = Watch(page, origin, statuses, interrupted=interrupted)
        yield page
        assert not watch.faults, watch.faults
    finally:
        context.close()


def await_live(page: Page) -> None:
    """Wait until the page says that it is live."""
    expect(page.locator("#state-words")).to_have_text("live", timeout=PATIENCE_MS)


def mark(page: Page) -> None:
    """Leave a mark that a reload would wipe away."""
    page.evaluate("window.neverReloaded = true")


def is_marked(page: Page) -> bool:
    """Tell whether the page is still the one that was marked."""
    return page.evaluate("window.neverReloaded === true") is True


def await_seen(page: Page, met: Callable[[], bool], told: Callable[[], object] = lambda: "") -> None:
    """Wait for something that the page must show or the server must say."""
    for _ in range(PATIENCE_MS // 100):
        if met():
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"it did not come in time: {told()}")


def runs_over(page: Page) -> list[str]:
    """List what makes the page wider than its window; what scrolls within itself may be wider."""
    found: list[str] = page.evaluate(
        """() => {
          const root = document.documentElement, wide = root.clientWidth;
          if (root.scrollWidth <= wide) return [];
          return [...document.querySelectorAll("body *")]
            .filter((each) => each.getBoundingClientRect().right > wide + 1)
            .map((each) => `${each.tagName}.${each.getAttribute("class")} ${(each.textContent || "").slice(0, 40)}`)
            .slice(0, 8).concat([`scrolls to ${root.scrollWidth} of ${wide}`]);
        }"""
    )
    return found


class _Finding(msgspec.Struct):
    id: str
    impact: str | None
    nodes: list[str]


def axe_findings(page: Page) -> list[str]:
    """Ask axe for what is serious or critical; it is brought in by the debugger, which no policy forbids."""
    if not page.evaluate("typeof window.axe === 'object'"):
        page.evaluate(resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate(
        """() => axe.run(document, { resultTypes: ["violations"] }).then((told) => told.violations.map((each) => ({
          id: each.id, impact: each.impact, nodes: each.nodes.slice(0, 4).map((node) => node.html.slice(0, 160)),
        })))"""
    )
    findings = msgspec.convert(found, list[_Finding])
    return [f"{each.id} ({each.impact}): {each.nodes}" for each in findings if each.impact in ("serious", "critical")]


def check_looks(page: Page) -> None:
    """Look at a page as it is, wide and light; then narrow and dark: nothing runs over, and axe finds nothing."""
    for size, shade in ((WIDE, "light"), (NARROW, "dark")):
        page.emulate_media(color_scheme="dark" if shade == "dark" else "light")
        page.set_viewport_size({"width": size[0], "height": size[1]})
        assert not runs_over(page), (size, shade)
        assert not axe_findings(page), (size, shade)
