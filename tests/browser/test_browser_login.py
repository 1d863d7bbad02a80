"""Who comes in: a token, a cookie that scripts cannot read, viewers without buttons, and no other site."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.browser_world import JOBS, ORDERS, World
from tests.browser.visiting_browser import await_live, check_looks, visiting
from tests.serve.live_server import token_line, tokens_file
from tests.serve_process import ServedFolder

pytestmark = pytest.mark.slow
PATH = JOBS["PartitionSet"]
OPERATOR, VIEWER = "ada", "eve"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Serve with tokens."""
    folder = tmp_path_factory.mktemp("guarded")
    tokens = tokens_file(folder, token_line(OPERATOR, "operator"), token_line(VIEWER, "viewer"))
    with ServedFolder(folder, options=("--tokens", str(tokens))) as served:
        world = World(served, OPERATOR[::-1])
        with world.client:
            world.put(ORDERS)
            world.join("orders", "w1", "w2")
            world.settle("PartitionSet", "orders")
            yield world


def log_in(page: Page, name: str) -> None:
    """Log in as people do."""
    page.goto("/")
    page.locator("#token").fill(name[::-1])
    page.locator("#login").click()
    expect(page.locator("#who")).to_contain_text(name)


def test_a_token_lets_in_and_a_logout_ends_it(chromium: Browser, guarded: World) -> None:
    with visiting(chromium, guarded.url, statuses=[401]) as page:
        page.goto(PATH)
        expect(page).to_have_url(f"{guarded.url}/login?back={quote(PATH, safe='')}")
        expect(page.locator("#token")).to_be_focused()
        check_looks(page)
        page.locator("#token").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#login-refused")).to_contain_text("not known")
        check_looks(page)
        assert page.context.cookies() == []
        page.locator("#token").fill(OPERATOR[::-1])
        page.locator("#login").click()
        expect(page.locator("#who")).to_have_text("ada, operator")
        (cookie,) = page.context.cookies()
        assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Strict")
        assert page.evaluate("document.cookie") == ""
        await_live(page)
        page.locator("#logout").click()
        expect(page).to_have_url(f"{guarded.url}/login")
        # A copy of the cookie is worth nothing after that.
        page.context.add_cookies([{"name": cookie["name"], "value": cookie["value"], "url": guarded.url}])
        page.goto(PATH)
        expect(page).to_have_url(f"{guarded.url}/login?back={quote(PATH, safe='')}")


def test_a_session_that_ends_under_an_open_page_is_said(chromium: Browser, guarded: World) -> None:
    with visiting(chromium, guarded.url, statuses=[401]) as page:
        log_in(page, OPERATOR)
        page.goto(PATH)
        await_live(page)
        page.context.clear_cookies()
        expect(page.locator("#state-words")).to_have_text("ended: log in again")
        expect(page.locator("#error a", has_text="Log in")).to_be_visible()
        assert page.locator("#drawing").count() == 0


def test_a_viewer_sees_everything_and_no_button(chromium: Browser, guarded: World) -> None:
    with visiting(chromium, guarded.url) as page:
        log_in(page, VIEWER)
        for query in ("", "?drain=w1", "?pause=moves"):
            page.goto(f"{PATH}{query}")
            await_live(page)
            expect(page.locator("#drawing svg.wide")).to_be_visible()
            changing = page.locator("form[method=post]:not([action='/logout'])")
            assert changing.count() == 0, query
        expect(page.locator("#command-1 code")).to_contain_text("poise pause")
        answer = page.request.post(
            f"{PATH}?drain=w1", form={"revision": "1", "digest": "x"}, headers={"Origin": guarded.url}
        )
        assert answer.status == 403
        assert guarded.draining("PartitionSet", "orders") == []


def test_a_forged_origin_is_refused_with_a_good_cookie(chromium: Browser, guarded: World) -> None:
    with visiting(chromium, guarded.url) as page:
        log_in(page, OPERATOR)
        page.goto(f"{PATH}?drain=w1")
        marks: dict[str, str | float | bool] = {}
        marks |= {key: page.locator(f"#apply-form [name={key}]").input_value() for key in ("revision", "digest")}
        for path in (f"{PATH}?drain=w1", f"/v1{PATH}/members/w1/drain", "/logout"):
            for origin in ("http://elsewhere.example", "null", "http://127.0.0.1:1"):
                answer = page.request.post(path, form=marks, headers={"Origin": origin})
                assert answer.status == 403, (path, origin)
                assert "access-control-allow-origin" not in answer.headers
        assert guarded.draining("PartitionSet", "orders") == []
        page.reload()
        expect(page.locator("#who")).to_have_text("ada, operator")
        # The same request from where it belongs is done: nothing else kept the others out.
        answer = page.request.post(f"{PATH}?drain=w1", form=marks, headers={"Origin": guarded.url}, max_redirects=0)
        assert answer.status == 303
        assert guarded.draining("PartitionSet", "orders") == ["w1"]
        guarded.client.post(f"/v1{PATH}/members/w1/undrain")


def test_a_form_of_another_site_changes_nothing_even_on_an_open_server(chromium: Browser, world: World) -> None:
    context = chromium.new_context()
    page = context.new_page()
    forms = "".join(
        f'<form method="post" action="{world.url}{path}" id="f{number}"><input name="revision" value="1">'
        f'<input name="digest" value="x"><button>go</button></form>'
        for number, path in enumerate((f"{PATH}?drain=w1", f"/v1{PATH}/members/w1/drain", "/login"))
    )
    page.route(
        "http://elsewhere.example/**",
        lambda route: route.fulfill(status=200, content_type="text/html", body=f"<title>evil</title>{forms}"),
    )
    for number in range(3):
        page.goto("http://elsewhere.example/")
        with page.expect_navigation() as went:
            page.locator(f"#f{number} button").click()
        assert went.value is not None
        assert went.value.status == 403
    page.goto("http://elsewhere.example/")
    page.evaluate(
        f"fetch('{world.url}/v1{PATH}/pause', {{method: 'POST', mode: 'no-cors', body: '{{}}'}}).catch(() => 0)"
    )
    read = page.evaluate(f"fetch('{world.url}/v1/jobs').then((told) => told.text(), () => 'refused')")
    assert read == "refused"
    assert world.draining("PartitionSet", "orders") == []
    (job,) = (each for each in world.client.get("/v1/jobs").json()["items"] if each["name"] == "orders")
    assert not job.get("paused")
    context.close()


def test_a_name_that_points_here_by_trick_is_refused(chromium: Browser, world: World) -> None:
    with visiting(chromium, world.url, statuses=[421]) as page:
        port = world.url.rpartition(":")[2]
        answer = page.request.get("/", headers={"Host": f"rebound.example:{port}"})
        assert answer.status == 421
