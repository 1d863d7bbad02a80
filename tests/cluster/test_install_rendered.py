"""What kubectl and helm render: the same objects both ways, hardened; a wrong value is refused with its path."""

from __future__ import annotations

import copy
import json
import re
import shlex
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from tests.cluster.install_lint import lint
from tests.cluster.install_world import (
    CHART,
    KUSTOMIZE,
    ROOT,
    Document,
    Grant,
    helm,
    helm_template,
    identity,
    kustomize,
    overlay,
    part,
    parts,
    read_documents,
    read_grants,
    run_tool,
    text,
    texts,
)
from tests.shown_commands import Command, check_words

from poise import __version__

RING: dict[str, object] = {
    "name": "web",
    "resources": [{"resource": "configmaps", "controlled": [{"resource": "secrets"}]}],
}
WIDE: dict[str, object] = {"rings": [{**RING, "namespace": "team-a", "namespaceSelector": True}]}
NARROW: dict[str, object] = {"rings": [RING], "namespace": "team-a", "definitions": {"install": False}}
HOOKED: dict[str, object] = {"webhook": {"enabled": True}}
FILES: dict[str, object] = {"webhook": {"enabled": True, "secretName": "poise-webhook-tls"}}
WATCHED: dict[str, object] = {"monitoring": {"serviceMonitor": True, "alerts": True}}


class Way(NamedTuple):
    """One way to install: by kustomize with components, and by helm with values."""

    base: str
    components: tuple[str, ...]
    namespace: str
    values: dict[str, object]


WAYS = {
    "the cluster": Way("examples/cluster", (), "poise-system", WIDE),
    "one namespace": Way("examples/namespaced", (), "team-a", NARROW),
    "all of it": Way(
        "examples/cluster",
        ("webhook", "monitoring", "page"),
        "poise-system",
        WIDE | HOOKED | WATCHED | {"page": {"enabled": True}},
    ),
    "certificates from files": Way("examples/cluster", ("webhook-files",), "poise-system", WIDE | FILES),
    "one namespace without protection": Way(
        "examples/namespaced", ("no-protection", "webhook"), "team-a", NARROW | HOOKED | {"protect": False}
    ),
    "one namespace with the webhook": Way("examples/namespaced", ("webhook",), "team-a", NARROW | HOOKED),
    "one namespace without cluster roles": Way(
        "examples/namespaced", ("no-cluster-roles",), "team-a", NARROW | {"protect": False, "clusterRoles": False}
    ),
    "no ring": Way("cluster", (), "poise-system", {}),
}
# Marks of the tool, not of what is installed.
_MARKS = ("managed-by", "version", "helm.sh/chart")


@cache
def rendered(way: str, tool: str) -> list[Document]:
    """Render one way by one tool, once."""
    base, components, namespace, values = WAYS[way]
    if tool == "helm":
        return helm(namespace, values)
    if not components:
        return kustomize(KUSTOMIZE / base)
    with tempfile.TemporaryDirectory() as place:
        return kustomize(overlay(Path(place), base, *components))


def plain(document: Document) -> Document:
    """Take off what only says which tool has rendered it."""
    made = copy.deepcopy(document)
    metadata = made["metadata"]
    assert isinstance(metadata, dict)
    metadata.pop("annotations", None)
    metadata["labels"] = {
        name: value for name, value in (metadata.get("labels") or {}).items() if not name.endswith(_MARKS)
    }
    if text(made, "kind") not in ("Deployment", "Service", "ServiceMonitor"):
        metadata["labels"].pop("app.kubernetes.io/component", None)
    return made


@pytest.mark.parametrize("way", WAYS)
def test_both_tools_install_the_same(way: str) -> None:
    ours, theirs = (
        {identity(each): plain(each) for each in rendered(way, tool) if identity(each)[0] != "Namespace"}
        for tool in ("kustomize", "helm")
    )
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


POLICIES = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
HOOKS = "mutatingwebhookconfigurations"


def admission(way: str, tool: str) -> dict[tuple[str, str], set[str]]:
    """Read what may be done by admission: the verbs by resource and by the only name, if there is one."""
    found: dict[tuple[str, str], set[str]] = {}
    for grant in read_grants(rendered(way, tool)):
        if grant.group == "admissionregistration.k8s.io":
            found.setdefault((grant.resource, grant.name), set()).add(grant.verb)
    return found


