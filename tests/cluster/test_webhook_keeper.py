"""The configuration of the webhook on a real cluster: it comes, changes and goes with the rings and the flag."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.cluster.operator_process import awaited
from tests.cluster.test_policy_keeper import CountingClient, ring_of
from tests.cluster.world import Cluster

from poise.clock import boot_s
from poise.errors import NotFound
from poise.jobs.sharder import policy_keeper
from poise.jobs.sharder.policy import is_kin
from poise.jobs.sharder.policy_keeper import BINDINGS, POLICIES, PolicyKeeper
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
        for kind in (CONFIGURATIONS, BINDINGS, POLICIES):
            for found in (await client.list_all(Selection(kind), Partial))[0]:
                if name in found.metadata.name:
                    await client.delete(ObjectRef(kind, found.metadata.name), uid=found.metadata.uid)

    cluster.run(clear)


class World:
    """A keeper with everything that it looks at, and no server: whoever it names is not called here."""

    def __init__(
        self,
        client: Client,
        folder: Path,
        scope: str | None,
        *,
        hooked: bool = True,
        home: str = "",
        policies: PolicyKeeper | None = None,
    ) -> None:
        """Prepare; `told` is what it says, `late` how far the clock of its certificates is ahead."""
        self.told: list[str] = []
        self.leads, self.late = True, timedelta()
        self.certificates = FileCertificates(
            folder / "tls.crt",
            folder / "tls.key",
            folder / "ca.crt",
            "127.0.0.1",
            now=lambda: datetime.now(UTC) + self.late,
        )
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
            home=home,
            tell=self.told.append,
            let_be=(lambda _called: None) if policies is None else policies.let_be,
            lets_be=(lambda _ring: True) if policies is None else policies.lets_be,
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

    async def has_looked(self) -> bool:
        """Say whether the keeper has looked once."""
        return self.keeper._done is not None

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


async def share_a_scope(client: Client, scope: str, folder: Path, _patch: pytest.MonkeyPatch) -> None:
    """Let two installations of one scope be there, the other with a webhook and without; then take over."""
    first = World(client, folder, scope, home="one")
    async with first.keeping():
        first.keeper.update(rings("secrets"))
        await awaited(first.is_there, lambda: first.told, WITHIN_S)
    for hooked in (False, True):
        other = World(client, folder, scope, home="two", hooked=hooked)
        async with other.keeping():
            other.keeper.update(rings("services"))
            await awaited(other.has_looked, lambda: other.told, WITHIN_S)  # noqa: B023  # Within this turn.
        assert await first.is_there("secrets")
        assert [each for each in other.told if "of the installation in the namespace one" not in each] == []
        assert len(other.told) == hooked
    found = await first.found()
    assert found is not None
    unlabelled = {"metadata": {"labels": {"poise.dev/operator": None}}}
    await client.merge(ObjectRef(CONFIGURATIONS, first.name), found.metadata, unlabelled, Partial)
    heir = World(client, folder, scope, home="two")
    async with heir.keeping():
        heir.keeper.update(rings("services"))
        await awaited(lambda: heir.is_there("services"), lambda: heir.told, WITHIN_S)
    taken = await heir.found()
    assert taken is not None
    assert taken.metadata.labels["poise.dev/operator"] == "two"


def test_two_installations_of_one_scope_do_not_fight(
    cluster: Cluster, scope: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.run(lambda client: share_a_scope(client, scope, tmp_path, monkeypatch))


class Noted:
    """Notes in which order policies open and close, and the webhook is called or not, by what a client sends."""

    def __init__(self, client: Client, patch: pytest.MonkeyPatch) -> None:
        """Listen in."""
        self.order: list[str] = []
        self.at_s: list[float] = []
        self._apply, self._delete = client.apply, client.delete
        patch.setattr(client, "apply", self._applied)
        patch.setattr(client, "delete", self._deleted)

    def _note(self, word: str) -> None:
        self.order.append(word)
        self.at_s.append(boot_s())

    async def _applied(self, ref: ObjectRef, body: object, shape: type[Partial], *, force: bool = False) -> Partial:
        made = await self._apply(ref, body, shape, force=force)
        if ref.resource == POLICIES:
            self._note("open" if 'request.operation == "CREATE" &&' in str(body) else "closed")
        elif ref.resource == CONFIGURATIONS:
            self._note("called")
        return made

    async def _deleted(self, ref: ObjectRef, *, uid: str) -> None:
        if ref.resource == CONFIGURATIONS:
            self._note("uncalled")
        await self._delete(ref, uid=uid)

    async def has(self, words: list[str]) -> bool:
        """Say whether exactly these were noted."""
        return self.order == words


async def keep_the_order(client: Client, scope: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Labels can be sent with what is new only while the webhook is called, and whenever it is."""
    patch.setattr(policy_keeper, "_SETTLED_S", 0.3)
    foreign = {"apiVersion": CONFIGURATIONS.api_version, "kind": CONFIGURATIONS.kind}
    made = await client.create(
        ObjectRef(CONFIGURATIONS, ""), foreign | {"metadata": {"name": f"poise-webhook.{scope}"}}, Partial
    )
    noted = Noted(client, patch)
    policies = PolicyKeeper(client, may_act=lambda: True, scope=scope, webhook=True)
    world = World(client, folder, scope, policies=policies)
    ruling = asyncio.create_task(policies.run())

    def update(*resources: str) -> None:
        policies.update(rings(*resources))
        world.keeper.update(rings(*resources))

    async def seen(*words: str) -> None:
        expected.extend(words)
        await awaited(lambda: noted.has(expected), lambda: (noted.order, world.told), WITHIN_S)

    expected: list[str] = []
    try:
        async with world.keeping():
            update("secrets")
            await seen("closed")
            assert "somebody else's" in world.keeper.trouble
            await noted._delete(ObjectRef(CONFIGURATIONS, made.metadata.name), uid=made.metadata.uid)
            await seen("open", "called")
            # A ring that changes is let be in its new shape before it is asked about.
            update("secrets", "services")
            await seen("open", "called")
            # Nobody believes what has expired.
            world.late = timedelta(days=100)
            await seen("uncalled", "closed")
            world.late = timedelta()
            world.renew()
            await seen("open", "called")
            await asyncio.sleep(0.5)
            assert noted.order == expected, "nothing idle writes"
    finally:
        ruling.cancel()
        await asyncio.gather(ruling, return_exceptions=True)
    for place, word in enumerate(noted.order):
        if word == "called":
            assert noted.at_s[place] - noted.at_s[place - 1] > 0.25, "not before every API server knows the policy"


def test_labels_can_be_sent_only_while_the_webhook_is_called(
    cluster: Cluster, scope: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.run(lambda client: keep_the_order(client, scope, tmp_path, monkeypatch))


@pytest.mark.parametrize(
    ("kind", "part", "instead", "law"),
    [
        (KeptConfiguration, "is_as", lambda _kept, _document: False, come_change_and_go),
        (KeptConfiguration, "is_as", lambda _kept, _document: True, come_change_and_go),
        (keeper_module, "is_own", lambda _labels, _scope, _home: True, mind_the_own),
        (keeper_module, "is_own", lambda labels, scope, _home: is_kin(labels, scope), share_a_scope),
        (PolicyKeeper, "lets_be", lambda _keeper, _ring: True, keep_the_order),
        (Webhook, "believed", True, keep_the_order),
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
    monkeypatch.setitem(globals(), "WITHIN_S", 2.0)
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
