"""The policies of rings on a real cluster: they come, change and go with the rings, and nothing depends on them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.cluster.operator_process import awaited, put_ring, remove_ring
from tests.cluster.world import Cluster, make_secret, secret

from poise.errors import Forbidden, NotFound
from poise.jobs.sharder import policy_keeper
from poise.jobs.sharder.accepting import read_ring
from poise.jobs.sharder.policy_keeper import BINDINGS, POLICIES, Kept, PolicyKeeper
from poise.kube import Client, ObjectRef, Partial, Resource, Selection
from poise.model import ShardRing

pytestmark = pytest.mark.usefixtures("definitions", "quick")
WITHIN_S = 20.0
ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look again soon."""
    monkeypatch.setattr(policy_keeper, "_AGAIN_S", 0.2)


@pytest.fixture
def name(cluster: Cluster) -> Iterator[str]:
    """A ring whose policies no other test has, and that leaves none behind."""
    ring = f"r{uuid.uuid4().hex[:8]}"
    yield ring

    async def clear(client: Client) -> None:
        for kind in (BINDINGS, POLICIES, ROLE_BINDINGS, ROLES):
            for found in (await client.list_all(Selection(kind), Partial))[0]:
                if found.metadata.name.startswith(f"poise-{ring}"):
                    await client.delete(ObjectRef(kind, found.metadata.name), uid=found.metadata.uid)

    cluster.run(clear)


