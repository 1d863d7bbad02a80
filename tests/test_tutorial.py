"""The tutorial is executed: its commands run in one shell, in their order, and must show what its text shows."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.page_shell import CLOSE_S, Shell, Step, follow, read_steps

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
SETUP = "make setup\n"  # Setting up is what happened before any test could run.
TOTAL_S = 240.0
VARIES = ("uniq", "poise history tasks $item", "poise verify")  # The text says that their numbers do.


def says(step: Step, printed: str) -> bool:
    """Tell whether this is what the text shows; where it shows nothing, nothing may be printed."""
    return same(printed, step.shown or "", varies=step.commands.startswith(VARIES))


def steps() -> list[Step]:
    """Read the page; the test takes any free port, people take the usual one."""
    return read_steps(PAGE.read_text().replace("poise up tasks.yaml", "poise up tasks.yaml --listen 127.0.0.1:0"))


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


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "examples", clone / "examples")
    (clone / ".venv").symlink_to(sys.prefix)
    opened = Shell(clone, TOTAL_S)
    try:
        yield opened
    finally:
        opened.close()


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(shell: Shell) -> None:
    first, *rest = steps()
    assert first.commands.startswith(SETUP)
    shell.run(first.commands.removeprefix(SETUP))
    *rest, last = rest
    for step in rest:
        follow(shell, step, says, PAGE)
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
    looks = [step for step in steps() if step.shown and step.shown.startswith("all ")]
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
    assert says(Step(1, commands, shown, 0.0), printed) is is_said


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
    shell = Shell(tmp_path, TOTAL_S)
    shell.run("sleep 300 & sh -c 'trap : TERM INT; kill -STOP $$' &")
    assert len(shell.processes()) >= 3
    shell.close()
    assert shell.processes() == []
