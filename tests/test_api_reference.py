"""The API reference is what the server's own description says; whoever changes the API renews the page."""

from __future__ import annotations

import re

import msgspec
import pytest
from tools.api_reference import MARKER, PAGE, reference, renew

from poise.serve.call import Call
from poise.serve.calls import CALLS
from poise.serve.openapi import describe

OPENAPI = msgspec.json.encode(describe(CALLS))


def test_the_page_is_current() -> None:
    page = PAGE.read_text()
    assert renew(page, OPENAPI) == page, "run: python tools/api_reference.py"


def test_what_is_written_by_hand_stays() -> None:
    assert renew(f"# By hand\n\n{MARKER}old", OPENAPI).startswith(f"# By hand\n\n{MARKER}\n## Calls\n")
    with pytest.raises(ValueError, match="no marker"):
        renew("# By hand\n", OPENAPI)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_every_call_has_its_place(call: Call) -> None:
    assert f"\n### {call.method} {call.path}\n" in PAGE.read_text()


def test_a_changed_description_makes_another_page() -> None:
    for word in (b"List every job with its health", b"the most entries of one page", b"every reason", b'"reasons"'):
        assert reference(OPENAPI.replace(word, word.replace(b"e", b"x"), 1)) != reference(OPENAPI), word
    with pytest.raises(msgspec.ValidationError):
        reference(b'{"paths": {}}')


def test_links_inside_the_page_lead_to_its_headings() -> None:
    page = PAGE.read_text()
    headings = {_anchor(text) for text in re.findall(r"^#+ (.*)$", page, re.MULTILINE)}
    linked = set(re.findall(r"\]\(#([^)]*)\)", page))
    assert len(linked) > 40
    assert linked <= headings, linked - headings


def test_links_to_the_kinds_lead_to_their_headings() -> None:
    documents = (PAGE.parent / "documents.md").read_text()
    headings = {_anchor(text) for text in re.findall(r"^#+ (.*)$", documents, re.MULTILINE)}
    linked = set(re.findall(r"\]\(documents\.md#([^)]*)\)", PAGE.read_text()))
    assert linked
    assert linked <= headings


def _anchor(heading: str) -> str:
    """Say the anchor of a heading once more, without the code that is tested."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_roles_of_the_page_are_those_of_the_calls() -> None:
    prose = PAGE.read_text().partition(MARKER)[0]
    roles = {role: {f"{call.method} {call.path}" for call in CALLS if call.role == role} for role in ("open", "member")}
    assert all(path in prose for path in ("/livez", "/readyz", "/login", "/logout")), "the open ones are named"
    assert {each.split()[1] for each in roles["open"]} == {"/livez", "/readyz", "/login", "/logout"}
    assert {each.split()[1] for each in roles["member"]} == {"/v1/sets/{set}", "/v1/sets/{set}/members/{id}"}
    assert {call.path for call in CALLS if call.members} == {"/v1/events", "/v1/pools/{name}/pods/{pod}/targets"}
    operators = [call for call in CALLS if call.role == "operator"]
    assert all(call.method != "GET" for call in operators)
    assert [call.path for call in CALLS if call.role == "viewer" and call.method != "GET"] == [
        "/v1/jobs/{kind}/{name}/plan",
        "/v1/jobs/{kind}/{name}/items/{item}/explain",
    ]
