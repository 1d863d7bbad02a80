"""`poise worker` with real processes: children that obey, ignore, multiply, and workers that are killed and frozen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.hold.leading import SHORT, leading, owners, put, rows
from tests.hold.processes import DEAF, FAMILY, alive, await_that, group

from poise.cli.worker import worker
from poise.errors import InvalidSpec
from poise.model.ownership import Terms
from poise.stores.base import Store
from poise.stores.open import open_store

_RUN = "from poise.cli.worker import worker; worker()"
# Writes its process, item and epoch to a file of its own, then waits.
SIGN = ("sh", "-c", 'echo "$POISE_ITEM $POISE_EPOCH $POISE_MEMBER $POISE_SET" > "$0/$$"; exec sleep 300')


class World:
    """A set in a SQLite file that somebody leads, and workers of it."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self.store = folder, store
        self.url = f"sqlite:///{folder / 'poise.db'}"
        self.signs = folder / "signs"
        self.signs.mkdir()
        self.workers: list[subprocess.Popen[str]] = []
        self.groups: set[int] = set()

    def start(self, name: str, *command: str, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        arguments = ["orders", "--name", name, "--db", self.url, "--margin", "0.5", "--stop", "0.5", *options]
        started = subprocess.Popen(
            [sys.executable, "-c", _RUN, *arguments, *(["--", *command] if command else [])],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.workers.append(started)
        return started

    def sign(self, name: str, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        return self.start(name, *SIGN, str(self.signs), options=options)

    def children(self) -> dict[int, tuple[str, int, str]]:
        """Who runs now: process -> item, epoch, member."""
        found = {}
        for path in self.signs.iterdir():
            words = path.read_text().split()
            if len(words) == 4:
                self.groups.add(int(path.name))
                if alive(int(path.name)):
                    found[int(path.name)] = (words[0], int(words[1]), words[2])
        return found

    def loads(self) -> dict[str, int]:
        counted: dict[str, int] = {}
        for _, _, member in self.children().values():
            counted[member] = counted.get(member, 0) + 1
        return counted

    def end(self) -> None:
        for started in self.workers:
            if started.poll() is None:
                started.kill()
            started.communicate(timeout=10)
        self.children()
        for pid in self.groups:
            if group(pid):
                os.killpg(pid, signal.SIGKILL)


@contextmanager
def world(folder: Path, count: int, terms: Terms = SHORT) -> Iterator[World]:
    store = open_store(f"sqlite:///{folder / 'poise.db'}")
    put(store, count, terms)
    made = World(folder, store)
    try:
        with leading(store):
            yield made
    finally:
        made.end()
        store.close()


@pytest.mark.slow
def test_a_child_for_every_item_and_a_drain_at_sigterm(tmp_path: Path) -> None:
    with world(tmp_path, 3) as here:
        first = here.sign("w1")
        await_that(lambda: here.loads() == {"w1": 3})
        assert sorted(here.children().values()) == [("0", 1, "w1"), ("1", 1, "w1"), ("2", 1, "w1")]
        first.send_signal(signal.SIGTERM)
        assert first.wait(15) == 0
        assert here.children() == {}
        assert owners(here.store) == {"0": None, "1": None, "2": None}, "nobody has to wait for a lease"


@pytest.mark.slow
def test_a_second_worker_gets_its_share_and_no_item_has_two_children(tmp_path: Path) -> None:
    with world(tmp_path, 4) as here:
        here.sign("w1")
        await_that(lambda: here.loads() == {"w1": 4})
        here.sign("w2")
        last_s = time.monotonic() + 15
        while here.loads() != {"w1": 2, "w2": 2}:
            items = [item for item, _, _ in here.children().values()]
            assert len(items) == len(set(items)), "two children of one item"
            assert time.monotonic() < last_s
            time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("command", [DEAF, FAMILY], ids=["ignores SIGTERM", "with grandchildren"])
def test_the_children_of_a_killed_worker_end_before_others_begin(tmp_path: Path, command: tuple[str, ...]) -> None:
    with world(tmp_path, 1) as here:
        script = f'echo "$POISE_ITEM $POISE_EPOCH $POISE_MEMBER $POISE_SET" > {here.signs}/$$; {command[2]}'
        first = here.start("w1", "sh", "-c", script)
        await_that(lambda: here.loads() == {"w1": 1})
        [old] = here.children()
        await_that(lambda: len(group(old)) > 1)
        first.kill()
        here.sign("w2")
        while not here.loads().get("w2"):
            left = group(old)
            time.sleep(0.02)
        assert left == [], "nobody of the old group was left when the new child began"
        assert rows(here.store)["0"].epoch == 2


@pytest.mark.slow
def test_the_children_of_a_frozen_worker_end_before_its_lease_and_it_goes_on_when_it_wakes(tmp_path: Path) -> None:
    with world(tmp_path, 2) as here:
        first = here.sign("w1")
        await_that(lambda: here.loads() == {"w1": 2})
        old = set(here.children())
        first.send_signal(signal.SIGSTOP)
        frozen_s = time.monotonic()
        await_that(lambda: not old & set(here.children()), SHORT.lease_s + 0.5)
        assert time.monotonic() - frozen_s < SHORT.lease_s + 0.5
        await_that(lambda: all(row.owner is None for row in rows(here.store).values()))
        first.send_signal(signal.SIGCONT)
        await_that(lambda: here.loads() == {"w1": 2})
        assert {epoch for _, epoch, _ in here.children().values()} == {2}
        first.send_signal(signal.SIGTERM)
        assert first.wait(15) == 0


@pytest.mark.slow
def test_a_second_signal_does_not_wait_for_a_child_that_ignores_the_first(tmp_path: Path) -> None:
    with world(tmp_path, 1) as here:
        script = f'echo "$POISE_ITEM $POISE_EPOCH $POISE_MEMBER $POISE_SET" > {here.signs}/$$; {DEAF[2]}'
        first = here.start("w1", "sh", "-c", script)
        await_that(lambda: here.loads() == {"w1": 1})
        first.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        first.send_signal(signal.SIGTERM)
        assert first.wait(20) != 0, "it did not end in peace"
        assert here.children() == {}


@pytest.mark.slow
def test_a_child_that_ignores_sigterm_is_killed_when_its_release_takes_too_long(tmp_path: Path) -> None:
    with world(tmp_path, 2, Terms(lease_s=2, grace_s=1, release_s=1)) as here:
        script = f'echo "$POISE_ITEM $POISE_EPOCH $POISE_MEMBER $POISE_SET" > {here.signs}/$$; {DEAF[2]}'
        first = here.start("w1", "sh", "-c", script)
        await_that(lambda: here.loads() == {"w1": 2})
        here.sign("w2")
        while here.loads() != {"w1": 1, "w2": 1}:
            items = [item for item, _, _ in here.children().values()]
            assert len(items) == len(set(items)), "two children of one item"
            time.sleep(0.02)
        assert first.poll() is None, "a worker whose child had to be killed goes on"


@pytest.mark.slow
def test_a_restart_with_keep_gets_the_same_items_back(tmp_path: Path) -> None:
    keep = ("--on-exit", "keep")
    with world(tmp_path, 4) as here:
        first, _ = here.sign("w1", keep), here.sign("w2", keep)
        await_that(lambda: here.loads() == {"w1": 2, "w2": 2})
        before = {item: member for item, _, member in here.children().values()}
        first.send_signal(signal.SIGTERM)
        assert first.wait(15) == 0
        here.sign("w1", keep)
        await_that(lambda: here.loads() == {"w1": 2, "w2": 2})
        assert {item: member for item, _, member in here.children().values()} == before


@pytest.mark.slow
def test_a_worker_of_the_same_name_supersedes_the_first_which_ends(tmp_path: Path) -> None:
    with world(tmp_path, 2) as here:
        first = here.sign("w1")
        await_that(lambda: here.loads() == {"w1": 2})
        here.sign("w1")
        assert first.wait(15) != 0
        await_that(lambda: {epoch for _, epoch, _ in here.children().values()} == {2})
        _, said = first.communicate()
        assert "incarnation 2 of w1 has registered" in said


@pytest.mark.slow
def test_without_a_watchdog_nothing_runs(tmp_path: Path) -> None:
    with world(tmp_path, 1) as here:
        first = here.sign("w1")
        await_that(lambda: here.loads() == {"w1": 1})
        assert first.stderr is not None
        watchdog = int(first.stderr.readline().rpartition(" ")[2])
        os.kill(watchdog, signal.SIGKILL)
        assert first.wait(15) != 0
        assert here.children() == {}
        assert owners(here.store) == {"0": None}, "it saw the group empty, and said so"


def test_without_a_command_gains_and_losses_are_printed(tmp_path: Path) -> None:
    with world(tmp_path, 2) as here:
        first = here.start("w1")
        assert first.stdout is not None
        gained = [json.loads(first.stdout.readline()) for _ in range(2)]
        first.send_signal(signal.SIGINT)
        said, _ = first.communicate(timeout=15)
        lost = [json.loads(line) for line in said.splitlines()]
        fact = {"set": "orders", "epoch": 1, "member": "w1"}
        assert gained == [{"event": "gained", **fact, "item": item} for item in "01"]
        assert lost == [{"event": "lost", **fact, "item": item} for item in "01"]
        assert first.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing argument 'SET'"),
        (["orders", "--on-exit", "keep"], "--on-exit keep needs --name"),
        (["orders", "--on-exit", "stay"], "'stay' is not one of"),
        (["orders", "--", "no-such-command"], "no-such-command: no such command"),
        (["orders", "--margin", "soon"], "'soon' is not a valid float"),
    ],
)
def test_bad_usage_is_refused(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(worker, arguments)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--name", "a b"], "$.name: "),
        (["--margin", "nan"], "$.margin_s: "),
        (["--db", "ftp://x"], "$.db: "),
        ([], "poise.db: there is no such file"),
        (["--on-exit", "release"], "there is no set 'orders' in sqlite:///"),
        (["--margin", "9"], "$.margin_s: expected < 6.66667"),
    ],
)
def test_bad_settings_are_refused(arguments: list[str], said: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'poise.db'}"
    if "9" in arguments or "release" in arguments:
        store = open_store(url)
        put(store, 1, Terms(), "orders" if "9" in arguments else "others")
        store.close()
    result = CliRunner().invoke(worker, ["orders", "--db", url, *arguments])
    assert isinstance(result.exception, InvalidSpec)
    assert said in str(result.exception)
