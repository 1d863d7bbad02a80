"""The central promises of a member on stores that are really shared: a SQLite file and a PostgreSQL server."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.hold.diary import MARGIN_S, STOP_S, Diary, run
from tests.hold.leading import SHORT, leading, owners, put, rows, until
from tests.hold.processes import await_that
from tests.postgres_server import running_server
from tests.store_places import ROOT, Place

from poise.clock import boot_s
from poise.errors import Replaced
from poise.hold.member import Member
from poise.hold.sync import SyncMember
from poise.stores.base import Store

SLACK_S = 2.0  # Beyond lease and grace: a cycle of the leader, a heartbeat, and a busy machine.


class Shared:
    """A store with a set that somebody leads, its address for members, and a way to take it away."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind, self._file = kind, folder / "poise.db"
        self.url = f"sqlite:///{self._file}" if kind == "sqlite" else running_server().new_place()
        self._place = Place(kind, self.url)
        self.store: Store = self._place.open()

    def close(self) -> None:
        self._place.close()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Let nobody be answered: a file that somebody has locked, or a server that has crashed."""
        if self._kind == "postgres":
            running_server().stop("immediate")
            try:
                yield
            finally:
                running_server().start()
            return
        other = sqlite3.connect(self._file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")
            other.close()


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shared]:
    shared = Shared(str(request.param), tmp_path)
    yield shared
    shared.close()


def test_gain_and_drain(shared: Shared) -> None:
    async def work() -> None:
        diary = Diary()
        async with diary.member(shared.url) as member:
            await until(lambda: len(diary.held) == 3)
            assert {item: member.epoch(item) for item in member.items} == diary.held == {"0": 1, "1": 1, "2": 1}
        assert diary.held == {}
        assert owners(shared.store) == {"0": None, "1": None, "2": None}, "the lease was not waited for"
        assert shared.store.transact("orders", lambda tx: tx.members())["w1"].leaving == "stop"

    put(shared.store, 3)
    with leading(shared.store):
        run(work())


def test_gain_and_drain_of_synchronous_code(shared: Shared) -> None:
    held: dict[str, int] = {}
    put(shared.store, 2)
    with leading(shared.store):
        with SyncMember(
            shared.url,
            set="orders",
            name="w1",
            on_gain=held.__setitem__,
            on_loss=lambda item, _: held.__delitem__(item),
            margin_s=MARGIN_S,
            stop_s=STOP_S,
        ):
            await_that(lambda: held == {"0": 1, "1": 1})
        assert held == {}
        assert owners(shared.store) == {"0": None, "1": None}


@pytest.mark.slow
def test_loss_without_two_that_act(shared: Shared) -> None:
    acting: dict[str, list[str]] = {}

    def working(name: str) -> Member:
        async def gain(item: str, epoch: int) -> None:
            del epoch
            acting.setdefault(item, []).append(name)
            assert len(acting[item]) == 1, f"two act on {item}"

        async def lose(item: str, epoch: int) -> None:
            del epoch
            await asyncio.sleep(0.05)
            acting[item].remove(name)

        return Member(shared.url, set="orders", name=name, on_gain=gain, on_loss=lose, margin_s=MARGIN_S, stop_s=STOP_S)

    async def work() -> None:
        async with working("w1"):
            await until(lambda: len(acting) == 4)
            async with working("w2"):
                await until(lambda: sorted(names[0] for names in acting.values() if names) == ["w1", "w1", "w2", "w2"])
            await until(lambda: all(names == ["w1"] for names in acting.values()))

    put(shared.store, 4)
    with leading(shared.store):
        run(work())


MORTAL = """
import asyncio, sys
from poise.hold.member import Member

async def work():
    async def gain(item, epoch):
        print(item, epoch, flush=True)
    async with Member(sys.argv[1], set="orders", name="w1", on_gain=gain, margin_s=0.5, stop_s=0.5):
        await asyncio.sleep(60)

asyncio.run(work())
"""


@pytest.mark.slow
def test_what_a_killed_process_held_acts_again_elsewhere_after_lease_and_grace(shared: Shared) -> None:
    async def work(mortal: subprocess.Popen[str]) -> None:
        diary = Diary()
        async with diary.member(shared.url, "w2"):
            await asyncio.sleep(0.2)
            assert diary.held == {}
            mortal.send_signal(signal.SIGKILL)
            killed_s = boot_s()
            await until(lambda: diary.held == {"0": 2})
            gap_s = diary.lines[0][3] - killed_s
            assert SHORT.grace_s < gap_s < SHORT.lease_s + SHORT.grace_s + SLACK_S

    put(shared.store, 1)
    command = [sys.executable, "-c", MORTAL, shared.url]
    with leading(shared.store), subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as mortal:
        try:
            assert mortal.stdout is not None
            assert mortal.stdout.readline() == "0 1\n"
            run(work(mortal))
        finally:
            mortal.kill()


@pytest.mark.slow
def test_a_second_process_of_a_name_supersedes_the_first(shared: Shared) -> None:
    async def work() -> None:
        first, second = Diary(), Diary()

        async def live() -> None:
            async with first.member(shared.url):
                await asyncio.sleep(60)

        life = asyncio.create_task(live())
        await until(lambda: len(first.held) == 2)
        async with second.member(shared.url) as member:
            await until(lambda: len(second.held) == 2)
            assert first.held == {}, "the first had stopped before"
            assert (set(second.held.values()), member.incarnation) == ({2}, 2)
            with pytest.raises(Replaced, match="incarnation 2 of w1 has registered"):
                await life

    put(shared.store, 2)
    with leading(shared.store):
        run(work())


@pytest.mark.slow
def test_while_the_store_is_away_a_member_fences_itself_and_comes_back_at_the_next_epoch(shared: Shared) -> None:
    async def work() -> None:
        diary = Diary()
        async with diary.member(shared.url):
            await until(lambda: diary.held == {"0": 1})
            with shared.away():
                away_s = boot_s()
                await until(lambda: diary.held == {}, patience_s=SHORT.lease_s * 2)
                assert diary.lines[-1][3] - away_s < SHORT.lease_s, "counted from before it was away, at the latest"
                assert diary.story("0") == [("gain", 1), ("loss", 1)]
            await until(lambda: diary.held == {"0": 2})
        assert rows(shared.store)["0"].owner is None

    put(shared.store, 1)
    with leading(shared.store):
        run(work())
