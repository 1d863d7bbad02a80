"""`poise operator` before it reaches a cluster: one clear line for every mistake, and an exit code."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
import yaml
from lightkube.config import kubeconfig as lightkube_config
from tests.serve_process import environment, free_port

from poise.cli.main import run
from poise.cli.operator import _home
from poise.jobs.operating import identity
from poise.kube import connect
from poise.kube.crds import DEFINED, definition
from poise.model.sharding import is_process_of


def line(capsys: pytest.CaptureFixture[str]) -> str:
    """Give what was said, which must be one line."""
    said = capsys.readouterr()
    assert not said.out
    assert said.err.count("\n") == 1, said.err
    return said.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--namespace", "No_Name"], "--namespace: expected the name of a namespace, got 'No_Name'"),
        (["--namespace", ""], "--namespace: expected the name of a namespace, got ''"),
        (["--id", "a_b"], "--id: expected letters and digits"),
        (["--lease-seconds", "2"], "2 is not in the range 3<=x<=3600"),
        (["--lease-seconds", "soon"], "'soon' is not a valid integer"),
        (["--listen", "here"], "--listen: expected ADDRESS:PORT"),
        (["--kubeconfig", "nowhere"], "nowhere: no usable configuration of Kubernetes"),
        (["more"], "unexpected extra argument"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["operator", *arguments]) == 64
    assert told in line(capsys)


def test_no_configuration_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert run(["operator"]) == 64
    told = line(capsys)
    assert "the environment: no usable configuration of Kubernetes" in told
    assert ".kube/config not found" in told


def test_a_taken_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert run(["operator", "--kubeconfig", str(kubeconfig(tmp_path)), "--listen", address]) == 64
    assert "Address already in use" in line(capsys)


@pytest.mark.parametrize("package", ["lightkube", "cryptography"])
@pytest.mark.parametrize("verb", [["operator"], ["get", "--kube"], ["conformance", "shard", "--ring", "r", "--", "x"]])
def test_a_package_that_only_kubernetes_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], package: str, verb: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert run(verb) == 1
    assert line(capsys) == "poise: Kubernetes needs one more package: pip install 'poise[kube]'\n"


def test_the_definitions_can_be_applied(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["operator", "--definitions"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert printed == [definition(kind) for kind in DEFINED]


def test_the_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["operator", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in ("ShardRing", "--namespace", "Lease poise-operator", "SIGTERM", "this machine only", "Examples:"):
        assert part in text
    assert run(["--help"]) == 0
    assert "operator" in capsys.readouterr().out


def kubeconfig(folder: Path, port: int = 1, namespace: str = "default") -> Path:
    """Write the way to a cluster that does not answer."""
    path = folder / "config"
    document = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "namespace": namespace}}],
        "current-context": "c",
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_lease_of_the_leader_is_where_its_pod_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect(kubeconfig(tmp_path, namespace="mine"))
    monkeypatch.setattr(lightkube_config, "SERVICE_ACCOUNT", str(tmp_path / "account"))
    assert _home(client, None, in_pod=True) == "mine", "the namespace of the kubeconfig"
    assert _home(client, "team", in_pod=True) == "team", "the one that is looked at"
    (tmp_path / "account").mkdir()
    (tmp_path / "account" / "namespace").write_text("mine")
    assert _home(client, "team", in_pod=True) == "mine", "the Pod's own"
    assert _home(client, "team", in_pod=False) == "team", "a kubeconfig in a Pod is meant"


def test_two_processes_of_one_id_never_share_an_identity() -> None:
    first, second = identity("x"), identity("x")
    assert first != second, "a Lease that one holds is not the other's"
    assert first.partition("_")[0] == second.partition("_")[0] == "poise-sharder-x"
    assert is_process_of(first, "poise-sharder-x")
    assert not is_process_of(first, "x"), "no instance is taken for the sharder"


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_asked_again_until_a_signal_comes(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, free_port())
    command = [sys.executable, "-m", "poise", "operator", "--kubeconfig", str(path), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            url = process.stderr.readline().partition("answers on ")[2].partition(";")[0]
            assert httpx2.get(f"{url}/livez").status_code == 200
            for seconds in (1, 2):
                told = process.stderr.readline()
                assert told.startswith("poise: the API server cannot be reached: get /apis/poise.dev: ConnectError")
                assert told.endswith(f"trying again in {seconds} s\n")
            unready = httpx2.get(f"{url}/readyz")
            assert unready.status_code == 503
            assert unready.json()["detail"].startswith("the API server cannot be reached: ")
            assert "poise_leads 0.0" in httpx2.get(f"{url}/metrics").text
            process.terminate()
            assert process.wait(10) == 0
            assert process.stderr.read() == "poise: ended\n"
        finally:
            process.kill()
