"""Every example that a help text shows of a server is run against one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from tests.hold.processes import await_that
from tests.serve_process import ServedFolder
from tests.shown_commands import ROOT, Command, check_words, help_commands, perform

from poise.cli.main import run

SHOWN = "http://127.0.0.1:7878"
VERBS = ("get", "apply", "drain", "undrain", "pause", "resume")


def examples() -> list[Command]:
    """List what asks a server and ends by itself."""
    asking = [each for each in help_commands() if each.line.split()[1] in VERBS or SHOWN in each.line]
    return [each for each in asking if not any(word in each.line for word in ("poise worker", "--watch", "--kube"))]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFolder]:
    """Run a server with the jobs that the help texts speak of, in a folder with their files."""
    folder = tmp_path_factory.mktemp("desk")
    for path in ROOT.glob("examples/*.yaml"):
        shutil.copy(path, folder)
    documents = [(ROOT / "examples" / name).read_text() for name in ("orders.yaml", "routers.yaml")]
    with ServedFolder(folder, *documents) as made:
        for name in ("w1", "w2"):
            made.begin("worker", "orders", "--name", name)
        await_that(lambda: "as it should be" in made.poise("get", "orders").stdout, 30.0)
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("command", examples(), ids=str)
def test_an_example_works_against_a_server(
    command: Command, server: ServedFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POISE_SERVER", server.url)
    line = command.line.replace(SHOWN, server.url)
    if line.startswith("poise apply") and "--" not in line:
        line += " --yes"  # Nobody can be asked here.
    assert run(["undrain", "w2", "--server", server.url]) == 0, capsys.readouterr().err
    capsys.readouterr()
    done = perform(command._replace(line=line), server.folder, lambda: "".join(capsys.readouterr()))
    assert done.exit_code == 0, done.printed


def test_each_verb_shows_an_example_and_the_endless_ones_have_known_words() -> None:
    assert {each.where for each in examples()} >= {f"poise {verb} --help" for verb in VERBS}
    for command in help_commands():
        if "--watch" in command.line or "poise worker" in command.line:
            check_words(command)
