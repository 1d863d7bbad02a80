"""The mirror of a real API server: complete, in order, and small."""

from __future__ import annotations

import asyncio
import time
import tracemalloc

import msgspec
import pytest
from tests.cluster.told import QUICK, Told, following
from tests.cluster.world import Cluster, grant, make_secret, make_secrets, secret, until

from poise.errors import Forbidden
from poise.kube import Added, Client, Deleted, Event, Modified, Partial, Reflector, Resource, Selection, Synced
from poise.kube.mirror import Mirror
from poise.kube.objects import slim_partial
from poise.kube.resources import SECRETS


def test_1200_objects_come_in_pages_and_are_told_once(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        names = [f"s{number:04}" for number in range(1200)]
        await make_secrets(client, names, namespace)
        told = Told()
        async with following(client, Selection(SECRETS, namespace), told) as reflector:
            await until(lambda: told.synced)
            assert sorted(told.there) == names
            assert (told.count(Added), told.count(Synced), len(told.events)) == (1200, 1, 1201)
            assert set(reflector.objects) == {(namespace, name) for name in names}
            # A second list of the same tells nothing anew.
            await reflector.relist()
            assert (told.count(Added), told.count(Synced), len(told.events)) == (1200, 2, 1202)

    cluster.run(scenario)


def test_changes_come_with_what_was_before(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        told = Told()
        ref = secret("a", namespace)
        async with following(client, Selection(SECRETS, namespace), told) as reflector:
            await until(lambda: told.synced)
            made = await make_secret(client, "a", namespace, {"x": "1"})
            changed = await client.merge(ref, made.metadata, {"metadata": {"labels": {"x": "2"}}}, Partial)
            await client.delete(ref, uid=made.metadata.uid)
            again = await make_secret(client, "a", namespace)
            await until(lambda: len(told.events) == 5)
            assert reflector.objects[namespace, "a"].metadata.uid == again.metadata.uid
        _, added, modified, deleted, anew = told.events
        assert isinstance(added, Added)
        assert isinstance(modified, Modified)
        assert isinstance(deleted, Deleted)
        assert isinstance(anew, Added)
        assert (modified.old.metadata.labels, modified.object.metadata.labels) == ({"x": "1"}, {"x": "2"})
        assert deleted.old.metadata.resource_version == changed.metadata.resource_version
        assert deleted.last is not None

    cluster.run(scenario)


def test_what_leaves_the_selection_is_told_as_deleted(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        told = Told()
        made = await make_secret(client, "a", namespace, {"shard.poise.dev/web": "web-0"})
        chosen = Selection(SECRETS, namespace, labels="shard.poise.dev/web=web-0")
        async with following(client, chosen, told):
            await until(lambda: told.synced)
            change = {"metadata": {"labels": {"shard.poise.dev/web": "web-1"}}}
            await client.merge(secret("a", namespace), made.metadata, change, Partial)
            await until(lambda: not told.there)
        event = told.events[-1]
        assert isinstance(event, Deleted)
        assert event.old.metadata.labels == {"shard.poise.dev/web": "web-0"}
        assert (await client.get(secret("a", namespace), Partial)).metadata.labels == {"shard.poise.dev/web": "web-1"}

    cluster.run(scenario)


def test_a_missing_right_is_a_trouble_that_ends(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        told = Told()
        async with cluster.connect("alice") as alice, following(alice, Selection(SECRETS, namespace), told) as mirror:
            await until(lambda: mirror.trouble is not None)
            assert isinstance(mirror.trouble, Forbidden)
            assert (mirror.trouble.verb, mirror.trouble.namespace) == ("list", namespace)
            rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}]
            await grant(client, "alice", namespace, rules)
            await until(lambda: told.synced and mirror.trouble is None)

    cluster.run(scenario)


def test_an_unknown_resource_is_a_trouble(cluster: Cluster) -> None:
    async def scenario(client: Client) -> None:
        async with following(client, Selection(Resource("nosuch.dev", "v1", "foos", "Foo")), Told()) as mirror:
            await until(lambda: mirror.trouble is not None)
            assert "404" in str(mirror.trouble)

    cluster.run(scenario)


def test_a_watch_that_ends_by_itself_goes_on(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        told = Told()
        brief = msgspec.structs.replace(QUICK, watch_s=1)
        async with following(client, Selection(SECRETS, namespace), told, brief) as reflector:
            for number in range(4):
                await make_secret(client, f"s{number}", namespace)
                await until(told.has(f"s{number}"))
                await asyncio.sleep(1.0)
            assert reflector.lists == 1

    cluster.run(scenario)


def test_a_fresh_list_can_be_wished_at_any_time(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        told = Told()
        reflector = Reflector(client, Selection(SECRETS, namespace), Partial, told, following=QUICK)
        wished = asyncio.create_task(reflector.relist())
        await asyncio.sleep(0)
        task = asyncio.create_task(reflector.run())
        await wished
        for number in range(5):
            await make_secret(client, f"s{number}", namespace)
            await asyncio.gather(reflector.relist(), reflector.relist())
            assert f"s{number}" in told.there, "a list that began after the wish shows what was written before it"
        task.cancel()

    cluster.run(scenario)


def test_wishes_that_never_end_do_not_keep_a_list_from_its_end(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_secrets(client, (f"s{number:02}" for number in range(40)), namespace)
        told = Told()
        slow = msgspec.structs.replace(QUICK, page_max=1)
        async with following(client, Selection(SECRETS, namespace), told, slow) as reflector:
            wishes = [asyncio.create_task(reflector.relist())]
            while not told.synced:
                wishes.append(asyncio.create_task(reflector.relist()))
                await asyncio.sleep(0.005)
            await asyncio.gather(*wishes)
            assert reflector.lists <= 3, "one list answers all the wishes that were there when it began"

    cluster.run(scenario)


def test_a_fault_of_the_program_is_not_taken_for_one_of_the_network(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_secret(client, "a", namespace)

        def broken(event: object) -> None:
            raise OSError(f"no room to note {type(event).__name__}")

        with pytest.raises(OSError, match="no room to note Added"):
            await Reflector(client, Selection(SECRETS, namespace), Partial, broken, following=QUICK).run()

        told = Told()

        def broken_later(event: Event[Partial]) -> None:
            if told.synced:
                broken(event)
            told(event)

        task = asyncio.create_task(
            Reflector(client, Selection(SECRETS, namespace), Partial, broken_later, following=QUICK).run()
        )
        await until(lambda: told.synced)
        await make_secret(client, "b", namespace)
        with pytest.raises(OSError, match="no room to note Added"):
            await task

    cluster.run(scenario)


def test_a_mirror_is_small_and_costs_nothing_while_nothing_happens(cluster: Cluster, namespace: str) -> None:

    async def scenario(client: Client) -> None:
        await make_secrets(client, (f"s{number:03}" for number in range(400)), namespace)
        told = Told()
        async with following(client, Selection(SECRETS, namespace), told) as reflector:
            await until(lambda: told.synced)
            started_s = time.thread_time()
            await asyncio.sleep(2.0)
            idle_s = time.thread_time() - started_s
            assert idle_s < 0.2
            assert len(reflector.objects) == 400
        tracemalloc.start()
        listed, version = await client.list_all(Selection(SECRETS, namespace), Partial)
        decoded, _ = tracemalloc.get_traced_memory()
        mirror = Mirror[Partial]()
        assert sum(1 for _ in mirror.replace(map(slim_partial, listed), version)) == 401
        listed.clear()
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept < decoded, "the mirror takes less than what was decoded"
        assert kept / 400 < 2_000

    cluster.run(scenario)
