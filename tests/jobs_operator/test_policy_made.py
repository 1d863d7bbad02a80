"""The policies that protect the labels of rings, as documents: what they match, whom they name, how they read."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from poise.jobs.sharder import policy
from poise.jobs.sharder.policy import (
    HOME_LABEL,
    KUBE_SYSTEM,
    Protection,
    Terms,
    Writers,
    is_kin,
    is_own,
    own_labels,
    policy_name,
    protect,
    resource_names,
)
from poise.model import ShardRing

WEB: dict[str, object] = {
    "resources": [
        {"group": "apps", "resource": "deployments", "controlled": [{"resource": "pods"}, {"resource": "configmaps"}]},
        {"resource": "configmaps"},
    ]
}
KINDS = {("", "pods"): "Pod", ("", "configmaps"): "ConfigMap", ("apps", "deployments"): "Deployment"}
TERMS = Terms(writers=Writers(sharders=("system:serviceaccount:poise:operator",)))
HOOKED = msgspec.structs.replace(TERMS, webhook=frozenset({("team-a", "web")}))
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


class Expression(msgspec.Struct, rename="camel"):
    """One expression of a policy; variables have a name, validations a message."""

    expression: str
    name: str = ""
    message: str = ""
    message_expression: str = ""
    reason: str = ""


class Rule(msgspec.Struct, rename="camel"):
    """What requests a policy sees."""

    api_groups: list[str]
    api_versions: list[str]
    operations: list[str]
    resources: list[str]
    scope: str


class Constraints(msgspec.Struct, rename="camel"):
    """Which objects a policy sees."""

    match_policy: str
    namespace_selector: dict[str, dict[str, str]]
    object_selector: dict[str, object]
    resource_rules: list[Rule]


class Spec(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """All of a policy."""

    failure_policy: str
    match_constraints: Constraints
    variables: list[Expression]
    validations: list[Expression]

    def variable(self, name: str) -> str:
        """Give the expression of a variable."""
        return next(each.expression for each in self.variables if each.name == name)


def make_ring(name: str = "web", namespace: str = "team-a", spec: dict[str, object] = WEB) -> ShardRing:
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace}, "spec": spec}, ShardRing)


def made(terms: Terms = TERMS, ring: ShardRing | None = None) -> Protection:
    (only,) = protect([ring or make_ring()], KINDS, terms)
    return only


def read(protection: Protection) -> Spec:
    return msgspec.convert(protection.policy["spec"], Spec)


def test_a_ring_has_one_policy_and_one_binding_of_its_name() -> None:
    both = protect([make_ring("b"), make_ring("a", "team-b")], KINDS, TERMS)
    assert [each.name for each in both] == ["poise-a", "poise-b"]
    labels = {
        "app.kubernetes.io/managed-by": "poise",
        "poise.dev/ring": "a",
        "poise.dev/ring-namespace": "team-b",
        "poise.dev/scope": "",
        "poise.dev/operator": "",
    }
    policy, binding = both[0].policy, both[0].binding
    assert policy["apiVersion"] == binding["apiVersion"] == "admissionregistration.k8s.io/v1"
    assert (policy["kind"], binding["kind"]) == ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    assert policy["metadata"] == binding["metadata"] == {"name": "poise-a", "labels": labels}
    assert binding["spec"] == {"policyName": "poise-a", "validationActions": ["Deny"]}


def test_it_sees_exactly_the_resources_of_the_ring_and_their_subresources() -> None:
    spec = read(made())
    assert spec.failure_policy == "Fail"
    assert spec.match_constraints == Constraints(
        "Equivalent",
        {},
        {},
        [
            Rule([""], ["*"], ["CREATE", "UPDATE"], ["configmaps", "configmaps/*", "pods", "pods/*"], "*"),
            Rule(["apps"], ["*"], ["CREATE", "UPDATE"], ["deployments", "deployments/*"], "*"),
        ],
    )


def test_an_installation_for_one_namespace_sees_that_one_alone() -> None:
    protection = made(msgspec.structs.replace(TERMS, scope="team-a"))
    assert protection.name == policy_name("web", "team-a") == "poise-web.team-a"
    constraints = read(protection).match_constraints
    assert constraints.namespace_selector == {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}
    assert {rule.scope for rule in constraints.resource_rules} == {"Namespaced"}


@pytest.mark.parametrize("resources", [[], None])
def test_a_ring_without_resources_has_nothing_to_protect(resources: list[object] | None) -> None:
    spec: dict[str, object] = {"objects": ["a"]} if resources is None else {"resources": resources}
    assert protect([make_ring(spec=spec)], KINDS, TERMS) == []
    assert protect([], KINDS, TERMS) == []


def test_children_are_known_by_the_kinds_of_the_ring() -> None:
    assert read(made()).variable("isChild").endswith('in ["/ConfigMap", "/Pod", "apps/Deployment"])')
    # What the cluster does not have yet controls nothing.
    (unknown,) = protect([make_ring()], {("", "secrets"): "Secret"}, TERMS)
    assert read(unknown).variable("isChild").endswith("in [])")
    assert read(unknown).match_constraints == read(made()).match_constraints


def test_an_instance_is_a_pod_of_the_rings_namespace() -> None:
    variable = read(made()).variable("instance")
    assert '.startsWith("system:serviceaccount:team-a:")' in variable


def test_every_denial_says_who_may_and_is_no_failed_test_of_a_patch() -> None:
    first, second = read(made()).validations
    for each in (first, second):
        for told in (each.message, each.message_expression):
            assert "the sharder (system:serviceaccount:poise:operator)" in told
            assert "the ring web" in told
        assert each.reason == "Forbidden"
    assert "variables.shard" in first.message_expression
    assert "kubectl apply" in first.message_expression
    assert "leave them out" in first.message_expression


def test_only_the_listed_controllers_are_exempt() -> None:
    assert all(user.startswith(("system:kube-", "system:serviceaccount:kube-system:")) for user in KUBE_SYSTEM)
    assert read(made()).variable(
        "isExempt"
    ) == f"variables.user in {msgspec.json.encode(KUBE_SYSTEM).decode()}".replace('","', '", "')
    own = Terms(writers=Writers(sharders=("s",), exempt=("copier",)))
    assert read(made(own)).variable("isExempt") == 'variables.user in ["copier"]'
    assert read(made(own)).variable("isSharder") == 'variables.user in ["s"]'


def test_with_the_webhook_only_creating_is_judged_otherwise() -> None:
    plain, hooked = read(made()), read(made(HOOKED))
    differing = [one.name for one, other in zip(plain.variables, hooked.variables, strict=True) if one != other]
    assert differing == ["isFree"]
    assert plain.validations == hooked.validations
    assert '"CREATE"' in hooked.variable("isFree")
    assert "subResource" in hooked.variable("isFree")
    # A ring that no webhook is asked about is judged as without one.
    other = msgspec.structs.replace(TERMS, webhook=frozenset({("team-b", "web"), ("team-a", "other")}))
    assert read(made(other)) == plain


def test_creating_is_judged_otherwise_only_where_the_ring_looks() -> None:
    rules = [
        {"key": "a", "operator": "In", "values": ["x", "y"]},
        {"key": "b", "operator": "NotIn", "values": ["z"]},
        {"key": "c", "operator": "Exists"},
        {"key": "d", "operator": "DoesNotExist"},
    ]
    ring = make_ring(spec={**WEB, "namespaceSelector": {"matchLabels": {"t": 'v"'}, "matchExpressions": rules}})
    spec = read(made(HOOKED, ring))
    assert spec.variable("isFree").endswith(' && request.?subResource.orValue("") == "" && variables.isChosen)')
    there = "variables.place"
    assert spec.variable("isChosen") == (
        "(namespaceObject == null && !variables.isNamespace) || ("
        f'("t" in {there} && {there}["t"] in ["v\\""]) && ("a" in {there} && {there}["a"] in ["x", "y"])'
        f' && !("b" in {there} && {there}["b"] in ["z"]) && "c" in {there} && !("d" in {there}))'
    )
    assert all(is_whole(each.expression) for each in spec.variables)
    # Without the webhook nothing of that is needed.
    assert read(made(ring=ring)) == read(made())


def test_what_was_made_here_and_before_the_label_was_there_is_own() -> None:
    labels = own_labels("team-a", "home")
    assert is_own(labels, "team-a", "home")
    assert is_own({name: value for name, value in labels.items() if name != HOME_LABEL}, "team-a", "home")
    assert not is_own(labels, "team-a", "elsewhere")
    assert is_kin(labels, "team-a")
    for other in (None, "team-b"):
        assert not is_own(labels, other, "home")
        assert not is_kin(labels, other)
    assert not is_kin({}, None)
    assert not is_own({**labels, "app.kubernetes.io/managed-by": "x"}, "team-a", "home")


def test_the_same_rings_make_the_same_policies() -> None:
    turned = make_ring(
        spec={
            "resources": [
                {"resource": "configmaps"},
                {"resource": "pods"},
                {"group": "apps", "resource": "deployments", "controlled": [{"resource": "pods"}]},
            ]
        }
    )
    assert resource_names(turned) == [("", "configmaps"), ("", "pods"), ("apps", "deployments")]
    assert made(ring=turned) == made()
    assert protect([make_ring("a"), make_ring("b")], KINDS, TERMS) == protect(
        [make_ring("b"), make_ring("a")], KINDS, TERMS
    )


def test_a_variable_uses_only_those_before_it_and_each_is_used() -> None:
    spec = read(made())
    known: set[str] = set()
    used: set[str] = set()
    for each in spec.variables:
        needed = set(re.findall(r"variables\.(\w+)", each.expression))
        assert needed <= known, f"{each.name} needs {needed - known}"
        known.add(each.name)
        used |= needed
    for rule in spec.validations:
        used |= set(re.findall(r"variables\.(\w+)", rule.expression + rule.message_expression))
    assert used == known


def is_whole(expression: str) -> bool:
    """Say whether the texts of an expression end where they should: the rest has no quote and closes what it opens."""
    left = _STRING.sub("", expression)
    return '"' not in left and all(left.count(a) == left.count(b) for a, b in ("()", "[]", "{}"))


@example(users=['a" || "a" == "a'])
@example(users=["a\\", "line\nbreak"])
@settings(max_examples=60, deadline=None)
@given(users=st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=3))
def test_no_user_name_can_break_out_of_an_expression(users: list[str]) -> None:
    spec = read(made(Terms(writers=Writers(sharders=tuple(users), exempt=tuple(users)))))
    for each in (*spec.variables, *spec.validations):
        assert is_whole(each.expression), each
        assert is_whole(each.message_expression), each
    for each in spec.validations:
        assert each.message.isprintable()


def test_the_longest_name_fits() -> None:
    protection = made(msgspec.structs.replace(TERMS, scope="n" * 63), make_ring("r" * 63, "n" * 63))
    assert len(protection.name) <= 253


def bare(resources: list[tuple[str, str]], scope: str | None) -> dict[str, object]:
    """Match no subresources."""
    whole = KEPT(resources, scope)
    rules = msgspec.convert(whole["resourceRules"], list[dict[str, object]])
    for rule in rules:
        rule["resources"] = [each for each in msgspec.convert(rule["resources"], list[str]) if "/" not in each]
    return {**whole, "resourceRules": rules}


KEPT = policy._constraints


@pytest.mark.parametrize(
    ("name", "instead", "law"),
    [
        ("_constraints", bare, test_it_sees_exactly_the_resources_of_the_ring_and_their_subresources),
        ("_text", lambda value: f'"{value}"', test_no_user_name_can_break_out_of_an_expression),
        (
            "resource_names",
            lambda ring: [("", each.resource) for each in ring.spec.resources],
            test_it_sees_exactly_the_resources_of_the_ring_and_their_subresources,
        ),
        ("policy_name", lambda ring, _scope: ring, test_a_ring_has_one_policy_and_one_binding_of_its_name),
        (
            "_rights",
            lambda _owners, **_how: {"isFree": "variables.holds"},
            test_a_variable_uses_only_those_before_it_and_each_is_used,
        ),
        ("_rules", lambda _selector: [], test_creating_is_judged_otherwise_only_where_the_ring_looks),
        ("key_of", lambda _ring: ("team-b", "web"), test_with_the_webhook_only_creating_is_judged_otherwise),
        ("_APPLY", "", test_every_denial_says_who_may_and_is_no_failed_test_of_a_patch),
    ],
)
def test_a_broken_generator_is_seen(
    name: str, instead: object, law: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    law()
    monkeypatch.setattr(policy, name, instead)
    with pytest.raises((AssertionError, ExceptionGroup)):
        law()
