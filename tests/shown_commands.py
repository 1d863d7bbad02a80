"""The commands that pages, examples and help texts show: where each stands, what it prints, and how it must end.

A command ends with exit code 0 unless its line ends with a comment such as `# exit 64`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

import click

from poise.cli.main import poise, run

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
_EXIT = re.compile(r"\s*# exit (\d+)\s*$")
# These run until they are told to end, or need a server: only their words are read.
_ENDLESS = re.compile(
    r"poise (up|operator|conformance|worker|get|apply|drain|undrain|pause|resume|top)\b|postgresql://|--server|--kube"
)


class Block(NamedTuple):
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


class Command(NamedTuple):
    """One command as it is shown, without its marker; `shown` is the output below it, where there is any."""

    where: str
    line: str
    exit_code: int = 0
    shown: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.line}"

    @property
    def is_endless(self) -> bool:
        return _ENDLESS.search(self.line) is not None


def blocks(language: str) -> list[Block]:
    """List the fenced blocks of one language on all pages."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for fence in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, fence.start()) + 1
            if fence[1] == language:
                found.append(Block(str(page.relative_to(ROOT)), line, fence[1], fence[2]))
    return found


def read_command(where: str, text: str, shown: str = "") -> Command:
    """Read one line: the marker says how it ends, and two blanks separate what is said about it."""
    marked = _EXIT.search(text)
    line = re.split(r"\s{2,}", _EXIT.sub("", text).strip())[0]
    return Command(where, line, int(marked[1]) if marked else 0, shown)


def block_commands(block: Block) -> list[Command]:
    """Split a console block into commands, each with the output that stands below it."""
    parts = re.split(r"^\$ (.*)\n", block.text, flags=re.MULTILINE)
    assert parts[0] == "", f"{block}: a console block starts with a command"
    return [read_command(str(block), text, shown) for text, shown in zip(parts[1::2], parts[2::2], strict=True)]


def example_commands() -> list[Command]:
    """List the commands in the comments at the top of the examples."""
    return [
        read_command(str(path.relative_to(ROOT)), line)
        for path in sorted(ROOT.glob("examples/*.yaml"))
        for line in re.findall(r"^#   (poise .*)$", path.read_text(), re.MULTILINE)
    ]


def help_commands() -> list[Command]:
    """List the examples that close the help of every verb."""
    context = click.Context(poise)
    found = []
    for verb in poise.list_commands(context):
        command = poise.get_command(context, verb)
        assert command is not None
        lines = re.findall(r"^  (\S.*)$", (command.epilog or "").partition("Examples:")[2], re.MULTILINE)
        found += [read_command(f"poise {verb} --help", line) for line in lines]
    return found


class Done(NamedTuple):
    """What a command printed, and how it ended."""

    printed: str
    exit_code: int


def perform(command: Command, folder: Path, here: Callable[[], str]) -> Done:
    """Run a command as a reader would: in this process, whose output `here` gives, or in a shell where it needs one.

    Drills are cut short, and say the same.
    """
    line = command.line
    if line.startswith("poise drill"):
        line += " --minutes 3" + (" --seeds 1" if "--seed " not in line else "")
    with chdir(folder):
        if not re.search(r" [|>] ", line):
            code = run(shlex.split(line)[1:])
            return Done(here(), code)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(
            ["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        return Done(done.stdout + done.stderr, done.returncode)


def check_words(command: Command) -> None:
    """Read the words of a command that is not run here: its verb, its options and its arguments must be known."""
    words = shlex.split(re.split(r" [|>&] ?", command.line)[0], comments=True)
    words = words[: words.index("--")] if "--" in words else words
    context = click.Context(poise)
    verb = poise.get_command(context, words[1])
    assert verb is not None, f"{command}: there is no such verb"
    verb.make_context(words[1], words[2:], parent=context)
