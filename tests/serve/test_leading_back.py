"""The way back after a login: every page of this server, and no other server, however its name is hidden."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poise.serve.leading_back import BACK_MAX, login_path, own_path

OWN = [
    "/",
    "/events",
    "/events?job=a&kind=b",
    "/jobs/PartitionSet/orders?drain=w1",
    "/jobs/ShardRing/web/items/a%2Fb%20c",
]
ELSEWHERE = [
    "",
    "events",
    "//evil.example",
    "///evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "/\t/evil.example",
    "/\n/evil.example",
    "\t//evil.example",
    " //evil.example",
    "https://evil.example/",
    "https:evil.example",
    "javascript:alert(1)",
    "/ünïcode",
    "/a b",
    "/a\r\nSet-Cookie: x=y",
    "/login",
    "/login?back=%2F",
    "/logout#x",
    "/" + "x" * BACK_MAX,
]
TRICKY = st.text(st.sampled_from("/\\\t\r\n .:?#%a@"), max_size=6) | st.text(max_size=12)
HIDDEN = st.tuples(st.sampled_from(["//", "///", "/\\", "/\t/", "\\\\"]), st.text("ab./?#", max_size=6)).map("".join)


def host_of(location: str) -> str:
    """Read the host that a browser goes to: it passes over tabs and line ends, and takes a backslash for a slash."""
    seen = location.strip("".join(map(chr, range(33)))).translate(dict.fromkeys(map(ord, "\t\r\n")))
    seen = seen.replace("\\", "/")
    scheme, colon, rest = seen.partition(":")
    if colon and scheme[:1].isalpha() and scheme.replace("+", "").isalnum():
        return rest.lstrip("/") or "?"
    return seen.lstrip("/").partition("/")[0] or "?" if seen.startswith("//") else ""


@pytest.mark.parametrize("path", OWN)
def test_a_page_of_this_server_is_led_back_to(path: str) -> None:
    assert own_path(path) == path
    login, _, back = login_path(path).partition("?back=")
    assert (login, unquote(back) or "/") == ("/login", path)


@pytest.mark.parametrize("path", ELSEWHERE)
def test_whatever_leads_elsewhere_leads_to_the_overview(path: str) -> None:
    assert own_path(path) == "/"
    assert login_path(path) == "/login"


def check_leads_home(lead: Callable[[str], str]) -> None:
    @given(TRICKY | TRICKY.map(lambda text: f"/{text}") | HIDDEN)
    @settings(max_examples=300, deadline=None)
    def leads_home(asked: str) -> None:
        led = lead(asked)
        assert host_of(led) == ""
        assert led.startswith("/")
        assert led.isascii()
        assert led.isprintable()

    leads_home()


def test_no_text_leads_to_another_server() -> None:
    check_leads_home(own_path)


def test_a_check_of_the_first_slashes_alone_would_lead_elsewhere() -> None:
    with pytest.raises((AssertionError, ExceptionGroup)):
        check_leads_home(lambda asked: asked if asked.startswith("/") and not asked.startswith("//") else "/")
