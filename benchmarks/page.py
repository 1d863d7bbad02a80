"""The page: how large it is, what it costs the server, how fast the demo draws it, and that it does not grow.

CPU is the server's own, read around the requests, without what its job loops cost.
`--seconds 60` makes the last part shorter.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
from playwright.sync_api import sync_playwright
from tests.browser.moving import Shuffle, await_settled, grow
from tests.browser.visiting_browser import PATIENCE_MS, await_live, find_chromium, visiting
from tests.serve_process import ServerProcess, environment, servers

from benchmarks.measure import Row, process_cpu_s, show

SECONDS = float(os.environ.get("POISE_BENCH_PAGE_SECONDS", "300"))
ITEMS, JOBS, LOOKS = 10_000, 200, 10
MOVES_A_SECOND = 100  # Fewer would not show whether a page grows while much moves.
_IDLE_S = 4.0
_APART_S = 1.2
HEAD = "apiVersion: poise.dev/v1alpha1\nkind: PartitionSet\n"
FREE = "guards: {movesInFlightMax: null, perSourceMax: null, perTargetMax: null}"


def rows(seconds: float = SECONDS) -> Iterator[Row]:
    """Measure a server process with one very large job and many small ones, then the demo, then a page left open."""
    with tempfile.TemporaryDirectory(prefix="poise-bench-") as name:
        folder = Path(name)
        (folder / "many.yaml").write_text("---\n".join(_documents()))
        with (
            servers(ServerProcess(folder, "many.yaml")) as (server,),
            httpx2.Client(base_url=server.url, timeout=60) as client,
        ):
            server.ready(60)
            await_settled(client, "large", ("m1", "m2", "m3", "m4", "m5", "m6"))
            yield from _costs(server, client)
            yield from _growth(server, client, seconds)
        yield Row("page: from `poise up --demo` to the first page, drawn in full", _first_page_s(folder), 3.0, "s")


def _documents() -> Iterator[str]:
    yield f"{HEAD}metadata: {{name: large}}\nspec: {{partitions: {ITEMS}, leaseSeconds: 3600, {FREE}}}\n"
    yield f"{HEAD}metadata: {{name: shuffled}}\nspec: {{partitions: 200, leaseSeconds: 3600, {FREE}}}\n"
    for number in range(JOBS - 2):
        yield f"{HEAD}metadata: {{name: small-{number:03}}}\nspec: {{partitions: 8}}\n"


def _costs(server: ServerProcess, client: httpx2.Client) -> Iterator[Row]:
    job = "/jobs/PartitionSet/large"
    for what, path, cpu_ms, kb in (
        (f"page: a job with {ITEMS:,} items", job, 300, 300),
        (f"page: a job with {ITEMS:,} items, a what-if", f"{job}?drain=m1", None, 300),
        (f"page: the overview with {JOBS} jobs", "/", 200, None),
    ):
        size, cpu_s = _look(server.pid, client, path)
        yield Row(f"{what}, size", size / 1000, kb, "kB")
        yield Row(f"{what}, CPU of the server", cpu_s * 1000, cpu_ms, "ms")


def _look(pid: int, client: httpx2.Client, path: str) -> tuple[int, float]:
    """Look at a page several times, so far apart that nothing of the last look is kept.

    What the job loops cost meanwhile is measured first, and taken off.
    """
    client.get(path)
    idle = _idle(pid)
    before_s, began_s = process_cpu_s(pid), time.perf_counter()
    sizes = []
    for _ in range(LOOKS):
        time.sleep(_APART_S)
        sizes.append(len(client.get(path).raise_for_status().content))
    cpu_s, took_s = process_cpu_s(pid) - before_s, time.perf_counter() - began_s
    return max(sizes), max(0.0, cpu_s - idle * took_s) / LOOKS


def _idle(pid: int) -> float:
    """Measure the CPU seconds a second of a server that nobody looks at."""
    before_s, began_s = process_cpu_s(pid), time.perf_counter()
    time.sleep(_IDLE_S)
    return (process_cpu_s(pid) - before_s) / (time.perf_counter() - began_s)


def _growth(server: ServerProcess, client: httpx2.Client, seconds: float) -> Iterator[Row]:
    shuffle = Shuffle(client, "shuffled")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox"], timeout=PATIENCE_MS
        )
        with visiting(browser, server.url) as page:
            page.goto("/jobs/PartitionSet/shuffled")
            await_live(page)
            weighed = grow(page, shuffle, seconds, parts=5)
        browser.close()
    what = f"page: open for {seconds:.0f} s of moves, moves a second"
    yield Row(what, shuffle.moves / seconds, MOVES_A_SECOND, "", at_least=True)
    yield Row("page: open while much moves, JavaScript at the beginning", weighed[0].megabytes, None, "MB")
    grown = weighed[-1].megabytes - weighed[0].megabytes
    yield Row("page: open while much moves, JavaScript more at the end", grown, 2, "MB")
    yield Row("page: open while much moves, nodes at the end", weighed[-1].nodes, None, "")


def _first_page_s(folder: Path) -> float:
    """Start the demo as people do, and ask for its first page as soon as it says where it is."""
    command = [sys.executable, "-m", "poise", "up", "--demo", "--listen", "127.0.0.1:0"]
    began_s = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            address = next(line for line in process.stderr if "answers on" in line).split()[-1]
            found = httpx2.get(f"{address}/jobs/PartitionSet/orders", timeout=30)
            assert 'id="drawing"' in found.raise_for_status().text
            return time.perf_counter() - began_s
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=SECONDS)
    return show(rows(parser.parse_args().seconds))


if __name__ == "__main__":
    sys.exit(main())
