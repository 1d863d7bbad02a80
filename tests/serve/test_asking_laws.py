"""Whatever text a request brings, it is read or refused; and pages lose and double nothing."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poise.errors import InvalidSpec
from poise.serve import asking
from poise.serve.asking import Ask, Page, Who, paged, path_names, query_values, wanted_revision
from poise.serve.bodies import read_document, read_json
from poise.serve.facade import SaidHeartbeat
from poise.serve.problems import Refused

FEW = settings(max_examples=150, deadline=None)
NAMES = st.lists(st.text(min_size=1, max_size=8) | st.from_regex(r"\A[0-9]{1,25}\Z"), unique=True, max_size=40)


def ask(query: dict[str, str] | None = None, headers: dict[str, str] | None = None) -> Ask:
    return Ask(names={}, query=query or {}, headers=headers or {}, body=b"", who=Who("a", "viewer"), secure=False)


def read_pages(names: list[str], limit: int) -> list[object]:
    """Follow a list to its end."""
    seen: list[object] = []
    query = {"limit": str(limit)}
    for _ in range(len(names) + 2):
        page: Page = paged(ask(query), names, lambda name: name)
        seen += page.items
        if not isinstance(page.go_on, str):
            return seen
        assert len(page.items) == limit
        query["continue"] = page.go_on
    raise AssertionError("a list without an end")


@FEW
@given(names=NAMES, limit=st.integers(1, 7))
def test_pages_lose_and_double_nothing(names: list[str], limit: int) -> None:
    assert read_pages(names, limit) == read_pages(names, 1_000)
    assert sorted(map(str, read_pages(names, limit))) == sorted(names)


def test_numbers_that_rank_alike_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_rank", lambda name: (0, int(name), ""))
    assert read_pages(["1", "01", "001"], 1) != ["001", "01", "1"]


@FEW
@given(names=NAMES.filter(lambda names: len(names) > 2), gone=st.data())
def test_what_comes_and_goes_between_pages_disturbs_no_other(names: list[str], gone: st.DataObject) -> None:
    first = paged(ask({"limit": "2"}), names, lambda name: name)
    assert isinstance(first.go_on, str)
    lost = gone.draw(st.sampled_from([str(name) for name in first.items]))
    rest = paged(ask({"limit": "1000", "continue": first.go_on}), [n for n in names if n != lost], lambda name: name)
    assert set(first.items) | set(rest.items) == set(names)
    assert not set(first.items) & set(rest.items)


@FEW
@given(st.text(max_size=40))
def test_any_continue_is_read_or_refused(token: str) -> None:
    with suppress(InvalidSpec):
        paged(ask({"continue": token}), ["a", "b"], lambda name: name)


@FEW
@given(st.text(max_size=40))
def test_any_limit_is_read_or_refused(limit: str) -> None:
    with suppress(InvalidSpec):
        paged(ask({"limit": limit}), ["a", "b"], lambda name: name)


@FEW
@given(st.text(max_size=40), st.sampled_from(["if-match", "if-none-match"]), st.integers(0, 3))
def test_any_condition_is_read_or_refused(said: str, header: str, there: int) -> None:
    with suppress(InvalidSpec, Refused):
        wanted = wanted_revision(ask(headers={header: said}), lambda: there)
        assert isinstance(wanted, int)


@FEW
@given(st.binary(max_size=60))
def test_any_query_is_read_or_refused(raw: bytes) -> None:
    with suppress(InvalidSpec):
        assert set(query_values(raw, ["limit"])) <= {"limit"}


@FEW
@given(st.text(alphabet=st.characters(max_codepoint=127), max_size=40))
def test_any_path_is_read_or_refused(raw: str) -> None:
    with suppress(InvalidSpec):
        path_names({"name": raw})


@FEW
@given(st.binary(max_size=80) | st.text(max_size=80).map(str.encode) | st.sampled_from([b'{"kind":1}', b"{}", b"[]"]))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    with suppress(InvalidSpec):
        read_json(body, SaidHeartbeat)
    with suppress(InvalidSpec):
        read_document(body, "ShardRing", "web")
