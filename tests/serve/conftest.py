"""One server for the tests of a file that do not need one of their own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest
from tests.serve.live_server import KEYS, ORDERS, SHOP, LiveServer


@pytest.fixture(scope="session")
def shared() -> Iterator[LiveServer]:
    """Serve for all tests that need no settings of their own: starting and ending take longer than most of them."""
    with LiveServer() as live:
        yield live


@pytest.fixture
def server(shared: LiveServer) -> LiveServer:
    """Serve an empty store."""
    shared.reset()
    return shared


@pytest.fixture
def client(server: LiveServer) -> Iterator[httpx2.Client]:
    """Ask a server that has one job of each sort."""
    with server.client() as asking:
        for document in (ORDERS, KEYS, SHOP):
            server.put(document, asking)
        yield asking
