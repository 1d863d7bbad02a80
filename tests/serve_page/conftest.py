"""One server for the tests of the page that do not need one of their own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest
from tests.serve.live_server import LiveServer
from tests.serve_page.page_world import fill


@pytest.fixture(scope="session")
def page_server() -> Iterator[LiveServer]:
    """Serve for all tests that need no settings of their own."""
    with LiveServer() as live:
        yield live


@pytest.fixture
def page(page_server: LiveServer) -> Iterator[httpx2.Client]:
    """Look at a server that has one job of each kind and members that live."""
    page_server.reset()
    with page_server.client() as client:
        fill(page_server, client)
        yield client
