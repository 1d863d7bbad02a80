"""Thousands of generated requests, sound and broken: no 5xx, and no answer that the description does not name."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import httpx2
import msgspec
import pytest
from tests.serve.live_server import DIVISION, ORDERS, POOL, SHOP, LiveServer

from poise.serve.calls import CALLS

# All jobs have one name, so that whatever kind is asked for is there.
JOBS = [{**one, "metadata": {"name": "orders"}} for one in (ORDERS, SHOP, POOL, DIVISION)]
CONFIG = """
[parameters]
"path.name" = "orders"
"path.set" = "orders"
"path.id" = "n1"
"path.member" = "n1"
"path.pod" = "gnmic-0"
"path.item" = ["0", "1", "api", "cart", "router/1"]
"""
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "negative_data_rejection",
)


@pytest.mark.slow
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    with LiveServer() as server, server.client() as client:
        ended = threading.Event()
        restoring = threading.Thread(target=restore, args=(server, client, ended))
        restoring.start()
        try:
            command = [sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run"]
            # The stream has no end, and the address of the login is the page's, too: both have tests of their own.
            options = [
                "--exclude-path",
                "/v1/events",
                "--exclude-path",
                "/login",
                "--phases",
                "coverage,fuzzing",
                "--max-examples",
                "8",
            ]
            options += ["--checks", ",".join(CHECKS), "--seed", "7", "--no-color", "--request-timeout", "20"]
            run = [*command, f"{server.url}/openapi.json", *options]
            told = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
        finally:
            ended.set()
            restoring.join()
        assert told.returncode == 0, told.stdout[-8_000:] + told.stderr[-2_000:]
        # All but those two, and the description, which is not asked for what it describes.
        assert f"{len(CALLS) - 3} passed" in told.stdout


def restore(server: LiveServer, client: httpx2.Client, ended: threading.Event) -> None:
    """Put back what the requests delete, and let a member live, so that they reach more than 404."""
    seq = 0
    while not ended.wait(0.2):
        for job in JOBS:
            body = msgspec.json.encode(job)
            client.put(f"/v1/jobs/{job['kind']}/orders", content=body, headers={"Content-Type": "application/json"})
        answer = client.post("/v1/sets/orders/members/n1", json={"process": "p"})
        if answer.status_code == 200:
            seq += 1
            client.put("/v1/sets/orders/members/n1", json={"incarnation": answer.json()["incarnation"], "seq": seq})
            server.cycle()
