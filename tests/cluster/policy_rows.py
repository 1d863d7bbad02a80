"""Every writer of the labels of a ring, allowed and denied: one row each, in a small language of its own.

Labels are written as `shard=web-0 epoch=3 drain=web-1 until=100`; `drain=` is an empty value, `-drain` removes one, and
`app=x` is a label that belongs to no ring.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from poise.model.sharding import label_names

How = Literal["patch", "json", "status", "put", "apply", "create", "bind", "scale"]
Labels = dict[str, str | None]


class Situation(NamedTuple):
    """One object before the write: its resource, its labels, and its owner (`kind apiVersion`; `!`: its controller)."""

    resource: Literal["secrets", "configmaps", "pods", "deployments"]
    labels: str = ""
    owner: str = ""


class Row(NamedTuple):
    """One write: who changes what on which object, by which way, and whether that is allowed."""

    who: str
    on: str
    change: str
    allowed: bool
    how: How = "patch"
    webhook: bool = False

    def __str__(self) -> str:
        """Name the row."""
        verdict = "may" if self.allowed else "may not"
        by = f"{self.how} with the webhook" if self.webhook else self.how
        return f"{self.who} {verdict} {by} [{self.change}] on {self.on}"


class Chosen(NamedTuple):
    """A selector of namespaces, where NS is the one that objects are made in, and whether it chooses that one."""

    selector: dict[str, object]
    chosen: bool

    def __str__(self) -> str:
        """Name the row."""
        return f"{self.selector} {'chooses' if self.chosen else 'does not choose'} the namespace"

    def spec(self, namespace: str) -> dict[str, object]:
        """Write the spec of a ring which has it; what is in no namespace is shared out, too."""
        text = msgspec.json.encode(self.selector).replace(b"NS", namespace.encode())
        plain = [{"resource": "configmaps"}, {"resource": "namespaces"}]
        roles = {"group": "rbac.authorization.k8s.io", "resource": "clusterroles"}
        return {"resources": [*plain, roles], "namespaceSelector": msgspec.json.decode(text)}


_NAME = "kubernetes.io/metadata.name"


def _one(key: str, operator: str, *values: str) -> dict[str, object]:
    rule = {"key": key, "operator": operator} | ({"values": list(values)} if values else {})
    return {"matchExpressions": [rule]}


CHOSEN = [
    Chosen({"matchLabels": {_NAME: "NS"}}, True),
    Chosen({"matchLabels": {"team": "x"}}, False),
    Chosen({"matchLabels": {_NAME: "NS", "team": "x"}}, False),
    Chosen({"matchLabels": {_NAME: "NS"}, **_one("team", "Exists")}, False),
    Chosen(_one(_NAME, "In", "other", "NS"), True),
    Chosen(_one(_NAME, "In", "other"), False),
    Chosen(_one("team", "In", "x"), False),
    Chosen(_one(_NAME, "NotIn", "NS"), False),
    Chosen(_one(_NAME, "NotIn", "other"), True),
    Chosen(_one("team", "NotIn", "x"), True),
    Chosen(_one(_NAME, "Exists"), True),
    Chosen(_one("team", "Exists"), False),
    Chosen(_one(_NAME, "DoesNotExist"), False),
    Chosen(_one("team", "DoesNotExist"), True),
]


def read_labels(text: str, ring: str) -> Labels:
    """Read labels of a ring; None removes one."""
    names = dict(zip(("shard", "epoch", "drain", "until"), label_names(ring), strict=True))
    read: Labels = {}
    for word in text.split():
        name, given, value = word.removeprefix("-").partition("=")
        read[names.get(name, name)] = value if given else None
    return read


_HELD, _ASKED = "shard=web-0 epoch=3", "shard=web-0 epoch=3 drain=web-1 until=100"
_OWNED = "Secret v1"
SITUATIONS = {
    "a held root": Situation("secrets", _HELD),
    "a drained root": Situation("secrets", _ASKED),
    "a root drained to nobody": Situation("secrets", "shard=web-0 epoch=3 drain= until=100"),
    "a root that nobody holds": Situation("secrets", "epoch=3"),
    "a bare root": Situation("secrets"),
    "a root without an epoch": Situation("secrets", "shard=web-0"),
    "a drained root without an epoch": Situation("secrets", "shard=web-0 drain=web-1 until=100"),
    "a child": Situation("configmaps", _HELD, f"!{_OWNED}"),
    "a child of a workload": Situation("configmaps", _HELD, "!Deployment apps/v1"),
    "a child without an epoch": Situation("configmaps", "shard=web-0", f"!{_OWNED}"),
    "a child of another": Situation("configmaps", "shard=web-1 epoch=3", f"!{_OWNED}"),
    "an adopted child": Situation("configmaps", _ASKED, f"!{_OWNED}"),
    "an adopted child that stays": Situation("configmaps", "shard=web-0 epoch=3 drain=web-0 until=100", f"!{_OWNED}"),
    "an owned object": Situation("configmaps", _HELD, _OWNED),
    "an object of a foreign kind": Situation("configmaps", _HELD, "!ReplicaSet apps/v1"),
    "an object of a foreign group": Situation("configmaps", _HELD, "!Secret example.com/v1"),
    "a pod": Situation("pods", _HELD),
    "a bare pod": Situation("pods"),
    "a workload": Situation("deployments", _HELD),
}

_GIVEN = "shard=web-1 epoch=4 -drain -until"
_LET_GO = "-shard -drain -until"
_NAMED = ("web-0", "the pod web-0 by impersonation", "the user web-0")
_STRANGERS = (
    "web-1",
    "admin",
    "a person",
    "kubelet",
    "the pod web-0 of another namespace",
    "an account without a pod",
    "an add-on of kube-system",
)
_EXEMPT = ("deployment-controller", "replicaset-controller", "endpointslice-controller", "kube-controller-manager")

ROWS = [
    # The sharder may do anything, also what nobody else may.
    Row("sharder", "a bare root", "shard=web-0 epoch=1", True, "create"),
    Row("sharder", "a bare root", "shard=web-0 epoch=1", True),
    Row("sharder", "a held root", "drain=web-1 until=100", True),
    Row("sharder", "a drained root", "drain=web-2", True),
    Row("sharder", "a drained root", "-drain -until", True),
    Row("sharder", "a held root", "-shard epoch=4", True),
    Row("sharder", "a held root", "shard=web-1 epoch=9", True, "put"),
    Row("sharder", "a child", "shard=web-1 epoch=2", True),
    Row("sharder", "a pod", "shard=web-1 epoch=4", True, "status"),
    # The instance that the label names, by each way to know it.
    *(Row(who, "a drained root", _GIVEN, True) for who in _NAMED),
    *(Row(who, "a drained root", _LET_GO, True) for who in _NAMED),
    *(Row(who, "a held root", "epoch=4", True) for who in _NAMED),
    *(Row(who, "a child", "shard=web-1 epoch=4", True) for who in _NAMED),
    Row("web-0", "a drained root", _GIVEN, True, "put"),
    Row("web-0", "a drained root", _GIVEN, True, "json"),
    Row("web-0", "a root drained to nobody", _LET_GO, True),
    Row("web-0", "a drained root", "epoch=4", True),
    Row("web-0", "a child", "shard=web-7 epoch=9", True),
    Row("web-0", "a child of a workload", "shard=web-1 epoch=4", True),
    Row("web-0", "a child", "epoch=4", True),
    Row("web-0", "an adopted child", _GIVEN, True),
    Row("web-0", "an adopted child", _LET_GO, True),
    Row("web-0", "an adopted child", "shard=web-7 epoch=9 -drain -until", True),
    Row("web-0", "an adopted child", "epoch=4 -drain -until", True),
    Row("web-0", "an adopted child", "shard=web-7 epoch=9", True),
    Row("web-0", "an adopted child that stays", "epoch=4 -drain -until", True),
    Row("web-0", "a pod", "epoch=4", True, "status"),
    Row("web-1", "a child of another", "shard=web-0 epoch=4", True),
    Row("web-0", "a held root", "app=new", True),
    Row("web-0", "a drained root", "app=new", True, "put"),
    # What the instance may not do with what it holds.
    Row("web-0", "a held root", "shard=web-1", False),
    Row("web-0", "a held root", "shard=web-1 epoch=4", False),
    Row("web-0", "a held root", "-shard", False),
    Row("web-0", "a held root", "-shard epoch=4", False),
    Row("web-0", "a held root", "-epoch", False),
    Row("web-0", "a held root", "epoch=3x", False),
    Row("web-0", "a held root", "epoch=04", False),
    Row("web-0", "a held root", "epoch=2", False),
    Row("web-0", "a held root", "epoch=5", False),
    Row("web-0", "a held root", "drain=web-1 until=100", False),
    Row("web-0", "a held root", "epoch=4 drain=web-1 until=100", False),
    Row("web-0", "a held root", "until=100", False),
    Row("web-0", "a drained root", "-drain -until", False),
    Row("web-0", "a drained root", "epoch=4 -drain -until", False),
    Row("web-0", "a drained root", "until=200", False),
    Row("web-0", "a drained root", "epoch=4 until=200", False),
    Row("web-0", "a drained root", "epoch=4 drain=web-2", False),
    Row("web-0", "a drained root", "shard=web-2 epoch=4 -drain -until", False),
    Row("web-0", "a drained root", "shard=web-1 epoch=3 -drain -until", False),
    Row("web-0", "a drained root", "shard=web-1 epoch=5 -drain -until", False),
    Row("web-0", "a drained root", "shard=web-1 epoch=2 -drain -until", False),
    Row("web-0", "a drained root", "shard=web-1 epoch=4", False),
    Row("web-0", "a drained root", "shard=web-1 epoch=4 -drain", False),
    Row("web-0", "a drained root", "shard=web-1 epoch=4 -until", False),
    Row("web-0", "a drained root", "-shard", False),
    Row("web-0", "a drained root", "-shard -drain", False),
    Row("web-0", "a drained root", "-shard -until", False),
    Row("web-0", "a drained root", "-shard epoch=4 -drain -until", False),
    Row("web-0", "a drained root", "-shard epoch=2 -drain -until", False),
    Row("web-0", "a drained root", "-shard -epoch -drain -until", False, "put"),
    Row("web-0", "a root drained to nobody", "shard= epoch=4 -drain -until", False),
    Row("web-0", "a root without an epoch", "epoch=0", False),
    Row("web-0", "a root without an epoch", "epoch=1", False),
    Row("web-0", "a drained root without an epoch", "shard=web-1 epoch=0 -drain -until", False),
    Row("web-0", "a child without an epoch", "shard=web-1 epoch=4", False),
    Row("web-0", "a child", "shard=web-1", False),
    Row("web-0", "a child", "shard=web-1 epoch=2", False),
    Row("web-0", "a child", "-shard epoch=4", False),
    Row("web-0", "a child", "shard=web-1 epoch=4 drain=web-1 until=100", False),
    Row("web-0", "a child of another", "shard=web-0 epoch=4", False),
    Row("web-0", "an adopted child", "-drain -until", False),
    Row("web-0", "an owned object", "shard=web-1 epoch=4", False),
    Row("web-0", "an object of a foreign kind", "shard=web-1 epoch=4", False),
    Row("web-0", "an object of a foreign group", "shard=web-1 epoch=4", False),
    Row("web-0", "a bare root", "shard=web-0 epoch=1", False),
    Row("web-0", "a root that nobody holds", "shard=web-0 epoch=4", False),
    Row("web-0", "a root that nobody holds", "epoch=4", False),
    Row("web-0", "a bare root", "shard=web-0 epoch=1", False, "create"),
    Row("web-0", "a child", "shard=web-0 epoch=3", False, "create"),
    Row("web-0", "a pod", "epoch=5", False, "status"),
    # Everybody else leaves them as they are.
    *(Row(who, "a drained root", _GIVEN, False) for who in _STRANGERS),
    *(Row(who, "a drained root", _LET_GO, False) for who in _STRANGERS),
    *(Row(who, "a held root", "epoch=4", False) for who in _STRANGERS),
    *(Row(who, "a bare root", "shard=web-0 epoch=1", False) for who in _STRANGERS),
    *(Row(who, "a bare root", "shard=web-0 epoch=1", False, "create") for who in _STRANGERS),
    *(Row(who, "a held root", "app=new", True) for who in _STRANGERS),
    *(Row(who, "a bare root", "app=new", True, "create") for who in _STRANGERS),
    Row("the pod web-0 of another namespace", "a root that nobody holds", "epoch=4", False),
    *(Row("a person", "a drained root", each, False) for each in ("shard=x", "epoch=9", "drain=x", "until=9")),
    *(Row("a person", "a bare root", each, False) for each in ("shard=x", "epoch=9", "drain=x", "until=9")),
    *(Row("a person", "a bare root", each, False, "create") for each in ("shard=x", "epoch=9", "drain=x", "until=9")),
    Row("a person", "a child", "shard=web-1 epoch=4", False),
    Row("a person", "a held root", "-shard -epoch", False, "put"),
    Row("a person", "a drained root", "-shard -epoch -drain -until", False, "put"),
    Row("a person", "a held root", "app=new", True, "put"),
    Row("a person", "a held root", "app=new", True, "apply"),
    Row("a person", "a held root", "shard=web-1", False, "apply"),
    Row("a person", "a held root", "-shard", False, "json"),
    # Controllers that copy labels are exempt.
    *(Row(who, "a child", "shard=web-1 epoch=4 drain=web-2 until=100", True) for who in _EXEMPT),
    *(Row(who, "a child", "shard=web-0 epoch=3", True, "create") for who in _EXEMPT),
    # Ways around: subresources, and bindings, whose labels the API server copies to the pod.
    Row("kubelet", "a pod", "shard=web-1", False, "status"),
    Row("kubelet", "a pod", "epoch=4", False, "status"),
    Row("kubelet", "a pod", "app=new", True, "status"),
    Row("a person", "a bare pod", "shard=web-0", False, "bind"),
    Row("a person", "a bare pod", "", True, "bind"),
    Row("a person", "a workload", "", True, "scale"),
    Row("a person", "a workload", "shard=web-1", False),
    Row("kubelet", "a workload", "", True, "status"),
    # With the webhook it overwrites what was sent on create, so that nothing is refused there; all else stays.
    Row("a person", "a bare root", "shard=x epoch=9", True, "create", webhook=True),
    Row("web-0", "a child", "shard=web-0 epoch=3", True, "create", webhook=True),
    Row("a person", "a held root", "epoch=4", False, webhook=True),
    Row("a person", "a bare root", "shard=x epoch=9", False, webhook=True),
    Row("a person", "a held root", "-shard -epoch", False, "put", webhook=True),
    Row("a person", "a bare pod", "shard=web-0", False, "bind", webhook=True),
    Row("kubelet", "a pod", "shard=web-1", False, "status", webhook=True),
    Row("web-0", "a drained root", _GIVEN, True, webhook=True),
]
