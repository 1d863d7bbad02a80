"""Very many items, and very many jobs: pages stay small enough to be sent and drawn, and say how much there is."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import Browser, expect
from tests.browser.moving import await_settled
from tests.browser.visiting_browser import NARROW, await_live, runs_over, visiting
from tests.serve_process import ServedFolder

pytestmark = pytest.mark.slow
ITEMS, JOBS, BYTES_MAX, NODES_MAX = 10_000, 200, 300_000, 10_000
LARGE = "/jobs/PartitionSet/large"
HEAD = "apiVersion: poise.dev/v1alpha1\nkind: PartitionSet\n"


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a set with very many items, and very many small sets; give the address."""
    guards = "guards: {movesInFlightMax: null, perSourceMax: null, perTargetMax: null}"
    large = f"{HEAD}metadata: {{name: large}}\nspec: {{partitions: {ITEMS}, leaseSeconds: 3600, {guards}}}\n"
    small = [f"{HEAD}metadata: {{name: small-{n:03}}}\nspec: {{partitions: 8}}\n" for n in range(JOBS - 1)]
    with ServedFolder(tmp_path_factory.mktemp("crowded"), "---\n".join([large, *small])) as served:
        with httpx2.Client(base_url=served.url, timeout=60) as client:
            await_settled(client, "large", [f"m{number}" for number in range(1, 7)])
        yield served.url


@pytest.mark.parametrize("path", [LARGE, f"{LARGE}?drain=m1", f"{LARGE}?add=m7", f"{LARGE}/items", "/"])
def test_a_page_stays_small(crowded: str, path: str) -> None:
    with httpx2.Client(base_url=crowded, timeout=60) as client:
        for headers in ({}, {"HX-Request": "true"}):
            answer = client.get(path, headers=headers)
            assert answer.status_code == 200
            assert len(answer.content) < BYTES_MAX, headers


def test_ten_thousand_items_stay_readable(chromium: Browser, crowded: str) -> None:
    with visiting(chromium, crowded) as page:
        page.goto(LARGE)
        await_live(page)
        expect(page.locator("#main")).to_contain_text("10,000 partitions")
        expect(page.locator("#drawing")).to_contain_text("a full cell is")
        assert page.evaluate("document.querySelectorAll('*').length") < NODES_MAX
        told = page.locator("#drawing svg.wide").evaluate("(each) => each.getBoundingClientRect().height")
        assert told < 900, "the picture fits a screen"
        page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
        assert not runs_over(page)


def test_two_hundred_jobs_stand_on_one_page(chromium: Browser, crowded: str) -> None:
    with visiting(chromium, crowded) as page:
        page.goto("/")
        await_live(page)
        expect(page.locator("#jobs tbody tr")).to_have_count(JOBS)
        first = page.locator("#jobs tbody tr").first
        expect(first).to_have_attribute("data-mood", "bad")