class CountingClient:
    """Counts the applies and deletes of a client."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        """Listen in."""
        self.writes = 0
        for verb in ("apply", "delete"):
            monkeypatch.setattr(client, verb, self._counted(getattr(client, verb)))

    def _counted(self, send: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        def counted(*given: object, **named: object) -> Awaitable[object]:
            self.writes += 1
            return send(*given, **named)

        return counted


@asynccontextmanager
async def keeping(keeper: PolicyKeeper) -> AsyncIterator[PolicyKeeper]:
    """Let a keeper run while the block does."""
    task = asyncio.create_task(keeper.run())
    try:
        yield keeper
        assert not task.done(), "a keeper never ends by itself"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def there(client: Client, name: str) -> tuple[Kept | None, Kept | None]:
    """Read the policy of a ring and its binding."""

    async def read(kind: Resource) -> Kept | None:
        try:
            return await client.get(ObjectRef(kind, name), Kept)
        except NotFound:
            return None

    return await read(POLICIES), await read(BINDINGS)


async def has(client: Client, name: str, *, wanted: bool = True) -> None:
    """Wait until a policy and its binding are there, or until both are gone."""

    async def holds() -> bool:
        return all((found is not None) == wanted for found in await there(client, name))

    await awaited(holds, lambda: name, WITHIN_S)


async def accepted(client: Client, namespace: str, name: str, **spec: object) -> ShardRing:
    """Make a ring, and read it as the operator does."""
    return read_ring(await put_ring(client, namespace, name, **spec))


async def refuses(client: Client, name: str, namespace: str, label: str) -> bool:
    """Say whether a Secret cannot be made with a label."""
    try:
        await make_secret(client, name, namespace, {label: "x"})
    except Forbidden:
        return True
    found = await client.get(secret(name, namespace), Partial)
    await client.delete(secret(name, namespace), uid=found.metadata.uid)
    return False


async def come_change_and_go(client: Client, namespace: str, name: str, patch: pytest.MonkeyPatch) -> None:
    """Let a ring come, change and go, and others meddle with its policy."""
    counted, policy = CountingClient(client, patch), f"poise-{name}"
    async with keeping(PolicyKeeper(client, may_act=lambda: True)) as keeper:
        ring = await accepted(client, namespace, name)
        keeper.update([ring])
        await has(client, policy)
        # Nothing idle writes.
        await asyncio.sleep(1.0)
        keeper.update([ring])
        assert counted.writes == 2
        made, bound = await there(client, policy)
        assert made is not None
        assert bound is not None
        assert made.metadata.labels["poise.dev/ring-namespace"] == namespace
        # The own user is the sharder, and may.
        assert not await refuses(client, "own", namespace, f"shard.poise.dev/{name}")

        keeper.update([ring_of(name, namespace, [{"resource": "services"}])])
        await awaited(lambda: covers(client, policy, "services/*"), lambda: "the changed ring", WITHIN_S)
        # What somebody changed or removed is mended.
        await client.apply(ObjectRef(POLICIES, policy), _weak(policy), Partial, manager="mallory", force=True)
        await awaited(lambda: fails(client, policy), lambda: "the mended policy", WITHIN_S)
        await client.delete(ObjectRef(BINDINGS, policy), uid=bound.metadata.uid)
        await has(client, policy)

        # A ring that is there stays protected, also while nobody runs it.
        keeper.update([])
        await asyncio.sleep(1.0)
        await has(client, policy)
        await remove_ring(client, namespace, name)
        await has(client, policy, wanted=False)
        assert keeper.trouble == ""


def test_policies_come_change_and_go_with_their_rings(
    cluster: Cluster, namespace: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.run(lambda client: come_change_and_go(client, namespace, name, monkeypatch))


def ring_of(name: str, namespace: str, resources: list[dict[str, str]]) -> ShardRing:
    """Write a ring of some resources."""
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": namespace}, "spec": {"resources": resources}}, ShardRing
    )


def _weak(name: str) -> dict[str, object]:
    kind = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind}
    return {**kind, "metadata": {"name": name}, "spec": {"failurePolicy": "Ignore"}}


async def covers(client: Client, policy: str, resource: str) -> bool:
    found, _ = await there(client, policy)
    return found is not None and resource in str(found.spec["matchConstraints"])


async def fails(client: Client, policy: str) -> bool:
    found, _ = await there(client, policy)
    return found is not None and found.spec["failurePolicy"] == "Fail"


def test_a_ring_without_resources_and_an_operator_that_does_not_protect_have_no_policy(
    cluster: Cluster, namespace: str, name: str
) -> None:
    async def scenario(client: Client) -> None:
        policy = f"poise-{name}"
        ring = await accepted(client, namespace, name)
        async with keeping(PolicyKeeper(client, may_act=lambda: True)) as keeper:
            keeper.update([ring])
            await has(client, policy)
            keeper.update([ring_of(name, namespace, [])])
            await has(client, policy, wanted=False)
            keeper.update([ring])
            await has(client, policy)
        # It stays when the keeper ends; one that must not protect removes it.
        await has(client, policy)
        async with keeping(PolicyKeeper(client, may_act=lambda: True, protecting=False)) as keeper:
            keeper.update([ring])
            await has(client, policy, wanted=False)

    cluster.run(scenario)


async def mind_the_own(client: Client, namespace: str, name: str, _patch: pytest.MonkeyPatch) -> None:
    """Let two installations and a stranger have policies."""
    ring, told, leads = await accepted(client, namespace, name), list[str](), False
    scoped = f"poise-{name}.{namespace}"
    async with keeping(PolicyKeeper(client, may_act=lambda: leads, scope=namespace, tell=told.append)) as keeper:
        keeper.update([ring])
        await asyncio.sleep(1.5)
        assert await there(client, scoped) == (None, None)
        leads = True
        await has(client, scoped)
    made, _ = await there(client, scoped)
    assert made is not None
    assert namespace in str(made.spec["matchConstraints"])
    await remove_ring(client, namespace, name)
    # An installation that looks at everything leaves the policies of another one alone.
    async with keeping(PolicyKeeper(client, may_act=lambda: True, tell=told.append)) as keeper:
        keeper.update([])
        await asyncio.sleep(1.0)
        await has(client, scoped)
        # It does not take a name that somebody else uses, either.
        foreign = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind, "metadata": {"name": f"poise-{name}"}}
        await client.create(ObjectRef(POLICIES, ""), foreign | {"spec": made.spec}, Partial)
        keeper.update([ring])
        await awaited(lambda: says(told, "somebody else's"), lambda: told, WITHIN_S)
    assert len(told) == 1


def test_only_a_leader_writes_and_only_what_is_its_own(
    cluster: Cluster, namespace: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.run(lambda client: mind_the_own(client, namespace, name, monkeypatch))


async def share_a_scope(client: Client, namespace: str, name: str, _patch: pytest.MonkeyPatch) -> None:
    """Let two installations look at everything: what one made goes only with its ring, which may change hands."""
    ring, policy = await accepted(client, namespace, name), f"poise-{name}"
    async with keeping(PolicyKeeper(client, may_act=lambda: True, home="one")) as keeper:
        keeper.update([ring])
        await has(client, policy)
    for protecting in (False, True):
        async with keeping(PolicyKeeper(client, may_act=lambda: True, home="two", protecting=protecting)) as keeper:
            keeper.update([])
            await asyncio.sleep(0.6)
            assert await made_by(client, policy) == {"one"}
    async with keeping(PolicyKeeper(client, may_act=lambda: True, home="two")) as keeper:
        keeper.update([ring])
        await awaited(lambda: is_made_by(client, policy, "two"), lambda: keeper.trouble, WITHIN_S)
        assert keeper.trouble == ""
    # Who runs the ring and does not protect it removes what protects it, whoever made that.
    async with keeping(PolicyKeeper(client, may_act=lambda: True, home="one", protecting=False)) as keeper:
        keeper.update([ring])
        await has(client, policy, wanted=False)
    await remove_ring(client, namespace, name)


async def made_by(client: Client, policy: str) -> set[str]:
    """Read who made a policy and its binding."""
    return {"" if each is None else each.metadata.labels["poise.dev/operator"] for each in await there(client, policy)}


async def is_made_by(client: Client, policy: str, home: str) -> bool:
    return await made_by(client, policy) == {home}


def test_two_installations_of_one_scope_do_not_fight(
    cluster: Cluster, namespace: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.run(lambda client: share_a_scope(client, namespace, name, monkeypatch))


@pytest.mark.parametrize(
    ("kind", "part", "instead", "law"),
    [
        (Kept, "is_as", lambda _kept, _document: False, come_change_and_go),
        (Kept, "is_as", lambda _kept, _document: True, come_change_and_go),
        (PolicyKeeper, "_is_over", lambda _keeper, _meta, _rings: _always(), come_change_and_go),
        (PolicyKeeper, "_is_own", lambda _keeper, _meta: False, come_change_and_go),
        (PolicyKeeper, "_is_own", lambda _keeper, _meta: True, mind_the_own),
        (PolicyKeeper, "_is_kin", lambda _keeper, _meta: True, mind_the_own),
        (PolicyKeeper, "_is_own", lambda keeper, meta: keeper._is_kin(meta), share_a_scope),
        (PolicyKeeper, "_is_kin", lambda keeper, meta: keeper._is_own(meta), share_a_scope),
        (policy_keeper, "_LEAD_S", None, mind_the_own),
    ],
)
def test_a_keeper_that_is_broken_is_seen(
    cluster: Cluster,
    namespace: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    kind: object,
    part: str,
    instead: object,
    law: Callable[[Client, str, str, pytest.MonkeyPatch], Awaitable[None]],
) -> None:
    monkeypatch.setattr(kind, part, instead)
    monkeypatch.setitem(globals(), "WITHIN_S", 3.0)
    with pytest.raises((AssertionError, ExceptionGroup)):
        cluster.run(lambda client: law(client, namespace, name, monkeypatch))


async def _always() -> bool:
    return True


async def says(told: list[str], words: str) -> bool:
    return any(words in each for each in told)


def test_a_missing_right_is_one_sentence_and_can_be_granted_later(cluster: Cluster, namespace: str, name: str) -> None:
    async def allow(admin: Client, rules: list[Mapping[str, object]]) -> None:
        role = {"metadata": {"name": f"poise-{name}"}, "rules": rules}
        kind = {"apiVersion": ROLES.api_version, "kind": ROLES.kind}
        await admin.apply(ObjectRef(ROLES, f"poise-{name}"), kind | role, Partial, force=True)
        subject = {"apiGroup": ROLES.group, "kind": "User", "name": "alice"}
        ref = {"apiGroup": ROLES.group, "kind": "ClusterRole", "name": f"poise-{name}"}
        kind = {"apiVersion": ROLES.api_version, "kind": ROLE_BINDINGS.kind}
        body = {**kind, "metadata": {"name": f"poise-{name}"}, "roleRef": ref, "subjects": [subject]}
        await admin.apply(ObjectRef(ROLE_BINDINGS, f"poise-{name}"), body, Partial, force=True)

    async def scenario(admin: Client) -> None:
        ring, told = await accepted(admin, namespace, name), list[str]()
        mine: dict[str, object] = {"apiGroups": [POLICIES.group], "resources": [POLICIES.plural, BINDINGS.plural]}
        rings: dict[str, object] = {"apiGroups": ["poise.dev"], "resources": ["shardrings"], "verbs": ["list"]}
        async with (
            cluster.connect("alice") as client,
            keeping(PolicyKeeper(client, may_act=lambda: True, tell=told.append)) as keeper,
        ):
            keeper.update([ring])
            await awaited(lambda: says(told, "cannot list"), lambda: told)
            await allow(admin, [mine | {"verbs": ["list"]}])
            await awaited(lambda: says(told, "cannot patch"), lambda: told)
            assert "not protected" in keeper.trouble
            assert "--no-protect" in keeper.trouble
            await allow(admin, [mine | {"verbs": ["list", "create", "patch", "delete"]}, rings])
            await has(admin, f"poise-{name}")
            await awaited(lambda: silent(keeper), lambda: keeper.trouble)
            assert len(told) <= 3  # Each sentence once, however often it was tried; "cannot create" may come between.
            # Alice is the sharder now, and not even the admin is.
            await awaited(
                lambda: refuses(admin, "strange", namespace, f"shard.poise.dev/{name}"), lambda: "not in force"
            )
            await remove_ring(admin, namespace, name)
            keeper.update([])
            await has(admin, f"poise-{name}", wanted=False)

    cluster.run(scenario)


def test_policies_that_nobody_may_remove_are_told(cluster: Cluster, namespace: str, name: str) -> None:
    async def scenario(admin: Client) -> None:
        ring, told = await accepted(admin, namespace, name), list[str]()
        async with cluster.connect("bob") as client:
            keeper = PolicyKeeper(client, may_act=lambda: True, protecting=False, tell=told.append)
            async with keeping(keeper):
                keeper.update([ring])
                await awaited(lambda: says(told, "may still be there"), lambda: told)
                await asyncio.sleep(0.6)
            assert len(told) == 1
            assert "cannot list" in keeper.trouble
            ending = PolicyKeeper(client, may_act=lambda: True, tell=told.append)
            await ending.remove(ring)
            assert len(told) == 2, "once for policies and bindings"
            assert "cannot list" in ending.trouble
        await remove_ring(admin, namespace, name)

    cluster.run(scenario)


async def silent(keeper: PolicyKeeper) -> bool:
    return keeper.trouble == ""
