"""The configuration of the webhook on a real cluster: it comes, changes and goes with the rings and the flag."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.cluster.control_plane import free_port
from tests.cluster.operator_process import awaited
from tests.cluster.test_policy_keeper import CountingClient, OlderPlane, ring_of
from tests.cluster.webhook_world import (
    RING,
    SHARDER,
    Beats,
    HookWorld,
    Service,
    hook_options,
    make_masters,
    operator,
    put_ring,
    wait,
)
from tests.cluster.world import Cluster, install_definitions

from poise.clock import boot_s
from poise.errors import NotFound
from poise.jobs.sharder.webhook import keeper as keeper_module
from poise.jobs.sharder.webhook.authority import next_kept
from poise.jobs.sharder.webhook.certificates import FileCertificates
from poise.jobs.sharder.webhook.configuring import Reached
from poise.jobs.sharder.webhook.following import Followers
from poise.jobs.sharder.webhook.hook import Webhook
from poise.jobs.sharder.webhook.keeper import CONFIGURATIONS, ConfigurationKeeper, KeptConfiguration
from poise.jobs.sharder.webhook.reviewing import Users
from poise.kube import Client, ObjectRef, Partial, Selection
from poise.model import ShardRing

WITHIN_S = 20.0


@pytest.fixture
def scope(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A scope that no other test has, and that leaves no configuration behind; its keepers look again soon."""
    monkeypatch.setattr(keeper_module, "_AGAIN_S", 0.2)
    monkeypatch.setattr(keeper_module, "_LOOK_S", 0.05)
    name = f"s{uuid.uuid4().hex[:8]}"
    yield name

    async def clear(client: Client) -> None:
        for found in (await client.list_all(Selection(CONFIGURATIONS), Partial))[0]:
            if name in found.metadata.name:
                await client.delete(ObjectRef(CONFIGURATIONS, found.metadata.name), uid=found.metadata.uid)

    cluster.run(clear)


