"""Every command and every Python block that the docs show is run, and what they show is what comes out."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest
from tests.shown_commands import (
    PAGES,
    ROOT,
    Block,
    Command,
    block_commands,
    blocks,
    check_words,
    example_commands,
    help_commands,
    perform,
    read_command,
)

from poise.decide.partition_values import Step, StepKind
from poise.model.ownership import SetRow
from poise.move.executor import apply_plan, lead, put_set, register_member
from poise.stores.base import Transaction
from poise.stores.open import open_store

Printed = Callable[[], str]


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Printed:
    """Give what this process has printed: first the data, then the talk."""
    return lambda: "".join(capsys.readouterr())


def judge(command: Command, folder: Path, here: Printed) -> None:
    """Run a command, or read it where it has no end; both what it prints and its exit code are as shown."""
    if command.line.startswith("make "):
        target = command.line.split()[1]
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
    elif command.is_endless:
        check_words(command)
    else:
        done = perform(command, folder, here)
        assert not command.shown.strip() or done.printed.rstrip("\n") == command.shown.rstrip("\n"), command
        assert done.exit_code == command.exit_code, f"{command}\n{done.printed}"


@pytest.mark.parametrize("block", blocks("console"), ids=str)
def test_a_command_of_the_docs_prints_what_the_docs_show(block: Block, tmp_path: Path, here: Printed) -> None:
    for path in ("examples", "docs"):
        (tmp_path / path).symlink_to(ROOT / path)
    for command in block_commands(block):
        assert command.line.split()[0] in ("poise", "make"), command
        judge(command, tmp_path, here)


@pytest.mark.parametrize("command", example_commands(), ids=str)
def test_a_command_at_the_top_of_an_example_works(command: Command, tmp_path: Path, here: Printed) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    judge(command, tmp_path, here)


def give_one(tx: Transaction) -> None:
    """Let one member have partition 12."""
    put_set(tx, SetRow(name="orders", count=16))
    register_member(tx, "orders", "n1", "p1")
    leader = lead(tx, "leader", 10.0)
    assert leader is not None
    seen = {item: row.revision for item, row in tx.rows().items()}
    apply_plan(tx, "orders", leader.term, seen, [Step(StepKind.ASSIGN, "12", None, "n1", "first")], 1)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Set up the folder that the help texts speak of: examples, a script, a store with a set, and its journal."""
    folder = tmp_path_factory.mktemp("desk")
    for path in [*ROOT.glob("examples/*.yaml"), *ROOT.glob("examples/scripts/*.yaml")]:
        shutil.copy(path, folder)
    store = open_store(f"sqlite:///{folder}/poise.db")
    try:
        store.transact("orders", give_one)
    finally:
        store.close()
    done = perform(Command("desk", "poise history orders --db poise.db -o json > orders.journal"), folder, str)
    assert done.exit_code == 0, done.printed
    return folder


@pytest.mark.parametrize("command", help_commands(), ids=str)
def test_an_example_of_a_help_text_works(command: Command, desk: Path, here: Printed) -> None:
    judge(command, desk, here)


def test_a_wrong_exit_code_and_an_unknown_option_are_found(tmp_path: Path, here: Printed) -> None:
    judge(read_command("here", "poise plan nowhere.yaml  # exit 64"), tmp_path, here)
    with pytest.raises(AssertionError):
        judge(read_command("here", "poise plan nowhere.yaml"), tmp_path, here)
    with pytest.raises(Exception, match="No such option"):
        judge(read_command("here", "poise worker orders --nome w1"), tmp_path, here)


def test_every_verb_that_takes_something_has_an_example() -> None:
    shown = {command.where for command in help_commands()}
    assert {f"poise {verb} --help" for verb in ("plan", "explain", "simulate", "drill", "history", "verify")} <= shown
    assert len(example_commands()) >= 10


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_a_python_block_of_the_docs_runs(block: Block, tmp_path: Path) -> None:
    assert "assert" in block.text or ">>>" in block.text, f"{block}: it claims nothing"
    with chdir(tmp_path):
        exec(compile(block.text, str(block), "exec"), {"__name__": "__main__"})


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
