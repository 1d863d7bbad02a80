"""Steps of an installation on a control plane with an audit log, by the tools that people use."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.install_drive import INSTANCES, LEASE_S
from tests.cluster.install_world import (
    KUSTOMIZE,
    ROOT,
    AuditedPlane,
    Document,
    Done,
    read_documents,
    run_tool,
    text,
    write_documents,
)

from poise.kube import Client, connect

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
# What the operator makes itself: in its own namespace, and in none.
_MADE = ("secret/poise-webhook", "lease.coordination.k8s.io/poise-operator")
_KEPT = "validatingadmissionpolicy,validatingadmissionpolicybinding,mutatingwebhookconfiguration"
_STAND_INS = {"servicemonitors": "ServiceMonitor", "prometheusrules": "PrometheusRule"}


@contextmanager
def audited_plane(folder: Path) -> Iterator[AuditedPlane]:
    """Run a control plane; instances are users who may do anything by RBAC, so that only policies can refuse them."""
    made = AuditedPlane(folder, INSTANCES)
    try:
        made.start()
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subjects = [{"apiGroup": role["apiGroup"], "kind": "User", "name": name} for name in INSTANCES]
        body = {"metadata": {"name": "instances"}, "roleRef": role, "subjects": subjects}
        assert made.ask("POST", f"{_RBAC}/clusterrolebindings", body).status_code == 201
        yield made
    finally:
        made.stop()


def kubectl(plane: AuditedPlane, *words: str, given: str = "") -> str:
    """Run kubectl as the admin; it must succeed."""
    done = run_tool("kubectl", *words, given=given, kubeconfig=plane.kubeconfig())
    assert done.code == 0, done.told
    return done.out


def run_helm(plane: AuditedPlane, *words: str, values: object = None) -> Done:
    given = json.dumps(values if values is not None else {})
    more = ("--values", "-") if values is not None else ()
    return run_tool("helm", *words, *more, given=given, kubeconfig=plane.kubeconfig())


def play(plane: AuditedPlane, scenario: Callable[[Client], Awaitable[None]]) -> None:
    """Play a scenario as the admin."""

    async def played() -> None:
        async with connect(plane.kubeconfig()) as client:
            await scenario(client)

    asyncio.run(played())


def make_namespace(plane: AuditedPlane, name: str) -> None:
    labels = {"poise.dev/shared": name}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    kubectl(plane, "apply", "-f", "-", given=json.dumps(body))


def apply(plane: AuditedPlane, documents: list[Document]) -> None:
    kubectl(plane, "apply", "--server-side", "-f", "-", given=write_documents(documents))


def apply_definitions(plane: AuditedPlane) -> None:
    kubectl(plane, "apply", "--server-side", "--force-conflicts", "-k", str(KUSTOMIZE / "crds"))
    kubectl(plane, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")


def ring(folder: str, namespace: str, lease_s: int = LEASE_S) -> Document:
    """Give the example's ring for families of the tests: Secrets with their ConfigMaps, which needs the same rights."""
    found = example_ring(folder, namespace, lease_s)
    spec = found["spec"]
    assert isinstance(spec, dict)
    spec["resources"] = [{"resource": "secrets", "controlled": [{"resource": "configmaps"}]}]
    return found


def example_ring(folder: str, namespace: str, lease_s: int = LEASE_S) -> Document:
    """Give the example's ring, with a short D, in and for a namespace of the test's own."""
    written = (KUSTOMIZE / "examples" / folder / "web.yaml").read_text()
    (found,) = read_documents(written.replace("team-a", namespace).replace('"yes"', namespace))
    spec = found["spec"]
    assert isinstance(spec, dict)
    spec["leaseSeconds"] = lease_s
    return found


def left(plane: AuditedPlane) -> list[str]:
    """Name what is left of Poise, whatever kind it is, the definitions included."""
    kinds = "clusterrole,clusterrolebinding,role,rolebinding,deployment,service,serviceaccount,poddisruptionbudget,crd"
    chosen = ("-A", "-l", "app.kubernetes.io/name=poise", "-o", "name")
    listed = kubectl(plane, "get", kinds, *chosen).split()
    listed += [name for name in kubectl(plane, "get", "crd", "-o", "name").split() if "poise.dev" in name]
    listed += [name for name in kubectl(plane, "get", "secret,lease", "-A", "-o", "name").split() if name in _MADE]
    return listed + kubectl(plane, "get", _KEPT, "-l", "app.kubernetes.io/managed-by=poise", "-o", "name").split()


def remove_definitions(plane: AuditedPlane) -> None:
    """Remove the definitions, after a look: the storage of a kind that was never listed is not ready to be emptied."""
    kubectl(plane, "get", "poise", "--all-namespaces")
    kubectl(plane, "delete", "-k", str(KUSTOMIZE / "crds"))


def uninstall(plane: AuditedPlane, documents: list[Document]) -> None:
    """Remove what was applied, once no ring is left: the definitions first, then the rest but for the namespace."""
    remove_definitions(plane)
    rest = [each for each in documents if text(each, "kind") not in ("Namespace", "CustomResourceDefinition")]
    kubectl(plane, "delete", "-f", "-", given=write_documents(rest))
    (home,) = [text(each, "metadata", "namespace") for each in documents if text(each, "kind") == "Deployment"]
    remove_made(plane, home)
    assert left(plane) == []


def remove_made(plane: AuditedPlane, home: str) -> None:
    """Remove what the operator has made in its namespace, by the command that the page on installing shows."""
    *_, words = documented("Uninstall")
    assert "poise-system" in words
    kubectl(plane, *(home if word == "poise-system" else word for word in words))


def documented(heading: str) -> list[list[str]]:
    """Give the commands that the page on installing shows below a heading."""
    body = (ROOT / "docs" / "install.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```sh\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line) for line in block.splitlines()]
    assert all(words[0] == "kubectl" for words in lines)
    return [[str(ROOT / word) if word.startswith("deploy/") else word for word in words[1:]] for words in lines]


def stand_in(plane: AuditedPlane) -> None:
    """Let the API server know the kinds of the Prometheus operator, as far as they are used."""
    for plural, kind in _STAND_INS.items():
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        spec = {
            "group": "monitoring.coreos.com",
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        }
        body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
        body["metadata"] = {"name": f"{plural}.monitoring.coreos.com"}
        kubectl(plane, "apply", "-f", "-", given=json.dumps(body))
        kubectl(plane, "wait", "--for=condition=Established", f"crd/{plural}.monitoring.coreos.com", "--timeout=60s")
