"""The page of a real operator in a real browser: the same pictures, alive, and nothing that changes anything."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Page, async_playwright, expect
from tests.browser.visiting_browser import PATIENCE_MS, find_chromium
from tests.cluster.operator_process import OperatorProcess, change_ring, eventually, put_ring, shown
from tests.cluster.puppet import LASTING_S, Puppet
from tests.cluster.ring_world import make_families
from tests.cluster.world import Cluster
from tools.kube.build import find_program

from poise.kube import Client

D = 3
GUIDE = Path(__file__).parents[2] / "docs" / "kubernetes-cli.md"
PAGE = ("--page", "--page-listen", "127.0.0.1:0")
TOLD = "poise: the page is at "
pytestmark = pytest.mark.usefixtures("definitions")


async def page_url(process: OperatorProcess) -> str:
    """Where the page of an operator is."""
    await eventually(lambda: TOLD in process.said, lambda: process.said)
    return process.said.partition(TOLD)[2].partition("\n")[0]


async def look(process: OperatorProcess, path: str = "/") -> httpx2.Response:
    """Ask for something of the page."""
    async with httpx2.AsyncClient(base_url=await page_url(process), timeout=30) as client:
        return await client.get(path)


def forwarded(cluster: Cluster, namespace: str) -> str:
    """Find the leader as the guide says; gives what kubectl is asked to forward, since no Pod runs here."""
    shown = re.search(r"^```sh\n(leader=.*?)^```$", GUIDE.read_text(), re.M | re.S)
    assert shown is not None
    script = shown[1].replace("poise-system", namespace).replace("kubectl port-forward", "echo forward")
    config, kubectl = cluster.kubeconfig(), find_program("kubectl")
    path = f"{kubectl.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(config), "HOME": str(config.parent)}
    return subprocess.run(
        ["sh", "-euc", script], stdout=subprocess.PIPE, text=True, env=environment, timeout=60, check=True
    ).stdout


async def walk(page: Page, url: str, namespace: str, client: Client) -> None:
    """Look at everything as a person would."""
    job = f"{url}/jobs/ShardRing/{namespace}%2Fweb"
    await page.goto(f"{url}/")
    await expect(page.locator("#read-only")).to_be_visible()
    await page.get_by_role("link", name=f"{namespace}/web").first.click()
    await expect(page.locator("#state-words")).to_have_text("live")
    await expect(page.locator("#drawing")).to_contain_text("a")
    await expect(page.locator("tr[data-member]")).to_have_count(2)
    assert await page.locator('form[method="post"]').count() == 0

    await page.select_option("#what-drain", "a")
    await page.click("#what-if-go")
    await expect(page.locator("#preview-title")).to_have_text("What if a is drained?")
    await expect(page.locator("#drawing")).to_contain_text("what if: drained")
    await expect(page.locator("#command-1")).to_contain_text(f"poise drain --kube {namespace}/web a")
    await expect(page.locator("#certificate")).to_contain_text("Fewest possible:")
    assert await page.locator('form[method="post"]').count() == 0

    await page.goto(job)
    await expect(page.locator('tr[data-member="a"]')).to_have_attribute("data-state", "ready")
    await change_ring(client, namespace, "web", {"metadata": {"annotations": {"poise.dev/drained": "a"}}})
    # Nobody loads the page again: it shows by itself what happens.
    await expect(page.locator('tr[data-member="a"]')).to_have_attribute("data-state", "draining")
    await expect(page.locator('tr[data-member="a"] .stop')).to_have_text("yes, it holds nothing")
    await expect(page.locator("#live-events")).to_contain_text("a is drained, and may be stopped")

    await page.goto(f"{job}/items/%2FSecret%2F{namespace}%2Fs01")
    await expect(page.locator("#held-by")).to_have_text("b")
    await expect(page.locator("#explanation")).to_contain_text("its labels give it to b")
    await expect(page.locator("#explanation")).to_contain_text("if b failed, nobody could take it over")


def test_a_person_looks_at_the_rings_of_an_operator(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_families(client, namespace, [f"s{number:02}" for number in range(8)])
        await put_ring(client, namespace, "web", leaseSeconds=D)
        options = ("--namespace", namespace, *PAGE)
        async with AsyncExitStack() as stack:
            leads = stack.enter_context(OperatorProcess(cluster.kubeconfig(), *options, "--id", "first"))
            await leads.ready(60.0)
            for name in ("a", "b"):
                await stack.enter_async_context(Puppet(client, namespace, name, duration_s=LASTING_S).playing())
            await shown(client, namespace, "web", "Balanced", "True", "Settled", within_s=60.0)
            stands_by = stack.enter_context(OperatorProcess(cluster.kubeconfig(), *options, "--id", "second"))
            await stands_by.ready(60.0)
            playwright = await stack.enter_async_context(async_playwright())
            browser = await playwright.chromium.launch(
                executable_path=find_chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"], timeout=PATIENCE_MS
            )
            stack.push_async_callback(browser.close)
            page = await browser.new_page(viewport={"width": 1280, "height": 900})
            expect.set_options(timeout=PATIENCE_MS)
            faults: list[str] = []
            page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: faults.append(str(error)))
            url = await page_url(leads)
            page.on("request", lambda asked: None if asked.url.startswith(url) else faults.append(asked.url))
            await walk(page, url, namespace, client)
            assert faults == []

            ring = f"/jobs/ShardRing/{namespace}%2Fweb"
            for path in ("/", "/v1/jobs", ring):
                assert (await leads.get(path)).status_code == 404, "every Pod may ask there"
            assert (await leads.get("/metrics")).status_code == 200
            assert (await look(leads, "/metrics")).status_code == 404
            told = await asyncio.to_thread(forwarded, cluster, namespace)
            assert told == f"forward -n {namespace} pod/first 8081\n"

            other = await look(stands_by)
            assert other.status_code == 200
            assert "poise-sharder-first_" in other.text
            assert "leads. Its own page shows them" in other.text
            refused = await look(stands_by, ring)
            assert refused.status_code == 404
            assert "this process stands by" in refused.text
            assert await leads.end() == 0
            assert await stands_by.end() == 0

    cluster.run(scenario)


def test_without_the_flag_there_is_no_page(cluster: Cluster, namespace: str) -> None:
    async def scenario(_client: Client) -> None:
        with OperatorProcess(cluster.kubeconfig(), "--namespace", namespace) as process:
            await process.ready(60.0)
            assert (await process.get("/")).status_code == 404
            assert (await process.get("/v1/jobs")).status_code == 404
            assert TOLD not in process.said

    cluster.run(scenario)
