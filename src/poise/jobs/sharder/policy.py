"""Who may write the labels of a ring, as a ValidatingAdmissionPolicy: the API server refuses everybody else. Pure.

The sharder may do anything to them. The instance that the shard label names may hand over what is drained, move a
child with a larger epoch, and raise the epoch of what it holds by one. Controllers that copy labels are exempt.
Everybody else leaves them as they are. A policy that fails refuses, so no expression may fail, whatever it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from poise.model import LabelSelector, ShardRing
from poise.model.common import LabelRule
from poise.model.sharding import EPOCH_DIGITS_MAX, RING_LABEL, label_names

API_VERSION = "admissionregistration.k8s.io/v1"
MANAGED_LABEL, MANAGED = "app.kubernetes.io/managed-by", "poise"
NAMESPACE_LABEL, SCOPE_LABEL, HOME_LABEL = "poise.dev/ring-namespace", "poise.dev/scope", "poise.dev/operator"
_POD_EXTRA = "authentication.kubernetes.io/pod-name"
_ACCOUNT = "system:serviceaccount"
# Those that make objects from others or copy labels between them. One process may speak for all of them.
KUBE_SYSTEM = (
    "system:kube-controller-manager",
    *(
        f"{_ACCOUNT}:kube-system:{name}"
        for name in (
            "cronjob-controller",
            "daemon-set-controller",
            "deployment-controller",
            "endpoint-controller",
            "endpointslice-controller",
            "endpointslicemirroring-controller",
            "job-controller",
            "replicaset-controller",
            "replication-controller",
            "statefulset-controller",
        )
    ),
)
_APPLY = "; a manifest without these labels would remove them: apply it (kubectl apply) instead of replacing the object"
_OMIT = "; leave them out: the sharder sets them on what is new"
_HOLDERS = (
    "the instance that holds an object may: hand over what is drained (shard = the value of drain, epoch + 1, without"
    " the drain labels), or let go of it (without shard and the drain labels, the same epoch); move a child (any shard,"
    " a larger epoch); raise the epoch by one"
)

Names = tuple[str, str]


class Writers(msgspec.Struct, frozen=True, kw_only=True):
    """The users who may do anything to the labels: the sharder, and the controllers that copy them."""

    sharders: tuple[str, ...]
    exempt: tuple[str, ...] = KUBE_SYSTEM


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What all policies of one installation have in common; `scope` is the only namespace that it looks at.

    `home` is the namespace where it lives. `webhook` are the rings, by namespace and name, whose new objects a webhook
    is asked about: it overwrites what users set on them, so that this need not be refused.
    """

    writers: Writers
    scope: str | None = None
    home: str = ""
    webhook: frozenset[tuple[str, str]] = frozenset()


class Protection(msgspec.Struct, frozen=True):
    """The policy of one ring and its binding, as the API server reads them."""

    name: str
    policy: dict[str, object]
    binding: dict[str, object]


def protect(rings: Iterable[ShardRing], kinds: Mapping[Names, str], terms: Terms) -> list[Protection]:
    """Make the policies of rings, in the order of their names; a ring without resources has nothing to protect.

    `kinds` tells the kind of a group and resource; of one that the cluster does not have yet there is none.
    """
    protected = sorted((ring for ring in rings if ring.spec.resources), key=lambda ring: ring.metadata.name)
    return [_protection(ring, kinds, terms) for ring in protected]


def policy_name(ring: str, scope: str | None) -> str:
    """Name the policy of a ring; those of installations that look at one namespace each are told apart by it."""
    return f"poise-{ring}.{scope}" if scope else f"poise-{ring}"


def own_labels(scope: str | None, home: str) -> dict[str, str]:
    """Say on what is in no namespace which installation made it: where it looks, and where it lives."""
    return {MANAGED_LABEL: MANAGED, SCOPE_LABEL: scope or "", HOME_LABEL: home}


def is_kin(labels: Mapping[str, str], scope: str | None) -> bool:
    """Say whether an installation of Poise made it that looks at these namespaces."""
    return labels.get(MANAGED_LABEL) == MANAGED and labels.get(SCOPE_LABEL) == (scope or "")


def is_own(labels: Mapping[str, str], scope: str | None, home: str) -> bool:
    """Say whether this installation made it. Where it does not say who did, an earlier release made it: it is ours."""
    return is_kin(labels, scope) and labels.get(HOME_LABEL, home) == home


def key_of(ring: ShardRing) -> tuple[str, str]:
    """Name a ring by its namespace and name."""
    return ring.metadata.namespace or "", ring.metadata.name


def resource_names(ring: ShardRing) -> list[Names]:
    """List group and name of each resource of a ring once."""
    every = ((each.group, each.resource) for root in ring.spec.resources for each in (root, *root.controlled))
    return sorted(set(every))


