"""Members whose work fails or will not stop: it is cancelled, then the member ends, before the lease does."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from msgspec.structs import replace
from tests.hold.diary import MARGIN_S, STOP_S, run
from tests.hold.leading import SHORT, led_set, owners, put, rows, until
from tests.hold.processes import DEAF
from tests.hold.stubborn import StubbornStore

from poise.clock import boot_s
from poise.decide.partition_values import Step, StepKind
from poise.errors import Hung
from poise.hold.children import Children
from poise.hold.member import Member, OnBeat
from poise.hold.settings import Pace
from poise.hold.works import Callback
from poise.jobs.coordinator import Coordinator
from poise.model.ownership import OWNED
from poise.move.executor import apply_plan
from poise.stores.memory import MemoryStore


async def hang_with(store: StubbornStore, lose: Callback, *, frozen: bool = False) -> float:
    """Cut the line of a member whose work does not stop, and see it end; give when it was last heard."""
    heard_s = 0.0

    async def live() -> None:
        nonlocal heard_s
        async with Member(store, set="orders", name="w1", on_loss=lose, margin_s=1.0, stop_s=1.0) as member:
            await until(lambda: member.items == ("0",))
            heard_s = store.asked[-1]
            store.cut, store.frozen = not frozen, frozen
            await asyncio.sleep(60)

    with pytest.raises(Hung, match="item 0 at epoch 1 did not stop within"):
        await live()
    return heard_s


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [False, True], ids=["the line is cut", "the store is frozen"])
def test_a_loss_that_hangs_is_cancelled_and_ends_the_member_before_the_lease_is_over(frozen: bool) -> None:
    async def work(store: StubbornStore) -> None:
        ends: list[str] = []

        async def hang(item: str, epoch: int) -> None:
            del epoch
            try:
                await asyncio.sleep(60)
            finally:
                ends.append(item)

        heard_s = await hang_with(store, hang, frozen=frozen)
        store.thaw.set()
        assert ends == ["0"]
        assert boot_s() - heard_s < SHORT.lease_s, "the block has ended before the lease"
        assert rows(store.within)["0"].state in OWNED, "nobody said that it was released"

    with led_set(1) as store:
        run(work(StubbornStore(store)))


@pytest.mark.slow
def test_with_more_patience_it_would_end_after_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "cancel_s", property(lambda pace: pace.room_s * 1.3))
    with pytest.raises(AssertionError, match="before the lease"):
        test_a_loss_that_hangs_is_cancelled_and_ends_the_member_before_the_lease_is_over(False)


@pytest.mark.slow
def test_a_loss_that_ignores_its_cancellation_is_left_behind() -> None:
    async def work(store: StubbornStore) -> None:
        over = asyncio.Event()

        async def ignore(item: str, epoch: int) -> None:
            del item, epoch
            while not over.is_set():
                try:
                    await over.wait()
                except asyncio.CancelledError:
                    continue

        await hang_with(store, ignore)
        over.set()

    with led_set(1) as store:
        run(work(StubbornStore(store)))


def test_a_gain_that_fails_is_let_go_of_and_offered_three_times_at_most() -> None:
    async def work(store: MemoryStore) -> None:
        tried: list[int] = []

        async def gain(item: str, epoch: int) -> None:
            del item
            tried.append(epoch)
            raise RuntimeError("no such file")

        async with Member(store, set="orders", name="w1", on_gain=gain, margin_s=0.5, stop_s=0.5):
            await until(lambda: len(tried) == 3)
            await asyncio.sleep(1)
        assert tried == [1, 2, 3]
        assert owners(store) == {"0": None}

    with led_set(1) as store:
        run(work(store))


def test_a_loss_that_fails_ends_the_member_with_its_error_and_is_not_said_to_be_released() -> None:
    async def work(store: MemoryStore) -> None:
        async def lose(item: str, epoch: int) -> None:
            raise RuntimeError(f"cannot stop {item} {epoch}")

        async def live() -> None:
            async with Member(store, set="orders", name="w1", on_loss=lose, margin_s=0.5, stop_s=0.5) as member:
                await until(lambda: member.items == ("0",))

        with pytest.raises(RuntimeError, match="cannot stop 0 1"):
            await live()
        assert rows(store)["0"].state in OWNED

    with led_set(1) as store:
        run(work(store))


class Table:
    """A set with one item, whose leader does only what it is told."""

    def __init__(self, *, revoke: bool) -> None:
        self.store = MemoryStore(boot_s)
        self.told: list[str] = []
        self._leader = Coordinator(self.store, "leader")
        put(self.store, 1, replace(SHORT, release_s=0.5, revoke=revoke))

    def write(self, kind: StepKind) -> None:
        step, seen = Step(kind, "0", "w1", None, ""), {"0": rows(self.store)["0"].revision}
        self.store.transact("orders", lambda tx: apply_plan(tx, "orders", tx.leader().term, seen, [step], 0))

    async def gain(self, item: str, epoch: int) -> None:
        self.told.append(f"gain {item} {epoch}")

    async def lose(self, item: str, epoch: int) -> None:
        """Take back what the first loss was asked for, and hang."""
        if epoch > 1:
            return
        self.told.append(f"loss {item} {epoch}")
        self.write(StepKind.CANCEL)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.told.append("hurried")

    def member(self, on_gain: Callback, on_loss: Callback, on_beat: OnBeat | None = None) -> Member:
        return Member(
            self.store,
            set="orders",
            name="w1",
            on_gain=on_gain,
            on_loss=on_loss,
            margin_s=MARGIN_S,
            stop_s=STOP_S,
            on_beat=on_beat,
        )

    async def take_back(self) -> list[str]:
        """Ask for the item, see that taken back, and wait for what becomes of it; tell what the journal says."""
        self._leader.cycle("orders")
        await until(lambda: rows(self.store)["0"].confirmed)
        self.write(StepKind.RELEASE)
        await until(lambda: self.told == ["gain 0 1", "loss 0 1"])
        with suppress(AssertionError):
            await until(lambda: owners(self.store) == {"0": None}, patience_s=SHORT.lease_s * 1.5)
        self._leader.cycle("orders")
        await asyncio.sleep(0.5)
        return [line.transition for line in self.store.journal("orders", "0")][2:6]


async def take_back(table: Table) -> tuple[list[str], list[str]]:
    async with table.member(table.gain, table.lose):
        transitions = await table.take_back()
        return list(table.told), transitions


@pytest.mark.slow
def test_work_that_hangs_after_its_request_was_taken_back_is_ended_and_given_anew() -> None:
    told, transitions = asyncio.run(take_back(Table(revoke=True)))
    assert told == ["gain 0 1", "loss 0 1", "hurried", "gain 0 2"]
    assert transitions == ["release requested", "cancelled", "released", "assigned"]


@pytest.mark.slow
def test_under_wait_it_keeps_its_item_and_that_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    told, transitions = asyncio.run(take_back(Table(revoke=False)))
    assert told == ["gain 0 1", "loss 0 1"]
    assert transitions == ["release requested", "cancelled"]
    said = [record.getMessage() for record in caplog.records]
    assert said.count("member.overdue member=w1 item=0 epoch=1 reason=hangs") == 1


@pytest.mark.slow
def test_a_child_that_hangs_after_its_request_was_taken_back_is_killed_and_its_worker_goes_on() -> None:
    async def work(table: Table) -> None:
        async with Children(DEAF, {}, kill_after_s=0.1, stop_s=0.5) as children:

            async def gain(item: str, epoch: int) -> None:
                await table.gain(item, epoch)
                await children.start(item, epoch)

            async def lose(item: str, epoch: int) -> None:
                table.told.append(f"loss {item} {epoch}")
                table.write(StepKind.CANCEL)
                await children.stop(item, epoch)

            async with table.member(gain, lose, children.renew):
                assert await table.take_back() == ["release requested", "cancelled", "released", "assigned"]
                assert table.told == ["gain 0 1", "loss 0 1", "gain 0 2"]

    asyncio.run(work(Table(revoke=True)))
