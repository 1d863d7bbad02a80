"""The plan that people see is the one that the sharder aims for, and every object is explained by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.jobs_sharder.sharder_events import FOLLOWING, RING, SHARED, Put, known_of, marks
from tests.jobs_sharder.test_sharder_deciding import NOW_S, deciding_on, instances, standings

from poise.errors import InvalidSpec
from poise.jobs.entries import ItemsEntry, Planned
from poise.jobs.sharder import foresight
from poise.jobs.sharder.explaining import explain_object, find_object, heir_of
from poise.jobs.sharder.foresight import facts_of, plan_facts, plan_snapshot
from poise.jobs.sharder.instances import Instances
from poise.jobs.sharder.orders import NO_ORDERS, Orders
from poise.jobs.sharder.report import RingReport
from poise.jobs.sharder.snapshot import RingSnapshot, report_of
from poise.jobs.sharder.view import View
from poise.jobs.what_if import WhatIf
from poise.model import ShardRing
from poise.model.sharding import Marks, Standing

NOW = datetime(2026, 11, 16, 10, 0, tzinfo=UTC)
READY = {"x-0": Standing.READY, "x-1": Standing.READY, "x-2": Standing.READY}
roots = st.lists(
    st.builds(Put, st.sampled_from("abcdefgh"), st.none(), marks), max_size=12, unique_by=lambda put: put.uid
)


def looked(
    objects: Sequence[Put], wanted: Mapping[str, Standing], policy: str = "ring", orders: Orders = NO_ORDERS
) -> tuple[RingSnapshot, View, Instances]:
    """Look at objects and instances, as a sharder would show them."""
    view, stand = View(RING, (SHARED, FOLLOWING)), instances(dict(wanted))
    stand.orders = orders
    for number, each in enumerate(objects):
        view.take(known_of(each, number + 100), NOW_S)
    spec = {"policy": policy, "resources": [{"resource": "secrets", "controlled": [{"resource": "configmaps"}]}]}
    ring = msgspec.convert({"metadata": {"name": RING}, "spec": spec}, ShardRing)
    shown = stand.shown(100, view.named, NOW_S)
    seen = RingSnapshot(
        namespace="team",
        ring=ring,
        objects=view.kin.objects,
        rooted=view.kin.rooted(),
        known=view.known,
        instances=shown,
        standings=stand.standings,
        members=stand.members(100),
        now=NOW,
        orders=orders,
        report=report_of(view, shown, orders),
    )
    return seen, view, stand


def entry_of(planned: Planned) -> ItemsEntry:
    assert isinstance(planned.entry, ItemsEntry)
    return planned.entry


@settings(max_examples=150, deadline=None)
@given(roots, standings, st.sampled_from(("ring", "balanced")), st.frozensets(st.sampled_from(("x-0", "x-1", "x-2"))))
def test_law_the_plan_is_what_the_sharder_aims_for(
    objects: list[Put], wanted: dict[str, Standing], policy: str, drained: frozenset[str]
) -> None:
    seen, view, stand = looked(objects, wanted, policy, Orders(drained=drained))
    planned = plan_snapshot(seen)
    assert planned.faults == []
    assignment = entry_of(planned).assignment
    deciding = deciding_on(view, stand, policy)
    for uid in view.kin.roots():
        root = view.kin.objects[uid]
        if not root.selected:
            continue
        home = deciding._home(view.family(uid))
        if stand.standings.get(home or "") is not Standing.READY:
            home = None  # Whoever is not ready is given nothing.
        place = root.marks.drain if stand.standings.get(root.marks.drain or "") is Standing.READY else root.marks.shard
        if root.marks.shard is None:
            place = None
        stands = stand.standings.get(place or "", Standing.LATE)
        if place is not None and stands is Standing.LATE:
            assert assignment[root.key] == place, "who is late keeps it"
        elif place is not None and home is None and stands is Standing.READY:
            assert assignment[root.key] == place, "it stays where it is"
        else:
            assert assignment[root.key] == home


def test_mutant_a_plan_that_forgets_who_is_late_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foresight, "_places_of_late", lambda *_: {})
    late = {**READY, "x-1": Standing.LATE}
    objects = [Put(uid, None, Marks()) for uid in "abcdefgh"]
    with pytest.raises(AssertionError):
        test_law_the_plan_is_what_the_sharder_aims_for.hypothesis.inner_test(objects, late, "ring", frozenset())  # type: ignore[attr-defined]


def spread_out() -> RingSnapshot:
    """Give eight objects to those whom the ring chooses."""
    bare, _, _ = looked([Put(uid, None, Marks()) for uid in "abcdefgh"], READY)
    homes = plan_facts(facts_of(bare)).assignment
    uids = {root.key: root.uid for root in bare.roots}
    return looked([Put(uids[key], None, Marks(home, 1)) for key, home in homes.items()], READY)[0]


def test_who_joins_takes_only_for_itself_and_who_leaves_gives_only_its_own() -> None:
    seen = spread_out()
    joined = entry_of(plan_snapshot(seen, WhatIf(add=["x-3"])))
    assert joined.moves, "it gets something"
    assert {move.target for move in joined.moves} == {"x-3"}
    assert joined.certificate.moves == joined.certificate.moves_min == len(joined.moves)
    left = entry_of(plan_snapshot(seen, WhatIf(remove=["x-0"])))
    assert {move.source for move in left.moves} == {"x-0"}
    drained = entry_of(plan_snapshot(seen, WhatIf(drain=["x-0"])))
    assert [(move.item, move.target) for move in drained.moves] == [(move.item, move.target) for move in left.moves]
    assert all(move.reason == "x-0 is draining" for move in drained.moves)
    assert entry_of(plan_snapshot(seen)).moves == []


def test_tokens_of_who_joins_count() -> None:
    seen = spread_out()
    few = len(entry_of(plan_snapshot(seen, WhatIf(add=["x-3"]), 1)).moves)
    many = len(entry_of(plan_snapshot(seen, WhatIf(add=["x-3"]), 10_000)).moves)
    assert few < many


@pytest.mark.parametrize(
    ("what_if", "told"),
    [
        (WhatIf(add=["x-0"]), "x-0 is an instance already"),
        (WhatIf(add=["y" * 64]), "at most 63 characters"),
        (WhatIf(remove=["nobody"]), "no instance of that name; there are x-0, x-1, x-2"),
        (WhatIf(drain=["x-1"]), "x-1 is late"),
        (WhatIf(undrain=["x-0"]), "x-0 is in service already"),
        (WhatIf(weights={"x-0": 2}), "a ring knows neither replicas nor weights"),
    ],
)
def test_what_makes_no_sense_is_refused(what_if: WhatIf, told: str) -> None:
    seen, _, _ = looked([], {**READY, "x-1": Standing.LATE})
    with pytest.raises(InvalidSpec, match=told.replace("(", r"\(")):
        plan_snapshot(seen, what_if)


def test_guards_say_what_waits() -> None:
    seen = spread_out()
    drain = WhatIf(drain=["x-0"])
    paused = entry_of(plan_snapshot(msgspec.structs.replace(seen, orders=Orders("moves")), drain))
    assert {move.waits.code for move in paused.moves if move.waits} == {"pause"}
    lost, _, _ = looked([Put("a", None, Marks("x-0", 1))], {**READY, "x-0": Standing.LOST}, orders=Orders("moves"))
    assert [move.waits for move in entry_of(plan_snapshot(lost)).moves] == [None], "recovery goes on"
    everything = msgspec.structs.replace(lost, orders=Orders("all"))
    assert [move.waits.code for move in entry_of(plan_snapshot(everything)).moves if move.waits] == ["pause"]
    braked = msgspec.structs.replace(lost, report=RingReport(vanished=("x-0",)))
    assert [move.waits.code for move in entry_of(plan_snapshot(braked)).moves if move.waits] == ["brake"]


def test_an_object_is_explained_with_its_labels_and_its_heir() -> None:
    seen = spread_out()
    told = explain_object(seen, seen.objects["a"])
    assert told.member == told.shard == seen.objects["a"].marks.shard
    assert told.heir == entry_of(plan_snapshot(seen, WhatIf(remove=[told.shard or ""]))).assignment[told.key]
    assert told.alternatives[1].member == told.heir, "the next token clockwise after its own"
    assert any(line.startswith(f"key {told.key} has the token ") for line in told.because)
    assert f"its labels give it to {told.shard}, epoch 1" in told.because
    assert f"if {told.shard} failed, {told.heir} would take it over" in told.would_move


def test_a_child_is_explained_by_its_root() -> None:
    child = Put("b", "a", Marks("x-1", 3), shared=False)
    seen, _, _ = looked([Put("a", None, Marks("x-0", 4)), child], READY)
    told = explain_object(seen, seen.objects["b"])
    assert (told.root, told.key, told.epoch) == (seen.objects["a"].key, seen.objects["a"].key, 3)
    assert "which controls it" in told.because[0]
    assert any("its labels are not those of its root" in line for line in told.because)


def test_a_drain_is_told_with_its_time() -> None:
    until = int(NOW.timestamp()) + 60
    seen, _, _ = looked([Put("a", None, Marks("x-0", 4, "x-1", until))], READY)
    seen = msgspec.structs.replace(seen, drain_since={"a": NOW})
    told = explain_object(seen, seen.objects["a"])
    assert told.drain == "x-1"
    assert told.drain_since == NOW
    line = "x-0 is asked to hand it over, for x-1, since 2026-11-16 10:00:00Z; to be handed over by 10:01:00Z"
    assert line in told.because


def test_late_drained_and_alone() -> None:
    late, _, _ = looked([Put("a", None, Marks("x-0", 1))], {**READY, "x-0": Standing.LATE})
    assert "is late: nothing moves" in explain_object(late, late.objects["a"]).because[-1]
    alone, _, _ = looked(
        [Put("a", None, Marks("x-0", 1))], {"x-0": Standing.READY}, orders=Orders("", frozenset({"x-0"}))
    )
    told = explain_object(alone, alone.objects["a"])
    assert told.member == "x-0"
    assert "nobody is there to take it" in told.because[-1]
    assert told.heir is None
    assert "nobody could take it over" in told.would_move[0]


@pytest.mark.parametrize("policy", ["ring", "balanced"])
def test_the_heir_is_who_gets_it_when_its_instance_is_gone(policy: str) -> None:
    bare, _, _ = looked([Put(uid, None, Marks("x-0", 1)) for uid in "abc"], READY, policy)
    for root in bare.roots:
        gone, _, _ = looked(
            [Put(each.uid, None, each.marks) for each in bare.roots], {**READY, "x-0": Standing.LOST}, policy
        )
        assert heir_of(bare, root.key, "x-0") == entry_of(plan_snapshot(gone)).assignment[root.key]


def test_objects_are_found_as_people_name_them() -> None:
    seen, _, _ = looked([Put("a", None, Marks())], READY)
    meta = seen.known["a"].meta
    for kind in ("Secret", "secret", "secrets"):
        assert find_object(seen, kind, meta.namespace, meta.name).uid == "a"
    with pytest.raises(InvalidSpec, match="no object of the kind 'pod'; there are Secret"):
        find_object(seen, "pod", meta.namespace, meta.name)
    with pytest.raises(InvalidSpec, match="; there is /Secret/"):
        find_object(seen, "secret", "elsewhere", meta.name)
    with pytest.raises(InvalidSpec, match="has no object secret"):
        find_object(seen, "secret", meta.namespace, "nothing", "")
