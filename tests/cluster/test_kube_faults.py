"""What the network and the API server do to a client: killed, restarted, frozen, cut off, too busy, forgetful."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import msgspec
import pytest
from tests.cluster.faulty_proxy import FaultyProxy, refusal
from tests.cluster.told import QUICK, Told, following
from tests.cluster.world import Cluster, make_secret, secret, until

from poise.errors import Overloaded, Unavailable, VersionGone
from poise.kube import Client, Deleted, Partial, Selection, Synced
from poise.kube.resources import SECRETS

BUSY = "429 Too Many Requests"


async def delete(client: Client, name: str, namespace: str) -> None:
    found = await client.get(secret(name, namespace), Partial)
    await client.delete(secret(name, namespace), uid=found.metadata.uid)


async def first_line(client: Client, chosen: Selection, version: str) -> str:
    async with client.watch(chosen, Partial, version) as lines:
        async for line in lines:
            return line.type
    return ""


def proxy(cluster: Cluster) -> FaultyProxy:
    return FaultyProxy(cluster.plane.port, cluster.plane.ca_file)


def test_the_api_server_killed_in_mid_watch(breakable: Cluster, broken_namespace: str) -> None:
    async def scenario(client: Client) -> None:
        told = Told()
        await make_secret(client, "before", broken_namespace)
        async with following(client, Selection(SECRETS, broken_namespace), told) as mirror:
            await until(lambda: told.synced)
            breakable.plane.end("kube-apiserver", signal.SIGKILL)
            await until(lambda: isinstance(mirror.trouble, Unavailable))
            assert told.there.keys() == {"before"}, "what is not known to be gone stays"
            # Not from another thread: the kernel ends a part together with the thread that started it.
            breakable.plane.start_api()
            await make_secret(client, "after", broken_namespace)
            await until(lambda: told.there.keys() == {"before", "after"})
            await until(lambda: mirror.trouble is None)
            assert told.count(Deleted) == 0

    breakable.run(scenario)


def test_a_version_that_is_too_old_is_a_new_list_and_tells_what_vanished(
    breakable: Cluster, broken_namespace: str
) -> None:
    async def scenario(client: Client) -> None:
        told = Told()
        for name in ("gone", "stays", "replaced"):
            await make_secret(client, name, broken_namespace)
        chosen = Selection(SECRETS, broken_namespace)
        async with (
            proxy(breakable) as between,
            breakable.connect(url=between.url) as far,
            following(far, chosen, told, msgspec.structs.replace(QUICK, idle_s=1.0)) as mirror,
        ):
            await until(lambda: told.synced)
            first = dict(told.there)
            between.freeze()
            await delete(client, "gone", broken_namespace)
            await delete(client, "replaced", broken_namespace)
            await make_secret(client, "replaced", broken_namespace)
            # A server that starts anew remembers nothing of what happened before.
            breakable.plane.end("kube-apiserver")
            breakable.plane.start_api()
            await make_secret(client, "new", broken_namespace)
            between.cut()
            between.thaw()
            await until(lambda: told.there.keys() == {"stays", "replaced", "new"})
            assert (mirror.lists, told.there["stays"]) == (2, first["stays"])
        vanished = [event for event in told.events if isinstance(event, Deleted)]
        assert [event.old.metadata.name for event in vanished] == ["gone", "replaced"]
        assert [event.last for event in vanished] == [None, None]
        with pytest.raises(VersionGone):
            await first_line(client, chosen, "1")

    breakable.run(scenario)


def test_a_frozen_etcd_is_unavailable_and_what_was_sent_may_still_be_written(
    breakable: Cluster, broken_namespace: str
) -> None:
    async def scenario(client: Client) -> None:
        etcd = breakable.plane.pid("etcd")
        async with breakable.connect(request_s=1.0) as hasty:
            os.kill(etcd, signal.SIGSTOP)
            try:
                began_s = time.monotonic()
                with pytest.raises(Unavailable):
                    await make_secret(hasty, "a", broken_namespace)
                assert time.monotonic() - began_s < 3.0
                await asyncio.sleep(3.0)
            finally:
                os.kill(etcd, signal.SIGCONT)
            await make_secret(client, "b", broken_namespace)
            found, _ = await client.list_all(Selection(SECRETS, broken_namespace), Partial)
            # Client and server have given it up, but what has reached etcd is written when that goes on: observe again.
            assert {each.metadata.name for each in found} - {"a"} == {"b"}

    breakable.run(scenario)


def test_429_is_waited_out_as_the_server_asks(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        del client
        async with proxy(cluster) as between, cluster.connect(url=between.url) as far:
            between.refuse(refusal(BUSY, "Retry-After: 1"), times=2)
            began_s = time.monotonic()
            made = await make_secret(far, "a", namespace)
            assert 2.0 <= time.monotonic() - began_s < 6.0
            assert [line.split()[0] for line in between.seen] == ["POST"] * 3
            assert made.metadata.name == "a"

    cluster.run(scenario)


def test_429_beyond_the_deadline_is_told_at_once(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        del client
        async with proxy(cluster) as between, cluster.connect(url=between.url) as far:
            between.refuse(refusal(BUSY, "Retry-After: 120"))
            with pytest.raises(Overloaded) as caught:
                await make_secret(far, "a", namespace)
            assert caught.value.retry_after_s == 120
            # An eviction that a budget blocks gives no time to wait: the caller decides.
            between.refuse(refusal(BUSY))
            with pytest.raises(Overloaded) as caught:
                await make_secret(far, "a", namespace)
            assert caught.value.retry_after_s is None
            assert len(between.seen) == 2

    cluster.run(scenario)


def test_a_storm_of_429_and_410_ends_in_a_complete_mirror(cluster: Cluster, namespace: str) -> None:
    gone = '{"kind":"Status","message":"too old","reason":"Expired","code":410}'

    async def scenario(client: Client) -> None:
        for number in range(25):
            await make_secret(client, f"s{number:02}", namespace)
        told = Told()
        how = msgspec.structs.replace(QUICK, page_max=10)
        async with proxy(cluster) as between, cluster.connect(url=between.url, request_s=1.0) as far:
            between.refuse(refusal(BUSY, "Retry-After: 2"), times=2)
            between.refuse(refusal("410 Gone", body=gone), when=lambda line: "continue=" in line, times=2)
            between.refuse(refusal("410 Gone", body=gone), when=lambda line: "watch=1" in line, times=2)
            began_s = time.monotonic()
            async with following(far, Selection(SECRETS, namespace), told, how) as mirror:
                await until(lambda: told.synced and mirror.trouble is None)
                await make_secret(client, "last", namespace)
                await until(lambda: "last" in told.there)
                assert len(told.there) == 26
                assert time.monotonic() - began_s >= 4.0, "each Retry-After was waited out"

    cluster.run(scenario)


def test_a_silent_watch_is_given_up(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        told = Told()
        how = msgspec.structs.replace(QUICK, idle_s=1.0)
        async with (
            proxy(cluster) as between,
            cluster.connect(url=between.url) as far,
            following(far, Selection(SECRETS, namespace), told, how) as mirror,
        ):
            await until(lambda: told.synced)
            between.freeze()
            await make_secret(client, "a", namespace)
            await until(lambda: isinstance(mirror.trouble, Unavailable))
            between.thaw()
            await until(lambda: "a" in told.there)
            assert told.count(Synced) == 1, "a watch that went silent goes on from its version, without a new list"

    cluster.run(scenario)


def test_cut_connections_cost_no_event(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        told = Told()
        async with (
            proxy(cluster) as between,
            cluster.connect(url=between.url) as far,
            following(far, Selection(SECRETS, namespace), told),
        ):
            await until(lambda: told.synced)
            for number in range(6):
                await make_secret(client, f"s{number}", namespace)
                between.cut()
            await until(lambda: len(told.there) == 6)
            assert told.count(Synced) == 1

    cluster.run(scenario)


def test_a_server_that_hangs_is_unavailable_within_the_deadline(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        del client
        async with proxy(cluster) as between, cluster.connect(url=between.url, request_s=1.0) as far:
            between.hung = True
            began_s = time.monotonic()
            with pytest.raises(Unavailable):
                await make_secret(far, "a", namespace)
            assert 0.9 <= time.monotonic() - began_s < 3.0
            assert len(between.seen) == 1, "a write whose end is unknown is not repeated"

    cluster.run(scenario)


def test_every_request_tells_the_server_its_deadline(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        del client
        async with proxy(cluster) as between, cluster.connect(url=between.url, request_s=3.0) as far:
            await make_secret(far, "a", namespace)
            await far.list_all(Selection(SECRETS, namespace), Partial)
            assert all("timeout=3s" in line for line in between.seen)

    cluster.run(scenario)


@pytest.mark.parametrize(
    "status", ["500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout"]
)
def test_a_failing_server_is_unavailable(cluster: Cluster, namespace: str, status: str) -> None:
    async def scenario(client: Client) -> None:
        del client
        async with proxy(cluster) as between, cluster.connect(url=between.url) as far:
            between.refuse(refusal(status, body="<html>no JSON at all</html>"))
            with pytest.raises(Unavailable, match="no JSON at all"):
                await make_secret(far, "a", namespace)
            between.refuse(refusal("200 OK", body="<html>a portal that wants a login</html>"))
            with pytest.raises(Unavailable, match="unreadable answer"):
                await far.get(secret("a", namespace), Partial)

    cluster.run(scenario)


def test_nobody_listens(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with cluster.connect(url="http://127.0.0.1:9") as nowhere:
            with pytest.raises(Unavailable, match="list secrets: ConnectError"):
                await nowhere.list_all(Selection(SECRETS), Partial)

    asyncio.run(scenario())


def test_a_slow_network_is_no_fault(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        told = Told()
        async with proxy(cluster) as between, cluster.connect(url=between.url) as far:
            between.delay_s = 0.3
            async with following(far, Selection(SECRETS, namespace), told) as mirror:
                await make_secret(client, "a", namespace)
                await until(lambda: "a" in told.there)
                assert mirror.trouble is None

    cluster.run(scenario)
