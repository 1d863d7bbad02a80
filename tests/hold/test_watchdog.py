"""The watchdog alone, as a real process: what it starts, asks, kills and reports."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from tests.hold.processes import (
    DEAF,
    DEAF_FAMILY,
    DEAF_ORPHANS,
    FAMILY,
    OBEDIENT,
    SHORT_LIVED,
    alive,
    await_that,
    group,
)

from poise.clock import boot_s
from poise.hold.watchdog import Begin, Begun, Emptied, Event, Quit, Renew, Rules

RULES = Rules(kill_after_s=0.2, stop_s=0.5)
PROGRAM = ("-m", "poise.hold.watchdog")  # What is judged here; a broken one takes its place once for each promise.
PATIENCE_S = 15.0


class Dog:
    """A watchdog, and the worker's side of its pipes."""

    def __init__(self, process: subprocess.Popen[bytes], events: int) -> None:
        self.process, self.events = process, events
        self.heard = b""
        self.pids: list[int] = []

    def send(self, *orders: Begin | Renew | Quit | Rules) -> None:
        assert self.process.stdin is not None
        pipe, text = self.process.stdin.fileno(), b"".join(msgspec.json.encode(order) + b"\n" for order in orders)
        os.set_blocking(pipe, False)
        while text:
            assert select.select([], [pipe], [], PATIENCE_S)[1], "the watchdog does not listen"
            text = text[os.write(pipe, text) :]

    def hear(self) -> Begun | Emptied:
        while b"\n" not in self.heard:
            assert select.select([self.events], [], [], PATIENCE_S)[0], "the watchdog says nothing"
            text = os.read(self.events, 1 << 16)
            assert text, "the watchdog has ended"
            self.heard += text
        line, _, self.heard = self.heard.partition(b"\n")
        event: Begun | Emptied = msgspec.json.decode(line, type=Event)
        if isinstance(event, Begun):
            self.pids.append(event.pid)
        return event

    def begin(self, command: tuple[str, ...], until_s: float, item: str = "7") -> int:
        """Start a command, and give its group once all of it is there."""
        self.send(Begin(item, 1, command, {"POISE_ITEM": item}, until_s))
        begun = self.hear()
        assert isinstance(begun, Begun)
        members = 3 if command in (FAMILY, DEAF_FAMILY) else 1
        await_that(lambda: len(group(begun.pid)) >= members, PATIENCE_S)
        return begun.pid

    def vanish(self) -> None:
        """End as a killed worker does: its pipes close."""
        assert self.process.stdin is not None
        self.process.stdin.close()


@contextmanager
def watchdog() -> Iterator[Dog]:
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, *PROGRAM, str(writing)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[writing],
        start_new_session=True,
    )
    os.close(writing)
    with open(reading, "rb"), process:
        dog = Dog(process, reading)
        dog.send(RULES)
        try:
            yield dog
        finally:
            process.kill()
            for pid in dog.pids:
                if group(pid):
                    os.killpg(pid, signal.SIGKILL)


def test_a_child_that_is_asked_to_end_is_reported_when_its_group_is_empty() -> None:
    with watchdog() as dog:
        pid = dog.begin(FAMILY, boot_s() + 60)
        dog.send(Quit("7"))
        assert dog.hear() == Emptied("7", 1, -signal.SIGTERM)
        assert group(pid) == []


def test_a_group_is_asked_when_its_time_is_over_and_killed_soon_after() -> None:
    with watchdog() as dog:
        pid = dog.begin(DEAF_FAMILY, boot_s() + 60)
        until_s = boot_s() + 0.5
        dog.send(Renew({"7": until_s}))
        dog.hear()
        assert group(pid) == []
        assert boot_s() >= until_s + RULES.kill_after_s - 0.05, "not before its time is over"
        assert boot_s() < until_s + 3


@pytest.mark.slow
def test_a_renewal_keeps_a_child_alive_and_the_last_one_counts() -> None:
    with watchdog() as dog:
        pid = dog.begin(OBEDIENT, boot_s() + 60)
        for _ in range(7):
            dog.send(Renew({"7": boot_s() + 1.0, "8": boot_s() + 99}))
            with pytest.raises(AssertionError):
                await_that(lambda: not alive(pid), patience_s=0.2)
        assert dog.hear() == Emptied("7", 1, -signal.SIGTERM)


