"""Who may look and who may act: nobody without a login, viewers without buttons, and no form of another site."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from urllib.parse import unquote

import httpx2
import pytest
from tests.serve.live_server import LiveServer, token_line, tokens_file
from tests.serve_page.page_world import JOBS, check_page, every_page, fill, marks

from poise.serve.settings import ServeSettings

SET = JOBS["PartitionSet"]
TOKENS = {"ada": "operator", "eve": "viewer", "w": "member:orders"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Serve with tokens."""
    lines = [token_line(name, role) for name, role in TOKENS.items()]
    settings = ServeSettings(tokens=tokens_file(tmp_path_factory.mktemp("tokens"), *lines))
    with LiveServer(settings) as live:
        with live.client("ada"[::-1]) as operator:
            fill(live, operator)
        yield live


@contextmanager
def logged_in(live: LiveServer, name: str) -> Iterator[httpx2.Client]:
    """Log in as a browser does, with the form."""
    with live.client(Origin=live.url) as client:
        response = client.post("/login", data={"token": name[::-1]})
        assert (response.status_code, response.headers["location"]) == (303, "/")
        yield client


@pytest.mark.parametrize("path", every_page())
def test_nobody_sees_anything_without_a_login(guarded: LiveServer, path: str) -> None:
    with guarded.client() as client:
        response = client.get(path)
        login, _, back = response.headers["location"].partition("?back=")
        assert (response.status_code, login, unquote(back) or "/") == (303, "/login", path)
        assert client.get(path, headers={"HX-Request": "true"}).status_code == 401


def test_the_login_says_what_was_wrong_and_lets_in(guarded: LiveServer) -> None:
    with guarded.client(Origin=guarded.url) as client:
        shown = client.get("/login")
        assert shown.status_code == 200
        assert {"token", "login"} <= set(check_page(shown.text).ids)
        for token in ("wrong", "", "x" * 2000):
            refused = client.post("/login", data={"token": token})
            assert refused.status_code in (400, 401)
            assert "login-refused" in check_page(refused.text).ids
        assert client.post("/login", json={"token": "wrong"}).headers["content-type"] == "application/problem+json"
        assert client.post("/login", data={"token": "ada"[::-1]}).status_code == 303
        assert "ada, operator" in check_page(client.get("/").text).text
        assert client.get("/login").headers["location"] == "/"
        assert client.post("/logout", data={}).status_code in (204, 303)
        assert client.get("/").status_code == 303


@pytest.mark.parametrize("path", [SET, f"{SET}?drain=w1&add=w%39", "/events?job=orders"])
def test_a_login_leads_back_to_the_page_that_was_asked_for(guarded: LiveServer, path: str) -> None:
    with guarded.client(Origin=guarded.url) as client:
        login = client.get(path).headers["location"]
        form = f'action="{escape(login)}"'
        assert form in client.get(login).text
        refused = client.post(login, data={"token": "wrong"})
        assert (refused.status_code, form in refused.text) == (401, True), "a wrong token does not lose the way"
        assert client.post(login, data={"token": "ada"[::-1]}).headers["location"] == path
        assert client.get(login).headers["location"] == path, "and who is logged in is led there at once"
        assert client.get(path).status_code == 200


@pytest.mark.parametrize(
    "back", ["//evil.example", "/\\evil.example", "https://evil.example", "/\t/evil.example", "/login"]
)
def test_a_login_leads_nowhere_else(guarded: LiveServer, back: str) -> None:
    with guarded.client(Origin=guarded.url) as client:
        assert "evil" not in client.get("/login", params={"back": back}).text
        assert "evil" not in client.post("/login", params={"back": back}, data={"token": "x"}).text
        made = client.post("/login", params={"back": back}, data={"token": "ada"[::-1]})
        assert (made.status_code, made.headers["location"]) == (303, "/")
        assert client.get("/login", params={"back": back}).headers["location"] == "/"


def test_an_open_server_says_so(page: httpx2.Client) -> None:
    assert "local, no login" in check_page(page.get("/").text).text


def test_a_viewer_sees_commands_and_no_buttons(guarded: LiveServer) -> None:
    with logged_in(guarded, "eve") as client:
        for query in ("", "?drain=w1", "?pause=moves"):
            seen = check_page(client.get(f"{SET}{query}").text)
            assert "apply" not in seen.ids
        shown = client.get(f"{SET}?drain=w1").text
        assert "poise drain w1 --job PartitionSet/orders" in shown
        assert "You may look, not change" in shown


def test_a_viewer_cannot_act(guarded: LiveServer) -> None:
    with logged_in(guarded, "ada") as operator, logged_in(guarded, "eve") as viewer:
        form = marks(operator.get(f"{SET}?drain=w1").text)
        refused = viewer.post(f"{SET}?drain=w1", data=form)
        assert refused.status_code == 403
        assert "may look but not change anything" in check_page(refused.text).text
        assert "draining" not in viewer.get(f"{SET}/items").text


def test_an_operator_acts_with_a_cookie(guarded: LiveServer) -> None:
    with logged_in(guarded, "ada") as client:
        form = marks(client.get(f"{SET}?pause=moves").text)
        assert client.post(f"{SET}?pause=moves", data=form).status_code == 303
        form = marks(client.get(f"{SET}?resume=yes").text)
        assert client.post(f"{SET}?resume=yes", data=form).status_code == 303


def test_a_member_is_no_visitor(guarded: LiveServer) -> None:
    with logged_in(guarded, "w") as client:
        response = client.get("/")
        assert response.status_code == 403
        assert "good for heartbeats only" in check_page(response.text).text


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_a_form_of_another_site_is_refused(guarded: LiveServer, origin: str) -> None:
    with logged_in(guarded, "ada") as client:
        form = marks(client.get(f"{SET}?drain=w2").text)
        assert client.post(f"{SET}?drain=w2", data=form, headers={"Origin": origin}).status_code == 403
        assert "What if w2 is drained" in client.get(f"{SET}?drain=w2").text, "it is not draining"


def test_pages_let_browsers_name_their_origin(page: httpx2.Client) -> None:
    assert page.get(f"{SET}?drain=w1").headers["referrer-policy"] == "same-origin"


def test_a_body_that_is_no_form_is_refused(page: httpx2.Client) -> None:
    assert page.post(f"{SET}?drain=w1", json={"revision": 1}).status_code == 415
    assert (
        page.post(
            f"{SET}?drain=w1", content=b"\xff=1", headers={"Content-Type": "application/x-www-form-urlencoded"}
        ).status_code
        == 400
    )
