"""The rig itself: a real API server that starts, knows its users, survives restarts and ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.cluster.control_plane import ControlPlane
from tests.cluster.controllers import running_pods
from tests.cluster.world import Cluster, make_secret, secret

from poise.kube import Client, Partial


def test_the_api_server_is_a_real_one(cluster: Cluster) -> None:
    with cluster.plane.client() as client:
        assert client.get("/version").json()["gitVersion"] == "v1.36.4"
        assert client.get("/readyz").text == "ok"


def test_users_are_told_apart(cluster: Cluster) -> None:
    with cluster.plane.client("alice") as client:
        assert client.get("/api/v1/secrets").status_code == 403
    with cluster.plane.client() as client:
        assert client.get("/api/v1/secrets").status_code == 200
        client.headers["Authorization"] = "Bearer nonsense"
        assert client.get("/api/v1/secrets").status_code == 401


def test_every_test_has_a_namespace_of_its_own(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> Partial:
        await make_secret(client, "a", namespace)
        return await client.get(secret("a", namespace), Partial)

    assert cluster.run(scenario).metadata.namespace == namespace


@pytest.mark.usefixtures("rig")
def test_a_control_plane_can_be_killed_and_started_again(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    try:
        plane.start()
        with plane.client() as client:
            body = {"metadata": {"name": "kept"}}
            assert client.post("/api/v1/namespaces/default/configmaps", json=body).status_code == 201
        pids = [plane.pid(name) for name in ("etcd", "kube-apiserver")]
        plane.end("kube-apiserver", signal.SIGKILL)
        plane.end("etcd", signal.SIGKILL)
        plane.start()
        with plane.client() as client:
            assert client.get("/api/v1/namespaces/default/configmaps/kept").status_code == 200
        pids += [plane.pid(name) for name in ("etcd", "kube-apiserver")]
    finally:
        plane.stop()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


DEPLOYMENT = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "none"}]},
        },
    },
}


class Pods:
    """A Deployment on two played nodes, as the admin sees it."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._client = plane.client()
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"

    def make(self) -> None:
        for name in ("node-0", "node-1"):
            assert self._client.post("/api/v1/nodes", json={"metadata": {"name": name}}).status_code == 201
        assert self._client.post(self._deployments, json=DEPLOYMENT).status_code == 201

    def ready(self) -> int:
        return int(self._client.get(f"{self._deployments}/web").json()["status"].get("readyReplicas", 0))

    def uids(self) -> dict[str, str]:
        found = self._client.get(self._pods).json()["items"]
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}

    def delete_one(self) -> str:
        name, uid = next(iter(self.uids().items()))
        assert self._client.delete(f"{self._pods}/{name}").status_code == 200
        assert uid in self.uids().values(), "its grace has just begun"
        return uid

    def interrupt(self, node: str) -> None:
        change = {"metadata": {"labels": {"poise.dev/interrupted": "1"}}}
        headers = {"Content-Type": "application/merge-patch+json"}
        assert self._client.patch(f"/api/v1/nodes/{node}", json=change, headers=headers).status_code == 200

    def node_is_ready(self, node: str) -> bool:
        conditions = self._client.get(f"/api/v1/nodes/{node}").json()["status"].get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def close(self) -> None:
        for node in ("node-0", "node-1"):
            self._client.delete(f"/api/v1/nodes/{node}")
        self._client.close()


def eventually(holds: Callable[[], bool], plane: ControlPlane) -> None:
    end_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end_s, plane.log("kwok")[-2000:]
        time.sleep(0.1)


@pytest.mark.usefixtures("rig")
def test_pods_live_on_played_nodes(cluster: Cluster, namespace: str) -> None:
    with running_pods(cluster.plane), closing(Pods(cluster.plane, namespace)) as pods:
        pods.make()
        eventually(lambda: pods.ready() == 3, cluster.plane)
        deleted = pods.delete_one()
        eventually(lambda: deleted not in pods.uids().values() and pods.ready() == 3, cluster.plane)
        pods.interrupt("node-0")
        eventually(lambda: not pods.node_is_ready("node-0"), cluster.plane)
        assert pods.node_is_ready("node-1")