@pytest.mark.parametrize(
    "command", [OBEDIENT, DEAF, FAMILY, DEAF_FAMILY], ids=["obedient", "deaf", "family", "deaf family"]
)
def test_when_the_worker_is_gone_all_groups_end_and_then_the_watchdog(command: tuple[str, ...]) -> None:
    with watchdog() as dog:
        pids = [dog.begin(command, boot_s() + 60, item) for item in "ab"]
        dog.vanish()
        dog.process.wait(PATIENCE_S)
        assert [group(pid) for pid in pids] == [[], []]
        assert dog.process.returncode == 0


def test_a_frozen_worker_that_reads_nothing_does_not_hold_the_watchdog_up() -> None:
    """So many events that the pipe is full: the watchdog goes on all the same."""
    with watchdog() as dog:
        pid = dog.begin(OBEDIENT, boot_s() + 5)
        dog.send(*[Begin("9" * 900, 1, SHORT_LIVED, {}, 0.0)] * 200)
        dog.send(Quit("7"))
        await_that(lambda: group(pid) == [], PATIENCE_S)
        heard = [dog.hear() for _ in range(201)]
        assert heard.count(Emptied("7", 1, -signal.SIGTERM)) == 1


def test_what_a_leader_leaves_behind_is_ended_before_the_group_is_reported_empty() -> None:
    with watchdog() as dog:
        dog.send(Begin("7", 1, DEAF_ORPHANS, {}, boot_s() + 60))
        begun = dog.hear()
        assert isinstance(begun, Begun)
        assert dog.hear() == Emptied("7", 1, 5)
        assert group(begun.pid) == []


def test_a_stopped_child_is_killed_too() -> None:
    with watchdog() as dog:
        pid = dog.begin(OBEDIENT, boot_s() + 60)
        os.kill(pid, signal.SIGSTOP)
        dog.send(Renew({"7": boot_s() + 0.3}))
        assert dog.hear() == Emptied("7", 1, -signal.SIGKILL)


def test_nothing_is_started_whose_time_is_over_or_that_runs_already() -> None:
    with watchdog() as dog:
        dog.send(Begin("7", 1, OBEDIENT, {}, boot_s() - 1))
        assert dog.hear() == Emptied("7", 1, None)
        dog.begin(OBEDIENT, boot_s() + 60)
        dog.send(Begin("7", 2, OBEDIENT, {}, boot_s() + 60))
        assert dog.hear() == Emptied("7", 2, None)


def test_a_command_that_is_not_there_ends_at_once() -> None:
    with watchdog() as dog:
        dog.send(Begin("7", 1, ("no-such-command",), {}, boot_s() + 60))
        assert isinstance(dog.hear(), Begun)
        assert dog.hear() == Emptied("7", 1, 127)


def test_a_child_sees_its_environment_and_none_of_the_pipes() -> None:
    with watchdog() as dog:
        look = ("sh", "-c", 'echo "$POISE_ITEM" $(ls /proc/self/fd | wc -l); cat')
        dog.send(Begin("7", 1, look, {"POISE_ITEM": "7"}, boot_s() + 60))
        assert isinstance(dog.hear(), Begun)
        assert dog.hear() == Emptied("7", 1, 0), "its standard input is empty"
        assert dog.process.stdout is not None
        assert dog.process.stdout.readline() == b"7 4\n", "0, 1, 2 and the one that lists them"


def test_signals_that_were_meant_for_the_worker_do_not_end_the_watchdog_and_reach_its_children_as_usual() -> None:
    with watchdog() as dog:
        pid = dog.begin(OBEDIENT, boot_s() + 60)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            dog.process.send_signal(number)
        os.kill(pid, signal.SIGTERM)
        assert dog.hear() == Emptied("7", 1, -signal.SIGTERM)
        assert dog.process.poll() is None


def test_a_child_that_is_asked_to_end_before_it_is_the_command_ends_too() -> None:
    with watchdog() as dog:
        for epoch in range(20):
            dog.send(Begin("7", epoch, OBEDIENT, {}, boot_s() + 60), Quit("7"))
            assert isinstance(dog.hear(), Begun)
            assert dog.hear() == Emptied("7", epoch, -signal.SIGTERM)


def test_a_killed_watchdog_takes_its_children_along() -> None:
    with watchdog() as dog:
        pid = dog.begin(OBEDIENT, boot_s() + 60)
        dog.process.kill()
        await_that(lambda: not alive(pid), PATIENCE_S)
