"""`kubectl poise`: found by kubectl itself, with its flags, its exit codes and its completion."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from tests.cluster.operator_process import put_ring
from tests.cluster.world import Cluster
from tools.kube.build import find_program

from poise.cli import kube_plugin
from poise.cli.kube_plugin import RING_VERBS, completions, kube_arguments, run_plugin

ROOT = Path(__file__).parent.parent.parent
BESIDE = Path(sys.executable).parent
SCRIPTS = {"kubectl-poise": "main", "kubectl_complete-poise": "complete"}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with kubectl, and the plugin as an installation makes it."""
    for name, function in SCRIPTS.items():
        script = tmp_path / name
        script.write_text(f"#!{sys.executable}\nfrom poise.cli.kube_plugin import {function}\n\n{function}()\n")
        script.chmod(0o755)
    return os.pathsep.join([str(tmp_path), str(find_program("kubectl").parent), os.environ["PATH"]])


def kubectl(path: str, kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run kubectl, as a user does."""
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent)}
    program = str(find_program("kubectl"))
    return subprocess.run([program, *words], capture_output=True, text=True, env=environment, timeout=60, check=False)


@pytest.mark.usefixtures("definitions")
def test_kubectl_finds_the_plugin_and_its_flags_mean_what_they_always_do(
    cluster: Cluster, namespace: str, path: str
) -> None:
    cluster.run(lambda client: put_ring(client, namespace, "web", leaseSeconds=3))
    config = cluster.kubeconfig()
    shown = kubectl(path, config, "poise", "get", "web", "-n", namespace, "--context", "rig")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith(f"ShardRing {namespace}/web   no operator has looked at it yet\n")
    missing = kubectl(path, config, "poise", "get", "wab", "-n", namespace)
    assert missing.returncode == 64
    assert missing.stderr == f"poise: there is no ring 'wab' in the namespace {namespace}; there is web\n"
    nowhere = kubectl(path, config, "poise", "get", "--context", "moon")
    assert nowhere.returncode == 64
    assert "no usable configuration of Kubernetes" in nowhere.stderr
    words = kubectl(path, config, "__complete", "poise", "dr").stdout
    assert "drain\n" in words


def test_the_scripts_are_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    installed = {each.name: each for each in distribution("poise").entry_points if each.group == "console_scripts"}
    assert {name: each.value for name, each in installed.items()} == scripts, "make setup installs it again"
    for name, function in SCRIPTS.items():
        assert installed[name].load() is getattr(kube_plugin, function)


@pytest.mark.skipif(not (BESIDE / "poise").exists(), reason="this Python has no scripts of Poise beside it")
def test_the_installed_plugin_runs() -> None:
    told = {
        name: subprocess.run([BESIDE / name, "dr"], capture_output=True, text=True, timeout=60, check=False)
        for name in SCRIPTS
    }
    plugin, completion = told["kubectl-poise"], told["kubectl_complete-poise"]
    assert plugin.returncode == 64
    assert plugin.stderr.startswith("poise: kubectl poise has no verb 'dr'"), plugin.stderr
    assert completion.returncode == 0, completion.stderr
    assert completion.stdout.startswith("drain\n")


def test_every_verb_for_rings_is_told_that_a_cluster_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert kube_arguments(["get", "web"]) == ["get", "--kube", "web"]
    assert kube_arguments(["get", "--kube"]) == ["get", "--kube"]
    assert kube_arguments(["version"]) == ["version"]
    for verb in RING_VERBS:
        assert run_plugin([verb, "--help"]) == 0
        assert "--kube" in capsys.readouterr().out
    assert run_plugin([]) == 0
    told = capsys.readouterr().out
    assert all(f"  {verb} " in told for verb in RING_VERBS)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["up"], "poise: kubectl poise has no verb 'up'; there is get, plan"),
        (["-n", "x", "get"], "poise: the verb comes first: kubectl poise VERB -n"),
    ],
)
def test_what_is_no_verb_for_rings_is_refused(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_plugin(words) == 64
    assert capsys.readouterr().err.startswith(told)


def test_words_are_completed() -> None:
    assert completions([""]) == list(RING_VERBS)
    assert completions(["dr"]) == ["drain"]
    assert completions(["plan", "--dr"]) == ["--drain"]
    assert completions(["get", "web", "--k"]) == ["--kubeconfig"], "--kube is understood"
