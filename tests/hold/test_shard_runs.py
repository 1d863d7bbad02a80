"""Reconciles: one at a time for an object, only what may be, cancelled on loss, ended in time; each with a mutant."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from tests.hold.test_shard_view import MINE, entry, seen

from poise.errors import Hung
from poise.hold import shard_runs
from poise.hold.shard_runs import Run, Runs
from poise.hold.shard_view import View
from poise.hold.sharding import Verdict
from poise.model.sharding import Marks


class Bench:
    """Runs over a view, with a clock and a judge of the test's own."""

    def __init__(self, view: View, at_once: int = 16) -> None:
        self.view, self.now_s = view, 100.0
        self.verdicts: dict[str, Verdict] = {}
        self.most: dict[str, int] = {}
        self.now: dict[str, int] = {}
        self.ended: list[str] = []
        self.moved: list[str] = []
        self.gate = asyncio.Event()
        self.over = asyncio.Event()  # Also what ignores everything else ends then.
        self.runs = Runs(view, self.judge, at_once=at_once, now_s=lambda: self.now_s, moved=self.moved.append)

    def judge(self, uid: str) -> Verdict:
        return self.verdicts.get(uid, Verdict.ACT)

    async def reconcile(self, run: Run) -> float | None:
        uid = run.entry.uid
        self.now[uid] = self.now.get(uid, 0) + 1
        self.most[uid] = max(self.most.get(uid, 0), self.now[uid])
        try:
            await self.gate.wait()
        finally:
            self.now[uid] -= 1
            self.ended.append(uid)
        return None


def play(view: View, scenario: Callable[[Bench], Awaitable[None]], at_once: int = 16) -> Bench:
    """Run a scenario beside the reconciles."""

    async def run() -> Bench:
        bench = Bench(view, at_once)
        working = asyncio.create_task(bench.runs.work(bench.reconcile))
        await settle()
        try:
            async with asyncio.timeout(10):
                await scenario(bench)
        finally:
            bench.gate.set()
            bench.over.set()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        return bench

    return asyncio.run(run())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_at_most_one_reconcile_runs_for_an_object_however_often_it_is_woken() -> None:
    async def scenario(bench: Bench) -> None:
        for _ in range(5):
            bench.runs.wake("x")
            await settle()
        bench.gate.set()
        await settle()
        assert bench.ended == ["x", "x"], "what came meanwhile makes it run once more"

    assert play(seen(entry("x", MINE)), scenario).most == {"x": 1}


def test_only_so_many_run_at_once() -> None:
    async def scenario(bench: Bench) -> None:
        for uid in "xyz":
            bench.runs.wake(uid)
        await settle()
        assert len(bench.runs.running) == 2

    play(seen(*(entry(uid, MINE) for uid in "xyz")), scenario, at_once=2)


def test_what_may_not_be_acted_on_waits_and_begins_when_it_may() -> None:
    async def scenario(bench: Bench) -> None:
        bench.verdicts["x"] = Verdict.UNCONFIRMED
        bench.runs.wake("x")
        await settle()
        assert not bench.runs.running
        assert bench.runs.waiting == {"x": Verdict.UNCONFIRMED}
        bench.runs.try_again(["x", "unknown"])
        await settle()
        assert bench.runs.waiting
        del bench.verdicts["x"]
        bench.runs.try_again(bench.runs.waiting)
        await settle()
        assert list(bench.runs.running) == ["x"]
        assert not bench.runs.waiting

    play(seen(entry("x", MINE)), scenario)


def test_an_object_that_is_not_in_sight_is_forgotten() -> None:
    async def scenario(bench: Bench) -> None:
        bench.verdicts["x"] = Verdict.NOT_MINE
        bench.runs.wake("x")
        await settle()
        assert not bench.runs.waiting

    play(View("a"), scenario)


def test_whoever_leaves_begins_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        bench.runs.taking = False
        bench.runs.wake("x")
        await settle()
        assert not bench.runs.running

    play(seen(entry("x", MINE)), scenario)


def test_what_is_lost_is_cancelled_and_counts_as_running_until_it_has_ended() -> None:
    async def scenario(bench: Bench) -> None:
        bench.runs.wake("x")
        bench.runs.wake("y")
        await settle()
        bench.view.put(entry("x", Marks("a", 4), version=2), 101.0)
        bench.runs.cancel_lost("x")
        assert bench.runs.is_running(["x"])
        await settle()
        assert list(bench.runs.running) == ["y"]
        assert bench.ended == ["x"]

    bench = play(seen(entry("x", MINE), entry("y", MINE)), scenario)
    assert bench.runs.cancelled == 1


