"""Policies of rings on the rig, the writers that they tell apart, and one write by one of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType

import httpx2
import msgspec
from tests.cluster.control_plane import ControlPlane
from tests.cluster.policy_rows import SITUATIONS, Labels, Row, Situation, read_labels

from poise.jobs.sharder.policy import Protection, Terms, Writers, key_of, protect
from poise.kube import Meta, Partial
from poise.kube.objects import Status
from poise.model import ShardRing

SHARDER = "poise-sharder"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_MERGE, _APPLY, _JSON_PATCH = (
    "application/merge-patch+json",
    "application/apply-patch+yaml",
    "application/json-patch+json",
)
_IN_FORCE_S = 60.0
KINDS = {
    ("", "secrets"): "Secret",
    ("", "configmaps"): "ConfigMap",
    ("", "pods"): "Pod",
    ("apps", "deployments"): "Deployment",
}
_SPEC = {
    "resources": [
        {"resource": "secrets", "controlled": [{"resource": "configmaps"}, {"resource": "pods"}]},
        {"group": "apps", "resource": "deployments", "controlled": [{"resource": "configmaps"}]},
    ]
}
_POD_SPEC = {"containers": [{"name": "main", "image": "none"}]}
_BODIES: dict[str, dict[str, object]] = {
    "secrets": {},
    "configmaps": {},
    "pods": {"spec": _POD_SPEC},
    "deployments": {
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": _POD_SPEC},
        }
    },
}
_API = {"secrets": "v1", "configmaps": "v1", "pods": "v1", "deployments": "apps/v1"}


def make_ring(name: str, namespace: str, spec: Mapping[str, object] = _SPEC) -> ShardRing:
    """Make a ring of Secrets, what they control, and Deployments."""
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace}, "spec": spec}, ShardRing)


def make_policy(ring: ShardRing, *, webhook: bool = False) -> Protection:
    """Make the policy of a ring whose sharder is one user."""
    kinds = {**KINDS, ("apps", "replicasets"): "ReplicaSet", ("", "services"): "Service"}
    called = frozenset({key_of(ring)}) if webhook else frozenset[tuple[str, str]]()
    (made,) = protect([ring], kinds, Terms(writers=Writers(sharders=(SHARDER,)), webhook=called))
    return made


class PolicyWorld:
    """One namespace with instances, and policies that are removed with their block."""

    def __init__(self, plane: ControlPlane, namespace: str, other: str) -> None:
        """Make the accounts, Pods and tokens of instances, in the ring's namespace and in another one."""
        self.http, self.namespace = plane.client(), namespace
        self._numbers = itertools.count()
        self._made: list[str] = []
        self._spent: dict[tuple[str, str], str] = {}
        self._headers = {
            "web-0": self._instance(namespace, "web-0"),
            "web-1": self._instance(namespace, "web-1"),
            "the pod web-0 of another namespace": self._instance(other, "web-0"),
            "an account without a pod": self._instance(namespace, ""),
            "the pod web-0 by impersonation": _impersonated(f"system:serviceaccount:{namespace}:shards")
            | {"Impersonate-Extra-authentication.kubernetes.io%2Fpod-name": "web-0"},
            "the user web-0": _impersonated("web-0"),
            "sharder": _impersonated(SHARDER),
            "admin": {},
            "a person": _impersonated("carol"),
            "kubelet": _impersonated("system:node:n1"),
            "an add-on of kube-system": _impersonated("system:serviceaccount:kube-system:coredns"),
            "kube-controller-manager": _impersonated("system:kube-controller-manager"),
        }

    def __enter__(self) -> PolicyWorld:
        """Be usable in a block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the policies."""
        for name in self._made:
            for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
                self.ask("DELETE", f"{_ADMISSION}/{plural}/{name}")
        self.http.close()

    def _instance(self, namespace: str, pod: str) -> dict[str, str]:
        """Get a token of the account of all instances, bound to one Pod where one is named."""
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        if self.ask("POST", accounts, {"metadata": {"name": "shards"}}).status_code == 201:
            binding = {
                "metadata": {"name": f"{namespace}-shards"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": "shards", "namespace": namespace}],
            }
            done(self.ask("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding))
        bound: dict[str, object] = {}
        if pod:
            body = {"metadata": {"name": pod}, "spec": {**_POD_SPEC, "serviceAccountName": "shards"}}
            uid = read(self.ask("POST", f"/api/v1/namespaces/{namespace}/pods", body)).uid
            bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}}
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": bound}
        answer = done(self.ask("POST", f"{accounts}/shards/token", asked))
        return {"Authorization": f"Bearer {msgspec.json.decode(answer.content, type=_Token).status.token}"}

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        who: str = "admin",
        kind: str = "application/json",
        dry: bool = False,
        **query: str,
    ) -> httpx2.Response:
        """Send one request as one of the writers; a dry one is judged and not written."""
        headers = {"Content-Type": kind} | (self.headers(who) if who != "admin" else {})
        query |= {"dryRun": "All"} if dry else {}
        content = None if body is None else msgspec.json.encode(body)
        return self.http.request(method, path, headers=headers, params=query, content=content)

    def headers(self, who: str) -> dict[str, str]:
        """Say how a writer is told apart; whoever is not listed is a controller with its own account."""
        return self._headers.get(who) or _impersonated(f"system:serviceaccount:kube-system:{who}")

    def install(self, policies: Iterable[Protection]) -> None:
        """Apply policies, each with a label that it always refuses: by that it is seen when they are in force."""
        names = []
        for made in policies:
            names.append(made.name)
            done(self.ask("POST", self.path("configmaps"), {"metadata": {"name": _probe(made.name)}}))
            spec = msgspec.convert(made.policy["spec"], dict[str, object])
            probe = {
                "expression": f'!("probe.poise.dev/{made.name}" in variables.after)',
                "message": "probed",
                "reason": "Forbidden",
            }
            rules = [*msgspec.convert(spec["validations"], list[object]), probe]
            for plural, body in (
                ("validatingadmissionpolicies", {**made.policy, "spec": {**spec, "validations": rules}}),
                ("validatingadmissionpolicybindings", made.binding),
            ):
                path = f"{_ADMISSION}/{plural}/{made.name}"
                done(self.ask("PATCH", path, body, kind=_APPLY, fieldManager="test", fieldValidation="Strict"))
            self._made.append(made.name)
        wait(lambda: all(map(self._is_in_force, names)), f"in force: {names}")

    def _is_in_force(self, name: str) -> bool:
        """Say whether a policy refuses its own label, on something new or on something that is there."""
        labels = {"labels": {f"probe.poise.dev/{name}": "x"}}
        new, there = {"metadata": {"name": f"{_probe(name)}-new", **labels}}, self.path("configmaps", _probe(name))
        return 403 in (
            self.ask("POST", self.path("configmaps"), new, dry=True).status_code,
            self.ask("PATCH", there, {"metadata": labels}, kind=_MERGE, dry=True).status_code,
        )

    def path(self, resource: str, name: str = "", part: str = "") -> str:
        """Say where objects of the namespace are."""
        api = _API.get(resource, "v1")
        root = f"/apis/{api}" if "/" in api else f"/api/{api}"
        return "/".join(each for each in (root, "namespaces", self.namespace, resource, name, part) if each)

    def make(self, ring: str, on: str, *, shared: bool) -> str:
        """Make the object of a situation as the sharder; one that is only looked at is made once."""
        if shared and (ring, on) in self._spent:
            return self._spent[ring, on]
        name, situation = f"{ring}-{next(self._numbers)}", SITUATIONS[on]
        done(self.ask("POST", self.path(situation.resource), _body(name, situation, ring), who="sharder"))
        self._spent[ring, on] = name
        return name

    def labels(self, on: str, name: str) -> dict[str, str]:
        """Read the labels of an object now."""
        return read(self.ask("GET", self.path(SITUATIONS[on].resource, name))).labels

    def write(self, row: Row, ring: str, name: str, *, dry: bool) -> httpx2.Response:
        """Write what a row says on an object of its situation."""
        situation, change = SITUATIONS[row.on], read_labels(row.change, ring)
        there, who = self.path(situation.resource, name), row.who
        metadata: dict[str, object] = {"metadata": {"labels": change}}
        match row.how:
            case "patch":
                return self.ask("PATCH", there, metadata, who=who, kind=_MERGE, dry=dry)
            case "status":
                told = {**metadata, "status": {}}
                return self.ask("PATCH", f"{there}/status", told, who=who, kind=_MERGE, dry=dry)
            case "json":
                return self.ask("PATCH", there, _operations(change), who=who, kind=_JSON_PATCH, dry=dry)
            case "apply":
                body = {"apiVersion": _API[situation.resource], "kind": KINDS[_names(situation)], **metadata}
                forced = {"fieldManager": who.replace(" ", "-"), "force": "true"}
                return self.ask("PATCH", there, body, who=who, kind=_APPLY, dry=dry, **forced)
            case "put":
                labels = changed(self.labels(row.on, name), change)
                body = {"metadata": {"name": name, "labels": labels}, **_BODIES[situation.resource]}
                return self.ask("PUT", there, body, who=who, dry=dry)
            case "create":
                made = _body(f"{name}-made", situation._replace(labels=row.change), ring)
                return self.ask("POST", self.path(situation.resource), made, who=who, dry=dry)
            case "bind":
                target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
                body = {"metadata": {"name": name, "labels": change}, "target": target}
                return self.ask("POST", f"{there}/binding", body, who=who, dry=dry)
            case "scale":
                return self.ask("PATCH", f"{there}/scale", {"spec": {"replicas": 2}}, who=who, kind=_MERGE, dry=dry)


