"""Where `poise operator` shows its page: at an address of its own, on this machine unless more is meant."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from tests.jobs_operator.test_operator_cli import kubeconfig, line
from tests.serve_process import environment

from poise.cli.main import run
from poise.cli.page_flags import LISTEN, PageFlags
from poise.errors import InvalidSpec
from poise.serve.settings import is_loopback, read_listen

OPEN = "can be reached by others: use kubectl port-forward, or say --insecure if that is meant\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--page", "--page-listen", "0.0.0.0:8081"], f"poise: --page-listen: 0.0.0.0 {OPEN}"),
        (["--page", "--page-listen", ":8081"], f"poise: --page-listen: 0.0.0.0 {OPEN}"),
        (["--page", "--page-listen", "[::]:8081"], f"poise: --page-listen: :: {OPEN}"),
        (["--page", "--page-listen", "10.0.0.7:8081"], f"poise: --page-listen: 10.0.0.7 {OPEN}"),
        (["--page", "--page-listen", "pod.example:8081"], f"poise: --page-listen: pod.example {OPEN}"),
        (["--page", "--page-listen", "here"], "poise: --page-listen: expected ADDRESS:PORT"),
        (["--page", "--page-listen", ""], "poise: --page-listen: expected ADDRESS:PORT"),
        (["--page-listen", "127.0.0.1:8081"], "poise: --page-listen is about the page: say --page"),
        (["--insecure"], "poise: --insecure is about the page: say --page"),
        (["--host", "page.example"], "poise: --host is about the page: say --page"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["operator", *arguments]) == 64
    assert line(capsys).startswith(told)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0", "localhost:0"])
def test_an_address_of_this_machine_needs_no_consent(address: str) -> None:
    PageFlags(page=True, page_listen=address).check()
    assert is_loopback(read_listen(LISTEN)[0]), "so does the one without a word"


def test_an_open_address_is_taken_where_it_is_meant() -> None:
    with PageFlags(page=True, page_listen="0.0.0.0:0", insecure=True, hosts=("page.example",)).opened() as page:
        assert page is not None
        assert page.url == f"http://0.0.0.0:{page.sockets[0].getsockname()[1]}"
        assert page.settings.hosts == ("page.example",)
    with pytest.raises(OSError, match="Bad file descriptor"):
        page.sockets[0].getsockname()
    with PageFlags().opened() as none:
        assert none is None


def test_a_taken_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        usual = ["operator", "--kubeconfig", str(kubeconfig(tmp_path)), "--listen", "127.0.0.1:0"]
        assert run([*usual, "--page", "--page-listen", address]) == 64
        assert line(capsys) == f"poise: --page-listen: {address}: Address already in use\n"
        with pytest.raises(InvalidSpec), PageFlags(page=True, page_listen=address).opened():
            raise AssertionError("nobody can have it twice")


@pytest.mark.slow
def test_the_page_is_at_its_own_address_and_nowhere_else(tmp_path: Path) -> None:
    options = ["--kubeconfig", str(kubeconfig(tmp_path)), "--listen", "127.0.0.1:0"]
    command = [sys.executable, "-m", "poise", "operator", *options, "--page", "--page-listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            probes = process.stderr.readline().partition("answers on ")[2].partition(";")[0]
            told, _, page = process.stderr.readline().rstrip().partition(" at ")
            assert told == "poise: the page is"
            # What it says next, it says from the loop that answers.
            assert "cannot be reached" in process.stderr.readline()
            assert httpx2.get(f"{probes}/livez").status_code == 200
            assert httpx2.get(f"{probes}/").status_code == 404
            assert httpx2.get(f"{page}/").status_code == 200
            assert httpx2.get(f"{page}/livez").status_code == 404
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()
