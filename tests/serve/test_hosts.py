"""Which Host is ours: a name, with or without a port that is a number; the page writes it into commands."""

from __future__ import annotations

import pytest

from poise.serve.door import Door
from poise.serve.problems import Refused
from poise.serve.settings import ServeSettings


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:7878", "127.0.0.1:1", "[::1]", "[::1]:7878", "poise.example:443", "localhost:"]
)
def test_our_own_names_are_let_in(host: str) -> None:
    Door(ServeSettings(hosts=("poise.example",))).check_host({"host": host}, "127.0.0.1")


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("localhost:$(id)", id="a command as a port"),
        pytest.param("127.0.0.1:1;x", id="a command behind a port"),
        pytest.param("[::1]x", id="something behind the brackets"),
        pytest.param("[::1]:7878 x", id="a blank"),
        pytest.param("localhost:80:90", id="two ports"),
        pytest.param("localhost:123456", id="a port that is none"),
        pytest.param("localhost:٣", id="digits of another script"),
        pytest.param("evil.example", id="another name"),
        pytest.param("", id="none"),
        pytest.param(":7878", id="a port only"),
    ],
)
def test_everything_else_is_refused(host: str) -> None:
    with pytest.raises(Refused) as told:
        Door(ServeSettings()).check_host({"host": host}, "127.0.0.1")
    assert told.value.status_code == 421
