"""Members that really run: what they are told, and how they leave."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.hold.diary import MARGIN_S, STOP_S, Diary, run
from tests.hold.leading import SHORT, led_set, owners, rows, until

from poise.clock import boot_s
from poise.errors import InvalidSpec, NotHeld
from poise.hold.member import Gained, Lost, Member
from poise.model.ownership import Terms
from poise.stores.memory import MemoryStore


def test_a_member_is_told_of_its_gains_and_lets_go_of_all_when_its_block_ends() -> None:
    async def work(store: MemoryStore) -> None:
        diary = Diary()
        async with diary.member(store) as member:
            await until(lambda: len(diary.held) == 3)
            assert member.items == ("0", "1", "2")
            assert {item: member.epoch(item) for item in member.items} == diary.held == {"0": 1, "1": 1, "2": 1}
            assert member.incarnation == 1
            with pytest.raises(NotHeld, match="w1 may not act on '7' now"):
                member.epoch("7")
        assert diary.held == {}
        assert owners(store) == {"0": None, "1": None, "2": None}, "the lease was not waited for"
        assert store.transact("orders", lambda tx: tx.members())["w1"].leaving == "stop"
        assert not member.items

    with led_set(3) as store:
        run(work(store))


def test_a_second_member_gets_its_share_without_two_that_act() -> None:
    async def work(store: MemoryStore) -> None:
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

            return Member(store, set="orders", name=name, on_gain=gain, on_loss=lose, margin_s=MARGIN_S, stop_s=STOP_S)

        async with working("w1"):
            await until(lambda: len(acting) == 4)
            async with working("w2"):
                await until(lambda: sorted(names[0] for names in acting.values() if names) == ["w1", "w1", "w2", "w2"])
            await until(lambda: all(names == ["w1"] for names in acting.values()))

    with led_set(4) as store:
        run(work(store))


def test_a_hand_over_does_not_wait_for_the_next_heartbeat() -> None:
    async def work(store: MemoryStore) -> None:
        first, second = Diary(), Diary()
        async with first.member(store):
            await until(lambda: len(first.held) == 2)
            async with second.member(store, "w2"):
                await until(lambda: len(second.held) == 1, patience_s=5)
                lost_s = next(at_s for word, _, _, at_s in first.lines if word == "loss")
                gained_s = second.lines[0][3]
                assert gained_s - lost_s < 1.0, "the period is 20 s"

    with led_set(2, Terms(lease_s=60, grace_s=2)) as store:
        run(work(store))


@pytest.mark.slow
def test_changes_come_as_a_stream_and_a_loss_waits_for_its_acknowledgement() -> None:
    async def work(store: MemoryStore) -> None:
        diary = Diary()
        async with Member(store, set="orders", name="w1", margin_s=MARGIN_S, stop_s=STOP_S) as member:
            changes = member.changes()
            assert isinstance(first := await anext(changes), Gained)
            assert isinstance(second := await anext(changes), Gained)
            assert [repr(first), repr(second)] == ["Gained('0', 1)", "Gained('1', 1)"]
            async with diary.member(store, "w2"):
                lost = await anext(changes)
                assert isinstance(lost, Lost)
                await asyncio.sleep(SHORT.lease_s * 1.5)
                assert diary.held == {}, "not before it is acknowledged, however long it takes"
                assert member.epoch(lost.item) == lost.epoch == 1
                lost.ack()
                await until(lambda: diary.held == {lost.item: 2})

    with led_set(2) as store:
        run(work(store))


def test_a_stream_ends_after_a_drain() -> None:
    async def work(store: MemoryStore) -> None:
        async with Member(store, set="orders", name="w1", margin_s=MARGIN_S, stop_s=STOP_S) as member:
            seen: list[str] = []
            async for change in member.changes():
                seen.append(type(change).__name__)
                if isinstance(change, Lost):
                    change.ack()
                if seen == ["Gained", "Gained"]:
                    draining = asyncio.create_task(member.drain())
                if seen.count("Lost") == 2:
                    break
            await draining
            assert seen == ["Gained", "Gained", "Lost", "Lost"]
            assert owners(store) == {"0": None, "1": None}

    with led_set(2) as store:
        run(work(store))


def test_callbacks_and_a_stream_exclude_each_other() -> None:
    with pytest.raises(InvalidSpec, match="changes are for members without callbacks"):
        Diary().member(MemoryStore(boot_s)).changes()


def test_a_gain_may_be_the_work_itself_and_is_cancelled_before_the_loss_is_told() -> None:
    async def work(store: MemoryStore) -> None:
        told: list[str] = []

        async def gain(item: str, epoch: int) -> None:
            told.append(f"begin {item} {epoch}")
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.05)
                told.append("end")

        async def lose(item: str, epoch: int) -> None:
            told.append(f"loss {item} {epoch}")

        async with Member(store, set="orders", name="w1", on_gain=gain, on_loss=lose, margin_s=0.5, stop_s=0.5):
            await until(lambda: len(told) == 1)
        assert told == ["begin 0 1", "end", "loss 0 1"]

    with led_set(1) as store:
        run(work(store))


def test_cancelling_the_block_drains_first() -> None:
    async def work(store: MemoryStore) -> None:
        diary = Diary()

        async def live() -> None:
            async with diary.member(store):
                await asyncio.sleep(60)

        life = asyncio.create_task(live())
        await until(lambda: len(diary.held) == 2)
        life.cancel()
        with pytest.raises(asyncio.CancelledError):
            await life
        assert diary.held == {}
        assert owners(store) == {"0": None, "1": None}

    with led_set(2) as store:
        run(work(store))


def test_cancelling_a_drain_stops_the_work_at_once() -> None:
    async def work(store: MemoryStore) -> None:
        told: list[str] = []

        async def lose(item: str, epoch: int) -> None:
            del item, epoch
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                told.append("hurried")

        async def live() -> None:
            async with Member(store, set="orders", name="w1", on_loss=lose, margin_s=0.5, stop_s=0.5) as member:
                await until(lambda: member.items == ("0",))
                told.append("held")

        life = asyncio.create_task(live())
        await until(lambda: told == ["held"])
        await asyncio.sleep(0.2)
        life.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(life, 5)
        assert told == ["held", "hurried"]
        assert owners(store) == {"0": None}, "it has stopped, and said so"

    with led_set(1) as store:
        run(work(store))


def test_an_error_of_the_block_comes_out_as_itself_after_the_drain() -> None:
    async def work(store: MemoryStore) -> None:
        diary = Diary()

        async def live() -> None:
            async with diary.member(store):
                await until(lambda: len(diary.held) == 1)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await live()
        assert owners(store) == {"0": None}

    with led_set(1) as store:
        run(work(store))


def test_a_restart_with_keep_moves_nothing() -> None:
    async def work(store: MemoryStore) -> None:
        first, other, second = Diary(), Diary(), Diary()

        def member(diary: Diary) -> Member:
            return Member(
                store,
                set="orders",
                name="w1",
                on_gain=diary.gain,
                on_loss=diary.lose,
                margin_s=MARGIN_S,
                stop_s=STOP_S,
                on_exit="keep",
            )

        async with other.member(store, "w2"):
            async with member(first):
                await until(lambda: (len(first.held), len(other.held)) == (2, 2))
                mine = set(first.held)
            await asyncio.sleep(0.5)
            assert {item for item, owner in owners(store).items() if owner is None} == mine
            assert {rows(store)[item].target for item in mine} == {"w1"}
            async with member(second):
                await until(lambda: len(second.held) == 2)
                assert set(second.held) == mine
                assert [line[0] for line in other.lines] == ["gain", "gain"]

    with led_set(4) as store:
        run(work(store))


@pytest.mark.parametrize(
    ("given", "path", "said"),
    [
        ({"name": ""}, "$.name", "expected `str` of length >= 1"),
        ({"name": "a b"}, "$.name", "expected `str` matching regex"),
        ({"set": "../x"}, "$.set", "expected `str` matching regex"),
        ({"margin_s": -1}, "$.margin_s", "expected `float` >= 0.0"),
        ({"margin_s": "1"}, "$.margin_s", "expected `float | null`, got `str`"),
        ({"stop_s": float("nan")}, "$.stop_s", "expected `float` >= 0.0"),
        ({"weight": True}, "$.weight", "expected `int`, got `bool`"),
        ({"on_exit": "stay"}, "$.on_exit", "invalid enum value 'stay'"),
    ],
)
def test_bad_settings_are_refused_with_their_place(given: dict[str, Any], path: str, said: str) -> None:
    settings: dict[str, Any] = {"set": "orders", "name": "w1", **given}  # Wrong on purpose, also in their types.
    with pytest.raises(InvalidSpec) as caught:
        Member(MemoryStore(boot_s), **settings)
    assert caught.value.faults[0].path == path
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("terms", "margin_s", "stop_s", "faults"),
    [
        (Terms(lease_s=10, grace_s=2), 1, 1, []),
        (Terms(lease_s=10, grace_s=2), 1, 3, ["$.stop_s"]),
        (Terms(lease_s=10, grace_s=0), 1, 1, ["$.stop_s"]),
        (Terms(lease_s=10, grace_s=0), 1, 0.9, []),
        (Terms(lease_s=10, grace_s=2), 8, 1, ["$.margin_s"]),
        (Terms(lease_s=1, grace_s=2), 1, 5, ["$.margin_s", "$.stop_s"]),
    ],
)
def test_the_inequality_is_checked_at_the_start(
    terms: Terms, margin_s: float, stop_s: float, faults: list[str]
) -> None:
    async def work(store: MemoryStore) -> None:
        async with Member(store, set="orders", name="w1", margin_s=margin_s, stop_s=stop_s):
            pass

    with led_set(0, terms) as store:
        if not faults:
            run(work(store))
            return
        with pytest.raises(InvalidSpec) as caught:
            run(work(store))
        assert store.transact("orders", lambda tx: tx.members()) == {}, "nobody was superseded by a refused process"
    assert [fault.path for fault in caught.value.faults] == faults


@pytest.mark.parametrize("more", [{"write_s": 2.1}, {"store_step_s": 2.1}])
def test_writes_in_flight_and_steps_of_the_stores_clock_count_in_the_inequality(more: dict[str, float]) -> None:
    async def work(store: MemoryStore) -> None:
        async with Member(store, set="orders", name="w1", **more):  # type: ignore[arg-type]  # They are all seconds.
            pass

    with led_set(0, Terms(lease_s=10, grace_s=2)) as store, pytest.raises(InvalidSpec, match=r"\$\.stop_s"):
        run(work(store))


def test_a_set_that_is_not_there_is_said_at_once() -> None:
    async def work() -> None:
        async with Member(MemoryStore(boot_s), set="orders", name="w1"):
            pass

    with pytest.raises(InvalidSpec, match="there is no set 'orders'"):
        run(work())
