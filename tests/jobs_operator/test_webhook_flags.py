"""The flags of the webhook: one clear line for every mistake, before anything starts; and what they mean."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.jobs_operator.test_operator_cli import kubeconfig, line

from poise.cli.main import run
from poise.cli.webhook_flags import HookFlags
from poise.jobs.sharder.webhook.configuring import Reached

_ON = ["--webhook", "127.0.0.1:0"]
_URL = ["--webhook-url", "https://127.0.0.1:9443"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (_URL, "--webhook HOST:PORT is needed beside the other flags of the webhook"),
        (["--webhook-cert", "a"], "--webhook HOST:PORT is needed"),
        (_ON, "--webhook: say how it is reached, by --webhook-service or by --webhook-url"),
        ([*_ON, *_URL, "--webhook-service", "poise"], "--webhook: say how it is reached"),
        ([*_ON, *_URL, "--webhook-cert", "a", "--webhook-key", "b"], "belong together"),
        ([*_ON, "--webhook-service", "No_Name"], "--webhook-service: expected the name of a Service, got 'No_Name'"),
        (["--webhook", "here", *_URL], "--webhook: expected ADDRESS:PORT"),
        ([*_ON, "--webhook-url", "http://a"], "--webhook-url: expected https://HOST:PORT, got 'http://a'"),
        ([*_ON, "--webhook-url", "https://"], "--webhook-url: expected https://HOST:PORT"),
        ([*_ON, "--webhook-url", "https://a:99999"], "--webhook-url: expected https://HOST:PORT"),
        ([*_ON, "--webhook-url", "https://a/?b=c"], "takes no user, query or fragment"),
        ([*_ON, "--webhook-url", "https://me@a"], "takes no user, query or fragment"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = ["operator", "--kubeconfig", str(kubeconfig(tmp_path)), "--listen", "127.0.0.1:0"]
    assert run([*usual, *arguments]) == 64
    assert told in line(capsys)


def test_a_taken_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        usual = ["operator", "--kubeconfig", str(kubeconfig(tmp_path)), "--listen", "127.0.0.1:0"]
        assert run([*usual, "--webhook", address, *_URL]) == 64
    told = line(capsys)
    assert "--webhook: " in told
    assert "Address already in use" in told


def test_what_the_flags_mean() -> None:
    assert HookFlags().terms("home") is None
    with HookFlags().opened() as sockets:
        assert sockets == []
    served = HookFlags(webhook=":9443", webhook_service="hook").terms("home")
    assert served is not None
    assert served.files is None
    assert served.reached.names == ("hook.home.svc", "hook.home.svc.cluster.local")
    named = HookFlags(
        webhook=":9443",
        webhook_url="https://[::1]:9443/",
        webhook_cert="c",
        webhook_key="k",
        webhook_ca="a",
    ).terms("home")
    assert named is not None
    assert named.files == (Path("c"), Path("k"), Path("a"))
    assert named.reached.names == ("::1",)
    assert named.reached.config("/x", "pem")["url"] == "https://[::1]:9443/x"
    service = Reached("hook", "home").config("/x", "pem")["service"]
    assert service == {"name": "hook", "namespace": "home", "path": "/x", "port": 443}
