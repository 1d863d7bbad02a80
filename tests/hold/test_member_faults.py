"""Members in trouble: silence, sleep, twins, and stores that are away."""

from __future__ import annotations

import asyncio

import pytest
from tests.hold.diary import MARGIN_S, STOP_S, Diary, run
from tests.hold.leading import SHORT, led_set, put, until
from tests.hold.stubborn import StubbornStore

from poise.clock import boot_s
from poise.errors import NotHeld, Replaced
from poise.hold import member as member_module
from poise.hold.holding import Holding, Order, hear
from poise.hold.member import Member
from poise.model.ownership import Heartbeat, Reply, Terms
from poise.move.heartbeat import Stale, Superseded
from poise.stores.memory import MemoryStore


async def fence(store: StubbornStore) -> tuple[float, float]:
    """Cut the line of a member that acts; give when it was last heard, and when it was told to stop."""
    diary = Diary()
    async with diary.member(store) as member:
        await until(lambda: len(diary.held) == 1)
        await asyncio.sleep(0.3)
        store.cut = True
        heard_s = store.asked[-1]
        await until(lambda: diary.held == {}, patience_s=SHORT.lease_s * 2)
        with pytest.raises(NotHeld):
            member.epoch("0")
        lost_s = diary.lines[-1][3]
        store.cut = False
        await until(lambda: len(diary.held) == 1)
        assert diary.story("0")[-1][1] > 1, "it comes back at a new epoch only"
    return heard_s, lost_s


@pytest.mark.slow
def test_a_member_that_is_not_heard_fences_itself_before_its_lease_ends() -> None:
    with led_set(1) as store:
        heard_s, lost_s = asyncio.run(fence(StubbornStore(store)))
    assert lost_s - heard_s < SHORT.lease_s, "others may begin only after lease and grace"
    assert lost_s - heard_s > (SHORT.lease_s - MARGIN_S) / 2, "nor is anything given up too early"


@pytest.mark.slow
def test_without_its_watch_a_member_acts_on_past_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(holding: Holding, now_s: float) -> tuple[Holding, list[Order]]:
        del now_s
        return holding, []

    monkeypatch.setattr(member_module, "watch", blind)
    with led_set(1) as store, pytest.raises(AssertionError, match="did not come in time"):
        asyncio.run(fence(StubbornStore(store)))


async def measure(store: StubbornStore) -> float:
    """Give how long an item may be acted on, seen when an answer that took 0.5 s has come."""
    untils: list[tuple[float, dict[str, float]]] = []
    async with Member(
        store,
        set="orders",
        name="w1",
        on_gain=Diary().gain,
        margin_s=MARGIN_S,
        stop_s=STOP_S,
        on_beat=lambda until_s: untils.append((boot_s(), until_s)),
    ) as member:
        await until(lambda: member.items == ("0",))
        store.slow_s = 0.5
        told = len(untils)
        await until(lambda: len(untils) >= told + 2)
        store.slow_s = 0.0
        answered_s, last = untils[-1]
        return last["0"] - answered_s


@pytest.mark.slow
def test_time_counts_from_when_a_heartbeat_was_sent_and_not_from_its_answer() -> None:
    with led_set(1) as store:
        assert asyncio.run(measure(StubbornStore(store))) < SHORT.lease_s - MARGIN_S - 0.45


@pytest.mark.slow
def test_counted_from_the_answer_a_member_would_act_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(holding: Holding, reply: Reply, sent_at_s: float, now_s: float) -> tuple[Holding, list[Order]]:
        del sent_at_s
        return hear(holding, reply, boot_s(), now_s)

    monkeypatch.setattr(member_module, "hear", late)
    with led_set(1) as store:
        assert asyncio.run(measure(StubbornStore(store))) > SHORT.lease_s - MARGIN_S - 0.45


def test_an_answer_that_took_longer_than_its_lease_starts_nothing() -> None:
    """The clock of this member jumps ahead while it waits: the machine was suspended."""

    async def work(store: MemoryStore) -> None:
        ahead_s = 0.0
        diary = Diary()
        member = Member(
            store,
            set="orders",
            name="w1",
            on_gain=diary.gain,
            on_loss=diary.lose,
            margin_s=MARGIN_S,
            stop_s=STOP_S,
            clock=lambda: boot_s() + ahead_s,
        )
        async with member:
            beat = member._link.beat

            async def late(said: Heartbeat) -> Reply | Superseded | Stale:
                nonlocal ahead_s
                answer = await beat(said)
                ahead_s += 100
                return answer

            member._link.beat = late  # type: ignore[method-assign]  # The line is what this test is about.
            put(store, 1)
            await until(lambda: any(line.transition == "assigned" for line in store.journal("orders", "0")))
            await asyncio.sleep(SHORT.lease_s / 2)
            assert diary.lines == [], "it was granted, and never begun"
            member._link.beat = beat  # type: ignore[method-assign]
            await until(lambda: diary.lines != [])

    with led_set(0) as store:
        run(work(store))


