"""What the webhook answers, row by row; and whatever it is sent, it allows."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster.policy_rows import read_labels

from poise.jobs.sharder.webhook import reviewing
from poise.jobs.sharder.webhook.reviewing import Answer, Outcome, Place, Request, Users, answer
from poise.model.sharding import Marks

PLACE = Place("team", "web", "digest")
USERS = Users(("poise",), ("copier",))
HELD, ASKED = "shard=web-0 epoch=3", "shard=web-0 epoch=3 drain=web-1 until=100"
POD = "the pod web-0"
Body = dict[str, object]


class Row(NamedTuple):
    """One request, and the labels of the object afterwards."""

    who: str
    operation: str
    before: str
    sent: str
    after: str
    outcome: Outcome
    chosen: Marks | None = None
    sub: str = ""

    def __str__(self) -> str:
        """Name the row."""
        return f"{self.who} {self.operation} [{self.before}] -> [{self.sent}]"


def user(who: str) -> Body:
    """Say who asks, as the API server does."""
    if who == POD:
        return {
            "username": "system:serviceaccount:team:shards",
            "extra": {"authentication.kubernetes.io/pod-name": ["web-0"]},
        }
    if who == "a pod of elsewhere":
        return {
            "username": "system:serviceaccount:other:shards",
            "extra": {"authentication.kubernetes.io/pod-name": ["web-0"]},
        }
    return {"username": who}


def labels_of(text: str) -> dict[str, str]:
    return {name: value for name, value in read_labels(text, "web").items() if value is not None}


def review(row: Row) -> Body:
    """Write a review as the API server does."""

    def body(text: str) -> Body:
        return {"metadata": {"name": "x", **({"labels": labels_of(text)} if text else {})}}

    made = row.operation == "CREATE"
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "42",
            "operation": row.operation,
            "subResource": row.sub,
            "resource": {"group": "", "version": "v1", "resource": "secrets"},
            "namespace": "team",
            "userInfo": user(row.who),
            "object": body(row.sent),
            "oldObject": None if made else body(row.before),
        },
    }


ONE = Marks("web-1", 1)
LETS_GO, HANDS_OVER = "epoch=3", "shard=web-1 epoch=4"
ROWS = [
    # What is new gets what the sharder would write, whatever was sent.
    Row("a person", "CREATE", "", "", "shard=web-1 epoch=1", Outcome.ASSIGNED, ONE),
    Row("a person", "CREATE", "", "app=a", "app=a shard=web-1 epoch=1", Outcome.ASSIGNED, ONE),
    Row("a person", "CREATE", "", f"app=a {ASKED}", "app=a shard=web-1 epoch=1", Outcome.ASSIGNED, ONE),
    Row("a person", "CREATE", "", "shard=web-1 epoch=1", "shard=web-1 epoch=1", Outcome.ASSIGNED, ONE),
    Row(POD, "CREATE", "", HELD, "shard=web-1 epoch=1", Outcome.ASSIGNED, ONE),
    Row("copier", "CREATE", "", HELD, "shard=web-1 epoch=1", Outcome.ASSIGNED, ONE),
    # What is not known passes without labels of the ring.
    Row("a person", "CREATE", "", "", "", Outcome.LEFT),
    Row("a person", "CREATE", "", f"app=a {ASKED}", "app=a", Outcome.LEFT),
    Row("copier", "CREATE", "", HELD, "", Outcome.LEFT),
    # The sharder writes what it likes; a subresource is made on something that is there.
    Row("poise", "CREATE", "", HELD, HELD, Outcome.UNCHANGED, ONE),
    Row("a person", "CREATE", "", HELD, HELD, Outcome.UNCHANGED, ONE, sub="binding"),
    # A PUT that leaves labels out gets them back.
    Row("a person", "UPDATE", HELD, "app=a", f"app=a {HELD}", Outcome.RESTORED),
    Row("a person", "UPDATE", HELD, "", HELD, Outcome.RESTORED),
    Row("a person", "UPDATE", ASKED, HELD, ASKED, Outcome.RESTORED),
    Row("a person", "UPDATE", ASKED, "", ASKED, Outcome.RESTORED),
    Row("a person", "UPDATE", "epoch=3", "", "epoch=3", Outcome.RESTORED),
    Row("a person", "UPDATE", HELD, "", HELD, Outcome.RESTORED, sub="status"),
    Row("a pod of elsewhere", "UPDATE", ASKED, LETS_GO, ASKED, Outcome.RESTORED),
    Row("web-1", "UPDATE", ASKED, LETS_GO, ASKED, Outcome.RESTORED),
    # What is there and differs is for the policy to judge.
    Row("a person", "UPDATE", HELD, "shard=web-1 epoch=9", "shard=web-1 epoch=9", Outcome.UNCHANGED),
    Row("a person", "UPDATE", "", HELD, HELD, Outcome.UNCHANGED),
    Row("a person", "UPDATE", HELD, f"app=a {HELD}", f"app=a {HELD}", Outcome.UNCHANGED),
    # Whoever may leave them out does.
    Row("poise", "UPDATE", ASKED, "", "", Outcome.UNCHANGED),
    Row("copier", "UPDATE", ASKED, "", "", Outcome.UNCHANGED),
    *(Row(who, "UPDATE", ASKED, LETS_GO, LETS_GO, Outcome.UNCHANGED) for who in (POD, "web-0")),
    *(Row(who, "UPDATE", ASKED, HANDS_OVER, HANDS_OVER, Outcome.UNCHANGED) for who in (POD, "web-0")),
    Row(POD, "UPDATE", "shard=web-0 drain=web-1 until=9", "", "", Outcome.UNCHANGED),
    # A holder that writes an object of its own making has forgotten them.
    Row(POD, "UPDATE", ASKED, "", ASKED, Outcome.RESTORED),
    Row(POD, "UPDATE", HELD, "app=a", f"app=a {HELD}", Outcome.RESTORED),
    Row("a person", "DELETE", HELD, HELD, HELD, Outcome.UNCHANGED, ONE),
]


def patched(row: Row, made: Answer) -> dict[str, str]:
    """Carry the patch out as the API server does."""
    told = msgspec.json.decode(made.body)
    response = told["response"]
    assert (told["apiVersion"], told["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert (response["uid"], response["allowed"]) == ("42", True)
    labels: dict[str, str] | None = labels_of(row.sent) if row.sent else None
    for each in msgspec.json.decode(base64.b64decode(response.get("patch", "W10="))):
        parts = [part.replace("~1", "/") for part in each["path"].split("/")[1:]]
        assert parts[:2] == ["metadata", "labels"]
        if len(parts) == 2:
            assert labels is None, "labels that are there are not overwritten as a whole"
            labels = dict(each["value"])
            continue
        assert labels is not None, "a label is put where there are labels"
        if each["op"] == "remove":
            del labels[parts[2]]
        else:
            labels[parts[2]] = each["value"]
    assert ("patchType" in response) == ("patch" in response)
    return labels or {}


def judged(row: Row, users: Users = USERS) -> Answer:
    return answer(msgspec.json.encode(review(row)), PLACE, users, lambda _place, _request: row.chosen)


@pytest.mark.parametrize("row", ROWS, ids=map(str, ROWS))
def test_every_request(row: Row) -> None:
    made = judged(row)
    assert patched(row, made) == labels_of(row.after)
    assert made.outcome is row.outcome


@pytest.mark.parametrize(
    ("sent", "after"),
    [(LETS_GO, LETS_GO), (HANDS_OVER, HANDS_OVER), (HELD, HELD), ("", ASKED), ("app=a", f"app=a {ASKED}")],
)
def test_without_a_policy_anybody_may_be_an_instance_that_hands_over(sent: str, after: str) -> None:
    row = Row("whoever", "UPDATE", ASKED, sent, after, Outcome.UNCHANGED)
    made = judged(row, Users(("poise",), ("copier",), protected=False))
    assert patched(row, made) == labels_of(after)


def test_before_the_sharder_is_known_nothing_is_restored() -> None:
    row = Row("whoever", "UPDATE", ASKED, "", "", Outcome.UNCHANGED)
    assert patched(row, judged(row, Users((), ("copier",)))) == {}


def check_rows() -> None:
    for row in ROWS:
        test_every_request(row)


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        ("restored", lambda _request, _labels, _place, **_given: {}),
        ("instance", lambda user, _namespace: user.username),
        ("instance", lambda user, _namespace: next(iter(user.extra.get(reviewing._POD_EXTRA, ())), user.username)),
        ("label_patch", lambda _labels, _ring, marks: {"shard.poise.dev/web": marks.shard} if marks.shard else {}),
        ("Marks", lambda: Marks("web-9", 9)),
    ],
)
def test_a_broken_rule_fails_a_row(monkeypatch: pytest.MonkeyPatch, part: str, instead: object) -> None:
    monkeypatch.setattr(reviewing, part, instead)
    with pytest.raises((AssertionError, KeyError)):
        check_rows()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_ODD = st.dictionaries(
    st.sampled_from(["uid", "operation", "object", "oldObject", "userInfo", "resource", "dryRun"]), _JSON
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=60), _ODD, _JSON), st.booleans())
def test_whatever_is_sent_it_allows(sent: bytes | Mapping[str, object] | object, whole: bool) -> None:
    if isinstance(sent, dict):
        usual = review(ROWS[1])["request"]
        assert isinstance(usual, dict)
        sent = {"request": {**usual, **sent} if whole else sent}
    body = sent if isinstance(sent, bytes) else msgspec.json.encode(sent)
    made = answer(body, PLACE, USERS, lambda _place, _request: ONE)
    assert msgspec.json.decode(made.body)["response"]["allowed"] is True


def test_what_chooses_may_find_an_object_that_cannot_be_read() -> None:
    def choose(_place: Place, request: Request) -> Marks | None:
        return msgspec.json.decode(request.object, type=Marks)

    row = Row("a person", "CREATE", "", "app=a", "app=a", Outcome.MALFORMED)
    body = review(row)
    assert isinstance(body["request"], dict)
    body["request"]["object"] = {"metadata": {"name": "x"}, "shard": 7}
    made = answer(msgspec.json.encode(body), PLACE, USERS, choose)
    assert made.outcome is Outcome.MALFORMED
    assert msgspec.json.decode(made.body)["response"] == {"uid": "42", "allowed": True}
