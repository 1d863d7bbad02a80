"""An older version on a real API server is upgraded: what is stored is served and run, and people can read it."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import yaml
from tests.cluster.install_drive import PATIENCE_S, RING, kept, marked, operator_options, seed, start_operator
from tests.cluster.install_steps import (
    apply,
    audited_plane,
    documented,
    kubectl,
    left,
    make_namespace,
    play,
    remove_definitions,
    ring,
    run_helm,
    stand_in,
)
from tests.cluster.install_world import (
    CHART,
    KUSTOMIZE,
    AuditedPlane,
    Document,
    judge,
    kustomize,
    parts,
    read_documents,
    read_grants,
    run_tool,
    text,
    write_documents,
)
from tests.cluster.operator_process import event, eventually, shown
from tests.cluster.test_install_rendered import rendered

from poise.errors import NotHeld
from poise.hold.shard import Held, Shard
from poise.kube import Client, Partial
from poise.kube.patches import Operation

NOTE = Operation("add", "/metadata/annotations/seen", "yes")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditedPlane]:
    """A control plane of this file's own, with an audit log."""
    with audited_plane(tmp_path_factory.mktemp("audited")) as made:
        yield made


def test_the_api_server_takes_every_object_of_every_way(plane: AuditedPlane) -> None:
    """Those that no other test applies; strictly, so that no field is misspelt."""
    for name in ("team-a", "poise-system"):
        make_namespace(plane, name)
    stand_in(plane)
    ways = [("certificates from files", "kustomize"), ("one namespace without protection", "kustomize")]
    ways += [(way, "helm") for way in ("all of it", "certificates from files", "one namespace without protection")]
    whole = [each for way, tool in ways for each in rendered(way, tool)]
    documents = [each for each in whole if text(each, "kind") != "CustomResourceDefinition"]
    kubectl(
        plane,
        "apply",
        "--server-side",
        "--dry-run=server",
        "--force-conflicts",
        "-f",
        "-",
        given=write_documents(documents),
    )
    misspelt = copy.deepcopy(documents[-1])
    misspelt["sepc"] = {}
    done = run_tool(
        "kubectl",
        "apply",
        "--server-side",
        "--dry-run=server",
        "-f",
        "-",
        given=write_documents([misspelt]),
        kubeconfig=plane.kubeconfig(),
    )
    assert "sepc" in done.told


def test_the_pods_fit_into_a_namespace_that_restricts_them(plane: AuditedPlane) -> None:
    """The Pod of the template is accepted where the strictest standard is enforced, and one as root is not."""
    (found,) = [each for each in kustomize(KUSTOMIZE / "namespaced") if text(each, "kind") == "Deployment"]
    template = parts({"all": [found["spec"]]}, "all")[0]["template"]
    assert isinstance(template, dict)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restricted", "labels": labels}}
    kubectl(plane, "apply", "-f", "-", given=json.dumps(body))
    pods = "/api/v1/namespaces/restricted/pods?dryRun=All"
    pod = {"metadata": {"name": "one", "labels": template["metadata"]["labels"]}, "spec": template["spec"]}
    assert plane.ask("POST", pods, pod).status_code == 201
    loose = copy.deepcopy(pod)
    loose["spec"].pop("securityContext")
    assert "violates PodSecurity" in plane.ask("POST", pods, loose).text


def older(document: Document) -> Document:
    """Make a definition as an older version had it: fewer fields, no columns and no rules."""

    def stripped(found: object) -> object:
        if isinstance(found, dict):
            dropped = ("x-kubernetes-validations", "minimum", "additionalPrinterColumns", "brakePercent")
            return {name: stripped(value) for name, value in found.items() if name not in dropped}
        return [stripped(each) for each in found] if isinstance(found, list) else found

    made = stripped(document)
    assert isinstance(made, dict)
    return made


