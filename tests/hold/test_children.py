"""Children of a worker, through a real watchdog."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path

import pytest
from tests.hold.leading import until
from tests.hold.processes import DEAF_FAMILY, FAMILY, OBEDIENT, alive, group

from poise.clock import boot_s
from poise.hold import children as children_module
from poise.hold.children import Children


def children(command: tuple[str, ...], **environment: str) -> Children:
    return Children(command, environment, kill_after_s=0.1, stop_s=0.3)


def run(work: Coroutine[object, None, None]) -> None:
    asyncio.run(work)


def test_a_child_gets_its_item_and_epoch_and_the_environment_of_the_worker(tmp_path: Path) -> None:
    out = tmp_path / "out"
    show = ("sh", "-c", f'echo "$POISE_SET $POISE_ITEM $POISE_EPOCH $POISE_MEMBER" > {out}; exec sleep 300')

    async def work() -> None:
        async with children(show, POISE_SET="orders", POISE_MEMBER="w1") as those:
            those.renew({"7": boot_s() + 60})
            await those.start("7", 3)
            await until(lambda: out.exists() and out.read_text() == "orders 7 3 w1\n")
            await those.stop("7", 3)
            assert those.pids == {}

    run(work())


def test_a_stop_returns_only_when_the_whole_group_is_empty() -> None:
    async def work() -> None:
        async with children(FAMILY) as those:
            those.renew({"7": boot_s() + 60})
            await those.start("7", 1)
            await until(lambda: "7" in those.pids and len(group(those.pids["7"])) == 3)
            pid = those.pids["7"]
            await those.stop("7", 1)
            assert group(pid) == []

    run(work())


def test_a_family_that_ignores_being_asked_is_killed_when_its_time_is_over() -> None:
    deaf = ("sh", "-c", 'trap "" TERM; (while :; do sleep 0.05; done) & while :; do sleep 0.05; done')

    async def work() -> None:
        async with children(deaf) as those:
            until_s = boot_s() + 1.0
            those.renew({"7": until_s})
            await those.start("7", 1)
            await until(lambda: "7" in those.pids and len(group(those.pids["7"])) >= 3)
            pid = those.pids["7"]
            await asyncio.wait_for(those.stop("7", 1), 10)
            assert group(pid) == []
            assert boot_s() >= until_s, "it had its time"

    run(work())


def test_a_child_that_ends_by_itself_is_started_again_after_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(children_module, "RESTART_S", 0.05)

    async def work() -> None:
        async with children(("sh", "-c", f"echo x >> {out}; exit 3")) as those:
            those.renew({"7": boot_s() + 60})
            await those.start("7", 1)
            begun_s = boot_s()
            await until(lambda: out.exists() and len(out.read_text()) >= 2 * 4)
            assert boot_s() - begun_s >= 0.05 + 0.1 + 0.2
            await those.stop("7", 1)
            size = out.stat().st_size
            await asyncio.sleep(1)
            assert out.stat().st_size == size, "what is lost is not started again"

    run(work())


def test_a_child_whose_time_is_over_ends_though_nobody_asks() -> None:
    """This process is alive and silent, as a frozen one is."""

    async def work() -> None:
        async with children(OBEDIENT) as those:
            those.renew({"7": boot_s() + 3})
            await those.start("7", 1)
            await until(lambda: "7" in those.pids)
            pid = those.pids["7"]
            await until(lambda: not alive(pid), patience_s=5.5)
            await those.stop("7", 1)

    run(work())


def test_leaving_ends_whatever_still_runs() -> None:
    async def work() -> None:
        async with children(FAMILY) as those:
            those.renew({"7": boot_s() + 60})
            await those.start("7", 1)
            await until(lambda: "7" in those.pids and len(group(those.pids["7"])) == 3)
            pid = those.pids["7"]
        assert group(pid) == []

    run(work())


def test_without_its_watchdog_a_worker_ends_the_groups_itself() -> None:
    async def work() -> None:
        async with children(DEAF_FAMILY) as those:
            those.renew({"7": boot_s() + 60})
            await those.start("7", 1)
            await until(lambda: "7" in those.pids and len(group(those.pids["7"])) >= 3)
            pid = those.pids["7"]
            os.kill(those.watchdog_pid, signal.SIGKILL)
            await asyncio.wait_for(those.gone.wait(), 5)
            await those.stop("7", 1)
            assert group(pid) == []
            await those.start("8", 1)
            await those.stop("8", 1)

    run(work())


def test_stopping_what_was_never_started_or_at_another_epoch_does_nothing() -> None:
    async def work() -> None:
        async with children(OBEDIENT) as those:
            await those.stop("7", 1)
            those.renew({"7": boot_s() + 60})
            await those.start("7", 2)
            await until(lambda: "7" in those.pids)
            await those.stop("7", 1)
            assert alive(those.pids["7"])

    run(work())
