"""What is installed: rendered by kubectl and helm, applied to an API server with an audit log, and judged by that."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx2
import yaml
from tests.cluster.control_plane import ControlPlane
from tools.kube.build import find_program

ROOT = Path(__file__).parent.parent.parent
KUSTOMIZE = ROOT / "deploy" / "kustomize"
CHART = ROOT / "deploy" / "chart" / "poise"
ACCOUNT = "poise-operator"
# Rights that everybody has who is known to the API server: asking about oneself.
_EVERYBODYS = ("authentication.k8s.io", "authorization.k8s.io")
_TOOL_S = 120.0

Document = dict[str, object]


class Done(NamedTuple):
    """How a tool ended, and what it said."""

    code: int
    out: str
    told: str


def run_tool(name: str, *words: str, given: str = "", kubeconfig: Path | None = None) -> Done:
    """Run kubectl or helm; what they remember of a cluster is kept beside its kubeconfig, and nowhere else."""
    place = str(kubeconfig.parent if kubeconfig else tempfile.gettempdir())
    kept = {"HOME": place, "HELM_CACHE_HOME": place, "HELM_CONFIG_HOME": place, "HELM_DATA_HOME": place}
    environment = {"PATH": os.environ["PATH"], **kept} | ({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})
    done = subprocess.run(
        [str(find_program(name)), *words],
        input=given,
        capture_output=True,
        text=True,
        timeout=_TOOL_S,
        env=environment,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def read_documents(text: str) -> list[Document]:
    """Read the documents of a rendering."""
    return [each for each in yaml.safe_load_all(text) if each]


def write_documents(documents: Iterable[Document]) -> str:
    """Write documents for kubectl."""
    return yaml.safe_dump_all(documents)


def kustomize(folder: Path) -> list[Document]:
    """Render a folder by the kustomize of kubectl."""
    done = run_tool("kubectl", "kustomize", str(folder))
    assert done.code == 0, done.told
    return read_documents(done.out)


def overlay(place: Path, base: str, *components: str, changes: Mapping[str, str] | None = None) -> Path:
    """Write an overlay as people do: a copy of the folders, a base, components, and words that are replaced."""
    tree = place / "kustomize"
    if not tree.exists():
        shutil.copytree(KUSTOMIZE, tree)
    for path in tree.rglob("*.yaml") if changes else ():
        text = path.read_text()
        for old, new in (changes or {}).items():
            text = text.replace(old, new)
        path.write_text(text)
    folder = tree / f"own-{len(list(tree.glob('own-*')))}"
    folder.mkdir()
    listed = {"resources": [f"../{base}"], "components": [f"../components/{each}" for each in components]}
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(head | listed))
    return folder


def helm_template(namespace: str, values: Mapping[str, object], chart: Path = CHART) -> Done:
    """Render the chart without a cluster."""
    words = ("template", "poise", str(chart), "--namespace", namespace, "--kube-version", "1.36.4", "--values", "-")
    return run_tool("helm", *words, given=json.dumps(values))


def helm(namespace: str, values: Mapping[str, object]) -> list[Document]:
    """Render the chart, which must succeed."""
    done = helm_template(namespace, values)
    assert done.code == 0, done.told
    return read_documents(done.out)


def part(document: Mapping[str, object], *path: str | int) -> object:
    """Look into a document; None where there is nothing."""
    found: object = document
    for step in path:
        if isinstance(found, Mapping) and isinstance(step, str):
            found = found.get(step)
        elif isinstance(found, list) and isinstance(step, int) and step < len(found):
            found = found[step]
        else:
            return None
    return found


def text(document: Mapping[str, object], *path: str | int) -> str:
    """Look for a text in a document; empty where there is none."""
    found = part(document, *path)
    return found if isinstance(found, str) else ""


def parts(document: Mapping[str, object], *path: str | int) -> list[Document]:
    """Look for a list of mappings."""
    found = part(document, *path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def texts(document: Mapping[str, object], *path: str | int) -> list[str]:
    """Look for a list of texts."""
    found = part(document, *path)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def identity(document: Document) -> tuple[str, str, str]:
    """Say which object a document is: kind, namespace and name."""
    return text(document, "kind"), text(document, "metadata", "namespace"), text(document, "metadata", "name")


class Grant(NamedTuple):
    """One verb on one resource, or on one of its objects, that an account was given; no namespace is everywhere."""

    role: str
    namespace: str
    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        kind = ".".join(part for part in (self.resource, self.group) if part)
        return f"{self.verb} {kind}{f' {self.name}' if self.name else ''}{where} by {self.role}"

    def allows(self, asked: Asked) -> bool:
        """Say whether this grant is enough for a request."""
        same = (self.group, self.resource, self.verb) == (asked.group, asked.resource, asked.verb)
        here = self.namespace in ("", asked.namespace)
        return same and here and self.name in ("", asked.name)


class Asked(NamedTuple):
    """One request as the API server noted it."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    code: int

    def __str__(self) -> str:
        kind = ".".join(part for part in (self.resource, self.group) if part)
        return f"{self.verb} {kind} {self.namespace}/{self.name} ({self.code})"


def read_grants(documents: Sequence[Document], account: str = ACCOUNT) -> list[Grant]:
    """List every verb that bindings of these documents give to an account."""
    roles = {identity(each): each for each in documents if text(each, "kind") in ("Role", "ClusterRole")}
    return [grant for each in documents if _binds(each, account) for grant in _granted(each, roles)]