class World:
    """A keeper with everything that it looks at, and no server: whoever it names is not called here."""

    def __init__(self, client: Client, folder: Path, scope: str | None, *, hooked: bool = True) -> None:
        """Prepare; `told` is what it says."""
        self.told: list[str] = []
        self.leads = True
        self.certificates = FileCertificates(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")
        self._folder, self.client = folder, client
        self.renew()
        reached = Reached(url="https://127.0.0.1:1")
        followers = Followers(client, "me", scope)
        users = Users(("sharder",), ("copier",))
        self.hook = Webhook(client, reached, self.certificates, followers, users=users, now_s=boot_s)
        self.keeper = ConfigurationKeeper(
            client,
            self.hook if hooked else None,
            may_act=lambda: self.leads,
            now_s=boot_s,
            scope=scope,
            tell=self.told.append,
        )
        self.name = f"poise-webhook.{scope}" if scope else "poise-webhook"

    def renew(self) -> None:
        """Let other files be there."""
        now = datetime.now(UTC) - timedelta(minutes=5)
        kept = next_kept(None, ("127.0.0.1",), now, trusted=False)
        assert kept is not None
        texts = (kept.current.certificate, kept.current.key, kept.trusted)
        for name, text in zip(("tls.crt", "tls.key", "ca.crt"), texts, strict=True):
            (self._folder / name).write_text(text)
        self.certificates.look()
        assert self.certificates.bundle == kept.trusted

    async def found(self) -> KeptConfiguration | None:
        """Read the configuration."""
        try:
            return await self.client.get(ObjectRef(CONFIGURATIONS, self.name), KeptConfiguration)
        except NotFound:
            return None

    async def is_there(self, words: str = "") -> bool:
        """Say whether it is there, with these words in it."""
        found = await self.found()
        return found is not None and words in str(found.webhooks)

    async def is_gone(self) -> bool:
        """Say whether it is gone."""
        return await self.found() is None

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """Let the keeper run while the block does."""
        task = asyncio.create_task(self.keeper.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def rings(*resources: str) -> list[ShardRing]:
    return [ring_of("web", "team", [{"resource": each} for each in resources])]


async def come_change_and_go(client: Client, scope: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let rings and authorities change, and others meddle with the configuration."""
    counted, world = CountingClient(client, patch), World(client, folder, scope)
    world.leads = False
    async with world.keeping():
        world.keeper.update(rings("secrets"))
        await asyncio.sleep(0.6)
        assert await world.is_gone(), "who does not lead writes nothing"
        world.leads = True
        await awaited(world.is_there, lambda: world.told, WITHIN_S)
        found = await world.found()
        await asyncio.sleep(0.5)
        assert counted.writes == 1, "nothing idle writes"
        assert found is not None
        (hook,) = found.webhooks
        assert hook["namespaceSelector"] == {
            "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": [scope]}]
        }
        world.keeper.update(rings("secrets", "services"))
        await awaited(lambda: world.is_there("services"), lambda: world.told, WITHIN_S)
        world.renew()
        bundle = world.hook.reached.config("", world.certificates.bundle)["caBundle"]
        await awaited(lambda: world.is_there(str(bundle)), lambda: world.told, WITHIN_S)
        # What somebody changed or removed is mended.
        ref = ObjectRef(CONFIGURATIONS, world.name)
        seen = await world.found()
        assert seen is not None
        weak = [{**each, "failurePolicy": "Fail"} for each in seen.webhooks]
        await client.merge(ref, seen.metadata, {"webhooks": weak}, Partial)
        await awaited(lambda: world.is_there("Ignore"), lambda: world.told, WITHIN_S)
        await client.delete(ref, uid=seen.metadata.uid)
        await awaited(world.is_there, lambda: world.told, WITHIN_S)
        # It goes with the last ring, and comes back with the next.
        world.keeper.update([])
        await awaited(world.is_gone, lambda: world.told, WITHIN_S)
        world.keeper.update(rings("secrets"))
        await awaited(world.is_there, lambda: world.told, WITHIN_S)
    assert not world.told
    # It stays when the process ends, and goes with the flag.
    assert await world.is_there()
    without = World(client, folder, scope, hooked=False)
    async with without.keeping():
        without.keeper.update(rings("secrets"))
        await awaited(without.is_gone, lambda: without.told, WITHIN_S)
    assert not without.told


def test_it_comes_changes_and_goes(
    cluster: Cluster, scope: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.run(lambda client: come_change_and_go(client, scope, tmp_path, monkeypatch))


async def mind_the_own(client: Client, scope: str, folder: Path, _patch: pytest.MonkeyPatch) -> None:
    """Let two installations and a stranger have configurations."""
    one, other = World(client, folder, scope), World(client, folder, f"{scope}-b")
    async with one.keeping(), other.keeping():
        for world in (one, other):
            world.keeper.update(rings("secrets"))
        for world in (one, other):
            await awaited(world.is_there, lambda: "both", WITHIN_S)
        other.keeper.update([])
        await awaited(other.is_gone, lambda: "gone", WITHIN_S)
        assert await one.is_there()
    foreign = {"apiVersion": CONFIGURATIONS.api_version, "kind": CONFIGURATIONS.kind, "metadata": {"name": other.name}}
    await client.create(ObjectRef(CONFIGURATIONS, ""), foreign, Partial)
    for hooked in (True, False):
        world = World(client, folder, f"{scope}-b", hooked=hooked)
        async with world.keeping():
            world.keeper.update(rings("secrets"))
            await asyncio.sleep(0.5)
        assert await other.is_there()
        assert len(world.told) == hooked
        assert all("somebody else's" in each for each in world.told)


def test_installations_leave_each_other_alone(
    cluster: Cluster, scope: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.run(lambda client: mind_the_own(client, scope, tmp_path, monkeypatch))


@pytest.mark.parametrize(
    ("kind", "part", "instead", "law"),
    [
        (KeptConfiguration, "is_as", lambda _kept, _document: False, come_change_and_go),
        (KeptConfiguration, "is_as", lambda _kept, _document: True, come_change_and_go),
        (ConfigurationKeeper, "_is_own", lambda _keeper, _meta: True, mind_the_own),
        (keeper_module, "configuration_name", lambda _scope: "poise-webhook-of-all", mind_the_own),
    ],
)
def test_a_keeper_that_is_broken_is_seen(
    cluster: Cluster,
    scope: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: object,
    part: str,
    instead: object,
    law: object,
) -> None:
    monkeypatch.setattr(kind, part, instead)
    monkeypatch.setitem(globals(), "WITHIN_S", 1.0)
    assert callable(law)
    with pytest.raises(AssertionError):
        cluster.run(lambda client: law(client, scope, tmp_path, monkeypatch))


def test_a_missing_right_is_one_sentence_and_none_where_there_is_no_webhook(
    cluster: Cluster, scope: str, tmp_path: Path
) -> None:
    async def scenario(_admin: Client) -> None:
        async with cluster.connect("bob") as client:
            for hooked in (True, False):
                world = World(client, tmp_path, scope, hooked=hooked)
                async with world.keeping():
                    world.keeper.update(rings("secrets"))
                    await asyncio.sleep(0.5)
                assert len(world.told) == hooked
                assert all("cannot get" in each for each in world.told)
                assert world.hook.uncalled == "".join(world.told)

    cluster.run(scenario)


def test_a_cluster_without_policies_is_told_and_everything_else_works(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster.plane.url, "only the rig has control planes of its own"
    plane, port = OlderPlane(tmp_path, (SHARDER,)), free_port()
    older = Cluster(plane)
    try:
        plane.start()
        older.run(install_definitions)
        older.run(lambda client: make_masters(client, SHARDER))
        older.run(lambda client: put_ring(client, "default"))
        world = HookWorld(plane, "default")
        with (
            Service((port,)) as service,
            Beats(older, "default"),
            operator(older, "default", *hook_options(port, service)) as process,
        ):
            wait(world.assigns, lambda: process.said)
            wait(lambda: "has no ValidatingAdmissionPolicy" in process.said, lambda: process.said)
            assert process.said.count("has no ValidatingAdmissionPolicy") == 1
            assert older.run(lambda _client: process.numbers())["poise_policy_trouble"] == 1
            path = f"/apis/poise.dev/v1alpha1/namespaces/default/shardrings/{RING}"
            wait(lambda: '"type":"Protected"' in world.ask("GET", path).text.replace(" ", ""), lambda: process.said)
            made = world.make()
            assert world.marks(made).shard == world.home(made.name)
        world.close()
    finally:
        plane.stop()
