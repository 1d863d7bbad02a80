"""Members of synchronous code: the same promises, in threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest
from tests.hold.leading import SHORT, led_set, owners, rows
from tests.hold.processes import await_that
from tests.hold.stubborn import StubbornStore

from poise.clock import boot_s
from poise.errors import Hung, InvalidSpec, MemberEnded, NotHeld, Replaced
from poise.hold.changes import Gained, Lost
from poise.hold.guard import EXIT_CODE, Guard
from poise.hold.sync import SyncMember
from poise.model.ownership import OWNED
from poise.stores.base import Store
from poise.stores.memory import MemoryStore


class Desk:
    """What is worked on."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}

    def gain(self, item: str, epoch: int) -> None:
        time.sleep(0.01)
        self.held[item] = epoch

    def lose(self, item: str, epoch: int) -> None:
        assert self.held.pop(item) == epoch

    def member(self, store: Store, name: str = "w1") -> SyncMember:
        return SyncMember(
            store, set="orders", name=name, on_gain=self.gain, on_loss=self.lose, margin_s=0.5, stop_s=0.5
        )


def test_a_block_holds_its_items_and_lets_go_of_all_when_it_ends() -> None:
    desk = Desk()
    with led_set(3) as store:
        with desk.member(store) as member:
            await_that(lambda: len(desk.held) == 3)
            assert (member.name, member.incarnation, member.items) == ("w1", 1, ("0", "1", "2"))
            assert member.epoch("1") == 1
            with pytest.raises(NotHeld):
                member.epoch("9")
        assert desk.held == {}
        assert owners(store) == {"0": None, "1": None, "2": None}


def test_changes_come_one_by_one_and_a_loss_waits_for_its_acknowledgement() -> None:
    desk = Desk()
    with led_set(2) as store, SyncMember(store, set="orders", name="w1", margin_s=0.5, stop_s=0.5) as member:
        changes = member.changes()
        assert isinstance(next(changes), Gained)
        assert isinstance(next(changes), Gained)
        with desk.member(store, "w2"):
            lost = next(changes)
            assert isinstance(lost, Lost)
            time.sleep(0.5)
            assert desk.held == {}
            lost.ack()
            await_that(lambda: desk.held == {lost.item: 2})


def test_the_stream_ends_when_a_newer_process_registers() -> None:
    desk = Desk()
    with led_set(1) as store:
        first = SyncMember(store, set="orders", name="w1", margin_s=0.5, stop_s=0.5)
        seen: list[str] = []

        def live() -> None:
            with first:
                for change in first.changes():
                    seen.append(type(change).__name__)
                    if isinstance(change, Lost):
                        change.ack()
                    else:
                        threading.Thread(target=replace).start()
                assert first.ended
                with pytest.raises(MemberEnded):
                    first.drain()

        done = threading.Event()

        def replace() -> None:
            with desk.member(store):
                done.wait(15)

        with pytest.raises(Replaced):
            live()
        await_that(lambda: desk.held == {"0": 2})
        done.set()
        assert seen == ["Gained", "Lost"]
        await_that(lambda: desk.held == {})


@pytest.mark.slow
def test_a_callback_that_hangs_ends_the_member_and_nobody_says_that_it_was_released() -> None:
    over = threading.Event()
    with led_set(1) as within:
        store = StubbornStore(within)

        def live() -> None:
            def hang(item: str, epoch: int) -> None:
                del item, epoch
                over.wait(30)

            with SyncMember(store, set="orders", name="w1", on_loss=hang, margin_s=0.5, stop_s=0.5) as member:
                await_that(lambda: member.items == ("0",))
                store.cut = True
                await_that(lambda: member.ended, SHORT.lease_s * 3)

        with pytest.raises(Hung):
            live()
        assert rows(within)["0"].state in OWNED
        over.set()


def test_a_drain_returns_when_everything_is_released() -> None:
    desk = Desk()
    with led_set(2) as store, desk.member(store) as member:
        await_that(lambda: len(desk.held) == 2)
        member.drain()
        assert owners(store) == {"0": None, "1": None}
        assert not member.items


def test_an_error_at_the_start_comes_out_of_the_block() -> None:
    with pytest.raises(InvalidSpec, match="there is no set"), Desk().member(MemoryStore(boot_s)):
        pass


def test_an_error_of_the_block_comes_out_as_itself() -> None:
    with led_set(1) as store:
        with pytest.raises(ZeroDivisionError), Desk().member(store):
            raise ZeroDivisionError
        assert owners(store) == {"0": None}


def test_callbacks_and_a_stream_exclude_each_other() -> None:
    with pytest.raises(InvalidSpec, match="changes are for members without callbacks"):
        Desk().member(MemoryStore(boot_s)).changes()


def test_a_guard_ends_the_process_at_its_limit_and_not_before() -> None:
    now_s = 10.0
    late: list[float] = []
    guard = Guard(lambda: now_s, late.append)
    guard.limit_s = 11.0
    time.sleep(0.3)
    assert late == []
    now_s = 12.0
    await_that(lambda: late == [1.0])
    guard.close()


BLOCKED = """
import sys, threading, time
sys.path.insert(0, {root!r})
from tests.hold.leading import led_set
from poise.hold.member import Member
import asyncio

async def work(store):
    async def gain(item, epoch):
        print("blocked", flush=True)
        time.sleep(60)
    async with Member(store, set="orders", name="w1", on_gain=gain, margin_s=0.5, stop_s=0.5, on_hang="exit"):
        await asyncio.sleep(60)

with led_set(1) as store:
    asyncio.run(work(store))
"""


@pytest.mark.slow
def test_a_callback_that_blocks_the_event_loop_ends_the_process_before_its_lease_is_over() -> None:
    blocked = subprocess.Popen(
        [sys.executable, "-c", BLOCKED.format(root=os.getcwd())], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with blocked:
        assert blocked.stdout is not None
        blocked.stdout.readline()
        began_s = boot_s()
        assert blocked.wait(15) == EXIT_CODE
        assert boot_s() - began_s < SHORT.lease_s + 0.1
        assert blocked.stderr is not None
        assert b"work did not stop in time" in blocked.stderr.read()