def _protection(ring: ShardRing, kinds: Mapping[Names, str], terms: Terms) -> Protection:
    name = policy_name(ring.metadata.name, terms.scope)
    labels = own_labels(terms.scope, terms.home) | {
        RING_LABEL: ring.metadata.name,
        NAMESPACE_LABEL: ring.metadata.namespace or "",
    }
    resources = resource_names(ring)
    owners = sorted({f"{each[0]}/{kinds[each]}" for each in resources if each in kinds})
    spec: dict[str, object] = {
        "failurePolicy": "Fail",
        "matchConstraints": _constraints(resources, terms.scope),
        "variables": [{"name": name, "expression": text} for name, text in _variables(ring, owners, terms).items()],
        "validations": _validations(ring.metadata.name, terms.writers.sharders),
    }
    bound: dict[str, object] = {"policyName": name, "validationActions": ["Deny"]}
    return Protection(
        name,
        _document("ValidatingAdmissionPolicy", name, labels, spec),
        _document("ValidatingAdmissionPolicyBinding", name, labels, bound),
    )


def _document(kind: str, name: str, labels: dict[str, str], spec: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec}


def _constraints(resources: list[Names], scope: str | None) -> dict[str, object]:
    """Match each resource and all its subresources: labels can be changed through `pods/status`, too."""
    groups: dict[str, list[str]] = {}
    for group, resource in resources:
        groups.setdefault(group, []).extend((resource, f"{resource}/*"))
    rules = [
        {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"],
            "resources": named,
            "scope": "Namespaced" if scope else "*",
        }
        for group, named in groups.items()
    ]
    selector = {"matchLabels": {"kubernetes.io/metadata.name": scope}} if scope else {}
    # Equivalent: the same object in another version or group is no way around.
    return {"matchPolicy": "Equivalent", "namespaceSelector": selector, "objectSelector": {}, "resourceRules": rules}


def _variables(ring: ShardRing, owners: list[str], terms: Terms) -> dict[str, str]:
    """Give the words that the rules are written in; each may use those before it."""
    words = _users(ring, terms.writers) | _labels(ring.metadata.name)
    if key_of(ring) not in terms.webhook:
        return words | _rights(owners)
    return words | _places(ring.spec.namespace_selector) | _rights(owners, made=_made(ring.spec.namespace_selector))


def _users(ring: ShardRing, writers: Writers) -> dict[str, str]:
    """Say who writes: an instance is known by the Pod of its token, where it has one, else by its user name."""
    accounts = _text(f"{_ACCOUNT}:{ring.metadata.namespace}:")
    return {
        "user": "request.userInfo.username",
        "pod": f'request.userInfo.?extra[?{_text(_POD_EXTRA)}][?0].orValue("")',
        "instance": 'variables.pod == "" ? variables.user'
        f' : variables.user.startsWith({accounts}) ? variables.pod : ""',
        "isSharder": f"variables.user in {_texts(writers.sharders)}",
        "isExempt": f"variables.user in {_texts(writers.exempt)}",
    }


def _labels(ring: str) -> dict[str, str]:
    """Read the four labels before and after; -1 is an epoch that is not there, or no number."""
    shard, epoch, drain, until = map(_text, label_names(ring))
    variables = {
        "keys": f"[{shard}, {epoch}, {drain}, {until}]",
        "before": "oldObject == null ? {} : oldObject.?metadata.?labels.orValue({})",
        "after": "object == null ? {} : object.?metadata.?labels.orValue({})",
        "unchanged": "variables.keys.all(key, variables.before[?key] == variables.after[?key])",
        "shard": f'variables.before[?{shard}].orValue("")',
        "nextShard": f'variables.after[?{shard}].orValue("")',
        "drain": f'variables.before[?{drain}].orValue("")',
        "isDrained": f"{drain} in variables.before",
        "drainGone": f"!({drain} in variables.after) && !({until} in variables.after)",
        "drainKept": f"[{drain}, {until}].all(key, variables.before[?key] == variables.after[?key])",
        "shardGone": f"!({shard} in variables.after)",
        "epochKept": f"variables.before[?{epoch}] == variables.after[?{epoch}]",
    }
    # What an instance writes is a number as Poise writes it: a patch tests the text.
    read, written = f"^[0-9]{{1,{EPOCH_DIGITS_MAX}}}$", f"^[1-9][0-9]{{0,{EPOCH_DIGITS_MAX - 1}}}$"
    for name, side, number in (("epoch", "before", read), ("nextEpoch", "after", written)):
        told = f'variables.{side}[?{epoch}].orValue("")'
        variables[name] = f"{told}.matches({_text(number)}) ? int({told}) : -1"
    return variables


