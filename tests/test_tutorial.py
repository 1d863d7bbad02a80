"""The tutorial is executed: its commands run in one shell, in their order, and must show what its text shows."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
SETUP = "make setup\n"  # Setting up is what happened before any test could run.
DONE = "-- done --"
PATIENCE_S = 20.0  # For what has no time in the text: processes that start on a busy machine.
TOTAL_S = 60.0
CLOSE_S = 5.0


VARIES = ("uniq", "poise history tasks $item", "poise verify")  # The text says that their numbers do.


class Step(NamedTuple):
    """The commands of one block, what they print, and how soon the text says that they print it."""

    line: int
    commands: str
    shown: str | None
    within_s: float

    def says(self, printed: str) -> bool:
        """Tell whether this is what the text shows; where it shows nothing, nothing may be printed."""
        return same(printed, self.shown or "", varies=self.commands.startswith(VARIES))


def steps(text: str) -> list[Step]:
    """Read the `sh` blocks, each with the `text` block that follows it at once and the words before it."""
    found, said = [], 0
    # The test takes any free port; people take the usual one.
    text = text.replace("poise up tasks.yaml", "poise up tasks.yaml --listen 127.0.0.1:0")
    for block in re.finditer(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```$)?", text, re.MULTILINE | re.DOTALL):
        named = re.findall(r"[Ww]ithin (\d+) seconds", text[said : block.start()])
        line = text.count("\n", 0, block.start()) + 1
        found.append(Step(line, block[1], block[2], float(named[-1]) if named else PATIENCE_S))
        said = block.end()
    return found


def same(printed: str, shown: str, *, varies: bool = False) -> bool:
    """Compare with the text: loads by size, since any worker may have the odd one; the rest by letter, or by shape."""
    printed = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:7878", printed)
    if shown.startswith("all "):
        return _loads(printed) == _loads(shown)
    return _shape(printed) == _shape(shown) if varies else printed == shown


def _loads(table: str) -> tuple[list[str], list[str]]:
    rows = [line.split() for line in table.splitlines()]
    return sorted(row[0] for row in rows), sorted(row[-1] for row in rows)


def _shape(printed: str) -> list[str]:
    """Leave numbers out, and who takes a partition; but w3 is the one that was killed."""
    lines = (" ".join(line.split()) for line in printed.splitlines())
    return [re.sub(r"(?<![\dw])\d+", "#", re.sub(r"\bw(?!3\b)\d\b", "w#", line)) for line in lines]


class Shell:
    """One shell, as a reader has it; everything that it started is ended with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            ["bash", "--norc"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.ends_s = time.monotonic() + TOTAL_S

    def run(self, commands: str) -> str:
        """Run commands, and return what they printed."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{commands}\necho '{DONE}'\n".encode())
        self.process.stdin.flush()
        return self._read(commands)

    def _read(self, commands: str) -> str:
        assert self.process.stdout is not None
        printed = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not printed.endswith(f"{DONE}\n".encode()):
                ready = selector.select(max(0.0, self.ends_s - time.monotonic()))
                assert ready, f"the tutorial takes more than {TOTAL_S:.0f} s, in: {commands}"
                some = os.read(self.process.stdout.fileno(), 65536)
                assert some, f"the shell has ended in: {commands}"
                printed += some
        return printed.decode().removesuffix(f"{DONE}\n")

    def processes(self) -> list[int]:
        """Find who works in the folder: workers, watchdogs, counters, the shell."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and (entry / "cwd").readlink().is_relative_to(self.folder):
                    found.append(int(entry.name))
        return found

    def close(self) -> None:
        """End them one by one, until nobody is left to start another one."""
        until_s = time.monotonic() + CLOSE_S
        while (left := self.processes()) and time.monotonic() < until_s:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
            time.sleep(0.02)
        self.process.wait(CLOSE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "examples", clone / "examples")
    (clone / ".venv").symlink_to(sys.prefix)
    opened = Shell(clone)
    try:
        yield opened
    finally:
        opened.close()


def follow(shell: Shell, step: Step) -> None:
    """Run a block; what has output below it only looks, and looks again until its time is over."""
    until_s = time.monotonic() + step.within_s
    printed = shell.run(step.commands)
    while step.shown and not step.says(printed) and time.monotonic() < until_s:
        time.sleep(0.2)
        printed = shell.run(step.commands)
    place = f"docs/tutorial.md:{step.line}, within {step.within_s:.0f} s"
    assert step.says(printed), f"{place}: {step.commands}{printed}"


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(shell: Shell) -> None:
    first, *rest = steps(PAGE.read_text())
    assert first.commands.startswith(SETUP)
    shell.run(first.commands.removeprefix(SETUP))
    *rest, last = rest
    for step in rest:
        follow(shell, step)
    check_counts(shell.folder / "try" / "counts", 64)
    shell.run(last.commands)
    until_s = time.monotonic() + CLOSE_S
    while (left := shell.processes()) != [shell.process.pid] and time.monotonic() < until_s:
        time.sleep(0.1)
    assert left == [shell.process.pid], "the last commands end everything"
    assert sorted(path.name for path in shell.folder.iterdir()) == [".venv", "examples"]


def check_counts(folder: Path, partitions: int) -> None:
    """Judge the counters: every partition has one, every number is there once, and epochs never fall."""
    assert sorted(int(path.name) for path in folder.iterdir()) == list(range(partitions))
    for path in folder.iterdir():
        lines = [line.split() for line in path.read_text().splitlines()]
        assert [int(line[0]) for line in lines] == list(range(1, len(lines) + 1)), path.name
        epochs = [int(line[3]) for line in lines]
        assert epochs == sorted(epochs), path.name


def test_the_text_promises_what_must_be_shown() -> None:
    """Nobody can weaken the promises by editing the page alone."""
    looks = [step for step in steps(PAGE.read_text()) if step.shown and step.shown.startswith("all ")]
    loads = [[int(line.split()[1]) for line in (look.shown or "").splitlines()] for look in looks]
    assert [sorted(load[1:], reverse=True) for load in loads] == [
        [13, 13, 13, 13, 12],
        [16, 16, 16, 16],
        [13, 13, 13, 13, 12],
        [16, 16, 16, 16],
        [22, 21, 21],
        [16, 16, 16, 16],
        [22, 21, 21],
    ]
    assert all(load[0] == 64 for load in loads)
    lease_s, grace_s = 4, 1
    assert f"leaseSeconds: {lease_s}\n  graceSeconds: {grace_s}\n" in (ROOT / "examples" / "tasks.yaml").read_text()
    assert looks[1].within_s == looks[4].within_s == lease_s + grace_s + 2
    assert all(step.within_s <= 9 for step in looks[1:])


@pytest.mark.parametrize(
    ("commands", "printed", "shown", "is_said"),
    [
        ("sh count.sh", "all 3\nw1 2\nw2 1\n", "all 3\nw1 1\nw2 2\n", True),
        ("sh count.sh", "all 3\nw1 2\nw2 1\n", "all 3\nw1 3\n", False),
        ("sh count.sh", "all 2\nw1 1\nw2 1\n", "all 3\nw1 2\nw2 1\n", False),
        ("sh count.sh", "all 3\nw1 2\nw4 1\n", "all 3\nw1 2\nw2 1\n", False),
        ("poise history tasks $item", " 9  7.5  3 expired w3\n", "10  17.25  14 expired w3\n", True),
        ("poise history tasks $item", " 9  7.5  3 expired w2\n", "10  17.25  14 expired w3\n", False),
        ("poise history tasks | grep -c", "13\n", "12\n", False),
        ("poise verify", "broken: epochs\n", "sound: 266 lines\n", False),
        ("awk", "12 w1 epoch 2\n", None, False),
        ("awk", "", None, True),
    ],
)
def test_another_output_is_seen(commands: str, printed: str, shown: str | None, is_said: bool) -> None:
    assert Step(1, commands, shown, 0.0).says(printed) is is_said


@pytest.mark.parametrize(
    "lines",
    ["1 w1 epoch 1\n1 w2 epoch 2\n", "1 w1 epoch 1\n3 w2 epoch 2\n", "1 w1 epoch 2\n2 w2 epoch 1\n"],
    ids=["twice", "missing", "an old epoch"],
)
def test_a_wrong_count_is_seen(lines: str, tmp_path: Path) -> None:
    (tmp_path / "0").write_text("1 w1 epoch 1\n2 w2 epoch 2\n")
    check_counts(tmp_path, 1)
    (tmp_path / "0").write_text(lines)
    with pytest.raises(AssertionError):
        check_counts(tmp_path, 1)


def test_what_the_shell_started_ends_with_it(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.run("sleep 300 & sh -c 'trap : TERM INT; kill -STOP $$' &")
    assert len(shell.processes()) >= 3
    shell.close()
    assert shell.processes() == []
