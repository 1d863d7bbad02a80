"""Installed on a real API server: the operator runs with exactly the rights of the manifests, and nothing is left."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.cluster.install_drive import (
    PATIENCE_S,
    RING,
    drive,
    kept,
    marked,
    operator_options,
    remove,
    seed,
    start_operator,
)
from tests.cluster.install_steps import (
    apply,
    apply_definitions,
    audited_plane,
    example_ring,
    kubectl,
    left,
    make_namespace,
    play,
    remove_definitions,
    remove_made,
    ring,
    run_helm,
    stand_in,
    uninstall,
)
from tests.cluster.install_world import (
    CHART,
    Asked,
    AuditedPlane,
    Document,
    Done,
    Grant,
    helm,
    judge,
    kustomize,
    overlay,
    part,
    parts,
    read_grants,
    text,
    texts,
    write_documents,
)
from tests.cluster.operator_process import awaited, read_events, shown
from tests.cluster.puppet import LASTING_S, Puppet

from poise.kube import Client, ObjectRef, Partial, connect
from poise.kube.resources import CONFIG_MAPS


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditedPlane]:
    """A control plane of this file's own, with an audit log."""
    with audited_plane(tmp_path_factory.mktemp("audited")) as made:
        yield made


def test_kustomize_installs_what_the_operator_needs_and_no_more(plane: AuditedPlane, tmp_path: Path) -> None:
    make_namespace(plane, "team-k")
    stand_in(plane)
    changes = {"team-a": "team-k", "poise-system": "installed"}
    folder = overlay(tmp_path, "examples/cluster", "monitoring", "webhook", "page", changes=changes)
    documents = kustomize(folder)
    kubectl(plane, "apply", "--server-side", "-k", str(folder))
    kubectl(plane, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")

    async def scenario(client: Client) -> None:
        await seed(client, "team-k")
        apply(plane, [ring("cluster", "team-k")])
        await drive(plane, client, "installed", "team-k", operator_options(documents), hooked=True)
        assert await marked(client) == []
        assert await kept(client) == []

    play(plane, scenario)
    asked, grants = plane.asked("installed"), read_grants(documents)
    assert judge(grants, asked) == []
    judge_mutants(grants, asked)
    uninstall(plane, documents)


def judge_mutants(grants: list[Grant], asked: list[Asked]) -> None:
    """Take every verb away, and add one to every rule: each is found in what was noted."""
    twice = set()
    for grant in grants:
        fewer = [each for each in grants if each != grant]
        if not any("not granted here" in fault for fault in judge(fewer, asked)):
            twice.add((grant.resource, grant.verb))
    assert twice == {("secrets", "get")}, "only this one has two reasons"
    for role, namespace, group, resource in {each[:4] for each in grants}:
        more = Grant(role, namespace, group, resource, "deletecollection")
        assert judge([*grants, more], asked) == [f"never used: {more}"]
    for grant in (each for each in grants if each.name):
        more = grant._replace(name="of-another-installation")
        assert judge([*grants, more], asked) == [f"never used: {more}"], "each name is judged by itself"
    lease = next(each for each in grants if (each.resource, each.verb) == ("leases", "delete"))
    (told,) = judge([*(each for each in grants if each != lease), lease._replace(namespace="")], asked)
    assert told.startswith("only needed in ")


def leave_webhook(plane: AuditedPlane, namespace: str) -> None:
    """Leave the configuration of a webhook behind, as an operator does that was ended while its rings were there."""
    name, labels = f"poise-webhook.{namespace}", {"app.kubernetes.io/managed-by": "poise", "poise.dev/scope": namespace}
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    kubectl(plane, "apply", "-f", "-", given=json.dumps(body | {"metadata": {"name": name, "labels": labels}}))


def narrow(namespace: str) -> dict[str, object]:
    """Give the values of an operator for one namespace, with the rights for the example's ring."""
    resources = [{"resource": "configmaps", "controlled": [{"resource": "secrets"}]}]
    rings = [{"name": RING, "resources": resources}]
    return {"namespace": namespace, "definitions": {"install": False}, "rings": rings}


def test_helm_installs_for_one_namespace_what_the_operator_needs_and_no_more(plane: AuditedPlane) -> None:
    values = narrow("team-n")
    make_namespace(plane, "team-n")
    apply_definitions(plane)
    done = run_helm(plane, "install", "poise", str(CHART), "--namespace", "team-n", values=values)
    assert done.code == 0, done.told
    assert "kubectl delete shardrings --all -n team-n" in done.out
    others_are_refused(plane)
    leave_webhook(plane, "team-n")
    documents = helm("team-n", values)

    async def scenario(client: Client) -> None:
        await seed(client, "team-n")
        apply(plane, [ring("namespaced", "team-n")])
        await drive(plane, client, "team-n", "team-n", operator_options(documents))
        assert await marked(client) == []
        assert await kept(client) == []

    play(plane, scenario)
    assert judge(read_grants(documents), plane.asked("team-n")) == []
    done = run_helm(plane, "uninstall", "poise", "--namespace", "team-n")
    assert done.code == 0, done.told
    assert "lease.coordination.k8s.io/poise-operator" in left(plane), "helm knows nothing of it"
    remove_made(plane, "team-n")
    assert all("customresourcedefinition" in name for name in left(plane))
    remove_definitions(plane)
    assert left(plane) == []


def test_protection_that_is_turned_off_is_taken_away(plane: AuditedPlane) -> None:
    """Helm upgrades a release whose own Secrets are in the ring's namespace, while the ring's policy is in force."""
    home, where = "team-p", ("poise", str(CHART), "--namespace", "team-p")
    make_namespace(plane, home)
    apply_definitions(plane)
    shielded, bare = narrow(home), narrow(home) | {"protect": False}
    assert (done := run_helm(plane, "install", *where, values=shielded)).code == 0, done.told

    async def scenario(client: Client) -> None:
        apply(plane, [example_ring("namespaced", home)])
        account = plane.account_kubeconfig(home)
        await client.create(ObjectRef(CONFIG_MAPS, "one", home), {"metadata": {"name": "one"}}, Partial)
        async with instance(plane, home):
            with start_operator(account, "one", *operator_options(helm(home, shielded))) as process:
                await has_policies(client, 2)
                await shown(client, home, RING, "Balanced", "True", "Settled", PATIENCE_S)
                assert await marked(client) == ["one"], "not the Secrets in which Helm keeps the release"
                upgraded = await asyncio.to_thread(run_helm, plane, "upgrade", *where, values=bare)
                assert upgraded.code == 0, upgraded.told
                assert await process.end() == 0, process.said
            before = len(plane.asked(home))
            with start_operator(account, "two", *operator_options(helm(home, bare))) as process:
                await has_policies(client, 0)
                await remove(client, home)
                assert await process.end() == 0, process.said
        faults = judge(read_grants(helm(home, bare)), plane.asked(home)[before:])
        assert [fault for fault in faults if fault.startswith(("refused", "not granted"))] == []

    play(plane, scenario)
    assert (done := run_helm(plane, "uninstall", "poise", "--namespace", home)).code == 0, done.told
    remove_made(plane, home)
    remove_definitions(plane)
    assert left(plane) == []


@asynccontextmanager
async def instance(plane: AuditedPlane, namespace: str) -> AsyncIterator[None]:
    """Let somebody take what the ring gives, while the block runs."""
    async with connect(plane.kubeconfig("a")) as user, Puppet(user, namespace, "a", duration_s=LASTING_S).playing():
        yield


async def has_policies(client: Client, count: int) -> None:
    """Wait until there are so many policies and bindings."""

    async def holds() -> bool:
        return len(await kept(client)) == count

    await awaited(holds, lambda: f"there are not {count} policies and bindings", PATIENCE_S)


def others_are_refused(plane: AuditedPlane) -> None:
    """Try more installations beside one of the namespace team-n: only one that looks elsewhere is let in."""

    def tried(name: str, home: str, **values: object) -> Done:
        more = {"definitions": {"install": False}, **values}
        words = ("install", name, str(CHART), "--namespace", home, "--create-namespace", "--dry-run=server")
        return run_helm(plane, *words, values=more)

    make_namespace(plane, "elsewhere")
    for values in ({}, {"namespace": "team-n"}):
        refused = tried("second", "elsewhere", **values)
        assert refused.code != 0
        assert "Poise looks at the namespace team-n already: Deployment team-n/poise-operator" in refused.told
    same_place = tried("second", "team-n", namespace="elsewhere")
    assert same_place.code != 0
    assert 'must equal "second": current value is "poise"' in same_place.told
    assert tried("second", "elsewhere", namespace="elsewhere").code == 0


def without(documents: list[Document], role: str, resource: str, verb: str) -> list[Document]:
    """Take one verb on one resource out of a role."""
    made = copy.deepcopy(documents)
    rules = [rule for each in made if text(each, "metadata", "name") == role for rule in parts(each, "rules")]
    found = [rule for rule in rules if resource in texts(rule, "resources") and verb in texts(rule, "verbs")]
    assert found, f"there is no {verb} on {resource} in {role}"
    for rule in found:
        rule["verbs"] = [each for each in texts(rule, "verbs") if each != verb]
    for each in made:
        if parts(each, "rules"):
            each["rules"] = [rule for rule in parts(each, "rules") if rule["verbs"]]
    return made


def roles(documents: list[Document]) -> list[Document]:
    """Give the roles and bindings alone."""
    return [each for each in documents if "Role" in text(each, "kind")]


def test_a_second_installation_by_kustomize_takes_every_right_from_the_first(
    plane: AuditedPlane, tmp_path: Path
) -> None:
    make_namespace(plane, "team-t")
    homes = {}
    for home in ("first-home", "second-home"):
        changes = {"team-a": "team-t", "poise-system": home}
        homes[home] = roles(kustomize(overlay(tmp_path / home, "examples/cluster", changes=changes)))
        make_namespace(plane, home)
        apply(plane, homes[home])

    def may(home: str, verb: str, group: str, resource: str) -> bool:
        asked = {"verb": verb, "group": group, "resource": resource, "namespace": "team-t"}
        spec = {"user": f"system:serviceaccount:{home}:poise-operator", "resourceAttributes": asked}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = plane.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body).json()
        return part(answer, "status", "allowed") is True

    for right in (
        ("patch", "poise.dev", "shardrings"),
        ("patch", "", "secrets"),
        ("update", "coordination.k8s.io", "leases"),
    ):
        assert [may(home, *right) for home in homes] == [False, True]
    for documents in homes.values():
        kubectl(plane, "delete", "--ignore-not-found", "-f", "-", given=write_documents(documents))


