"""Looks at rendered manifests for what a careful platform team would refuse: every fault is a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tests.cluster.install_world import Document, identity, part, parts, text, texts

_WITHOUT_NAMESPACE = ("Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding")
_TO_RIGHTS = {"escalate", "bind", "impersonate"}


def lint(documents: Sequence[Document]) -> list[str]:
    """Give every fault, with the object that has it."""
    return [
        f"{'/'.join(filter(None, identity(each)))}: {fault}" for each in documents for fault in _faults(each, documents)
    ]


def _faults(document: Document, documents: Sequence[Document]) -> Iterator[str]:
    kind, namespace, _ = identity(document)
    if kind not in _WITHOUT_NAMESPACE and not namespace:
        yield "no namespace"
    is_named = text(document, "metadata", "labels", "app.kubernetes.io/name") == "poise"
    if not is_named and kind not in ("Namespace", "CustomResourceDefinition"):
        yield "no label that names the application"
    if kind == "Deployment":
        yield from _deployment(document, documents)
    elif kind in ("Role", "ClusterRole"):
        yield from _role(document)
    elif kind in ("RoleBinding", "ClusterRoleBinding"):
        yield from _binding(document, documents)


def _deployment(document: Document, documents: Sequence[Document]) -> Iterator[str]:
    pod = part(document, "spec", "template", "spec")
    assert isinstance(pod, dict), "a Deployment has a template"
    replicas = part(document, "spec", "replicas")
    if not isinstance(replicas, int) or replicas < 2:
        yield "one replica: nobody stands by"
    chosen = part(document, "spec", "selector", "matchLabels")
    if chosen not in [
        part(each, "spec", "selector", "matchLabels") for each in documents if _is(each, "PodDisruptionBudget")
    ]:
        yield "no budget"
    yield from _pod(pod)
    for container in parts(pod, "containers"):
        yield from _container(container)


def _is(document: Document, kind: str) -> bool:
    return text(document, "kind") == kind


def _pod(pod: Mapping[str, object]) -> Iterator[str]:
    user = part(pod, "securityContext", "runAsUser")
    if part(pod, "securityContext", "runAsNonRoot") is not True or not isinstance(user, int) or user <= 0:
        yield "may run as root"
    if text(pod, "securityContext", "seccompProfile", "type") != "RuntimeDefault":
        yield "no seccomp profile"
    if any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
        yield "the network of the node, or its processes"
    if any("hostPath" in volume for volume in parts(pod, "volumes")):
        yield "a volume of the node"
    if text(pod, "serviceAccountName") in ("", "default"):
        yield "no account of its own"
    if not parts(pod, "topologySpreadConstraints"):
        yield "all replicas may be on one node"


def _container(container: Mapping[str, object]) -> Iterator[str]:
    context = part(container, "securityContext")
    context = context if isinstance(context, dict) else {}
    if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
        yield "privileges may grow"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "a root that can be written"
    if texts(context, "capabilities", "drop") != ["ALL"] or texts(context, "capabilities", "add"):
        yield "capabilities"
    yield from _image(text(container, "image"))
    for place in (("requests", "cpu"), ("requests", "memory"), ("limits", "memory")):
        if not text(container, "resources", *place):
            yield f"no {place[0].removesuffix('s')} of {place[1]}"
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if part(container, probe, "httpGet", "path") is None:
            yield f"no {probe}"


def _image(image: str) -> Iterator[str]:
    name, _, tag = image.partition(":")
    if not tag:
        yield "no tag"
    if tag == "latest":
        yield "the tag latest"
    if not re.fullmatch(r"[a-z]+", name):
        yield "a registry is named"


def _role(document: Document) -> Iterator[str]:
    for rule in parts(document, "rules"):
        words = {*texts(rule, "apiGroups"), *texts(rule, "resources"), *texts(rule, "verbs")}
        if "*" in words:
            yield "a wildcard"
        if words & _TO_RIGHTS:
            yield "a right to grant rights"


def _binding(document: Document, documents: Sequence[Document]) -> Iterator[str]:
    kind, namespace, _ = identity(document)
    role = (
        text(document, "roleRef", "kind"),
        namespace if kind == "RoleBinding" else "",
        text(document, "roleRef", "name"),
    )
    if role not in map(identity, documents):
        yield f"a role of nobody: {role[2]}"
    if not [
        each
        for each in parts(document, "subjects")
        if text(each, "kind") == "ServiceAccount" and text(each, "namespace")
    ]:
        yield "nobody to bind"
