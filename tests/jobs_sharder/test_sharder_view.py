"""What the view counts is what a count of everything gives; older versions are not believed."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Sequence
from typing import cast

import msgspec
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis.errors import NoSuchExample
from tests.jobs_sharder.sharder_events import FOLLOWING, RING, SHARED, Drop, Put, events, known_of

from poise.jobs.sharder import view as module
from poise.jobs.sharder.view import Known, View, is_newer
from poise.model.sharding import Marks, label_names
from poise.move.sharding.families import Relatives, find_families
from poise.move.sharding.passes import DrainClock, is_clear, is_moving, time_drains


def play(happened: Sequence[Put | Drop]) -> None:
    """Play changes one by one and count all anew after each."""
    view = View(RING, (SHARED, FOLLOWING))
    clocks: dict[str, DrainClock] = {}
    newest: dict[str, Marks] = {}
    for number, event in enumerate(happened):
        now_s = float(number)
        if isinstance(event, Put):
            older = event.older and event.uid in newest
            view.take(known_of(event, number // 2 if older else number + 100), now_s)
            if not older:
                newest[event.uid] = event.marks
        else:
            view.drop(event.uid, now_s)
            newest.pop(event.uid, None)
        objects = list(view.kin.objects.values())
        assert {each.uid: each.marks for each in objects} == newest
        found = find_families(objects)
        families = found.families
        roots = {family.root.uid: family.root for family in families}
        assert view.moving == {family.root.uid for family in families if is_moving(family)}
        assert view.held_roots == {uid for uid, root in roots.items() if root.marks.shard is not None}
        assert view.unassigned == {uid for uid, root in roots.items() if root.selected and root.marks.shard is None}
        assert view.waiting == {each.uid for each in found.waiting if each.selected}
        assert view.clear == is_clear(found)
        named: dict[str, set[str]] = {}
        for each in objects:
            if each.marks.shard is not None:
                named.setdefault(each.marks.shard, set()).add(each.uid)
        assert view.named == named
        clocks = time_drains(clocks, Relatives(families, found.waiting), now_s)
        assert view.clocks == clocks
        counted = view.held_roots | view.unassigned
        assert view.children == sum(len(family.children) for family in families if family.root.uid in counted)


@settings(max_examples=300, deadline=None)
@given(events)
def test_what_is_counted_is_what_there_is(happened: list[Put | Drop]) -> None:
    play(happened)


def breaks(happened: Sequence[Put | Drop]) -> bool:
    try:
        play(happened)
    except (AssertionError, KeyError):
        return True
    return False


def _any_version(_known: str, _seen: str) -> bool:
    return True


def _only_the_named_one(self: View, uid: str, now_s: float, note: Callable[..., None] = View._note) -> None:
    if self.kin.objects.get(uid) is not None and self.kin.objects[uid].parent is None:
        note(self, uid, now_s)


def _never_unnamed(_self: View, _uid: str, _shard: str | None) -> None:
    return None


@pytest.mark.parametrize(
    ("place", "mutant"),
    [
        pytest.param((module, "is_newer"), _any_version, id="a lagging watch is believed"),
        pytest.param((View, "_note"), _only_the_named_one, id="who becomes a child is still counted as a root"),
        pytest.param((View, "_unname"), _never_unnamed, id="names are never forgotten"),
    ],
)
def test_a_view_that_counts_wrongly_is_found_out(
    place: tuple[object, str], mutant: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*place, mutant)
    try:
        assert find(
            events, breaks, settings=settings(max_examples=3000, deadline=None, database=None, phases=(Phase.generate,))
        )
    except NoSuchExample:
        pytest.fail("no sequence of changes tells the mutant from the view")


@pytest.mark.parametrize(
    ("known", "seen", "expected"),
    [("9", "10", True), ("10", "9", False), ("10", "10", False), ("x", "9", True), ("9", "x", True), ("x", "x", False)],
)
def test_versions_are_compared_as_numbers_where_they_are_numbers(known: str, seen: str, expected: bool) -> None:
    assert is_newer(known, seen) is expected


def seen(name: str, version: int, labels: dict[str, str] | None = None, namespace: str = "ns") -> Known:
    made = known_of(Put(name, None, Marks()), version)
    meta = type(made.meta)(name, namespace, name, str(version), labels=labels or {})
    return Known(SHARED, meta, f"/Secret/{namespace}/{name}")


def test_an_object_that_only_got_another_version_touches_nothing() -> None:
    view = View(RING, (SHARED,))
    assert view.take(seen("a", 1), 0.0).roots == {"a"}
    assert view.take(seen("a", 2, {"other": "label"}), 0.0).roots == frozenset()
    assert view.kin.objects["a"].version == "2"


def test_what_is_being_deleted_does_not_wait_for_its_owner() -> None:
    view = View(RING, (SHARED, FOLLOWING))
    owner, child = Put("owner", None, Marks()), known_of(Put("child", "owner", Marks(), shared=False), 2)
    view.take(known_of(owner, 1), 0.0)
    view.take(child, 0.0)
    view.drop("owner", 1.0)
    assert view.waiting == {"child"}
    meta = msgspec.structs.replace(child.meta, resource_version="3", deletion_timestamp="2026-01-01T00:00:00Z")
    view.take(msgspec.structs.replace(child, meta=meta), 2.0)
    assert view.waiting == set()
    view.take(known_of(owner, 4), 3.0)
    view.drop("owner", 4.0)
    assert view.waiting == set(), "also where it was known to go before its owner went"


def test_a_shard_that_can_have_no_lease_is_nobody() -> None:
    view = View(RING, (SHARED,))
    shard = label_names(RING)[0]
    for place, name in enumerate(("No_Lease", "-x", "x.", "UPPER")):
        view.take(seen(f"o{place}", 1, {shard: name}), 0.0)
    view.take(seen("fine", 1, {shard: "web-0.a"}), 0.0)
    assert set(view.named) == {"web-0.a"}
    assert len(view.unassigned) == 4


def test_namespaces_that_are_not_seen_yet_leave_objects_as_they_are() -> None:
    view = View(RING, (SHARED,))
    view.namespaces = {"chosen": True, "other": False}
    shard = label_names(RING)[0]
    view.take(seen("new", 1, namespace="later"), 0.0)
    view.take(seen("held", 1, {shard: "x-0"}, "later"), 0.0)
    view.take(seen("mine", 1, namespace="chosen"), 0.0)
    view.take(seen("not", 1, {shard: "x-0"}, "other"), 0.0)
    assert {uid: each.selected for uid, each in view.kin.objects.items()} == {
        "new": False,
        "held": True,
        "mine": True,
        "not": False,
    }
    view.namespaces["later"] = True
    assert view.choose(1.0, "later") == {"new"}
    view.removing = True
    assert view.choose(1.0) == {"new", "held", "mine"}


class Counted(UserDict[str, Known]):
    """Counts how often an object is looked at."""

    looks = 0

    def __getitem__(self, uid: str) -> Known:
        self.looks += 1
        return super().__getitem__(uid)


@pytest.mark.parametrize("spaces", [1, 100])
def test_of_a_namespace_only_its_own_objects_are_looked_at(spaces: int) -> None:
    objects, view, counted = 300, View(RING, (SHARED,)), Counted()
    # It is a mapping all the same; only a dict can be kept there, as far as the types know.
    view.known = cast(dict[str, Known], counted)
    view.namespaces = {}
    for number in range(objects):
        view.take(seen(f"o{number}", 1, namespace=f"n{number % spaces}"), 0.0)
    view.drop("o0", 0.0)
    counted.looks = 0
    chosen: set[str] = set()
    for number in range(spaces):
        view.namespaces[f"n{number}"] = True
        chosen |= view.choose(1.0, f"n{number}")
    assert chosen == {f"o{number}" for number in range(1, objects)}
    assert counted.looks <= 2 * (objects + spaces)
