"""The work queue: each key once, never twice at a time, never forgotten, later after each failure."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.kube.fake_time import run

from poise.errors import Overloaded, Unavailable
from poise.kube.pacing import Pace
from poise.kube.work import Workers
from poise.kube.work_queue import WorkQueue

PACE = Pace(first_s=1.0, longest_s=8.0)


def queue() -> WorkQueue[str]:
    return WorkQueue(PACE)


def drain(held: WorkQueue[str], now_s: float = 0.0) -> list[str]:
    taken = []
    while (key := held.take(now_s)) is not None:
        taken.append(key)
    return taken


def test_asking_twice_is_asking_once() -> None:
    held = queue()
    for key in ("a", "b", "a"):
        held.add(key)
    assert (len(held), held.ready) == (2, 2)
    assert drain(held) == ["a", "b"]


def test_a_key_that_runs_is_not_taken_again_until_it_is_given_back() -> None:
    held = queue()
    held.add("a")
    assert held.take(0.0) == "a"
    held.add("a")
    held.add("a")
    assert held.take(0.0) is None
    held.done("a")
    assert drain(held) == ["a"]
    held.done("a")
    assert drain(held) == []


def test_a_failure_waits_twice_as_long_each_time_up_to_the_longest() -> None:
    held = queue()
    held.add("a")
    waits = []
    now_s = 0.0
    for _ in range(6):
        assert held.take(now_s) == "a"
        waits.append(held.failed("a", now_s, 1.0))
        assert held.take(now_s + waits[-1] - 0.01) is None
        now_s += waits[-1]
    assert waits == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert held.failures("a") == 6
    held.take(now_s)
    held.done("a")
    assert held.failures("a") == 0


def test_chance_parts_those_who_failed_together() -> None:
    assert (PACE.wait_s(3, 0.0), PACE.wait_s(3, 1.0)) == (2.0, 4.0)


def test_a_server_that_asks_for_a_longer_wait_gets_it() -> None:
    held = queue()
    held.add("a")
    held.take(0.0)
    assert held.failed("a", 0.0, 1.0, 30.0) == 30.0


def test_events_do_not_shorten_the_wait_of_one_that_failed() -> None:
    held = queue()
    held.add("a")
    held.take(0.0)
    held.add("a")
    held.failed("a", 0.0, 1.0)
    held.add("a")
    assert held.take(0.5) is None
    assert held.take(1.0) == "a"


def test_a_key_whose_cause_is_gone_runs_at_once() -> None:
    held = queue()
    held.add("a")
    held.take(0.0)
    held.failed("a", 0.0, 1.0)
    held.forget("a")
    assert held.take(0.0) == "a"
    held.done("a")
    held.forget("a")
    assert drain(held) == []


def test_a_later_look_never_delays_an_earlier_one() -> None:
    held = queue()
    held.add_at("a", 5.0)
    held.add_at("a", 9.0)
    assert held.next_s() == 5.0
    held.add_at("a", 3.0)
    assert held.next_s() == 3.0
    assert (held.take(2.9), held.take(3.0), held.next_s()) == (None, "a", None)
    held.add_at("a", 4.0)
    assert held.take(4.0) is None, "it still runs"
    held.done("a")
    assert held.take(4.0) == "a"


def test_an_event_brings_a_planned_look_forward() -> None:
    held = queue()
    held.add_at("a", 5.0)
    held.add("a")
    assert drain(held) == ["a"]
    held.done("a")
    assert drain(held, 9.0) == [], "the planned look has been made"


KEYS = st.sampled_from("abc")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), KEYS),
        st.tuples(st.just("later"), KEYS),
        st.tuples(st.just("take"), KEYS),
        st.tuples(st.just("done"), KEYS),
        st.tuples(st.just("failed"), KEYS),
        st.tuples(st.just("forget"), KEYS),
    ),
    max_size=60,
)


def _play(steps: list[tuple[str, str]]) -> None:
    """Play steps one second apart; every key that was asked for runs after it was asked, and never twice at a time."""
    held = queue()
    running, asked = Counter[str](), dict[str, float]()
    now_s = 0.0

    def take() -> None:
        key = held.take(now_s)
        if key is not None:
            running[key] += 1
            assert running[key] == 1, "at most one run a key"
            asked.pop(key, None)

    for what, key in steps:
        now_s += 1.0
        match what:
            case "add":
                held.add(key)
                asked[key] = now_s
            case "later":
                held.add_at(key, now_s + 3.0)
                asked.setdefault(key, now_s)
            case "take":
                take()
            case "done" if running[key]:
                held.done(key)
                del running[key]
            case "failed" if running[key]:
                held.failed(key, now_s, 1.0)
                asked[key] = now_s
                del running[key]
            case "forget":
                held.forget(key)
    for _ in range(100):
        now_s += 10.0
        for key in list(running):
            held.done(key)
            del running[key]
        take()
    assert not asked, "nothing that was asked for is forgotten"
    assert len(held) == 0


@settings(max_examples=examples(300))
@given(STEPS)
def test_nothing_is_forgotten_and_nothing_runs_twice_at_a_time(steps: list[tuple[str, str]]) -> None:
    _play(steps)


MUTANTS = {
    "a running key is taken again": ("_running", set),
    "what was asked while it ran is forgotten": ("_again", set),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_queue_that_breaks_the_law_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(set[str]):
        def add(self, element: str) -> None:
            del element

    begin = WorkQueue.__init__

    def broken(self: WorkQueue[str], pace: Pace) -> None:
        begin(self, pace)
        setattr(self, MUTANTS[name][0], Forgetful())

    monkeypatch.setattr(WorkQueue, "__init__", broken)
    steps = [("add", "a"), ("take", "a"), ("add", "a"), ("take", "a"), ("done", "a")]
    with pytest.raises(AssertionError):
        _play(steps)


def test_workers_run_keys_side_by_side_and_each_alone() -> None:
    async def scenario() -> None:
        held, now, most = queue(), Counter[str](), Counter[str]()

        async def handle(key: str) -> None:
            now[key] += 1
            now["all"] += 1
            most[key], most["all"] = max(most[key], now[key]), max(most["all"], now["all"])
            held.add(key)
            await asyncio.sleep(1.0)
            now[key] -= 1
            now["all"] -= 1

        for number in range(10):
            held.add(str(number))
        task = asyncio.create_task(Workers(held, handle, at_once=4).run())
        await asyncio.sleep(20.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert most["all"] == 4
        assert all(most[str(number)] == 1 for number in range(10))

    run(scenario())


def test_workers_wait_after_failures_and_look_again_when_told() -> None:
    async def scenario() -> None:
        held, loop = queue(), asyncio.get_running_loop()
        told: list[tuple[str, float]] = []
        at: list[float] = []

        async def handle(key: str) -> float | None:
            del key
            at.append(loop.time())
            if len(at) == 1:
                raise Unavailable("gone")
            if len(at) == 2:
                raise Overloaded("busy", 20.0)
            return 5.0 if len(at) == 3 else None

        workers = Workers(held, handle, tell=lambda key, _error, wait_s: told.append((key, wait_s)))
        held.add("a")
        task = asyncio.create_task(workers.run())
        await asyncio.sleep(100.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(at) == 4
        assert 0.5 <= at[1] <= 1.0
        assert at[2] - at[1] == 20.0
        assert at[3] - at[2] == 5.0
        assert [key for key, _ in told] == ["a", "a"]

    run(scenario())


def test_one_run_can_be_cancelled_and_the_others_go_on() -> None:
    async def scenario() -> None:
        held = queue()
        ended: list[str] = []

        async def handle(key: str) -> None:
            try:
                await asyncio.sleep(10.0)
            finally:
                ended.append(key)

        workers = Workers(held, handle)
        task = asyncio.create_task(workers.run())
        held.add("a")
        held.add("b")
        await asyncio.sleep(1.0)
        assert workers.running == 2
        assert workers.cancel("a")
        assert not workers.cancel("c")
        await asyncio.sleep(1.0)
        assert ended == ["a"]
        held.add("a")
        await asyncio.sleep(1.0)
        assert workers.running == 2
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert sorted(ended) == ["a", "a", "b"], "cancelling the whole cancels what runs, and waits for it"

    run(scenario())


def test_a_run_that_nobody_cancelled_has_failed_where_it_ends_cancelled() -> None:
    async def scenario() -> None:
        held, told, ended = queue(), list[str](), list[str]()

        async def handle(key: str) -> None:
            ended.append(key)
            if len(ended) == 1:
                raise asyncio.CancelledError

        workers = Workers(held, handle, tell=lambda key, error, _wait_s: told.append(f"{key}: {error}"))
        held.add("a")
        task = asyncio.create_task(workers.run())
        await asyncio.sleep(0.4)
        assert ended == ["a"], "it waits, as after any failure"
        await asyncio.sleep(10.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert ended == ["a", "a"]
        assert told == ["a: CancelledError: something that it waited for was cancelled"]

    run(scenario())


def test_a_fault_of_the_program_ends_all() -> None:
    async def scenario() -> None:
        held = queue()

        async def handle(key: str) -> None:
            raise ZeroDivisionError(key)

        held.add("a")
        with pytest.raises(ExceptionGroup) as caught:
            await Workers(held, handle).run()
        assert caught.group_contains(ZeroDivisionError)

    run(scenario())