@pytest.mark.parametrize("tool", ["kustomize", "helm"])
@pytest.mark.parametrize(
    ("way", "suffix", "policy", "hook"),
    [
        ("the cluster", "", {"create", "patch", "delete"}, {"get", "delete"}),
        ("all of it", "", {"create", "patch", "delete"}, {"get", "create", "patch", "delete"}),
        ("certificates from files", "", {"create", "patch", "delete"}, {"get", "create", "patch", "delete"}),
        ("one namespace", ".team-a", {"create", "patch", "delete"}, {"get", "delete"}),
        (
            "one namespace with the webhook",
            ".team-a",
            {"create", "patch", "delete"},
            {"get", "create", "patch", "delete"},
        ),
        ("one namespace without protection", ".team-a", {"delete"}, {"get", "create", "patch", "delete"}),
    ],
)
def test_an_installation_may_write_its_own_names_alone(
    way: str, suffix: str, policy: set[str], hook: set[str], tool: str
) -> None:
    """Without protection it may still list its policies and take them away."""
    wanted = {(HOOKS, f"poise-webhook{suffix}"): hook}
    wanted |= {(resource, f"poise-web{suffix}"): policy for resource in POLICIES}
    assert admission(way, tool) == wanted | {(resource, ""): {"list"} for resource in POLICIES}


@pytest.mark.parametrize("tool", ["kustomize", "helm"])
def test_a_team_can_do_without_cluster_roles(tool: str) -> None:
    documents = rendered("one namespace without cluster roles", tool)
    assert [identity(each) for each in documents if not identity(each)[1]] == []
    assert "--no-protect" in texts(container(documents), "args")


@pytest.mark.parametrize("tool", ["kustomize", "helm"])
@pytest.mark.parametrize("way", WAYS)
def test_everything_is_hardened(way: str, tool: str) -> None:
    assert lint(rendered(way, tool)) == []


def deployment(documents: list[Document]) -> Document:
    (found,) = [each for each in documents if text(each, "kind") == "Deployment"]
    return found


def container(documents: list[Document]) -> Document:
    return parts(deployment(documents), "spec", "template", "spec", "containers")[0]


DROP = object()
POD = ("spec", "template", "spec")
MAIN = (*POD, "containers", 0)


class Edit(NamedTuple):
    """One thing that is changed in the first document of a kind; without a path the document itself goes."""

    kind: str
    path: tuple[str | int, ...]
    value: object = DROP

    def make(self, documents: list[Document]) -> None:
        """Change it."""
        found = next(each for each in documents if text(each, "kind") == self.kind)
        if not self.path:
            documents.remove(found)
            return
        *way, last = self.path
        holder = part(found, *way)
        assert isinstance(holder, dict), f"there is no {way}"
        assert last in holder or self.value is not DROP, f"there is no {self.path}"
        if self.value is DROP:
            del holder[last]
        else:
            holder[last] = self.value


