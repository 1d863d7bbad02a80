"""The client on a real API server: every verb, and every refusal as one of Poise's own errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from tests.cluster.world import Cluster, grant, make_secret, make_secrets, secret, until

from poise.errors import Conflict, Forbidden, InvalidSpec, NotFound, PatchRefused, PoiseError
from poise.kube import LEASES, Client, Lease, Meta, ObjectRef, Partial, Resource, Selection, connect
from poise.kube.objects import LeaseSpec
from poise.kube.patches import label_change, same_label, same_uid, set_label
from poise.kube.resources import CONFIG_MAPS, SECRETS

Whole = dict[str, object]


def labels(found: Partial) -> dict[str, str]:
    return found.metadata.labels


def test_an_object_is_created_read_and_deleted(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        ref = secret("a", namespace)
        made = await make_secret(client, "a", namespace, {"x": "1"})
        read = await client.get(ref, Partial)
        assert read == made
        assert (read.kind, read.metadata.key, labels(read)) == ("PartialObjectMetadata", (namespace, "a"), {"x": "1"})
        whole = await client.get(ref, Whole)
        assert whole["data"] == {"key": "dmFsdWU="}
        for uid, version in (("another", read.metadata.resource_version), (read.metadata.uid, "1")):
            with pytest.raises(Conflict):
                await client.delete(ref, uid=uid, version=version)
        await client.delete(ref, uid=read.metadata.uid, version=read.metadata.resource_version)
        with pytest.raises(NotFound, match=f'get secrets {namespace}/a: secrets "a" not found'):
            await client.get(ref, Partial)

    cluster.run(scenario)


def test_a_merge_patch_carries_the_version_it_was_decided_on(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        ref = secret("a", namespace)
        seen = await make_secret(client, "a", namespace, {"x": "1", "y": "2"})
        change = {"metadata": {"labels": {"x": "3", "y": None}}}
        written = await client.merge(ref, seen.metadata, change, Partial)
        assert labels(written) == {"x": "3"}
        with pytest.raises(Conflict, match="the object has been modified"):
            await client.merge(ref, seen.metadata, change, Partial)
        assert await client.get(ref, Partial) == written

    cluster.run(scenario)


def test_a_patch_never_reaches_a_later_object_of_the_same_name(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        ref = secret("a", namespace)
        old = await make_secret(client, "a", namespace, {"x": "1"})
        await client.delete(ref, uid=old.metadata.uid)
        new = await make_secret(client, "a", namespace, {"x": "1"})
        with pytest.raises(Conflict):
            await client.merge(ref, old.metadata, {"metadata": {"labels": {"x": "2"}}}, Partial)
        mixed = msgspec.structs.replace(new.metadata, uid=old.metadata.uid)
        with pytest.raises(Conflict, match="field is immutable"):
            await client.merge(ref, mixed, {"metadata": {"labels": {"x": "2"}}}, Partial)
        with pytest.raises(PatchRefused):
            await client.patch(ref, [same_uid(old.metadata.uid), set_label("x", "2")], Partial)
        applied = {"apiVersion": "v1", "kind": "Secret", **label_change(old.metadata, {"x": "2"})}
        with pytest.raises(Conflict):
            await client.apply(ref, applied, Partial)
        with pytest.raises(Conflict, match="UID in the precondition"):
            await client.delete(ref, uid=old.metadata.uid)
        assert await client.get(ref, Partial) == new

    cluster.run(scenario)


def test_a_json_patch_is_refused_whole_when_a_test_fails(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        ref = secret("a", namespace)
        seen = await make_secret(client, "a", namespace, {"epoch.poise.dev/web": "7"})
        guards = [same_uid(seen.metadata.uid), same_label("epoch.poise.dev/web", "7")]
        await client.patch(ref, [*guards, set_label("note", "a")], Partial)
        raised = await client.patch(ref, [*guards, set_label("epoch.poise.dev/web", "8")], Partial)
        for stale in (guards, [guards[0], same_label("absent", "")]):
            with pytest.raises(PatchRefused, match="a test failed, nothing was written"):
                await client.patch(ref, [*stale, set_label("note", "b")], Partial)
        assert await client.get(ref, Partial) == raised
        assert labels(raised) == {"epoch.poise.dev/web": "8", "note": "a"}

    cluster.run(scenario)


def test_server_side_apply_owns_its_fields(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        ref = ObjectRef(CONFIG_MAPS, "a", namespace)
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
        first = await client.apply(ref, body, Partial, manager="one")
        again = await client.apply(ref, body, Partial, manager="one")
        assert again.metadata.resource_version == first.metadata.resource_version, "an apply of the same writes nothing"
        other = {**body, "data": {"x": "2"}}
        with pytest.raises(Conflict, match="conflict with"):
            await client.apply(ref, other, Partial, manager="two")
        await client.apply(ref, other, Partial, manager="two", force=True)
        assert (await client.get(ref, Whole))["data"] == {"x": "2"}

    cluster.run(scenario)


def test_a_put_over_an_older_version_is_a_conflict(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        ref = ObjectRef(LEASES, "a", namespace)
        made = await client.create(ref, Lease(Meta("a", namespace), LeaseSpec("me", 15)), Lease)
        renewed = await client.replace(ref, made, Lease)
        taken = msgspec.structs.replace(made, spec=LeaseSpec("you", 15))
        written = await client.replace(ref, msgspec.structs.replace(taken, metadata=renewed.metadata), Lease)
        assert written.spec.holder_identity == "you"
        with pytest.raises(Conflict):
            await client.replace(ref, made, Lease)
        with pytest.raises(Conflict, match="already exists"):
            await client.create(ref, Lease(Meta("a", namespace)), Lease)

    cluster.run(scenario)


@pytest.mark.parametrize("round_", range(5))
def test_of_two_writers_of_one_lease_exactly_one_wins(cluster: Cluster, namespace: str, round_: int) -> None:
    async def scenario(client: Client) -> None:
        ref = ObjectRef(LEASES, f"a{round_}", namespace)
        seen = await client.create(ref, Lease(Meta(ref.name, namespace), LeaseSpec("nobody", 15)), Lease)
        for turn in range(20):
            # A PUT that changes nothing succeeds without a new version, so every claim says something new.
            specs = [LeaseSpec(who, 15, lease_transitions=turn + 1) for who in ("me", "you")]
            claims = [msgspec.structs.replace(seen, spec=spec) for spec in specs]
            ends = await asyncio.gather(
                *(client.replace(ref, claim, Lease) for claim in claims), return_exceptions=True
            )
            won = [end for end in ends if isinstance(end, Lease)]
            assert len(won) == 1
            assert sum(isinstance(end, Conflict) for end in ends) == 1
            seen = await client.get(ref, Lease)
            assert seen == won[0]

    cluster.run(scenario)


def test_a_list_comes_in_pages_and_only_as_metadata(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_secrets(client, (f"s{number:02}" for number in range(25)), namespace)
        chosen = Selection(SECRETS, namespace)
        page = await client.page(chosen, Partial, limit=10)
        assert len(page.items or ()) == 10
        assert page.metadata.remaining_item_count == 15
        await client.delete(
            secret("s24", namespace), uid=(await client.get(secret("s24", namespace), Partial)).metadata.uid
        )
        found, version = await client.list_all(chosen, Partial, limit=10)
        assert [each.metadata.name for each in found] == [f"s{number:02}" for number in range(24)]
        assert version.isdigit()
        assert all(each.kind == "PartialObjectMetadata" for each in found)

    cluster.run(scenario)


def test_selectors_choose(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_secret(client, "a", namespace, {"shard.poise.dev/web": "web-0"})
        await make_secret(client, "b", namespace, {"shard.poise.dev/web": "web-1"})
        by_label, _ = await client.list_all(Selection(SECRETS, namespace, labels="shard.poise.dev/web=web-0"), Partial)
        by_field, _ = await client.list_all(Selection(SECRETS, namespace, fields="metadata.name=b"), Partial)
        assert [each.metadata.name for each in (*by_label, *by_field)] == ["a", "b"]

    cluster.run(scenario)


def test_a_watch_tells_what_happens(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        chosen = Selection(SECRETS, namespace, labels="mine=yes")
        _, version = await client.list_all(chosen, Partial)
        told: list[tuple[str, str, dict[str, str]]] = []

        async def follow() -> None:
            async with client.watch(chosen, Partial, version) as lines:
                async for line in lines:
                    seen = line.object
                    told.append((line.type, seen.metadata.name, labels(seen)))

        task = asyncio.create_task(follow())
        made = await make_secret(client, "a", namespace, {"mine": "yes"})
        await client.merge(secret("a", namespace), made.metadata, {"metadata": {"labels": {"mine": "no"}}}, Partial)
        await until(lambda: len(told) == 2)
        task.cancel()
        # What leaves the selection comes as deleted, with its old labels.
        assert told == [("ADDED", "a", {"mine": "yes"}), ("DELETED", "a", {"mine": "yes"})]

    cluster.run(scenario)


def test_a_put_that_changes_nothing_gives_no_new_version(cluster: Cluster, namespace: str) -> None:
    """Whoever proves something by a write must write something new: two such PUTs over one version both succeed."""

    async def scenario(client: Client) -> None:
        ref = ObjectRef(LEASES, "a", namespace)
        made = await client.create(ref, Lease(Meta("a", namespace), LeaseSpec("me", 15)), Lease)
        assert await client.replace(ref, made, Lease) == made
        taken = msgspec.structs.replace(made, spec=LeaseSpec("you", 15))
        assert await client.replace(ref, taken, Lease) != made

    cluster.run(scenario)


NOWHERE = Resource("nosuch.dev", "v1", "foos", "Foo")
REFUSED: dict[str, tuple[type[PoiseError], Callable[[Client, str], Awaitable[object]]]] = {
    "an unknown object": (NotFound, lambda client, space: client.get(secret("a", space), Partial)),
    "an unknown resource": (NotFound, lambda client, _: client.list_all(Selection(NOWHERE), Partial)),
    "an unknown namespace": (NotFound, lambda client, _: make_secret(client, "a", "nowhere")),
    "a name that is none": (InvalidSpec, lambda client, space: make_secret(client, "A_b", space)),
    "a label that is none": (InvalidSpec, lambda client, space: make_secret(client, "a", space, {"x": "a b"})),
    "a selector that is none": (
        InvalidSpec,
        lambda client, _: client.page(Selection(SECRETS, labels="a=b=c"), Partial),
    ),
    "a name that leads elsewhere": (
        (NotFound),
        lambda client, space: client.get(secret("../configmaps", space), Partial),
    ),
    "a field that is unknown": (
        InvalidSpec,
        lambda client, space: client.create(secret("a", space), {"metadata": {"name": "a"}, "nope": 1}, Partial),
    ),
}


@pytest.mark.parametrize(("error", "ask"), REFUSED.values(), ids=REFUSED)
def test_refusals(
    cluster: Cluster, namespace: str, error: type[PoiseError], ask: Callable[[Client, str], Awaitable[object]]
) -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(error) as caught:
            await ask(client, namespace)
        assert str(caught.value).isprintable() or isinstance(caught.value, InvalidSpec)

    cluster.run(scenario)


def test_a_refused_document_names_its_fields(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(InvalidSpec) as caught:
            await make_secret(client, "a", namespace, {"x": "a b"})
        (fault,) = caught.value.faults
        assert fault.path == "$.metadata.labels"
        assert "a valid label must" in fault.message

    cluster.run(scenario)


def test_a_missing_right_is_named(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        asked: list[tuple[str, str, Awaitable[object]]] = [
            ("get", "secrets", client.get(secret("a", namespace), Partial)),
            ("list", "secrets", client.list_all(Selection(SECRETS, namespace), Partial)),
            ("create", "secrets", make_secret(client, "a", namespace)),
            ("update", "secrets", client.replace(secret("a", namespace), {}, Partial)),
            ("patch", "secrets", client.patch(secret("a", namespace), [same_uid("x")], Partial)),
            ("delete", "secrets", client.delete(secret("a", namespace), uid="x")),
            ("get", "leases/status", client.get(ObjectRef(LEASES, "a", namespace, "status"), Partial)),
        ]
        for verb, resource, answer in asked:
            with pytest.raises(Forbidden) as caught:
                await answer
            told = caught.value
            assert (told.verb, told.resource, told.namespace) == (verb, resource, namespace)
            assert f"may not {verb} {resource} of the group" in str(told)
        with pytest.raises(Forbidden, match='may not watch secrets of the group "" in the whole cluster'):
            async with client.watch(Selection(SECRETS), Partial, ""):
                pass

    cluster.run(scenario, "alice")


def test_a_granted_right_is_enough(cluster: Cluster, namespace: str) -> None:
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]
    cluster.run(lambda client: grant(client, "bob", namespace, rules))

    async def scenario(client: Client) -> None:
        found, _ = await client.list_all(Selection(SECRETS, namespace), Partial)
        assert found == []
        with pytest.raises(Forbidden) as caught:
            await make_secret(client, "a", namespace)
        assert caught.value.verb == "create"

    cluster.run(scenario, "bob")


def test_credentials_that_are_not_accepted(cluster: Cluster) -> None:
    path = cluster.plane.kubeconfig("alice")
    path.write_text(path.read_text().replace("token-of-alice", "nonsense"))

    async def scenario() -> None:
        async with connect(path) as client:
            with pytest.raises(Forbidden, match="does not accept the credentials"):
                await client.list_all(Selection(SECRETS), Partial)

    asyncio.run(scenario())
