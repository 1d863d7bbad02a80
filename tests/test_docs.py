"""Every command and every Python block that the docs show is run, and what they show is what comes out."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
POISE = Path(sys.executable).with_name("poise")


class Block(NamedTuple):
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(language: str) -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text()
        for fence in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, fence.start()) + 1
            if fence[1] == language:
                found.append(Block(str(page.relative_to(ROOT)), line, fence[1], fence[2]))
    return found


def commands(block: Block) -> list[tuple[str, str]]:
    """Split a console block into commands, each with the output that stands below it."""
    parts = re.split(r"^\$ (.*)\n", block.text, flags=re.MULTILINE)
    assert parts[0] == "", f"{block}: a console block starts with a command"
    return list(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("block", blocks("console"), ids=str)
def test_a_command_of_the_docs_prints_what_the_docs_show(block: Block, tmp_path: Path) -> None:
    for path in ("examples", "docs"):
        (tmp_path / path).symlink_to(ROOT / path)
    for command, shown in commands(block):
        words = shlex.split(command, comments=True)
        assert words[0] in ("poise", "make"), f"{block}: {command}"
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
            continue
        done = subprocess.run(
            [str(POISE), *words[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        printed = done.stdout + done.stderr
        if shown.strip():
            assert printed.rstrip("\n") == shown.rstrip("\n"), f"{block}: {command}"
        assert done.returncode in ((0,) if not done.stderr else (0, 1, 2, 64)), printed


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_a_python_block_of_the_docs_runs(block: Block) -> None:
    assert "assert" in block.text or ">>>" in block.text, f"{block}: it claims nothing"
    done = subprocess.run([sys.executable, "-c", block.text], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_a_yaml_block_of_the_docs_loads(block: Block) -> None:
    from poise.documents import load, load_targets

    assert load(block.text, str(block)) if "kind:" in block.text else load_targets(block.text, str(block))


def test_the_docs_show_something() -> None:
    assert len(blocks("console")) >= 5
    assert len(blocks("python")) >= 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_inside_the_docs_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
