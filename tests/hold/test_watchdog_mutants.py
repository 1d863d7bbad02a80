"""Each promise of the watchdog is broken once on purpose: the test of that promise must see it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial

import pytest
from tests.hold import test_watchdog as promises
from tests.hold.processes import DEAF

BROKEN = """
import math, os, signal, sys, msgspec
from poise.hold import watchdog
begin, take = watchdog.Watchdog._begin, watchdog.Watchdog.take
signal_group, prctl = watchdog.signal_group, watchdog.prctl
{change}
watchdog.watch(0, int(sys.argv[1]))
"""
FIRST_RENEWAL = """
heard = []

def first_only(dog, order):
    heard.append(type(order))
    if order.__class__ is not watchdog.Renew or heard.count(watchdog.Renew) == 1:
        take(dog, order)

watchdog.Watchdog.take = first_only
"""

MUTANTS: dict[str, tuple[str, Callable[[], None]]] = {
    "a group whose time is over is asked, and never killed": (
        "watchdog.Group.kill_s = lambda group, rules: math.inf",
        promises.test_a_group_is_asked_when_its_time_is_over_and_killed_soon_after,
    ),
    "a group is killed as soon as its time is over": (
        "watchdog.Group.kill_s = lambda group, rules: group.until_s - 0.3",
        promises.test_a_group_is_asked_when_its_time_is_over_and_killed_soon_after,
    ),
    "a stopped child is only asked": (
        "watchdog.Group.kill_s = lambda group, rules: math.inf",
        promises.test_a_stopped_child_is_killed_too,
    ),
    "a group is reported empty when its leader has ended": (
        "watchdog.signal_group = lambda pid, number: bool(number) and signal_group(pid, number)",
        promises.test_what_a_leader_leaves_behind_is_ended_before_the_group_is_reported_empty,
    ),
    "what a leader leaves behind is let be until its time is over": (
        "watchdog.Group.kill_s = lambda group, rules: group.until_s + rules.kill_after_s",
        promises.test_what_a_leader_leaves_behind_is_ended_before_the_group_is_reported_empty,
    ),
    "nobody is asked when the worker is gone": (
        "watchdog.Watchdog.leave_alone = lambda dog, now_s: setattr(dog, 'alone', True)",
        partial(promises.test_when_the_worker_is_gone_all_groups_end_and_then_the_watchdog, DEAF),
    ),
    "the watchdog goes with its worker, at once": (
        "watchdog.Watchdog.leave_alone = lambda dog, now_s: os._exit(3)",
        partial(promises.test_when_the_worker_is_gone_all_groups_end_and_then_the_watchdog, DEAF),
    ),
    "only the first renewal is heard": (
        FIRST_RENEWAL,
        promises.test_a_renewal_keeps_a_child_alive_and_the_last_one_counts,
    ),
    "the watchdog waits for a worker that reads nothing": (
        "os.set_blocking = lambda pipe, blocking: None",
        promises.test_a_frozen_worker_that_reads_nothing_does_not_hold_the_watchdog_up,
    ),
    "something is started whose time is over": (
        "watchdog.Watchdog._begin = lambda dog, order: begin(dog, msgspec.structs.replace(order, until_s=math.inf))",
        promises.test_nothing_is_started_whose_time_is_over_or_that_runs_already,
    ),
    "an item is started twice": (
        "watchdog.Watchdog._begin = lambda dog, order: (dog.groups.pop(order.item, None), begin(dog, order))",
        promises.test_nothing_is_started_whose_time_is_over_or_that_runs_already,
    ),
    "the watchdog hears signals that were meant for the worker": (
        "watchdog._deafen = lambda wake: None",
        promises.test_signals_that_were_meant_for_the_worker_do_not_end_the_watchdog_and_reach_its_children_as_usual,
    ),
    "a child keeps the watchdog's pipe": (
        "os.set_inheritable = lambda pipe, inheritable: None",
        promises.test_a_child_sees_its_environment_and_none_of_the_pipes,
    ),
    "a child survives its watchdog": (
        "watchdog.prctl = lambda option, value: option == 1 or prctl(option, value)",
        promises.test_a_killed_watchdog_takes_its_children_along,
    ),
}


@pytest.mark.slow  # Together they take some seconds: most of them fail by waiting in vain.
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_watchdog_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, promise = MUTANTS[name]
    monkeypatch.setattr(promises, "PROGRAM", ("-c", BROKEN.format(change=change)))
    monkeypatch.setattr(promises, "PATIENCE_S", 1.2)
    with pytest.raises((AssertionError, pytest.fail.Exception, subprocess.TimeoutExpired)):
        promise()


@pytest.mark.slow
def test_the_same_program_without_a_change_keeps_its_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises, "PROGRAM", ("-c", BROKEN.format(change="")))
    for promise in {promise for _, promise in MUTANTS.values()}:
        promise()
