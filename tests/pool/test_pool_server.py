"""A pool on a real server with real collectors: its targets in a file that is watched, beside the document."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pool.delivery_audit import doubles, read_log, spans
from tests.pool.pool_world import CollectorProcess, free_ports
from tests.serve_process import ServerProcess, await_met, servers

POOL = """kind: TargetPool
metadata: {{name: core}}
spec:
  pods: {{endpoints: [{endpoints}]}}
  targets: {{file: routers.yaml}}
  delivery: {{kind: gnmic, subscriptions: {{s1: {{paths: [/interfaces]}}}}}}
  goneAfterSeconds: 60
"""


def names(pods: list[CollectorProcess]) -> list[str]:
    found: list[str] = []
    for pod in pods:
        live = pod.control()["live"]
        assert isinstance(live, list)
        found += live
    return sorted(found)


@pytest.mark.slow
def test_a_file_beside_the_document_is_watched_and_delivered(tmp_path: Path) -> None:
    """The server is started in another folder, as a service is; a second server goes on where it ended."""
    folder, log = tmp_path / "pools", tmp_path / "log"
    folder.mkdir()
    pods = [CollectorProcess(f"gnmic-{number}", port, log, teardown_s=0.2) for number, port in enumerate(free_ports(3))]
    try:
        for pod in pods:
            pod.wait()
        endpoints = ", ".join(f'{{name: {pod.name}, url: "http://127.0.0.1:{pod.port}"}}' for pod in pods)
        (folder / "pool.yaml").write_text(POOL.format(endpoints=endpoints))
        routers = folder / "routers.yaml"
        routers.write_text("".join(f"- {{name: r{number}, address: 'r{number}:1'}}\n" for number in range(6)))
        with servers(ServerProcess(tmp_path, "--name", "s1", "pools/pool.yaml")) as (server,):
            await_met(lambda: names(pods) == [f"r{number}" for number in range(6)])
            assert any("config applied to pod  pod=gnmic-0  targets=2" in line for line in server.said)
            routers.write_text("".join(f"- {{name: r{number}, address: 'r{number}:1'}}\n" for number in range(9)))
            await_met(lambda: names(pods) == [f"r{number}" for number in range(9)])
            shown = server.get("/v1/pools/core/pods/gnmic-1/targets").json()
            assert len(shown) == 3
            assert server.end() == 0
        assert len(names(pods)) == 9, "pods go on collecting while nobody runs"
        with servers(ServerProcess(tmp_path, "--name", "s2")):
            routers.write_text("".join(f"- {{name: r{number}, address: 'r{number}:1'}}\n" for number in range(1, 9)))
            await_met(lambda: names(pods) == [f"r{number}" for number in range(1, 9)])
        assert doubles(spans(read_log(log))) == []
    finally:
        for pod in pods:
            pod.end()
