"""What a ring looks at: keys, owners of every kind, selectors, policies; and the faults around it."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections import Counter

import msgspec
import pytest
from tests.cluster.played_shard import D
from tests.cluster.sharder_world import (
    World,
    bare_lease,
    controlled_by,
    make_config_map,
    make_families,
    ring,
    state,
    world,
)
from tests.cluster.world import Cluster, grant, make_namespace, make_secret, make_secrets, secret, until

from poise import clock
from poise.kube import NAMESPACES, Client, ObjectRef, Partial, Resource
from poise.kube.resources import CONFIG_MAPS, DEFINITIONS
from poise.model import ShardRing
from poise.model.sharding import Marks

NAMES = [f"s{number:02}" for number in range(12)]
CLASSES = Resource("networking.k8s.io", "v1", "ingressclasses", "IngressClass", namespaced=False)


def changed(document: ShardRing, **spec: object) -> ShardRing:
    """Change a document as people do."""
    body = msgspec.to_builtins(document)
    return msgspec.convert({**body, "spec": {**body["spec"], **spec}}, ShardRing)


def test_owner_and_owned_share_an_instance_at_any_depth(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            for name in ("a-0", "a-1", "a-2"):
                await bare_lease(w, name)
            for number in range(6):
                root = await make_secret(client, f"root{number}", namespace)
                child = await make_config_map(client, f"child{number}", root, namespace)
                await make_config_map(client, f"deep{number}", child, namespace, kind="ConfigMap")
            owners = await w.settled()
            assert len(set(owners.values())) > 1
            for number in range(6):
                assert len({owners[f"{kind}{number}"] for kind in ("root", "child", "deep")}) == 1
            report = w.sharder.report
            assert (report.roots, report.children) == (6, 12)

    cluster.run(scenario)


def test_what_nobody_of_the_ring_controls_gets_no_label(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await w.shard("a-0")
            stray = ObjectRef(CONFIG_MAPS, "stray", namespace)
            await client.create(stray, {"metadata": {"name": "stray"}}, Partial)
            root = await make_secret(client, "root", namespace)
            left = await make_config_map(client, "left", root, namespace)
            while (await w.owners(CONFIG_MAPS))["left"] != "a-0":
                await asyncio.sleep(0.05)
            assert (await w.marks(CONFIG_MAPS))["stray"] == Marks()
            # One that its owner left behind is let go.
            ref = ObjectRef(CONFIG_MAPS, "left", namespace)
            meta = (await client.get(ref, Partial)).metadata
            await client.merge(ref, meta, {"metadata": {"ownerReferences": None}}, Partial)
            while (await w.owners(CONFIG_MAPS))["left"] is not None:
                await asyncio.sleep(0.05)
            assert (await client.get(ref, Partial)).metadata.uid == left.metadata.uid
            await until(lambda: w.sharder.report.roots == 1)

    cluster.run(scenario)


@pytest.mark.usefixtures("rig")
def test_cluster_scoped_owners(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        resources = [
            {"group": CLASSES.group, "resource": CLASSES.plural, "controlled": [{"resource": "configmaps"}]},
        ]
        w = World(client, namespace, ring(f"r{uuid.uuid4().hex[:6]}", resources=resources), scope=None)
        made = []
        try:
            await w.start_sharder()
            await bare_lease(w, "a-0")
            for number in range(3):
                ref = ObjectRef(CLASSES, f"{namespace}-{number}")
                body = {"metadata": {"name": ref.name}, "spec": {"controller": "example.com/none"}}
                made.append((ref, await client.create(ref, body, Partial)))
                reference = controlled_by(made[-1][1], "IngressClass")
                owner = msgspec.convert(reference["ownerReferences"], list[dict[str, object]])[0]
                owner["apiVersion"] = CLASSES.api_version
                child = {"metadata": {"name": f"child{number}", "ownerReferences": [owner]}}
                await client.create(ObjectRef(CONFIG_MAPS, f"child{number}", namespace), child, Partial)
            await w.settled(["a-0"])
            roots = [(await client.get(ref, Partial)).metadata.labels[f"shard.poise.dev/{w.name}"] for ref, _ in made]
            assert roots == ["a-0"] * 3
            assert w.sharder.report.children == 3
        finally:
            await w.close()
            for ref, there in made:
                await client.delete(ref, uid=there.metadata.uid)

    cluster.run(scenario)


def test_keys_by_namespace_label_and_json_path(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        maps = [{"resource": "configmaps"}]
        async with (
            world(client, namespace, resources=maps, key="namespace") as by_namespace,
            world(client, namespace, resources=maps, key={"label": "tenant"}) as by_label,
            world(client, namespace, resources=maps, key={"jsonPath": "{.data.tenant}"}) as by_path,
        ):
            for w in (by_namespace, by_label, by_path):
                for name in ("a", "b", "c", "d"):
                    await bare_lease(w, f"{w.name}-{name}")
            for number in range(24):
                tenant = f"t{number % 6}"
                body = {"metadata": {"name": f"m{number}", "labels": {"tenant": tenant}}, "data": {"tenant": tenant}}
                await client.create(ObjectRef(CONFIG_MAPS, f"m{number}", namespace), body, Partial)
            owners = [await w.settled() for w in (by_namespace, by_label, by_path)]
            assert len(set(owners[0].values())) == 1
            for found in owners[1:]:
                assert all(found[f"m{number}"] == found[f"m{number % 6}"] for number in range(24))
                assert len(set(found.values())) > 1

    cluster.run(scenario)


@pytest.mark.parametrize("key", [{"jsonPath": "{.data.tenant}"}, {"label": "tenant"}], ids=["JSONPath", "label"])
def test_a_key_that_changes_moves_the_object(cluster: Cluster, namespace: str, key: dict[str, str]) -> None:
    def belonging_to(tenant: str) -> dict[str, object]:
        if "label" in key:
            return {"metadata": {"name": "m", "labels": {"tenant": tenant}}}
        return {"metadata": {"name": "m"}, "data": {"tenant": tenant}}

    async def scenario(client: Client) -> None:
        async with world(client, namespace, resources=[{"resource": "configmaps"}], key=key) as w:
            for name in ("a-0", "a-1"):
                await w.shard(name)
            ref = ObjectRef(CONFIG_MAPS, "m", namespace)
            await client.create(ref, belonging_to("t0"), Partial)
            first = (await w.settled())["m"]
            for number in range(1, 40):
                meta = (await client.get(ref, Partial)).metadata
                await client.merge(ref, meta, belonging_to(f"t{number}"), Partial)
                await asyncio.sleep(0.1)
                if (await w.settled())["m"] != first:
                    return
            raise AssertionError("forty tenants never all belong to one of two")

    cluster.run(scenario)


def test_balanced_is_exactly_even_with_the_fewest_moves(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace, policy="balanced") as w:
            for name in ("a-0", "a-1"):
                await w.shard(name)
            await make_secrets(client, NAMES, namespace)
            before = await w.settled()
            assert Counter(before.values()) == {"a-0": 6, "a-1": 6}
            drains = w.sharder.counts.writes.get("drain", 0)
            await w.shard("a-2")
            await until(lambda: w.sharder.counts.writes.get("drain", 0) > drains)
            after = await w.settled()
            assert Counter(after.values()) == {"a-0": 4, "a-1": 4, "a-2": 4}
            moved = [name for name in before if before[name] != after[name]]
            assert len(moved) == 4 == w.sharder.counts.writes["drain"] - drains
            # New ones are placed at once, and what is deleted is made up for.
            await make_secrets(client, ["new0", "new1", "new2"], namespace)
            await w.settled()
            for name in [name for name, owner in after.items() if owner == "a-0"]:
                made = await client.get(secret(name, namespace), Partial)
                await client.delete(secret(name, namespace), uid=made.metadata.uid)
            loads = Counter[str | None]()
            while sorted(loads.values()) != [3, 4, 4]:
                await asyncio.sleep(0.1)
                loads = Counter((await w.settled()).values())

    cluster.run(scenario)


def test_a_namespace_that_is_no_longer_selected_is_drained_to_nobody(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        other = f"{namespace}-x"
        made = await make_namespace(client, other)
        selector = {"matchLabels": {"of": namespace}}
        w = World(client, namespace, ring(f"r{uuid.uuid4().hex[:6]}", namespaceSelector=selector), scope=None)
        away = World(client, other, w.document)
        try:
            await w.start_sharder()
            await w.shard("a-0", scope="")
            for place in (namespace, other):
                await make_secrets(client, NAMES[:4], place)
            await asyncio.sleep(0.4)
            assert set((await away.owners()).values()) == {None}
            assert w.sharder.report.unassigned == 0
            ref = ObjectRef(NAMESPACES, other)
            await client.merge(ref, made.metadata, {"metadata": {"labels": {"of": namespace}}}, Partial)
            while set((await away.owners()).values()) != {"a-0"}:
                await asyncio.sleep(0.05)
            assert set((await w.owners()).values()) == {None}
            # Not selected any more: first by its label, then by the document.
            meta = (await client.get(ref, Partial)).metadata
            await client.merge(ref, meta, {"metadata": {"labels": {"of": None}}}, Partial)
            while set((await away.owners()).values()) != {None}:
                await asyncio.sleep(0.05)
            assert {marks.epoch for marks in (await away.marks()).values()} == {1}
            mine = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
            w.sharder.update(changed(w.document, namespaceSelector=mine), removing=False, brake_released="")
            while set((await w.owners()).values()) != {"a-0"}:
                await asyncio.sleep(0.05)
            nobody = {"matchExpressions": [{"key": "of", "operator": "Exists"}]}
            w.sharder.update(changed(w.document, namespaceSelector=nobody), removing=False, brake_released="")
            while set((await w.owners()).values()) != {None}:
                await asyncio.sleep(0.05)
        finally:
            await w.close()
            await client.delete(ObjectRef(NAMESPACES, other), uid=made.metadata.uid)

    cluster.run(scenario)


def test_a_resource_that_does_not_exist_is_told_and_nothing_moves(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        resources = [{"resource": "secrets", "controlled": [{"group": "nowhere.dev", "resource": "things"}]}]
        async with world(client, namespace, resources=resources, policy="balanced") as w:
            await bare_lease(w, "a-0")
            await make_secrets(client, NAMES, namespace)
            await asyncio.sleep(0.5)
            report = w.sharder.report
            assert report.faults == ('the API server has no group "nowhere.dev"',)
            assert (report.synced, report.clear) == (False, False)
            assert w.sharder.counts.passes < 50, "it sleeps meanwhile"
            assert set((await w.owners()).values()) == {None}
            # Mended by another document; meanwhile others went on.
            w.sharder.update(ring(w.name), removing=False, brake_released="")
            await w.settled(["a-0"])
            assert w.sharder.report.faults == ()

    cluster.run(scenario)


def test_a_kind_that_is_defined_later_and_removed_again(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        things = Resource(f"{namespace}.dev", "v1", "things", "Thing")
        ref = ObjectRef(DEFINITIONS, f"things.{things.group}")
        async with world(client, namespace, resources=[{"group": things.group, "resource": "things"}]) as w:
            await bare_lease(w, "a-0")
            await until(lambda: w.sharder.report.faults == (f'the API server has no group "{things.group}"',))
            made = await client.create(ref, _definition(things), Partial)
            await until(lambda: w.sharder.report.synced)
            await client.create(
                ObjectRef(things, "t", namespace), {"metadata": {"name": "t"}, **_typed(things)}, Partial
            )
            await until(lambda: w.sharder.counts.label_writes == 1)
            await client.delete(ref, uid=made.metadata.uid)
            await until(lambda: not w.sharder.report.synced and bool(w.sharder.report.faults))
            assert w.sharder.report.clear is False
            # Of a ring that is being removed, a kind that is not there holds nothing.
            w.sharder.update(w.document, removing=True, brake_released="")
            await until(lambda: w.sharder.report.clear)
            assert w.sharder.report.faults == ()

    cluster.run(scenario)


def _typed(things: Resource) -> dict[str, str]:
    return {"apiVersion": things.api_version, "kind": things.kind}


def _definition(things: Resource) -> dict[str, object]:
    schema = {"openAPIV3Schema": {"type": "object"}}
    names = {"plural": things.plural, "singular": "thing", "kind": things.kind}
    version = {"name": things.version, "served": True, "storage": True, "schema": schema}
    spec = {"group": things.group, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"things.{things.group}"}, "spec": spec}


def test_missing_rights_are_named_and_only_wait(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        read = {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["list", "watch", "get"]}
        leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list", "watch"]}
        admin = World(client, namespace, ring(f"r{uuid.uuid4().hex[:6]}"))
        async with cluster.connect("bob") as limited:
            w = World(limited, namespace, admin.document)
            admin.sharder = w.sharder
            await bare_lease(admin, "a-0")
            await make_secrets(client, NAMES[:3], namespace)
            await w.start_sharder()
            try:
                await until(lambda: len(w.sharder.report.faults) == 3)
                assert f'may not list secrets of the group "" in the namespace {namespace}' in str(
                    w.sharder.report.faults
                )
                await grant(client, "bob", namespace, [read, leases])
                await until(lambda: w.sharder.report.synced)
                told = f'may not patch secrets of the group "" in the namespace {namespace}'
                await until(lambda: [told in fault for fault in w.sharder.report.faults] == [True])
                assert set((await admin.owners()).values()) == {None}
                await _may_patch(client, namespace)
                await until(lambda: w.sharder.report.unassigned == 0)
                await until(lambda: w.sharder.report.faults == ())
            finally:
                await w.close()

    cluster.run(scenario)


async def _may_patch(client: Client, namespace: str) -> None:
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["patch"]}]
    rbac = "rbac.authorization.k8s.io"
    body = {"metadata": {"name": "patching"}, "rules": rules}
    await client.create(ObjectRef(Resource(rbac, "v1", "roles", "Role"), "patching", namespace), body, Partial)
    binding = {
        "metadata": {"name": "patching"},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "patching"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "bob"}],
    }
    ref = ObjectRef(Resource(rbac, "v1", "rolebindings", "RoleBinding"), "patching", namespace)
    await client.create(ref, binding, Partial)


def test_cancelled_it_leaves_no_task_behind(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        before = asyncio.all_tasks()
        async with world(client, namespace) as w:
            await bare_lease(w, "a-0")
            await make_secrets(client, [f"s{number:03}" for number in range(60)], namespace)
            await until(lambda: w.sharder.counts.label_writes > 0)
            await w.stop_sharder()
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == before
            await w.start_sharder()
            await w.settled(["a-0"])
        assert asyncio.all_tasks() == before

    cluster.run(scenario)


def test_the_api_server_restarted_in_mid_move(breakable: Cluster, broken_namespace: str) -> None:
    async def scenario(client: Client) -> None:
        namespace = broken_namespace
        async with world(client, namespace, leaseSeconds=10) as w:
            await bare_lease(w, "a-0")
            await bare_lease(w, "a-1")
            await make_families(client, 40, namespace)
            await until(lambda: w.sharder.counts.label_writes > 10)
            breakable.plane.end("kube-apiserver", signal.SIGKILL)
            await until(lambda: bool(w.sharder.report.faults))
            breakable.plane.start_api()
            owners = await w.settled(within_s=30)
            assert set(owners.values()) == {"a-0", "a-1"}
            await until(lambda: w.sharder.report.faults == ())
            assert state(w, "a-0") == "ready"

    breakable.run(scenario)


def test_a_clock_that_is_wrong_by_an_hour_changes_nothing(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await w.stop_sharder()
            w.clock = lambda: clock.boot_s() + 3600
            await w.start_sharder()
            shard = await w.mortal("a-0")
            await bare_lease(w, "a-1")
            await make_secrets(client, NAMES, namespace)
            await w.settled(["a-0", "a-1"])
            await asyncio.sleep(0.5)
            assert w.sharder.counts.lease_writes == {}
            await shard.crash()
            await w.settled(["a-1"], 2 * D + 3)

    cluster.run(scenario)
