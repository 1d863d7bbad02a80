"""`poise conformance shard` as people run it: its exit codes and words, what it refuses, and that it leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest
from tests.cluster.operator_process import OperatorProcess
from tests.cluster.ring_world import RINGS, ring_document
from tests.cluster.world import Cluster, make_namespace

from poise.conformance.rules import Report
from poise.kube import LEASES, NAMESPACES, Client, Lease, ObjectRef, Partial, Selection
from poise.kube.resources import CONFIG_MAPS, SECRETS

pytestmark = pytest.mark.usefixtures("definitions")
ROOT = Path(__file__).parent.parent.parent
SHARD = (sys.executable, "-m", "tests.cluster.broken_shard")
DEADLINE_S = 90.0


def start(cluster: Cluster, *arguments: str) -> subprocess.Popen[str]:
    """Start a check as a user does."""
    command = [sys.executable, "-m", "poise", "conformance", "shard", *arguments]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig()), "NO_COLOR": "1"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )


def run(cluster: Cluster, *arguments: str) -> tuple[int, str, str]:
    """Run a check to its end: exit code, data, talk."""
    with start(cluster, *arguments) as process:
        data, talk = process.communicate(timeout=DEADLINE_S)
        return process.returncode, data, talk


async def left_of(client: Client, namespace: str) -> list[str]:
    """Name what is left in a namespace."""
    found: list[str] = []
    for resource in (SECRETS, CONFIG_MAPS, LEASES, RINGS):
        listed, _ = await client.list_all(Selection(resource, namespace), Partial)
        found += [f"{resource.plural}/{each.metadata.name}" for each in listed]
    return found


def test_a_check_in_a_namespace_of_the_user_says_what_it_saw_and_leaves_nothing(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    cluster.run(
        lambda client: client.create(ObjectRef(SECRETS, "mine", namespace), {"metadata": {"name": "mine"}}, Partial)
    )
    logs = tmp_path / "logs"
    rules = ("--rule", "release-on-exit", "--lease-seconds", "4", "--logs", str(logs), "--namespace", namespace)
    code, data, talk = run(cluster, "--ring", "told", *rules, "-o", "json", "--", *SHARD, "hasty")
    assert code == 1, talk
    report = msgspec.json.decode(data, type=Report)
    assert [(each.name, each.outcome) for each in report.rules] == [("release-on-exit", "failed")], data
    assert "was under way" in report.rules[0].seen[0]
    assert not report.conforms
    assert "0 of 1 acts, now: it is asked to leave, and comes back" in talk
    assert {path.name for path in logs.iterdir()} == {"leave-1.log", "leave-2.log"}
    assert left(cluster, namespace) == ["secrets/mine"]


def test_a_ring_that_is_there_is_refused(cluster: Cluster, namespace: str) -> None:
    async def make(client: Client) -> None:
        await client.create(ObjectRef(RINGS, "taken", namespace), ring_document("taken", namespace), Partial)

    cluster.run(make)
    code, data, talk = run(cluster, "--ring", "taken", "--", *SHARD, "long")
    assert (code, data) == (3, ""), talk
    assert talk.startswith("poise: the ring taken exists in "), talk
    assert talk.count("\n") == 1


def test_a_ring_that_an_operator_looks_after_is_refused(cluster: Cluster, namespace: str) -> None:
    async def leads(client: Client) -> bool:
        leases, _ = await client.list_all(Selection(LEASES, namespace), Lease)
        return any(each.metadata.name == "poise-operator" and each.spec.holder_identity for each in leases)

    with OperatorProcess(cluster.kubeconfig(), "--namespace", namespace, "--no-protect"):
        until(lambda: cluster.run(leads))
        code, data, talk = run(cluster, "--ring", "watched", "--namespace", namespace, "--", *SHARD, "long")
        assert (code, data) == (3, ""), talk
        assert "poise: the ring watched is being looked after by an operator" in talk
        until(
            lambda: not [each for each in cluster.run(lambda client: left_of(client, namespace)) if "watched" in each]
        )


def test_a_command_that_takes_for_ever_is_ended_in_time(cluster: Cluster, namespace: str) -> None:
    code, data, talk = run(
        cluster, "--ring", "endless", "--timeout", "3", "--namespace", namespace, "--", "sleep", "77"
    )
    assert (code, data) == (1, "")
    assert "poise: the check was not done after 3 s" in talk
    assert left(cluster, namespace) == []


def test_a_command_that_cannot_be_started_is_said_so(cluster: Cluster, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("no program")
    broken.chmod(0o755)
    code, data, talk = run(cluster, "--ring", "broken", "--", str(broken))
    assert (code, data) == (1, "")
    assert talk.endswith(f"poise: {broken} cannot be started: Exec format error\n"), talk


def test_a_command_that_never_becomes_a_shard_is_said_so(cluster: Cluster) -> None:
    code, data, _ = run(
        cluster, "--ring", "mute", "--rule", "empty-drain", "--", "sh", "-c", "echo no such flag >&2; exit 3"
    )
    assert code == 1
    assert "not observed  empty-drain" in data
    assert "COMMAND ended by itself with code 3: no such flag" in data
    assert "Rules: 0 kept, 1 broken, 1 not observed." in data


def test_a_check_that_is_interrupted_ends_its_processes_and_cleans_up(cluster: Cluster, tmp_path: Path) -> None:
    numbers = {number: f"ended-{uuid.uuid4().hex[:8]}" for number in (signal.SIGINT, signal.SIGTERM)}
    made = [cluster.run(partial(make_namespace, name=name)).metadata for name in numbers.values()]
    checks = {
        number: start(cluster, "--ring", name, "--namespace", name, "--", "sh", "-c", script(tmp_path / name))
        for number, name in numbers.items()
    }
    try:
        for number, name in numbers.items():
            until(partial(is_at_work, cluster, name, tmp_path / name))
            checks[number].send_signal(number)
        for number, name in numbers.items():
            talk = checks[number].communicate(timeout=DEADLINE_S)[1]
            assert checks[number].returncode == 130, talk
            assert talk.rstrip().endswith("poise: interrupted"), talk
            assert "Traceback" not in talk
            assert left(cluster, name) == []
            with pytest.raises(ProcessLookupError):
                os.kill(int((tmp_path / name).read_text()), 0)
    finally:
        for process in checks.values():
            process.kill()
            process.communicate()
        for meta in made:
            cluster.run(partial(Client.delete, ref=ObjectRef(NAMESPACES, meta.name), uid=meta.uid))


def is_at_work(cluster: Cluster, namespace: str, file: Path) -> bool:
    """Say whether a check has made objects and started its command."""
    return file.exists() and bool(file.read_text()) and bool(left(cluster, namespace))


def script(file: Path) -> str:
    """Write a command that tells its process id."""
    return f"echo $$ > {file}; exec {sys.executable} -m tests.cluster.broken_shard long"


def left(cluster: Cluster, namespace: str) -> list[str]:
    """Name what is left in a namespace."""
    return cluster.run(lambda client: left_of(client, namespace))


def until(holds: Callable[[], bool], within_s: float = DEADLINE_S) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end_s, f"not within {within_s} s"
        time.sleep(0.1)
