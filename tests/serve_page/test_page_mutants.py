"""The laws of the page are tested by tests that can fail: each is broken on purpose here, and is seen to be broken."""

from __future__ import annotations

import httpx2
import pytest
from markupsafe import Markup
from tests.serve_page.page_world import JOBS, check_page, marks
from tests.serve_page.test_page_actions import state_of

from poise.serve.page import previews, rendering, sentences

SET = JOBS["PartitionSet"]


def test_a_digest_that_sees_nothing_lets_the_late_one_in(page: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previews, "digest_of", lambda _seen: "same")
    first, second = page.get(f"{SET}?drain=w1"), page.get(f"{SET}?drain=w2")
    assert page.post(f"{SET}?drain=w1", data=marks(first.text)).status_code == 303
    assert page.post(f"{SET}?drain=w2", data=marks(second.text)).status_code == 303
    assert state_of(page, "w2") == "draining"


def test_a_template_that_does_not_escape_is_seen(page: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = rendering.environment("poise.serve.page").overlay(autoescape=False)
    monkeypatch.setattr(rendering, "environment", lambda _package: plain)
    with pytest.raises(AssertionError):
        check_page(page.get(f"{JOBS['ShardRing']}/items").text)


def test_a_sentence_that_does_not_escape_is_seen(page: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    check_page(page.get("/events").text)
    monkeypatch.setattr(sentences, "named", Markup)
    with pytest.raises(AssertionError):
        check_page(page.get("/events").text)