BROKEN = {
    "may run as root": Edit("Deployment", (*POD, "securityContext", "runAsNonRoot")),
    "no seccomp profile": Edit("Deployment", (*POD, "securityContext", "seccompProfile")),
    "privileges may grow": Edit("Deployment", (*MAIN, "securityContext", "allowPrivilegeEscalation")),
    "a root that can be written": Edit("Deployment", (*MAIN, "securityContext", "readOnlyRootFilesystem")),
    "capabilities": Edit("Deployment", (*MAIN, "securityContext", "capabilities")),
    "no tag": Edit("Deployment", (*MAIN, "image"), "poise"),
    "the tag latest": Edit("Deployment", (*MAIN, "image"), "poise:latest"),
    "a registry": Edit("Deployment", (*MAIN, "image"), "somewhere/poise:1"),
    "no request of memory": Edit("Deployment", (*MAIN, "resources", "requests", "memory")),
    "no limit of memory": Edit("Deployment", (*MAIN, "resources", "limits", "memory")),
    "no livenessProbe": Edit("Deployment", (*MAIN, "livenessProbe")),
    "no readinessProbe": Edit("Deployment", (*MAIN, "readinessProbe")),
    "the network of the node": Edit("Deployment", (*POD, "hostNetwork"), True),
    "a volume of the node": Edit("Deployment", (*POD, "volumes"), [{"name": "a", "hostPath": {"path": "/"}}]),
    "no account of its own": Edit("Deployment", (*POD, "serviceAccountName"), "default"),
    "all replicas may be on one node": Edit("Deployment", (*POD, "topologySpreadConstraints")),
    "no budget": Edit("PodDisruptionBudget", ()),
    "one replica": Edit("Deployment", ("spec", "replicas"), 1),
    "a wildcard": Edit("ClusterRole", ("rules", 0, "verbs"), ["*"]),
    "a right to grant rights": Edit("ClusterRole", ("rules", 0, "verbs"), ["escalate"]),
    "no namespace": Edit("Service", ("metadata", "namespace")),
    "no label that names the application": Edit("Service", ("metadata", "labels")),
    "a role of nobody": Edit("RoleBinding", ("roleRef", "name"), "nobody"),
    "nobody to bind": Edit("RoleBinding", ("subjects",), []),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_the_lint_finds(fault: str) -> None:
    documents = copy.deepcopy(rendered("the cluster", "kustomize"))
    BROKEN[fault].make(documents)
    assert fault in " ".join(lint(documents))


def test_helm_lint_has_nothing_to_say() -> None:
    done = run_tool(
        "helm", "lint", "--strict", "--kube-version", "1.36.4", "--values", "-", str(CHART), given=json.dumps(WIDE)
    )
    assert done.code == 0, done.out + done.told
    assert "[ERROR]" not in done.out
    assert "[WARNING]" not in done.out


# A value, and what is said of it: always with its path.
WRONG: dict[str, tuple[dict[str, object], str]] = {
    "a text for a number": ({"replicas": "two"}, "at '/replicas': got string, want integer"),
    "none": ({"replicas": 0}, "at '/replicas': minimum: got 0, want 1"),
    "half a replica": ({"replicas": 1.5}, "at '/replicas': got number, want integer"),
    "a text for a switch": ({"webhook": {"enabled": "yes"}}, "at '/webhook/enabled': got string, want boolean"),
    "a lease too short": ({"leaseSeconds": 1}, "at '/leaseSeconds': minimum: got 1, want 3"),
    "a word nobody knows": ({"replica": 2}, "at '': additional properties 'replica' not allowed"),
    "a word nobody knows inside": ({"image": {"repo": "a"}}, "at '/image': additional properties 'repo' not allowed"),
    "no such namespace": ({"namespace": "Team_A"}, "at '/namespace': 'Team_A' does not match pattern"),
    "the tag latest": ({"image": {"tag": "latest"}}, "at '/image/tag'"),
    "a ring that is a text": ({"rings": ["web"]}, "at '/rings/0': got string, want object"),
    "a ring without resources": ({"rings": [{"name": "web"}]}, "at '/rings/0': missing property 'resources'"),
    "a ring of nothing": ({"rings": [{**RING, "resources": []}]}, "at '/rings/0/resources': minItems: got 0, want 1"),
    "every resource": (
        {"rings": [{**RING, "resources": [{"resource": "*"}]}]},
        "at '/rings/0/resources/0/resource': '*'",
    ),
    "a number for a resource": (
        {"rings": [{**RING, "resources": [{"resource": "a", "controlled": [{"resource": 5}]}]}]},
        "at '/rings/0/resources/0/controlled/0/resource': got number, want string",
    ),
    "a limit that is a number": ({"resources": {"requests": {"cpu": 1}, "limits": {}}}, "at '/resources/requests/cpu'"),
    "a list for a mapping": ({"podLabels": ["a"]}, "at '/podLabels': got array, want object"),
    "a ring of nowhere": ({"rings": [RING]}, "$.rings[0].namespace: the namespace of the ring web is missing"),
    "two rings of one name": (
        {"rings": [{**RING, "namespace": "team-a"}, {**RING, "namespace": "team-b"}]},
        "$.rings[1].name: there is one ring of a name, got web twice",
    ),
    "no cluster roles for the whole cluster": ({"clusterRoles": False, "protect": False}, "$.namespace: an operator"),
    "no cluster roles for policies": (NARROW | {"clusterRoles": False}, "$.protect: policies are in no namespace"),
    "no cluster roles for the webhook": (
        NARROW | HOOKED | {"clusterRoles": False, "protect": False},
        "$.webhook.enabled: the configuration of the webhook is in no namespace",
    ),
    "no cluster roles for a selector": (
        NARROW | {"clusterRoles": False, "protect": False, "rings": [{**RING, "namespaceSelector": True}]},
        "$.rings[0].namespaceSelector: namespaces are in no namespace",
    ),
    "a ring of elsewhere": (
        NARROW | {"rings": [{**RING, "namespace": "team-b"}]},
        "$.rings[0].namespace: this installation looks at the namespace team-a alone, got team-b",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_value_is_refused_with_its_path(what: str) -> None:
    values, told = WRONG[what]
    done = helm_template("poise-system", values)
    assert done.code != 0
    assert told in done.told
    assert not done.out


def test_every_value_has_a_schema_and_every_schema_a_value() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    schema.pop("global")
    assert values.keys() == schema.keys()
    for name in ("image", "definitions", "webhook", "page", "monitoring", "resources"):
        assert values[name].keys() == schema[name]["properties"].keys()


def test_the_versions_are_those_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    for tool in ("kustomize", "helm"):
        assert text(container(rendered("the cluster", tool)), "image") == f"poise:{__version__}"


@pytest.mark.parametrize("way", WAYS)
def test_the_operator_knows_its_arguments(way: str) -> None:
    words = texts(container(rendered(way, "helm")), "args")
    check_words(Command(way, shlex.join(["poise", *words])))


def test_the_chart_carries_the_same_definitions() -> None:
    ours, theirs = (
        {identity(each): each["spec"] for each in rendered("no ring", tool) if "Definition" in identity(each)[0]}
        for tool in ("kustomize", "helm")
    )
    assert len(ours) == 5
    assert ours == theirs
    kept = [each for each in rendered("no ring", "helm") if "Definition" in identity(each)[0]]
    assert all(text(each, "metadata", "annotations", "helm.sh/resource-policy") == "keep" for each in kept)


# What the docs say.


def rows(page: str, heading: str) -> list[list[str]]:
    """Read the rows of the table below a heading, without their marks."""
    body = (ROOT / "docs" / page).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines[2:]]


def told_grants(heading: str) -> set[tuple[str, str, str, str]]:
    """Read a table of rights: role, group, resource and verb."""
    return {
        (role, "" if group == "core" else group, resource, verb)
        for role, group, resources, verbs, *_ in rows("rbac.md", heading)
        for resource in re.split(r",\s*", resources)
        for verb in re.split(r",\s*", verbs)
    }


def shown_grants(grants: list[Grant]) -> set[tuple[str, str, str, str]]:
    return {(grant.role, grant.group, grant.resource, grant.verb) for grant in grants}


@pytest.mark.parametrize(
    ("heading", "way"),
    [
        ("The whole cluster", "the cluster"),
        ("One namespace", "one namespace"),
    ],
)
def test_the_reference_lists_exactly_the_rights(heading: str, way: str) -> None:
    assert told_grants(heading) == shown_grants(read_grants(rendered(way, "kustomize")))


def test_the_reference_lists_exactly_the_rights_of_instances() -> None:
    documents = read_documents((KUSTOMIZE / "examples" / "instances.yaml").read_text())
    assert told_grants("Instances") == shown_grants(read_grants(documents, "web"))


def test_the_reference_lists_exactly_the_rights_of_the_webhook() -> None:
    more = {*read_grants(rendered("all of it", "helm"))} - {*read_grants(rendered("the cluster", "helm"))}
    assert told_grants("The webhook") == shown_grants(list(more))


def test_the_values_of_the_docs_are_those_of_the_chart() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def leaves(found: object, path: str) -> dict[str, str]:
        if isinstance(found, dict) and found and path != "resources":
            return {
                key: value
                for name, inner in found.items()
                for key, value in leaves(inner, f"{path}.{name}".strip(".")).items()
            }
        return {path: json.dumps(found)}

    wanted = leaves(values, "")
    told = {name: default for name, default, *_ in rows("install.md", "Values")}
    assert told.keys() == wanted.keys()
    plain_ones = {name: json.loads(value) for name, value in wanted.items() if name != "resources"}
    assert {name: yaml.safe_load(value) for name, value in told.items() if name != "resources"} == plain_ones
