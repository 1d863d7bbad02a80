"""The market of the demo speaks to the server of this machine, whatever the environment says of proxies."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from poise.demo.replayer import Market, main

PLAN = b'{"workloads": {"api": {"action": "none", "waits": null, "desired": {"spot": 3, "onDemand": 1}}}}'


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers as a server with one workload would; answers are cut off where it is told to."""

    asked: ClassVar[list[str]] = []
    cut = False

    def _answer(self) -> None:
        self.asked.append(self.command)
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = PLAN if self.path.endswith("/plan") else b"{}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + 100 * self.cut))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Answer what is read."""
        self._answer()

    def do_PUT(self) -> None:
        """Answer what is written."""
        self._answer()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve on a port of this machine, with a proxy in the environment that nobody answers at."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Answering, "asked", [])
    with http.server.HTTPServer(("127.0.0.1", 0), Answering) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


def test_no_proxy_stands_between_the_market_and_its_server(server: str) -> None:
    Market(server).turn([])
    assert Answering.asked == ["GET", "GET", "PUT"]


def test_an_answer_that_is_cut_off_does_not_end_the_market(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Enough(Exception):
        """The market has gone on."""

    turns: list[float] = []

    def sleep(seconds: float) -> None:
        turns.append(seconds)
        if len(turns) == 3:
            raise Enough

    monkeypatch.setattr(Answering, "cut", True)
    monkeypatch.setattr("poise.demo.replayer.time.sleep", sleep)
    with pytest.raises(Enough):
        main(["--server", server])
    assert len(Answering.asked) == 3, "it asks again in every turn"
