"""The gate before the API server: what it passes on, what it refuses, and what it holds back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx2
import pytest
from tests.cluster.world import Cluster, until

from poise.conformance.gate import Gate
from poise.conformance.requests import Intent
from poise.conformance.stage import Stage
from poise.errors import NotFound
from poise.kube import Client, ObjectRef, Partial
from poise.kube.resources import CONFIG_MAPS, SECRETS

MERGE = {"content-type": "application/merge-patch+json"}
Scenario = Callable[[Gate, httpx2.AsyncClient], Awaitable[None]]


@asynccontextmanager
async def opened(client: Client, namespace: str) -> AsyncIterator[tuple[Gate, httpx2.AsyncClient]]:
    """Open a gate, and give whoever asks through it."""
    gate = Gate(Stage(client, "r", namespace, 4))
    async with gate.open(), httpx2.AsyncClient(base_url=gate.admit("p"), timeout=30) as shard:
        yield gate, shard


def play(cluster: Cluster, namespace: str, scenario: Scenario) -> None:
    async def played(client: Client) -> None:
        async with opened(client, namespace) as (gate, shard):
            await scenario(gate, shard)

    cluster.run(played)


def config(namespace: str, name: str = "") -> str:
    """Give the path of ConfigMaps, or of one."""
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


def test_requests_are_signed_passed_on_and_noted(cluster: Cluster, namespace: str) -> None:
    async def scenario(gate: Gate, shard: httpx2.AsyncClient) -> None:
        gate.names.append("one")
        made = await shard.post(config(namespace), json={"metadata": {"name": "one"}})
        assert made.status_code == 201, made.text
        assert (await shard.get("/version")).json()["gitVersion"]
        assert (await shard.get(config(namespace), params={"limit": "1"})).json()["items"]
        assert (await shard.get(config(namespace, "two"))).status_code == 404
        noted = [(asked.method, asked.intent, asked.status) for asked in gate.log]
        look = Intent.LOOK
        assert noted == [("POST", Intent.ACT, 201), ("GET", look, 200), ("GET", look, 200), ("GET", look, 404)]
        assert gate.log[0].roots == ("one",)
        assert gate.log[2].query == {"limit": "1"}

    play(cluster, namespace, scenario)


def test_answers_can_be_read_though_the_sender_prefers_protobuf(cluster: Cluster, namespace: str) -> None:
    async def scenario(gate: Gate, shard: httpx2.AsyncClient) -> None:
        gate.names.append("one")
        accept = {"accept": "application/vnd.kubernetes.protobuf, */*"}
        made = await shard.post(config(namespace), json={"metadata": {"name": "one"}}, headers=accept)
        assert made.headers["content-type"] == "application/json"
        assert gate.log[0].answer is not None
        assert gate.log[0].answer.metadata.name == "one"
        strict = await shard.get(config(namespace), headers={"accept": "application/vnd.kubernetes.protobuf"})
        assert strict.content.startswith(b"k8s\0"), "who takes nothing else gets it"

    play(cluster, namespace, scenario)


def test_nothing_is_changed_outside_of_the_namespace(cluster: Cluster, namespace: str) -> None:
    async def scenario(gate: Gate, shard: httpx2.AsyncClient) -> None:
        refused = await shard.post(config("default"), json={"metadata": {"name": "stray"}})
        assert (refused.status_code, refused.json()["kind"]) == (403, "Status")
        assert namespace in refused.json()["message"]
        assert (await shard.delete(f"/api/v1/namespaces/{namespace}")).status_code == 403
        assert (await shard.post(config(f"{namespace}/%2e%2e/default"), json={})).status_code == 403
        assert (await shard.get(config("default"))).status_code == 200, "looking is free"
        review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "secrets"}}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        assert (await shard.post(path, json=review)).status_code == 201, "a question changes nothing"
        assert [asked.status for asked in gate.log] == [403, 403, 403, 200, 201]

    play(cluster, namespace, scenario)


def test_nobody_gets_in_without_the_secret_or_after_the_end(cluster: Cluster, namespace: str) -> None:
    async def scenario(gate: Gate, shard: httpx2.AsyncClient) -> None:
        plain = str(shard.base_url).rsplit("/", 2)[0]
        async with httpx2.AsyncClient() as stranger:
            assert (await stranger.get(f"{plain}/version")).status_code == 404
            assert (await stranger.get(f"{plain}/guessed/version")).status_code == 404
        assert (await shard.get("/version")).status_code == 200
        gate.dismiss("p")
        assert (await shard.get("/version")).status_code == 404
        assert len(gate.log) == 1

    play(cluster, namespace, scenario)


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_request_that_is_held_arrives_when_it_is_let_go(cluster: Cluster, namespace: str, gives_up: bool) -> None:
    async def scenario(gate: Gate, shard: httpx2.AsyncClient) -> None:
        client, ref = gate._stage.client, ObjectRef(CONFIG_MAPS, "one", namespace)
        gate.names.append("one")
        hold = gate.hold(lambda asked: asked.intent is Intent.ACT)
        asking = asyncio.create_task(shard.post(config(namespace), json={"metadata": {"name": "one"}}))
        await until(lambda: bool(hold.caught))
        with pytest.raises(NotFound):
            await client.get(ref, Partial)
        assert gate.log[hold.caught[0]].held
        if gives_up:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        hold.let_go()
        await until(lambda: gate.log[0].status == 201)
        assert (await client.get(ref, Partial)).metadata.name == "one", "what was sent may arrive, whoever waits for it"
        if not gives_up:
            assert (await asking).status_code == 201
        assert (await shard.patch(config(namespace, "one"), json={"data": {}}, headers=MERGE)).status_code == 200

    play(cluster, namespace, scenario)


def test_a_watch_is_passed_on_as_it_comes(cluster: Cluster, namespace: str) -> None:
    async def scenario(gate: Gate, shard: httpx2.AsyncClient) -> None:
        path = f"/api/v1/namespaces/{namespace}/secrets"
        listed = (await shard.get(path)).json()["metadata"]["resourceVersion"]
        watching = {"watch": "1", "resourceVersion": listed}
        async with shard.stream("GET", path, params=watching) as lines:
            body = {"metadata": {"name": "one"}}
            await gate._stage.client.create(ObjectRef(SECRETS, "one", namespace), body, Partial)
            first = await anext(lines.aiter_lines())
            assert '"ADDED"' in first
        assert [asked.is_fresh_list for asked in gate.log] == [True, False]

    play(cluster, namespace, scenario)
