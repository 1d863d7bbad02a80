"""Settings from flags and the environment; a mistake is told with its place before anything starts."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from poise.errors import InvalidSpec
from poise.serve.settings import (
    ServeSettings,
    Token,
    is_loopback,
    open_sockets,
    read_listen,
    read_settings,
    read_tokens,
)

HASH = "ab" * 32


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:7878", "127.0.0.1", 7878),
        ("[::1]:80", "::1", 80),
        (":7878", "0.0.0.0", 7878),
        ("localhost:0", "localhost", 0),
        (" poise.example:65535 ", "poise.example", 65535),
    ],
)
def test_an_address_is_read(text: str, host: str, port: int) -> None:
    assert read_listen(text) == (host, port)


@pytest.mark.parametrize(
    "text", ["", "7878", "127.0.0.1", "a:b", "h:65536", "[::1]", "::1:80", "[zz]:80", "[:::]:8", "a b:1"]
)
def test_a_bad_address_is_told(text: str) -> None:
    with pytest.raises(InvalidSpec, match="--listen"):
        read_listen(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("10.0.0.1", False), ("me", False)],
)
def test_what_counts_as_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_flags_win_over_the_environment_and_defaults_are_the_contracts() -> None:
    assert read_settings() == ServeSettings()
    assert (ServeSettings().host, ServeSettings().port) == ("127.0.0.1", 7878)
    there = {"POISE_LISTEN": "localhost:1", "POISE_HOSTS": "A.example, b.example", "POISE_INSECURE": "1"}
    assert read_settings(environ=there) == ServeSettings(
        host="localhost", port=1, hosts=("a.example", "b.example"), insecure=True
    )
    assert read_settings(listen="127.0.0.1:2", hosts=["c"], environ=there).hosts == ("c",)


def test_the_limits_are_the_contracts() -> None:
    settings = ServeSettings()
    assert settings.body_max == 8 * 1024 * 1024
    assert settings.headers_max == 64 * 1024
    assert settings.request_s == 30
    assert settings.streams_max == 1_000


def write(folder: Path, text: str) -> Path:
    path = folder / "tokens"
    path.write_text(text)
    return path


def test_a_tokens_file_is_read(tmp_path: Path) -> None:
    other = "CD" * 32
    text = (
        f"# who may\n\nvera viewer {HASH}\norders, member, {other}  # the set is its name\nmia member:web {'12' * 32}\n"
    )
    assert read_tokens(write(tmp_path, text)) == [
        Token("vera", "viewer", HASH),
        Token("orders", "member", other.lower(), "orders"),
        Token("mia", "member", "12" * 32, "web"),
    ]


def test_every_bad_line_of_a_tokens_file_is_named_and_no_secret_is_repeated(tmp_path: Path) -> None:
    path = write(
        tmp_path, f"ok viewer {HASH}\ntwo words\nx root {HASH}\ny viewer:web {HASH}\nz viewer my-secret-token\n"
    )
    with pytest.raises(InvalidSpec) as caught:
        read_tokens(path)
    assert [fault.path for fault in caught.value.faults] == [f"{path}, line {number}" for number in (2, 3, 4, 5)]
    assert "my-secret-token" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_a_tokens_file_without_tokens_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSpec, match="has no token"):
        read_tokens(write(tmp_path, text))


def test_two_lines_with_one_token_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="b: the same token"):
        read_tokens(write(tmp_path, f"a viewer {HASH}\nb operator {HASH}\n"))


def test_files_that_cannot_be_read_are_told_all_at_once(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    with pytest.raises(InvalidSpec) as caught:
        read_settings(tokens=missing, tls_cert=missing, tls_key=missing)
    assert [fault.path for fault in caught.value.faults] == ["--tokens", "--tls-cert"]
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSpec, match="no UTF-8 text"):
        read_tokens(tmp_path / "binary")
    with pytest.raises(InvalidSpec, match="--tls-key: needed beside"):
        read_settings(tls_cert=missing)


def test_a_taken_port_is_told_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidSpec, match=rf"--listen: 127.0.0.1:{port}: .*in use"):
            open_sockets(ServeSettings(port=port))
    with pytest.raises(InvalidSpec, match="--listen"):
        open_sockets(ServeSettings(host="no.such.name.invalid"))
