"""The quick start is executed on a real API server, up to where an image is needed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.world import Cluster
from tests.page_shell import Shell, Step, follow, read_steps
from tests.serve_process import await_met
from tools.kube.build import find_program

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "quickstart-kind.md"
SETUP = "make setup\n"  # Setting up is what happened before any test could run.
ELSEWHERE = ("kind ", "docker ")  # They make the cluster, and bring images to it.
FAILED = "-- failed --"
PATIENCE_S, TOTAL_S = 90.0, 400.0


@pytest.fixture
def shell(breakable: Cluster, tmp_path: Path) -> Iterator[Shell]:
    """Open a shell in a clone, as a reader has it."""
    clone = tmp_path / "clone"
    for name in ("deploy", "examples"):
        shutil.copytree(ROOT / name, clone / name)
    (clone / ".venv").symlink_to(sys.prefix)
    path = f"{find_program('kubectl').parent}{os.pathsep}{os.environ['PATH']}"
    opened = Shell(clone, TOTAL_S, {**os.environ, "KUBECONFIG": str(breakable.kubeconfig()), "PATH": path})
    try:
        yield opened
    finally:
        opened.close()


def says(step: Step, printed: str) -> bool:
    """Tell whether this is what the text shows; where it shows nothing, nothing may have failed."""
    return FAILED not in printed if step.shown is None else printed == step.shown


def test_the_quick_start_does_what_it_says(shell: Shell) -> None:
    steps = read_steps(PAGE.read_text(), PATIENCE_S)
    ours = [step for step in steps if not step.commands.startswith(ELSEWHERE)]
    assert len(steps) - len(ours) == 2
    assert sum(step.shown is not None for step in ours) >= 7, "the page shows what comes out"
    assert ours[0].commands.startswith(SETUP)
    shell.run(f"set -o pipefail; trap 'echo {FAILED}' ERR")
    for step in ours:
        commands = step.commands.removeprefix(SETUP).replace("--no-protect", "--no-protect --listen 127.0.0.1:0", 1)
        follow(shell, step._replace(commands=commands), says, PAGE)
    await_met(lambda: shell.processes() == [shell.process.pid])
