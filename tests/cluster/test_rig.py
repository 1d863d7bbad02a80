"""The rig itself: a real API server that starts, knows its users, survives restarts and ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.cluster.control_plane import ControlPlane
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
