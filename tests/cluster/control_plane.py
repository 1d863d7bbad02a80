"""A real Kubernetes control plane on loopback: etcd and kube-apiserver; `controllers` has what makes pods live.

Everything is ended by its process id, the API server first: one that has lost its etcd can hang on SIGTERM.
"""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import httpx2
import trustme
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tools.kube.build import find_program

ADMIN = "admin"
_READY_S, _STOP_S = 60.0, 5.0


class ControlPlane:
    """One control plane in one folder. Its parts can be stopped, frozen, killed and started again on the same ports."""

    def __init__(self, folder: Path, users: tuple[str, ...] = ()) -> None:
        """Prepare keys, tokens and ports; nothing runs yet. Every user has a token and no rights but the admin."""
        self.folder = folder
        self.users = {name: f"token-of-{name}" for name in (ADMIN, *users)}
        self._etcd_port, self._peer_port, self.port = free_port(), free_port(), free_port()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._authority = trustme.CA()
        self._write_keys()

    @property
    def url(self) -> str:
        """Where the API server answers."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca_file(self) -> Path:
        """The certificate that clients trust."""
        return self.folder / "ca.crt"

    def _write_keys(self) -> None:
        self._authority.cert_pem.write_to_path(self.ca_file)
        server = self._authority.issue_cert("127.0.0.1", "localhost")
        server.private_key_pem.write_to_path(self.folder / "api.key")
        for place, part in enumerate(server.cert_chain_pems):
            part.write_to_path(self.folder / "api.crt", append=place > 0)
        accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._file("accounts.key").write_bytes(
            accounts.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        rows = [
            f'{token},{name},{name},"system:masters"' if name == ADMIN else f"{token},{name},{name}"
            for name, token in self.users.items()
        ]
        self._file("tokens.csv").write_text("\n".join(rows) + "\n")

    def _file(self, name: str) -> Path:
        return self.folder / name

    def kubeconfig(self, user: str = ADMIN, *, url: str | None = None) -> Path:
        """Write a kubeconfig for a user; another address is that of a proxy of the tests."""
        path = self._file(f"kubeconfig-{user}-{'proxy' if url else 'direct'}")
        cluster = {"server": url or self.url, "certificate-authority": str(self.ca_file)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rig", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.users[user]}}],
            "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": user}}],
            "current-context": "rig",
        }
        # Threads ask for it at once: nobody may read half of it.
        whole = self._file(f"{path.name}-{uuid.uuid4().hex}")
        whole.write_text(yaml.safe_dump(document))
        return whole.replace(path)

    def client(self, user: str = ADMIN) -> httpx2.Client:
        """Give a plain HTTP client of a user: tests look at the API with their own eyes."""
        headers = {"Authorization": f"Bearer {self.users[user]}"}
        return httpx2.Client(
            base_url=self.url, headers=headers, verify=ssl.create_default_context(cafile=str(self.ca_file)), timeout=30
        )

    def start(self) -> None:
        """Start etcd and the API server, and wait until it is ready."""
        self.start_etcd()
        self.start_api()

    def start_etcd(self) -> None:
        """Start etcd on its folder."""
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._run(
            "etcd",
            *("--data-dir", str(self._file("etcd")), "--name", "n0", "--unsafe-no-fsync", "--log-level", "error"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"n0={peer}"),
        )
        self._await("etcd", lambda: httpx2.get(f"{client}/health", timeout=1).status_code == 200)

    def start_api(self) -> None:
        """Start the API server, and wait until it is ready."""
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--tls-cert-file={self._file('api.crt')}",
            f"--tls-private-key-file={self._file('api.key')}",
            f"--token-auth-file={self._file('tokens.csv')}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._file('accounts.key')}",
            f"--service-account-signing-key-file={self._file('accounts.key')}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            "--allow-privileged=true",
            f"--cert-dir={self.folder}",
            "--endpoint-reconciler-type=none",
        )
        with self.client() as client:
            self._await("kube-apiserver", lambda: client.get("/readyz", timeout=2).status_code == 200)

    def stop(self) -> None:
        """Kill everything, whatever state it is in: nobody starts it again, and its data is thrown away."""
        for name in ("kube-apiserver", "etcd"):
            self.end(name, signal.SIGKILL)

    def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End one part by its process id; one that does not go in time is killed."""
        process = self._running.pop(name, None)
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def pid(self, name: str) -> int:
        """Tell the process id of a part: tests freeze and kill by it."""
        return self._running[name].pid

    def log(self, name: str) -> str:
        """Read what a part has said."""
        return self._file(f"{name}.log").read_text(errors="replace")

    def _run(self, name: str, *arguments: str) -> None:
        program = find_program(name)
        # Where the kernel can be asked to, it ends a part also when the tests are killed.
        leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with self._file(f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*leash, str(program), *arguments], stdout=log, stderr=log, cwd=self.folder, process_group=0
            )

    def _await(self, name: str, is_ready: Callable[[], bool]) -> None:
        end_s = time.monotonic() + _READY_S
        while time.monotonic() < end_s:
            if self._running[name].poll() is not None:
                break
            try:
                if is_ready():
                    return
            except httpx2.HTTPError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"{name} is not ready:\n{self.log(name)[-2000:]}")


def free_port() -> int:
    """Find a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
