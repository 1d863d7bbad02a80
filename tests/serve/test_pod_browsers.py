"""A pod's asking is its word; what a page of another site makes a browser get is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.serve.live_server import POOL, LiveServer

from poise.model.ownership import MemberRow
from poise.serve.calls import items
from poise.serve.settings import ServeSettings

TARGETS = "/v1/pools/core/pods/gnmic-0/targets"
BROWSERS = [
    pytest.param({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, id="an image on another site"),
    pytest.param({"Sec-Fetch-Site": "none"}, id="typed by a person"),
    pytest.param({"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"}, id="where browsers do not say more"),
]


@pytest.fixture
def server() -> Iterator[LiveServer]:
    """Serve as on a laptop: open, since it is local."""
    with LiveServer(ServeSettings()) as live:
        with live.client() as client:
            live.put(POOL, client)
        yield live


def see(server: LiveServer) -> MemberRow | None:
    return server.store.view("TargetPool/core", lambda tx: tx.member("gnmic-0"))


@pytest.mark.parametrize("headers", BROWSERS)
def test_a_browser_is_answered_and_is_no_sign_of_a_pods_life(server: LiveServer, headers: dict[str, str]) -> None:
    with server.client(**headers) as browser:
        for _ in range(3):
            assert browser.get(TARGETS).status_code == 200
    assert see(server) is None
    with server.client(**{"User-Agent": "Prometheus/3.1"}) as pod:
        assert pod.get(TARGETS).status_code == 200
    assert see(server) is not None


def test_mutant_that_takes_a_browser_for_the_pod(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "_is_browser", lambda _ask: False)
    with server.client(**{"Sec-Fetch-Site": "cross-site"}) as browser:
        browser.get(TARGETS)
    assert see(server) is not None
