"""The controllers of Kubernetes itself beside a control plane, and what makes pods live; no container ever runs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.control_plane import ControlPlane, free_port
from tools.kube.build import find_program

PROGRAM = "kube-controller-manager"
STAGES = Path(__file__).parent / "stages.yaml"
_POD_CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "pod-garbage-collector-controller",
    "node-lifecycle-controller",
    "taint-eviction-controller",
)


@contextmanager
def running_controllers(plane: ControlPlane, *names: str) -> Iterator[None]:
    """Run some controllers while the block does, each with its own account in kube-system."""
    account = ("--use-service-account-credentials=true", f"--controllers={','.join(names)}")
    key = f"--service-account-private-key-file={plane.folder / 'accounts.key'}"
    with _running(plane, PROGRAM, *_alone(), key, *account):
        yield


@contextmanager
def running_pods(plane: ControlPlane) -> Iterator[None]:
    """Let pods live while the block runs: controllers, a scheduler, and KWOK in place of kubelets."""
    played = (f"--config={STAGES}", "--manage-all-nodes=true", "--cidr=10.0.0.0/24", "--node-ip=127.0.0.1")
    with (
        running_controllers(plane, *_POD_CONTROLLERS),
        _running(plane, "kube-scheduler", *_alone()),
        _running(plane, "kwok", *played, "--node-lease-duration-seconds=40"),
    ):
        yield


def _alone() -> tuple[str, ...]:
    """Say that there is one of it, on a port of its own: the defaults collide as soon as a second cluster starts."""
    return "--leader-elect=false", "--bind-address=127.0.0.1", f"--secure-port={free_port()}"


@contextmanager
def _running(plane: ControlPlane, program: str, *arguments: str) -> Iterator[None]:
    """Run one program while the block does; what it says is `plane.log(program)`."""
    # Where the kernel can be asked to, it ends it also when the tests are killed.
    leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    command = [*leash, str(find_program(program)), f"--kubeconfig={plane.kubeconfig()}", *arguments]
    with (plane.folder / f"{program}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=plane.folder, process_group=0)
    try:
        yield
        assert process.poll() is None, f"{program} ended:\n{plane.log(program)[-2000:]}"
    finally:
        process.kill()
        process.wait()