class _TokenStatus(msgspec.Struct):
    token: str


class _Token(msgspec.Struct):
    status: _TokenStatus


def _probe(policy: str) -> str:
    """Name the object by which a policy is probed: like all objects of its ring."""
    return f"{policy.removeprefix('poise-')}-probe"


def _impersonated(user: str) -> dict[str, str]:
    """Speak as another user, who has all rights: what is refused then is refused by the policy."""
    return {"Impersonate-User": user, "Impersonate-Group": "system:masters"}


def _names(situation: Situation) -> tuple[str, str]:
    return ("apps" if situation.resource == "deployments" else "", situation.resource)


def _body(name: str, situation: Situation, ring: str) -> dict[str, object]:
    kind, _, api = situation.owner.removeprefix("!").partition(" ")
    owner = {"apiVersion": api, "kind": kind, "name": "owner", "uid": "7e1d6f62", "controller": "!" in situation.owner}
    metadata = {
        "name": name,
        "labels": {"app": "a", **read_labels(situation.labels, ring)},
        "ownerReferences": [owner] if kind else [],
    }
    return {"metadata": metadata, **_BODIES[situation.resource]}


def _operations(change: Labels) -> list[dict[str, object]]:
    def one(label: str, value: str | None) -> dict[str, object]:
        path = "/metadata/labels/" + label.replace("/", "~1")
        return {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}

    return [one(label, value) for label, value in change.items()]


def changed(labels: Mapping[str, str], change: Labels) -> dict[str, str]:
    """Give labels as they are after a change."""
    return {name: value for name, value in {**labels, **change}.items() if value is not None}


def done(answer: httpx2.Response) -> httpx2.Response:
    """Expect success."""
    assert answer.is_success, answer.text
    return answer


def read(answer: httpx2.Response) -> Meta:
    """Read the metadata of what came."""
    return msgspec.json.decode(done(answer).content, type=Partial).metadata


def told(answer: httpx2.Response) -> str:
    """Read why something was refused."""
    return msgspec.json.decode(answer.content, type=Status).message


def wait(holds: Callable[[], bool], what: str, within_s: float = _IN_FORCE_S) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end_s, f"not within {within_s} s: {what}"
        time.sleep(0.05)
