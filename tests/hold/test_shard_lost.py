"""One event may take away the object itself and what it controls: nothing else is looked at, and nothing is missed."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hold.test_shard_in_memory import MINE as LABELS
from tests.hold.test_shard_in_memory import shard
from tests.hold.test_shard_runs import Bench, play, settle
from tests.hold.test_shard_view import MINE, entry, seen
from tests.jobs_sharder.memory_world import SPACE, make_families, until
from tests.kube.fake_time import run
from tests.kube.memory_api import MemoryApi

from poise.hold.shard import Held
from poise.hold.shard_view import View
from poise.kube import ObjectRef, Partial
from poise.kube.resources import SECRETS
from poise.model.sharding import Marks

UIDS = st.sampled_from(list("uvwxyz"))
MARKS = st.sampled_from((MINE, MINE, Marks("a", 4), Marks("a", 3, "b", 9), Marks("b", 4)))
CHANGES = st.lists(st.tuples(UIDS, st.sampled_from(["put", "drop", "wrote"]), st.none() | UIDS, MARKS), max_size=30)


@settings(max_examples=300, deadline=None)
@given(CHANGES)
def test_whatever_happens_to_an_object_takes_away_only_itself_and_what_it_controls(
    changes: list[tuple[str, str, str | None, Marks]],
) -> None:
    check_reach(changes)


def check_reach(changes: list[tuple[str, str, str | None, Marks]]) -> None:
    """Let all that may run do so, and see after each change who may not go on."""
    view = View("a")
    running: dict[str, int] = {}
    for version, (uid, verb, owner, marks) in enumerate(changes, 1):
        if verb == "put":
            view.put(entry(uid, marks, owner or "", version), float(version))
        elif verb == "wrote" and uid in view.entries:
            view.wrote(entry(uid, marks, owner or "", version), float(version), fences=False)
        else:
            view.drop(uid)
        lost = {each for each, epoch in running.items() if not view.is_own(each, epoch)}
        assert lost <= {uid, *(each.uid for each in view.below(uid))}
        running = {each: view.entries[each].seen.marks.epoch or 0 for each in view.entries if view.line(each)}


def test_a_view_that_sees_only_direct_children_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def direct(view: View, uid: str) -> list[object]:
        return [each for each in view.entries.values() if each.seen.parent == uid]

    monkeypatch.setattr(View, "below", direct)
    family = [("x", "put", None, MINE), ("c", "put", "x", MINE), ("d", "put", "c", MINE)]
    with pytest.raises(AssertionError):
        check_reach([*family, ("x", "drop", None, MINE)])


@pytest.mark.parametrize(("lost", "left"), [("x", ["y"]), ("c", ["x", "y"]), ("d", ["c", "x", "y"])])
def test_all_that_an_object_controls_is_cancelled_with_it(lost: str, left: list[str]) -> None:
    async def scenario(bench: Bench) -> None:
        for uid in ("x", "c", "d", "y"):
            bench.runs.wake(uid)
        await settle()
        assert len(bench.runs.running) == 4
        bench.view.drop(lost)
        bench.runs.cancel_lost(lost)
        await settle()
        assert sorted(bench.runs.running) == left

    play(seen(entry("x", MINE), entry("c", MINE, "x"), entry("d", MINE, "c"), entry("y", MINE)), scenario)


def test_one_event_looks_at_one_of_a_thousand_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    many, looks, is_own = 1000, list[str](), View.is_own

    def counted(view: View, uid: str, epoch: int) -> bool:
        looks.append(uid)
        return is_own(view, uid, epoch)

    monkeypatch.setattr(View, "is_own", counted)

    async def scenario() -> None:
        api, over = MemoryApi(), asyncio.Event()
        make_families(api, many, labels=LABELS)

        async def wait(held: Held) -> None:
            del held
            await over.wait()

        async with shard(api, at_once=many, reconcile=wait) as made:
            await until(lambda: made.counts.running == many)
            looks.clear()
            ref = ObjectRef(SECRETS, "s007", SPACE)
            labels = api.get_now(ref, Partial).metadata.labels
            api.put_now(ref, {"metadata": {"labels": labels | {"app": "shop"}}})
            await asyncio.sleep(0.1)
            assert len(looks) == 1
            api.drop_now(ref)
            await until(lambda: made.counts.running == many - 1)
            assert len(looks) == 2
            over.set()

    run(scenario())
