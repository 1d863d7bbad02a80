"""The page of a real `poise up`: a pool whose engine runs, a history that is kept, and a start that does not wait."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest
from tests.serve_page.page_world import check_page
from tests.server_process import ServerProcess

POOL = """apiVersion: poise.dev/v1alpha1
kind: TargetPool
metadata: {name: core}
spec:
  pods: {endpoints: [{name: gnmic-0}, {name: gnmic-1}]}
  targets: {list: [{name: "router/1"}, {name: "<router 2>"}, {name: router3}]}
  delivery: {kind: pull}
"""


@pytest.mark.slow
def test_a_pool_that_is_served_is_drawn(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, POOL) as server, httpx2.Client(base_url=server.url, timeout=20) as client:
        last_s = time.monotonic() + 20
        while "Assigned" not in client.get("/v1/jobs/TargetPool/core/items").text:
            for pod in ("gnmic-0", "gnmic-1"):
                client.get(f"/v1/pools/core/pods/{pod}/targets")
            assert time.monotonic() < last_s
            time.sleep(0.2)
        shown = check_page(client.get("/jobs/TargetPool/core").text)
        assert "3 targets" in shown.text
        assert "gnmic-0 joined" in shown.text
        item = check_page(client.get("/jobs/TargetPool/core/items/%3Crouter%202%3E").text)
        assert "Why it is here" in item.text
        assert "<router 2>" in item.text
        drained = client.get("/jobs/TargetPool/core?drain=gnmic-0")
        assert "What if gnmic-0 is drained?" in check_page(drained.text).text


def test_nothing_that_draws_is_imported_before_the_first_visit() -> None:
    code = "import sys, poise.serve.app; print(sorted({'jinja2', 'poise.serve.page.job_page'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