def test_a_drain_that_waits_too_long_cancels_and_what_does_not_stop_has_hung() -> None:
    async def scenario(bench: Bench) -> None:
        async def ignore(run: Run) -> float | None:
            del run
            while not bench.over.is_set():
                with suppress(asyncio.CancelledError):
                    await bench.over.wait()
            return None

        bench.runs._reconcile = ignore
        bench.runs.wake("c")
        await settle()
        bench.view.put(entry("x", Marks("a", 3, "b", 9), version=2), 100.0)
        for now_s, cancelled in ((104.9, 0), (105.0, 1), (105.9, 1)):
            bench.now_s = now_s
            bench.runs.check_deadlines(5.0, 1.0)
            assert bench.runs.cancelled == cancelled
            await settle()
        bench.now_s = 106.0
        with pytest.raises(Hung, match=r"/ConfigMap/n/c did not stop within 1 s"):
            bench.runs.check_deadlines(5.0, 1.0)

    play(seen(entry("x", MINE), entry("c", MINE, "x")), scenario)


def test_what_was_cancelled_for_any_reason_must_stop_in_time() -> None:
    async def scenario(bench: Bench) -> None:
        async def slow(run: Run) -> float | None:
            del run
            try:
                await asyncio.Event().wait()
            finally:
                await bench.over.wait()
            return None

        bench.runs._reconcile = slow
        bench.runs.wake("x")
        await settle()
        bench.view.drop("x")
        bench.runs.cancel_lost("x")
        bench.now_s = 100.9
        bench.runs.check_deadlines(5.0, 1.0)
        bench.now_s = 101.0
        with pytest.raises(Hung):
            bench.runs.check_deadlines(5.0, 1.0)

    play(seen(entry("x", MINE)), scenario)


def test_a_reconcile_that_is_cancelled_by_what_it_waits_for_is_called_again() -> None:
    async def scenario(bench: Bench) -> None:
        shared = asyncio.create_task(bench.gate.wait())

        async def wait_for_another(run: Run) -> float | None:
            if not shared.done():
                await shared
            bench.ended.append(run.entry.uid)
            return None

        bench.runs._reconcile = wait_for_another
        bench.runs.wake("x")
        await settle()
        shared.cancel()
        while not bench.ended:
            await asyncio.sleep(0.01)
        assert bench.ended == ["x"]
        assert (bench.runs.begun, bench.runs.failed, bench.runs.cancelled) == (2, 1, 0)

    play(seen(entry("x", MINE)), scenario)


def test_all_that_runs_is_waited_for_but_not_forever() -> None:
    async def scenario(bench: Bench) -> None:
        bench.runs.wake("x")
        await settle()
        assert not await bench.runs.idle(0.05)
        assert not await bench.runs.idle(60.0, hurried=lambda: True)
        bench.gate.set()
        assert await bench.runs.idle(5.0)

    play(seen(entry("x", MINE)), scenario)


def _never_lost(view: View, uid: str, epoch: int) -> bool:
    del view, uid, epoch
    return True


@pytest.mark.parametrize(
    ("mutate", "broken"),
    [
        pytest.param(
            lambda patch: patch.setattr(View, "is_own", _never_lost),
            test_what_is_lost_is_cancelled_and_counts_as_running_until_it_has_ended,
            id="nothing is ever lost",
        ),
        pytest.param(
            lambda patch: patch.setattr(shard_runs, "overdue", lambda *_: "wait"),
            test_a_drain_that_waits_too_long_cancels_and_what_does_not_stop_has_hung,
            id="drains wait for ever",
        ),
        pytest.param(
            lambda patch: patch.setattr(shard_runs, "overdue", lambda *_: "cancel"),
            test_what_was_cancelled_for_any_reason_must_stop_in_time,
            id="nothing ever hangs",
        ),
        pytest.param(
            lambda patch: patch.setattr(Bench, "judge", lambda _bench, _uid: Verdict.ACT),
            test_what_may_not_be_acted_on_waits_and_begins_when_it_may,
            id="nobody judges",
        ),
    ],
)
def test_a_guard_that_is_taken_away_is_missed(
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[pytest.MonkeyPatch], None],
    broken: Callable[[], None],
) -> None:
    mutate(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        broken()
