"""The MutatingWebhookConfiguration of an installation: one webhook a ring, so that nothing else is delayed. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec

from poise.errors import invalid
from poise.jobs.sharder.policy import API_VERSION, Names, key_of, own_labels, resource_names
from poise.jobs.sharder.webhook.following import digest
from poise.jobs.sharder.webhook.reviewing import Place, Users
from poise.kube.mirror import Key
from poise.model import LabelSelector, ShardRing
from poise.model.sharding import label_names

NAME = "poise-webhook"
TIMEOUT_S = 1
_PREFIX = "/assign/"


class Reached(msgspec.Struct, frozen=True):
    """How the API server reaches the webhook: by a Service in the operator's namespace, or by an address."""

    service: str = ""
    namespace: str = ""
    url: str = ""

    @property
    def host(self) -> str:
        """The name by which the API server calls it, and which its certificate must have."""
        return self.names[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a certificate is made for."""
        if self.url:
            return (urlsplit(self.url).hostname or "",)
        name = f"{self.service}.{self.namespace}.svc"
        return (name, f"{name}.cluster.local")

    def config(self, path: str, bundle: str) -> dict[str, object]:
        """Write it as the API server reads it."""
        trusted = {"caBundle": base64.b64encode(bundle.encode()).decode()}
        if self.url:
            return {"url": self.url.rstrip("/") + path, **trusted}
        where = {"name": self.service, "namespace": self.namespace, "path": path, "port": 443}
        return {"service": where, **trusted}


def read_url(text: str) -> str:
    """Check an address as the API server does; InvalidSpec says what is wrong."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise invalid("--webhook-url", f"expected https://HOST:PORT, got {text[:80]!r}") from None
    if parts.scheme != "https" or not parts.hostname or port == 0:
        raise invalid("--webhook-url", f"expected https://HOST:PORT, got {text[:80]!r}")
    if parts.query or parts.fragment or parts.username is not None:
        raise invalid("--webhook-url", "the API server takes no user, query or fragment in it")
    return text


def configuration_name(scope: str | None) -> str:
    """Name the configuration; those of installations that look at one namespace each are told apart by it."""
    return f"{NAME}.{scope}" if scope else NAME


def path_of(ring: ShardRing) -> str:
    """Say where the webhook of a ring is: what it looks at is part of it, so that no other state is answered for."""
    return f"{_PREFIX}{ring.metadata.namespace}/{ring.metadata.name}/{digest(ring.spec)}"


def read_path(path: str) -> Place | None:
    """Read which ring is meant; None where it is no path of a webhook."""
    parts = path.removeprefix(_PREFIX).split("/")
    return Place(*parts) if path.startswith(_PREFIX) and len(parts) == 3 and all(parts) else None


def called_rings(hooks: Iterable[Mapping[str, object]], rings: Iterable[ShardRing]) -> frozenset[Key]:
    """Say of which rings, as they are now, these webhooks let the API server ask."""
    paths = {_called_path(each.get("clientConfig")) for each in hooks}
    return frozenset(key_of(ring) for ring in rings if path_of(ring) in paths)


def _called_path(config: object) -> str:
    """Read the path of a webhook, whoever wrote it."""
    if not isinstance(config, Mapping):
        return ""
    service = config.get("service")
    path = service.get("path") if isinstance(service, Mapping) else config.get("url")
    return "".join(str(path or "").rpartition(_PREFIX)[1:])


def configure(
    rings: Iterable[ShardRing],
    reached: Reached,
    bundle: str,
    users: Users,
    scope: str | None,
    home: str = "",
    *,
    conditions: bool,
) -> dict[str, object] | None:
    """Write the configuration of these rings; None where there is nothing to assign.

    `conditions`: the cluster knows matchConditions, so that it asks only where there may be something to do.
    """
    hooks = [
        _hook(ring, reached, bundle, users, scope, conditions=conditions)
        for ring in sorted(rings, key=lambda ring: ring.metadata.name)
        if ring.spec.resources
    ]
    if not hooks:
        return None
    return {
        "apiVersion": API_VERSION,
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": configuration_name(scope), "labels": own_labels(scope, home)},
        "webhooks": hooks,
    }


def _hook(
    ring: ShardRing, reached: Reached, bundle: str, users: Users, scope: str | None, *, conditions: bool
) -> dict[str, object]:
    """Write the webhook of one ring. Another webhook may change the object afterwards: then this one is asked again."""
    hook: dict[str, object] = {
        "name": f"{ring.metadata.name}.shards.poise.dev",
        "admissionReviewVersions": ["v1"],
        "clientConfig": reached.config(path_of(ring), bundle),
        "failurePolicy": "Ignore",
        "timeoutSeconds": TIMEOUT_S,
        "sideEffects": "None",
        "reinvocationPolicy": "IfNeeded",
        "matchPolicy": "Equivalent",
        "namespaceSelector": _namespaces(ring.spec.namespace_selector, scope),
        "objectSelector": {},
        "rules": list(_rules(resource_names(ring), scope, subresources=conditions)),
    }
    return hook | ({"matchConditions": _conditions(ring.metadata.name, users)} if conditions else {})


def _namespaces(selector: LabelSelector, scope: str | None) -> dict[str, object]:
    """Let the API server choose the namespaces as the ring does."""
    plain: dict[str, str] = dict(selector.match_labels)
    rules = [
        {"key": rule.key, "operator": rule.operator} | ({"values": list(rule.values)} if rule.values else {})
        for rule in selector.match_expressions
    ]
    if scope:
        rules.append({"key": "kubernetes.io/metadata.name", "operator": "In", "values": [scope]})
    found: dict[str, object] = {"matchLabels": plain} if plain else {}
    return found | ({"matchExpressions": rules} if rules else {})


def _rules(resources: list[Names], scope: str | None, *, subresources: bool) -> Iterable[dict[str, object]]:
    """Match what is made, and what a PUT changes; subresources only where nobody waits without a reason."""
    groups: dict[str, list[str]] = {}
    for group, resource in resources:
        groups.setdefault(group, []).append(resource)
    for group, named in groups.items():
        below = [f"{each}/*" for each in named] if subresources else []
        for operation, matched in (("CREATE", named), ("UPDATE", [*named, *below])):
            yield {
                "apiGroups": [group],
                "apiVersions": ["*"],
                "operations": [operation],
                "resources": matched,
                "scope": "Namespaced" if scope else "*",
            }


def _conditions(ring: str, users: Users) -> list[dict[str, str]]:
    """Leave out the sharder, and every change that leaves no label of the ring out."""
    before, after = (f"{side}.?metadata.?labels.orValue({{}})" for side in ("oldObject", "object"))
    left_out = f"{_texts(label_names(ring))}.exists(key, key in {before} && !(key in {after}))"
    changed = f"!(request.userInfo.username in {_texts(users.exempt)}) && {left_out}"
    return [
        {"name": "not-by-the-sharder", "expression": f"!(request.userInfo.username in {_texts(users.sharders)})"},
        {"name": "made-or-left-out", "expression": f'request.operation == "CREATE" || ({changed})'},
    ]


def _texts(values: Iterable[str]) -> str:
    return f"[{', '.join(msgspec.json.encode(value).decode() for value in values)}]"
