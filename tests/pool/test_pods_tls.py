"""Pods behind TLS that ask for a client certificate, as they usually are in clusters."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trustme
from tests.pool.pool_world import CollectorProcess, free_ports
from tests.serve_process import ServerProcess, await_met, servers

POOL = """kind: TargetPool
metadata: {{name: core}}
spec:
  pods: {{endpoints: [{{name: gnmic-0, url: "https://127.0.0.1:{port}"}}]}}
  targets: {{list: [{{name: r0, address: "r0:1"}}]}}
  delivery: {{kind: gnmic, subscriptions: {{s1: {{paths: [/interfaces]}}}}}}
  goneAfterSeconds: 5
"""


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while part := await source.read(65_536):
            sink.write(part)
            await sink.drain()
    sink.close()


@contextmanager
def tls_before(port: int, context: ssl.SSLContext) -> Iterator[int]:
    """Speak TLS on a port of its own, and pass on what comes out of it."""
    loop, ports = asyncio.new_event_loop(), list[int]()
    ready, ended = threading.Event(), asyncio.Event()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))

    async def run() -> None:
        async with await asyncio.start_server(pass_on, "127.0.0.1", 0, ssl=context) as server:
            ports.append(server.sockets[0].getsockname()[1])
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    ready.wait()
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.1))
        loop.close()


def listed(server: ServerProcess) -> list[dict[str, object]]:
    found: list[dict[str, object]] = server.get("/v1/jobs/TargetPool/core/members").json()["items"]
    return found


@pytest.mark.slow
def test_a_pod_is_shown_the_certificate_and_believed_by_its_authority(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    mine = authority.issue_cert("poise.example")
    mine.private_key_pem.write_to_path(tmp_path / "key.pem")
    mine.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    pod = CollectorProcess("gnmic-0", free_ports(1)[0], tmp_path / "log")
    try:
        pod.wait()
        with tls_before(pod.port, context) as port:
            (tmp_path / "pool.yaml").write_text(POOL.format(port=port))
            with servers(ServerProcess(tmp_path, "--name", "s1", "--pods-ca", "ca.pem", "pool.yaml")) as (server,):
                await_met(lambda: any(each.get("error") for each in listed(server)))
                assert pod.control()["live"] == [], "without a certificate nothing is delivered"
            shown = ("--pods-cert", "cert.pem", "--pods-key", "key.pem", "--pods-ca", "ca.pem")
            with servers(ServerProcess(tmp_path, "--name", "s2", *shown)):
                await_met(lambda: pod.control()["live"] == ["r0"])
    finally:
        pod.end()


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (["--pods-cert", "cert.pem"], "--pods-cert and --pods-key belong together"),
        (["--pods-ca", "nothing.pem"], "--pods-ca: nothing.pem is no file of certificates"),
        (["--pods-cert", "no.pem", "--pods-key", "no.pem"], "--pods-cert: no.pem cannot be read"),
    ],
)
def test_what_is_wrong_with_the_files_is_one_line(tmp_path: Path, said: list[str], fault: str) -> None:
    command = [sys.executable, "-m", "poise", "up", *said]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 64
    assert done.stderr.count("\n") == 1
    assert fault in done.stderr
    assert not list(tmp_path.iterdir()), "nothing was made"
