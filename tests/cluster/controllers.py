"""The controllers of Kubernetes itself beside a control plane, each with its own account in kube-system."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.control_plane import ControlPlane, free_port
from tools.kube.build import find_program

PROGRAM = "kube-controller-manager"


@contextmanager
def running_controllers(plane: ControlPlane, *names: str) -> Iterator[None]:
    """Run some controllers while the block does; what they say is `plane.log("kube-controller-manager")`."""
    # Where the kernel can be asked to, it ends them also when the tests are killed.
    leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    command = [
        *leash,
        str(find_program(PROGRAM)),
        f"--kubeconfig={plane.kubeconfig()}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        f"--service-account-private-key-file={plane.folder / 'accounts.key'}",
        "--use-service-account-credentials=true",
        f"--controllers={','.join(names)}",
    ]
    with (plane.folder / f"{PROGRAM}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=plane.folder, process_group=0)
    try:
        yield
        assert process.poll() is None, f"the controllers ended:\n{plane.log(PROGRAM)[-2000:]}"
    finally:
        process.kill()
        process.wait()