def test_a_machine_that_slept_past_its_lease_stops_as_soon_as_it_wakes() -> None:
    async def work(store: StubbornStore) -> None:
        ahead_s = 0.0
        diary = Diary()
        async with Member(
            store,
            set="orders",
            name="w1",
            on_gain=diary.gain,
            on_loss=diary.lose,
            clock=lambda: boot_s() + ahead_s,
        ) as member:
            await until(lambda: len(diary.held) == 1)
            store.cut = True
            ahead_s = 3600.0
            assert member.items == (), "what is asked is looked at with the clock"
            await until(lambda: diary.held == {}, patience_s=1.0)
            store.cut = False

    with led_set(1, Terms(lease_s=60, grace_s=2)) as store:
        run(work(StubbornStore(store)))


@pytest.mark.slow
def test_a_short_outage_of_the_store_loses_nothing() -> None:
    async def work(store: StubbornStore) -> None:
        diary = Diary()
        async with diary.member(store):
            await until(lambda: len(diary.held) == 2)
            for _ in range(3):
                store.cut = True
                await asyncio.sleep(0.3)
                store.cut, store.deaf = False, True
                await asyncio.sleep(0.2)
                store.deaf = False
                await asyncio.sleep(0.7)
            assert diary.story("0") == diary.story("1") == [("gain", 1)]

    with led_set(2) as store:
        run(work(StubbornStore(store)))


@pytest.mark.slow
def test_the_pauses_between_attempts_grow_and_stay_below_the_period() -> None:
    async def work(store: StubbornStore) -> None:
        async with Diary().member(store):
            store.cut = True
            store.asked.clear()
            await asyncio.sleep(2.0)
            assert 4 <= len(store.asked) <= 25
            store.cut = False

    with led_set(0) as store:
        run(work(StubbornStore(store)))


@pytest.mark.slow
def test_a_second_process_of_a_name_supersedes_the_first_which_stops_for_good() -> None:
    async def work(store: MemoryStore) -> None:
        first, second = Diary(), Diary()

        async def live() -> None:
            async with first.member(store):
                await asyncio.sleep(60)

        life = asyncio.create_task(live())
        await until(lambda: len(first.held) == 2)
        async with second.member(store):
            await until(lambda: len(second.held) == 2)
            assert first.held == {}, "the first had stopped before"
            assert set(second.held.values()) == {2}
            await asyncio.sleep(1)
        with pytest.raises(Replaced, match="incarnation 2 of w1 has registered"):
            await life
        assert store.transact("orders", lambda tx: tx.members())["w1"].incarnation == 2

    with led_set(2) as store:
        run(work(store))


@pytest.mark.slow
def test_the_shortest_lease_that_is_acted_on_sets_the_pace() -> None:
    async def work(store: MemoryStore) -> None:
        diary = Diary()
        async with diary.member(store):
            await until(lambda: len(diary.held) == 1)
            put(store, 2, SHORT)
            await until(lambda: len(diary.held) == 2)
            await asyncio.sleep(SHORT.lease_s * 1.5)
            assert diary.story("1") == [("gain", 1)], "it is renewed in time, beside an item with a long lease"

    with led_set(1, Terms(lease_s=60, grace_s=2)) as store:
        run(work(store))


def test_a_loop_that_fails_stops_all_work_and_ends_the_block_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(store: MemoryStore) -> None:
        diary = Diary()

        async def live() -> None:
            async with diary.member(store):
                await until(lambda: len(diary.held) == 2)
                monkeypatch.setattr(member_module, "speak", broken)
                await asyncio.sleep(60)

        with pytest.raises(ZeroDivisionError):
            await live()
        assert diary.held == {}

    def broken(holding: Holding, **given: object) -> tuple[Holding, Heartbeat]:
        del holding, given
        monkeypatch.undo()
        raise ZeroDivisionError

    with led_set(2) as store:
        run(work(store))


@pytest.mark.slow
def test_leaving_while_the_store_is_away_takes_no_longer_than_a_lease() -> None:
    async def work(store: StubbornStore) -> None:
        diary = Diary()
        async with diary.member(store):
            await until(lambda: len(diary.held) == 1)
            store.cut = True
            left_s = boot_s()
        assert diary.held == {}
        assert boot_s() - left_s < SHORT.lease_s + 1

    with led_set(1) as store:
        run(work(StubbornStore(store)))