def test_objects_of_an_older_version_are_served_and_run_after_an_upgrade(
    plane: AuditedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_namespace(plane, "team-a")
    documents = kustomize(KUSTOMIZE / "examples" / "cluster")
    apply(plane, [older(each) for each in documents if text(each, "kind") == "CustomResourceDefinition"])
    kubectl(plane, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    good, bad = ring("cluster", "team-a", 15), ring("cluster", "team-a", 0)
    bad["metadata"] = {"name": "broken", "namespace": "team-a"}
    apply(plane, [good, bad])
    before = stored(plane)
    for words in documented("Upgrade"):
        kubectl(plane, *words)
    for (name, version), spec in stored(plane).items():
        assert spec.items() >= before[name, version].items(), "what was stored is served as it is, with new defaults"
    kubectl(plane, "apply", "-f", str(KUSTOMIZE / "examples" / "instances.yaml"))
    # A shard takes itself for one in a Pod then, and reads it.
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "here")
    monkeypatch.setenv("POD_NAME", "web-0")

    async def scenario(client: Client) -> None:
        await seed(client, "team-a")
        rings, policies, *rest = documented("Uninstall")
        with start_operator(plane.account_kubeconfig("poise-system"), "one", *operator_options(documents)) as process:
            await shown(client, "team-a", RING, "Ready", "False", "NoInstances", PATIENCE_S)
            refused = await shown(client, "team-a", "broken", "Ready", "False", "InvalidSpec", PATIENCE_S)
            assert "$.spec.leaseSeconds" in refused.status.of("Ready").message
            async with a_shard(plane):
                await shown(client, "team-a", RING, "Balanced", "True", "Settled", PATIENCE_S)
                await event(client, "team-a", "InstanceReady", within_s=PATIENCE_S)
                await asyncio.to_thread(people_read, plane)
                await asyncio.to_thread(kubectl, plane, *rings)
            await asyncio.to_thread(kubectl, plane, *policies)
            assert await process.end() == 0, process.said
        assert await marked(client) == []
        assert await kept(client) == []
        for words in rest:
            # Nobody ends namespaces here: there are no controllers.
            hurry = ["--wait=false"] if str(KUSTOMIZE / "examples" / "cluster") in words else []
            await asyncio.to_thread(kubectl, plane, *words, *hurry)

    play(plane, scenario)
    granted = read_grants(read_documents((KUSTOMIZE / "examples" / "instances.yaml").read_text()), "web")
    assert judge(granted, plane.asked("team-a", "web")) == []
    assert left(plane) == []


async def note_child(held: Held) -> bool:
    """Write the ConfigMap of a Secret, once its labels are those of its root."""
    for child in held.children:
        with suppress(NotHeld):
            await held.patch(NOTE, on=child.ref)
            await held.read(Partial, child.ref)
            return True
    return False


@asynccontextmanager
async def a_shard(plane: AuditedPlane) -> AsyncIterator[None]:
    """Let an instance of the library live while the block does, known by its Pod, with the rights of the example."""
    done: set[str] = set()

    async def reconcile(held: Held) -> None:
        await held.patch(NOTE)
        await held.read(Partial)
        while not await note_child(held):
            await asyncio.sleep(0.05)
        done.add(held.meta.name)

    account = plane.account_kubeconfig("team-a", "web", "web-0")
    shard = Shard(ring=RING, resources=["secrets"], namespace="team-a", scope="team-a", kubeconfig=account)
    async with shard:
        working = asyncio.create_task(shard.run(reconcile))
        await eventually(lambda: len(done) == 8, lambda: done, PATIENCE_S)
        yield
        shard.leave()
        await working


def test_helm_upgrades_the_definitions_and_keeps_what_is_stored(plane: AuditedPlane, tmp_path: Path) -> None:
    make_namespace(plane, "team-h")
    old = Path(shutil.copytree(CHART, tmp_path / "poise"))
    for path in (old / "definitions").glob("*.yaml"):
        path.write_text(yaml.safe_dump(older(yaml.safe_load(path.read_text())), sort_keys=False))
    where = ("--namespace", "team-h")
    done = run_helm(plane, "install", "poise", str(old), *where, values={})
    assert done.code == 0, done.told
    kubectl(plane, "wait", "--for=condition=Established", "crd/shardrings.poise.dev", "--timeout=60s")
    apply(plane, [ring("cluster", "team-h")])
    before = stored(plane)
    done = run_helm(plane, "upgrade", "poise", str(CHART), *where, values={})
    assert done.code == 0, done.told
    assert before.keys() == stored(plane).keys()
    assert "BALANCED" in kubectl(plane, "get", "shardrings", "-n", "team-h"), "it is the newer definition"
    done = run_helm(plane, "uninstall", "poise", *where)
    assert done.code == 0, done.told
    assert before.keys() == stored(plane).keys(), "no ring is lost by accident"
    refused = run_helm(plane, "install", "second", str(CHART), *where, values={})
    assert refused.code != 0
    assert 'key "meta.helm.sh/release-name" must equal "second": current value is "poise"' in refused.told
    remove_definitions(plane)
    assert left(plane) == []


def stored(plane: AuditedPlane) -> dict[tuple[str, str], dict[str, object]]:
    """Read every ring, by its name and the version that was written last."""
    listed = yaml.safe_load(kubectl(plane, "get", "shardrings", "-A", "-o", "yaml"))["items"]
    return {(each["metadata"]["name"], each["metadata"]["resourceVersion"]): each["spec"] for each in listed}


def people_read(plane: AuditedPlane) -> None:
    """Look at rings as people do."""
    lines = kubectl(plane, "get", "shardrings", "-n", "team-a").splitlines()
    assert lines[0].split() == ["NAME", "POLICY", "READY", "BALANCED", "INSTANCES", "DRAINING", "UNASSIGNED", "AGE"]
    rows = {line.split()[0]: line.split()[1:-1] for line in lines[1:]}
    assert rows["web"] == ["ring", "True", "True", "1", "0", "0"]
    assert rows["broken"][:2] == ["ring", "False"]
    wide = kubectl(plane, "get", "sr", "-n", "team-a", "-o", "wide")
    assert re.search(r"1 of \d instances? ready, \d+ objects", wide)
    assert "$.spec.leaseSeconds" in wide
    assert "shardring.poise.dev/web" in kubectl(plane, "get", "poise", "-A", "-o", "name")
    told = kubectl(plane, "describe", "shardring", "web", "-n", "team-a")
    assert "Observed Generation" in told
    assert "InstanceReady" in told
