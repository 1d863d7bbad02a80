"""Every way in: kubeconfig, the files of a pod, an exec plugin; and what is told where there is none."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from tests.cluster.world import Cluster

from poise.errors import InvalidSpec, Unavailable
from poise.kube import NAMESPACES, Client, Missing, Partial, Resource, Selection, connect, find_resource
from poise.kube.crds import custom_resource


async def _namespaces(client: Client) -> int:
    async with client:
        found, _ = await client.list_all(Selection(NAMESPACES), Partial)
        return len(found)


def test_the_files_of_a_pod(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plane = cluster.plane
    shutil.copy(plane.ca_file, tmp_path / "ca.crt")
    (tmp_path / "token").write_text("expired")
    (tmp_path / "namespace").write_text("mine")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(plane.port))
    client = connect(account=tmp_path)
    assert client.namespace == "mine"
    # The token is read from its file, again when it is refused: a pod's token is replaced while it runs.
    (tmp_path / "token").write_text(plane.users["admin"])
    assert asyncio.run(_namespaces(client)) >= 4


def _named(cluster: Cluster, folder: Path, name: str, *, current: bool) -> Path:
    """Write a kubeconfig with one context of this name, whose namespace has that name, too."""
    config = yaml.safe_load(cluster.plane.kubeconfig().read_text())
    config["contexts"][0] |= {"name": name}
    config["contexts"][0]["context"] |= {"namespace": name}
    config["current-context"] = name if current else ""
    path = folder / name
    path.write_text(yaml.safe_dump(config))
    return path


def test_a_list_of_kubeconfigs(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = _named(cluster, tmp_path, "first", current=False), _named(cluster, tmp_path, "second", current=True)
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{first}::{second}")
    client = connect(account=tmp_path)
    assert client.namespace == "second", "it is the first file with a current context"
    assert asyncio.run(_namespaces(client)) >= 4
    assert connect(account=tmp_path, context="first").namespace == "first"
    with pytest.raises(InvalidSpec, match=f"none of the files of KUBECONFIG .*{first}.* has the context third"):
        connect(account=tmp_path, context="third")
    second.write_text(first.read_text())
    with pytest.raises(InvalidSpec, match="no context is chosen"):
        connect(account=tmp_path)


def test_the_account_of_a_pod_has_no_other_context(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("any")
    (tmp_path / "namespace").write_text("mine")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(cluster.plane.port))
    monkeypatch.setenv("KUBECONFIG", str(_named(cluster, tmp_path, "other", current=True)))
    with pytest.raises(InvalidSpec, match="Context 'other' not found"):
        connect(account=tmp_path, context="other")


def test_an_empty_kubeconfig_counts_as_none(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".kube").mkdir()
    _named(cluster, tmp_path, "usual", current=True).rename(tmp_path / ".kube" / "config")
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", ":"):
        monkeypatch.setenv("KUBECONFIG", value)
        assert connect(account=tmp_path).namespace == "usual"


def _exec_config(cluster: Cluster, folder: Path, script: str) -> Path:
    plugin = folder / "plugin.py"
    plugin.write_text(script)
    config = yaml.safe_load(cluster.plane.kubeconfig().read_text())
    version = "client.authentication.k8s.io/v1beta1"
    command = {"apiVersion": version, "command": sys.executable, "args": [str(plugin)]}
    config["users"][0]["user"] = {"exec": command}
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return path


def test_an_exec_plugin(cluster: Cluster, tmp_path: Path) -> None:
    answer = json.dumps({"status": {"token": cluster.plane.users["admin"]}})
    path = _exec_config(cluster, tmp_path, f"print({answer!r})")
    assert asyncio.run(_namespaces(connect(path))) >= 4


@pytest.mark.parametrize("script", ["raise SystemExit('no login')", "print('no JSON')", "print('{}')"])
def test_an_exec_plugin_that_fails(cluster: Cluster, tmp_path: Path, script: str) -> None:
    client = connect(_exec_config(cluster, tmp_path, script))
    with pytest.raises(Unavailable):
        asyncio.run(_namespaces(client))


@pytest.mark.usefixtures("definitions")
def test_resources_are_found_and_missing_ones_are_an_ordinary_answer(cluster: Cluster) -> None:
    async def scenario(client: Client) -> None:
        assert await find_resource(client, "", "configmaps") == Resource("", "v1", "configmaps", "ConfigMap")
        nodes = await find_resource(client, "", "nodes")
        assert nodes == Resource("", "v1", "nodes", "Node", namespaced=False)
        assert await find_resource(client, "apps", "deployments") == Resource("apps", "v1", "deployments", "Deployment")
        assert await find_resource(client, "poise.dev", "shardrings") == custom_resource("ShardRing")
        for group, plural, why in (
            ("", "foos", 'the API server has no foos of the group ""'),
            ("nosuch.dev", "foos", 'the API server has no group "nosuch.dev"'),
            ("a/../..", "foos", 'the API server has no group "a/../.."'),
            ("authorization.k8s.io", "selfsubjectaccessreviews", "the API server has no list or watch"),
        ):
            found = await find_resource(client, group, plural)
            assert isinstance(found, Missing)
            assert why in found.why

    cluster.run(scenario)


def test_anybody_may_discover(cluster: Cluster) -> None:
    async def scenario(client: Client) -> None:
        assert isinstance(await find_resource(client, "apps", "deployments"), Resource)

    cluster.run(scenario, "alice")


def test_a_configuration_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "config"
    with pytest.raises(InvalidSpec, match="not found"):
        connect(bad)
    for text in ("", "[]", "{", "clusters: 5", "clusters: []\ncontexts: []\ncurrent-context: none"):
        bad.write_text(text)
        with pytest.raises(InvalidSpec) as caught:
            connect(bad)
        assert str(caught.value).startswith(f"{bad}: no usable configuration of Kubernetes: ")
        assert str(caught.value).isprintable()
