"""A reconcile hears that somebody waits for its end; one of another object does not."""

from __future__ import annotations

from tests.hold.test_shard_runs import Bench, play, settle
from tests.hold.test_shard_view import entry, seen

from poise.model.sharding import Marks


def test_only_what_is_waited_for_is_asked_to_end() -> None:
    async def scenario(bench: Bench) -> None:
        for name in "xy":
            bench.runs.wake(name)
        await settle()
        bench.runs.ask_to_end(["x", "gone"])
        runs = bench.runs.running
        assert {name: run.asked.is_set() for name, run in runs.items()} == {"x": True, "y": False}

    play(seen(entry("x", Marks("a", 1)), entry("y", Marks("a", 1))), scenario)