def _binds(document: Document, account: str) -> bool:
    kinds = ("RoleBinding", "ClusterRoleBinding")
    subjects = parts(document, "subjects")
    return text(document, "kind") in kinds and any(text(each, "name") == account for each in subjects)


def _granted(binding: Document, roles: Mapping[tuple[str, str, str], Document]) -> Iterator[Grant]:
    namespace, name = text(binding, "metadata", "namespace"), text(binding, "roleRef", "name")
    kind = text(binding, "roleRef", "kind")
    role = roles[kind, namespace if kind == "Role" else "", name]
    for rule in parts(role, "rules"):
        for group in texts(rule, "apiGroups"):
            for resource in texts(rule, "resources"):
                for verb in texts(rule, "verbs"):
                    for only in texts(rule, "resourceNames") or [""]:
                        yield Grant(name, namespace, group, resource, verb, only)


class AuditedPlane(ControlPlane):
    """A control plane that notes every request of a ServiceAccount: who, what, and whether it was allowed."""

    def _run(self, name: str, *arguments: str) -> None:
        more: tuple[str, ...] = ()
        if name == "kube-apiserver":
            rules = [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}]
            policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"]}
            (self.folder / "audit-policy.yaml").write_text(yaml.safe_dump(policy | {"rules": rules}))
            more = (f"--audit-policy-file={self.folder / 'audit-policy.yaml'}", f"--audit-log-path={self._noted}")
        super()._run(name, *arguments, *more)

    @property
    def _noted(self) -> Path:
        return self.folder / "audit.log"

    def asked(self, namespace: str, account: str = ACCOUNT) -> list[Asked]:
        """Give all requests that an account has sent so far."""
        user = f"system:serviceaccount:{namespace}:{account}"
        lines = self._noted.read_text().splitlines() if self._noted.exists() else []
        events = [json.loads(line) for line in lines if user in line and line.endswith("}")]
        return [asked for each in events if text(each, "user", "username") == user for asked in _asked(each)]

    def account_kubeconfig(self, namespace: str, account: str = ACCOUNT, pod: str = "") -> Path:
        """Write a kubeconfig with a token of an account, bound to a new Pod where one is named, for its namespace."""
        bound: dict[str, object] = {}
        if pod:
            spec = {"serviceAccountName": account, "containers": [{"name": "main", "image": "none"}]}
            made = self.ask("POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": pod}, "spec": spec})
            uid = made.json()["metadata"]["uid"]
            bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}}
        wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": bound}
        answer = self.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", wanted)
        assert answer.status_code == 201, answer.text
        self.users[account] = answer.json()["status"]["token"]
        config = yaml.safe_load(self.kubeconfig(account).read_text())
        config["contexts"][0]["context"]["namespace"] = namespace
        place = self.folder / f"kubeconfig-{namespace}-{account}"
        place.write_text(yaml.safe_dump(config))
        return place

    def ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> httpx2.Response:
        """Send one request as the admin."""
        content = None if body is None else json.dumps(body)
        with self.client() as client:
            return client.request(method, path, content=content, headers={"Content-Type": kind})


def _asked(event: Mapping[str, object]) -> Iterator[Asked]:
    """Read one entry. An apply that made something new was asked for the right to create it, too."""
    group = text(event, "objectRef", "apiGroup")
    if part(event, "objectRef") is None or group in _EVERYBODYS:
        return
    status = part(event, "responseStatus", "code")
    code = status if isinstance(status, int) else 0
    resource = "/".join(
        each for each in (text(event, "objectRef", "resource"), text(event, "objectRef", "subresource")) if each
    )
    namespace, name = text(event, "objectRef", "namespace"), text(event, "objectRef", "name")
    verb = text(event, "verb")
    yield Asked(verb, group, resource, namespace, name, code)
    if verb == "patch" and code == 201:
        yield Asked("create", group, resource, namespace, name, code)


def judge(grants: Sequence[Grant], asked: Sequence[Asked]) -> list[str]:
    """Say what is wrong with what was granted, after everything was done that needs a right: nothing, at best."""
    refused = [f"refused: {each}" for each in dict.fromkeys(asked) if each.code == 403]
    beyond = [
        f"not granted here: {each}"
        for each in dict.fromkeys(asked)
        if each.code != 403 and not any(grant.allows(each) for grant in grants)
    ]
    unused = [f"never used: {grant}" for grant in grants if not any(grant.allows(each) for each in asked)]
    return [*refused, *beyond, *unused, *_too_wide(grants, asked)]


def _too_wide(grants: Sequence[Grant], asked: Sequence[Asked]) -> list[str]:
    """Find what a role grants everywhere of a resource, and was needed in one namespace alone."""
    narrow = [grant for grant in grants if grant.namespace]
    rest = [each for each in asked if not any(grant.allows(each) for grant in narrow)]
    wide: dict[tuple[str, str, str], list[Grant]] = {}
    for grant in grants:
        if not grant.namespace:
            wide.setdefault((grant.role, grant.group, grant.resource.partition("/")[0]), []).append(grant)
    found = []
    for same in wide.values():
        where = {each.namespace for each in rest if any(grant.allows(each) for grant in same)}
        if len(where) == 1 and "" not in where:
            found.append(f"only needed in {where.pop()}: {same[0]}")
    return found