def _made(selector: LabelSelector) -> str:
    """Leave alone what is made where the webhook is asked, and nowhere else: there nobody overwrites what was sent."""
    chosen = " && variables.isChosen" if _rules(selector) else ""
    return f' || (request.operation == "CREATE" && request.?subResource.orValue("") == ""{chosen})'


def _places(selector: LabelSelector) -> dict[str, str]:
    """Choose as the API server does for the webhook: a Namespace by its own labels, and all that is in none."""
    rules = _rules(selector)
    if not rules:
        return {}
    named = 'request.resource.group == "" && request.resource.resource == "namespaces"'
    return {
        "isNamespace": named,
        "place": "variables.isNamespace ? variables.after : namespaceObject == null ? {}"
        " : namespaceObject.?metadata.?labels.orValue({})",
        "isChosen": f"(namespaceObject == null && !variables.isNamespace) || ({' && '.join(rules)})",
    }


def _rules(selector: LabelSelector) -> list[str]:
    """Write each rule of a selector; all must hold."""
    plain = [LabelRule(name, "In", [value]) for name, value in sorted(selector.match_labels.items())]
    return [_rule(each) for each in (*plain, *selector.match_expressions)]


def _rule(rule: LabelRule) -> str:
    there = f"{_text(rule.key)} in variables.place"
    listed = f"({there} && variables.place[{_text(rule.key)}] in {_texts(rule.values)})"
    match rule.operator:
        case "In":
            return listed
        case "NotIn":
            return f"!{listed}"
        case "Exists":
            return there
        case _:
            return f"!({there})"


def _rights(owners: list[str], *, made: str = "") -> dict[str, str]:
    """Write the rules of the contract, one word each; `made` is what is free beside them."""
    group = '(owner.apiVersion.contains("/") ? owner.apiVersion.split("/")[0] : "")'
    return {
        "isFree": f"variables.unchanged || variables.isSharder || variables.isExempt{made}",
        "holds": 'variables.shard != "" && variables.shard == variables.instance',
        "isChild": "oldObject != null && oldObject.?metadata.?ownerReferences.orValue([]).exists(owner,"
        f' owner.?controller.orValue(false) && {group} + "/" + owner.kind in {_texts(owners)})',
        # An instance writes no 0, so that what has no epoch has no next one, either.
        "isNext": "variables.nextEpoch == variables.epoch + 1",
        "isLarger": "variables.epoch >= 0 && variables.nextEpoch > variables.epoch",
        "letsGo": "variables.isDrained && variables.shardGone && variables.drainGone && variables.epochKept",
        "handsOver": 'variables.nextShard != "" && variables.nextShard == variables.drain'
        " && variables.isNext && variables.drainGone",
        "movesChild": 'variables.isChild && variables.nextShard != "" && variables.isLarger'
        " && (variables.drainGone || variables.drainKept)",
        "raises": "variables.nextShard == variables.shard && variables.isNext && variables.drainKept",
        "leftOut": "variables.keys.exists(key, key in variables.before)"
        " && variables.keys.all(key, !(key in variables.after))",
    }


def _validations(ring: str, sharders: tuple[str, ...]) -> list[dict[str, str]]:
    """Refuse who may not write the labels at all, then what an instance may not do; both say who may."""
    by = f"the sharder ({_shown(', '.join(sharders))})"
    strangers = f"the labels of the ring {ring} are written by {by}, and by the instance that holds the object"
    told = (
        f'{_text(f"{strangers} (")} + (variables.shard == "" ? "nobody does" : variables.shard) + "), not by "'
        ' + variables.user + (variables.pod == "" ? "" : " of the Pod " + variables.pod)'
        f' + (variables.leftOut ? {_text(_APPLY)} : request.operation == "CREATE" ? {_text(_OMIT)} : "")'
    )
    holders = f"on the labels of the ring {ring} {_HOLDERS}; all else is for {by}"
    return [
        _validation("variables.isFree || variables.holds", strangers, told),
        _validation(
            "variables.isFree || !variables.holds || variables.letsGo || variables.handsOver"
            " || variables.movesChild || variables.raises",
            holders,
            f"{_text(f'{holders}; the instance is ')} + variables.instance",
        ),
    ]


def _validation(expression: str, message: str, told: str) -> dict[str, str]:
    """Refuse with 403: 422 would look like a patch whose test failed. The fixed message is for when the other fails."""
    return {"expression": expression, "message": message, "messageExpression": told, "reason": "Forbidden"}


def _shown(text: str) -> str:
    """Show a text on one line: a message with a line break is refused."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _text(value: str) -> str:
    """Write a text as CEL does, whatever signs it has."""
    return msgspec.json.encode(value).decode()


def _texts(values: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"
