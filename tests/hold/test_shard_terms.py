"""Settings of a shard and terms of its ring: what is refused, what is waited for, and which lengths follow from D."""

from __future__ import annotations

import re

import msgspec
import pytest

from poise.errors import InvalidSpec
from poise.hold.settings import EXIT_AT
from poise.hold.shard import Shard
from poise.hold.shard_terms import RingTerms, ShardPace, check_resources, read_terms
from poise.kube.crds.status import terms_of
from poise.kube.objects import Custom
from poise.kube.resources import CONFIG_MAPS
from poise.model.shard_ring import ShardRingSpec

SPEC = {
    "leaseSeconds": 9,
    "drainTimeoutSeconds": 5,
    "resources": [
        {"resource": "secrets", "controlled": [{"resource": "configmaps"}]},
        {"group": "apps", "resource": "deployments", "controlled": [{"resource": "configmaps"}]},
    ],
}
TAKEN = {"terms": terms_of(msgspec.convert(SPEC, ShardRingSpec))}


def ring(status: object, spec: object = None) -> Custom:
    encode = msgspec.json.encode
    return Custom(spec=msgspec.Raw(encode(spec or {})), status=msgspec.Raw(encode(status)))


def ready(reason: str) -> dict[str, object]:
    return {"conditions": [{"type": "Ready", "reason": reason}]}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (ring({}), "no operator has taken the ring yet"),
        (ring({"observedGeneration": 1, **ready("InvalidSpec")}, SPEC), "no operator has taken the ring yet"),
        (ring({**TAKEN, **ready("NameTaken")}), "a ring of this name in another namespace is older"),
        (ring({"terms": {"leaseSeconds": "soon"}}), "the ring cannot be read: "),
    ],
)
def test_a_ring_that_must_be_waited_for(found: Custom, why: str) -> None:
    read = read_terms(found)
    assert isinstance(read, str)
    assert read.startswith(why)


@pytest.mark.parametrize("status", [{}, ready("Sharding"), ready("InvalidSpec"), ready("Forbidden")])
@pytest.mark.parametrize("newest", [SPEC, {"leaseSeconds": 600}, {"leaseSeconds": "soon"}])
def test_a_ring_is_worked_for_by_what_the_operator_took_whatever_its_newest_document_says(
    status: dict[str, object], newest: dict[str, object]
) -> None:
    terms = RingTerms(9, 5, (("", "secrets"), ("", "configmaps"), ("apps", "deployments")))
    assert read_terms(ring({**TAKEN, **status}, newest)) == terms
    taken = {"conditions": [{"type": "Balanced", "reason": "NameTaken"}]}
    assert read_terms(ring({**TAKEN, **taken}, newest)) == terms


@pytest.mark.parametrize("duration_s", [1.0, 2.0, 15.0, 3600.0])
def test_the_lengths_leave_time_to_renew_twice_and_to_stop(duration_s: float) -> None:
    pace = ShardPace(duration_s)
    acts_s = duration_s - pace.margin_s
    assert duration_s / 3 + pace.ask_s < acts_s, "after a renewal that was not answered there is time for another"
    assert acts_s + pace.margin_s * EXIT_AT < duration_s
    assert pace.stop_s == pace.margin_s
    assert ShardPace(duration_s, 0.5).stop_s == 0.5
    assert pace.confirm_s < duration_s / 3


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"ring": ""}, "$.ring: expected at most 63 of a-z, 0-9, - and ., got ''"),
        ({"ring": "r" * 64}, "$.ring: expected at most 63"),
        ({"name": "Web-0"}, "$.name: expected at most 63"),
        ({"name": "a_b"}, "$.name: expected at most 63"),
        ({"name": "a/b"}, "$.name: expected at most 63"),
        ({"name": "-a"}, "$.name: expected at most 63"),
        ({"tokens": 0}, "$.tokens: expected `int` >= 1"),
        ({"tokens": True}, "$.tokens: expected `int | null`, got `bool`"),
        ({"at_once": 0}, "$.at_once: expected `int` >= 1"),
        ({"finish_s": float("nan")}, "$.finish_s: expected"),
        ({"finish_s": -1.0}, "$.finish_s: expected `float` >= 0.0"),
        ({"fence_restarts": "never"}, "$.fence_restarts: invalid enum value 'never'"),
        ({"on_hang": "wait"}, "$.on_hang: invalid enum value 'wait'"),
        ({"resources": []}, "$.resources: expected a list of resources"),
        ({"resources": "secrets"}, "$.resources: expected a list of resources"),
    ],
)
def test_settings_that_are_none(given: dict[str, object], fault: str) -> None:
    usual: dict[str, object] = {"ring": "web", "name": "web-0", "resources": ["secrets"]}
    with pytest.raises(InvalidSpec, match=re.escape(fault)):
        Shard(**{**usual, **given})  # type: ignore[arg-type]  # Wrong on purpose.


def test_resources_are_named_as_people_do() -> None:
    terms = RingTerms(15, 60, (("", "secrets"), ("", "configmaps"), ("apps", "deployments")))
    assert check_resources(("secrets", "deployments.apps"), terms) == {("", "secrets"), ("apps", "deployments")}
    assert check_resources((CONFIG_MAPS,), terms) == {("", "configmaps")}
    with pytest.raises(InvalidSpec, match=r"resources\[1\]: .*\(configmaps, deployments.apps, secrets\), got 'pods'"):
        check_resources(("secrets", "pods"), terms)