def test_a_missing_verb_is_found(plane: AuditedPlane, tmp_path: Path) -> None:
    make_namespace(plane, "team-m")
    changes = {"team-a": "team-m", "poise-system": "mutants"}
    documents = kustomize(overlay(tmp_path, "examples/cluster", changes=changes))
    apply(plane, without(documents, "poise-operator", "shardrings/status", "patch"))
    kubectl(plane, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")

    async def scenario(client: Client) -> None:
        await seed(client, "team-m")
        apply(plane, [ring("cluster", "team-m")])
        with start_operator(plane.account_kubeconfig("mutants"), "one") as process:
            assert await process.ended(PATIENCE_S) == 1, "it cannot do without"
            assert "may not patch shardrings/status" in process.said
        apply(plane, roles(without(documents, "poise-ring-web", "events", "create")))
        with start_operator(plane.account_kubeconfig("mutants"), "two") as process:
            await shown(client, "team-m", RING, "Ready", "False", "NoInstances", PATIENCE_S)
            async with instance(plane, "team-m"):
                await shown(client, "team-m", RING, "Balanced", "True", "Settled", PATIENCE_S)

                async def refused() -> bool:
                    return any("refused: patch events" in fault for fault in judge([], plane.asked("mutants")))

                await awaited(refused, lambda: process.said, PATIENCE_S)
                assert await read_events(client, "team-m") == []
                await remove(client, "team-m")
            assert await process.end() == 0
        assert await marked(client) == []

    play(plane, scenario)
    uninstall(plane, documents)
