"""The configuration of the webhook as it is written: only what a ring looks at is delayed, and never for long."""

from __future__ import annotations

import msgspec
import pytest

from poise.jobs.sharder.webhook.configuring import (
    Reached,
    called_rings,
    configuration_name,
    configure,
    path_of,
    read_path,
)
from poise.jobs.sharder.webhook.reviewing import Place, Users
from poise.model import ShardRing

USERS = Users(("system:serviceaccount:poise:operator",), ("copier",))
REACHED = Reached("hook", "poise")


def ring(name: str = "web", /, **spec: object) -> ShardRing:
    usual = {"resources": [{"resource": "secrets", "controlled": [{"group": "apps", "resource": "deployments"}]}]}
    return msgspec.convert({"metadata": {"name": name, "namespace": "team"}, "spec": {**usual, **spec}}, ShardRing)


class Hook(msgspec.Struct, rename="camel"):
    """One webhook as the API server reads it."""

    name: str
    failure_policy: str
    timeout_seconds: int
    side_effects: str
    reinvocation_policy: str
    match_policy: str
    namespace_selector: dict[str, object]
    object_selector: dict[str, object]
    rules: list[dict[str, list[str] | str]]
    client_config: dict[str, object]
    match_conditions: list[dict[str, str]] = []


class Configuration(msgspec.Struct):
    """What the API server reads."""

    webhooks: list[Hook]


def hooks(*rings: ShardRing, scope: str | None = None, conditions: bool = True) -> list[Hook]:
    made = configure(rings, REACHED, "pem", USERS, scope, conditions=conditions)
    return [] if made is None else msgspec.convert(made, Configuration).webhooks


def test_a_webhook_never_denies_and_never_delays_for_long() -> None:
    (hook,) = hooks(ring())
    assert (hook.failure_policy, hook.timeout_seconds, hook.side_effects) == ("Ignore", 1, "None")
    assert (hook.reinvocation_policy, hook.match_policy) == ("IfNeeded", "Equivalent")
    assert hook.object_selector == {}
    assert hook.client_config["caBundle"] == "cGVt"


def test_only_the_resources_of_the_ring_are_matched() -> None:
    (hook,) = hooks(ring())
    matched = {
        (group, operation, each)
        for rule in hook.rules
        for group in rule["apiGroups"]
        for operation in rule["operations"]
        for each in rule["resources"]
    }
    assert matched == {
        ("", "CREATE", "secrets"),
        ("", "UPDATE", "secrets"),
        ("", "UPDATE", "secrets/*"),
        ("apps", "CREATE", "deployments"),
        ("apps", "UPDATE", "deployments"),
        ("apps", "UPDATE", "deployments/*"),
    }
    # Where the API server cannot judge by itself, subresources such as the status are left alone.
    (plain,) = hooks(ring(), conditions=False)
    assert not [each for rule in plain.rules for each in rule["resources"] if "/" in each]
    assert plain.match_conditions == []


def test_the_namespaces_are_those_of_the_ring_and_the_scope() -> None:
    assert hooks(ring())[0].namespace_selector == {}
    rule = {"key": "a", "operator": "Exists"}
    selector = {
        "matchLabels": {"team": "x"},
        "matchExpressions": [rule, {"key": "b", "operator": "In", "values": ["c"]}],
    }
    chosen = ring(namespaceSelector=selector)
    assert hooks(chosen)[0].namespace_selector == selector
    (scoped,) = hooks(chosen, scope="team")
    assert scoped.namespace_selector == {
        **selector,
        "matchExpressions": [
            *selector["matchExpressions"],
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team"]},
        ],
    }
    assert {rule["scope"] for rule in scoped.rules} == {"Namespaced"}
    assert (configuration_name(None), configuration_name("team")) == ("poise-webhook", "poise-webhook.team")


def test_the_operator_itself_is_left_out() -> None:
    (hook,) = hooks(ring())
    first, second = hook.match_conditions
    assert first["expression"] == '!(request.userInfo.username in ["system:serviceaccount:poise:operator"])'
    assert '!(request.userInfo.username in ["copier"])' in second["expression"]
    assert '"drain-until.poise.dev/web"' in second["expression"]


def test_one_webhook_a_ring_and_none_without_resources() -> None:
    assert [each.name for each in hooks(ring("b"), ring("a"))] == ["a.shards.poise.dev", "b.shards.poise.dev"]
    assert hooks() == []
    assert hooks(ring(resources=[], objects=["x"])) == []


def test_it_says_who_made_it() -> None:
    made = configure([ring()], REACHED, "pem", USERS, None, "poise-system", conditions=True)
    assert made is not None
    labels = {"app.kubernetes.io/managed-by": "poise", "poise.dev/scope": "", "poise.dev/operator": "poise-system"}
    assert made["metadata"] == {"name": "poise-webhook", "labels": labels}


@pytest.mark.parametrize("reached", [REACHED, Reached(url="https://hook.example:8443/below/")])
def test_it_tells_for_which_rings_it_is_called(reached: Reached) -> None:
    web, other = ring(), ring("other")
    made = configure([web], reached, "pem", USERS, None, conditions=True)
    assert made is not None
    found = msgspec.convert(made["webhooks"], list[dict[str, object]])
    assert called_rings(found, [web, other]) == {("team", "web")}
    # One that looks at something else now is not asked about as it is.
    assert called_rings(found, [ring(key="namespace")]) == frozenset()
    assert called_rings([{}, {"clientConfig": {"service": None}}, {"clientConfig": 7}], [web]) == frozenset()


def test_the_name_that_is_called_is_that_of_the_service_or_of_the_address() -> None:
    assert REACHED.host == "hook.poise.svc"
    assert Reached(url="https://[::1]:8443/").host == "::1"


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"tokens": 7}, True),
        ({"policy": "balanced"}, True),
        ({"key": "namespace"}, False),
        ({"resources": [{"resource": "secrets"}]}, False),
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, False),
    ],
)
def test_the_path_tells_what_the_ring_looks_at(change: dict[str, object], same: bool) -> None:
    assert (path_of(ring(**change)) == path_of(ring())) is same


def test_a_path_is_read_as_it_was_written() -> None:
    place = read_path(path_of(ring()))
    assert place is not None
    assert (place.namespace, place.ring) == ("team", "web")
    assert path_of(ring()).endswith(place.digest)
    assert read_path("/assign/a/b/c") == Place("a", "b", "c")
    for path in ("", "/", "/assign/", "/assign/a/b", "/assign/a//c", "/assign/a/b/c/d", "/other/a/b/c"):
        assert read_path(path) is None
