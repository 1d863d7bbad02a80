"""What a shard sees: families, old versions, drains, and what may be acted on; each guard has a mutant."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poise.hold import shard_view
from poise.hold.shard_view import Entry, View, entry_of
from poise.hold.sharding import Grip, Verdict
from poise.kube.objects import Meta, OwnerReference
from poise.kube.resources import CONFIG_MAPS, SECRETS
from poise.model.sharding import Marks, label_patch
from poise.move.sharding.families import find_families

KINDS = {("", "Secret"), ("", "ConfigMap")}
GRIP = Grip(name="a", me="a_1", version="1", sent_at_s=100.0, duration_s=15.0, margin_s=4.0, listed=True)


def entry(uid: str, marks: Marks, owner: str = "", version: int = 1) -> Entry:
    labels = {name: value for name, value in label_patch({}, "web", marks).items() if value is not None}
    owners = (OwnerReference("v1", "Secret", owner, owner, controller=True),) if owner else ()
    meta = Meta(name=uid, namespace="n", uid=uid, resource_version=str(version), labels=labels, owner_references=owners)
    return entry_of(CONFIG_MAPS if owner else SECRETS, meta, "web", KINDS)


def seen(*entries: Entry, now_s: float = 90.0) -> View:
    view = View("a")
    for each in entries:
        view.put(each, now_s)
    return view


MINE = Marks("a", 3)


def test_an_object_is_read_as_the_ring_sees_it() -> None:
    child = entry("c", Marks("a", 3, "b", 9), owner="x")
    assert child.seen.key == "/ConfigMap/n/c"
    assert child.seen.marks == Marks("a", 3, "b", 9)
    assert child.seen.parent == "x"
    assert child.ref.path == "/api/v1/namespaces/n/configmaps/c"
    meta = msgspec.structs.replace(child.meta, owner_references=(OwnerReference("apps/v1", "Secret", "x", "x", True),))
    assert entry_of(CONFIG_MAPS, meta, "web", KINDS).seen.parent is None, "an owner of another kind is not the ring's"


def test_a_line_leads_to_the_root_and_ends_where_an_owner_is_not_in_sight() -> None:
    view = seen(entry("x", MINE), entry("c", MINE, "x"), entry("d", MINE, "c"))
    assert [each.uid for each in view.line("d")] == ["d", "c", "x"]
    assert sorted(each.uid for each in view.below("x")) == ["c", "d"]
    view.drop("c")
    assert view.line("d") == []
    assert view.root("d") is None
    assert view.below("x") == []
    assert view.judge("d", GRIP, 101.0, ()) is Verdict.NOT_MINE


def test_owners_that_go_round_in_a_circle_lead_to_no_root() -> None:
    view = seen(entry("c", MINE, "d"), entry("d", MINE, "c"))
    assert view.line("c") == []
    assert [each.uid for each in view.below("c")] == ["d"]


def test_what_may_be_acted_on() -> None:
    view = seen(entry("x", MINE), entry("c", MINE, "x"), entry("other", Marks("a", 2), "x"))
    assert view.judge("x", GRIP, 101.0, ()) is Verdict.ACT
    assert view.judge("c", GRIP, 101.0, ()) is Verdict.ACT
    assert view.judge("other", GRIP, 101.0, ()) is Verdict.CHILD_DIFFERS
    assert view.judge("x", GRIP, 101.0, {"x"}) is Verdict.HANDED_OVER
    assert view.judge("c", GRIP, 101.0, {"x"}) is Verdict.HANDED_OVER, "the whole family is barred"
    assert view.judge("x", GRIP, 111.0, ()) is Verdict.NO_LEASE
    assert view.judge("x", None, 101.0, ()) is Verdict.NO_LEASE
    assert view.judge("nowhere", GRIP, 101.0, ()) is Verdict.NOT_MINE
    view.put(entry("x", MINE, version=2), 105.0)
    assert view.judge("x", GRIP, 106.0, ()) is Verdict.ACT, "a change that is no gain needs no confirmation"
    view.put(entry("x", Marks("a", 4), version=3), 105.0)
    assert view.judge("x", GRIP, 106.0, ()) is Verdict.UNCONFIRMED
    assert view.newest_gain_s == 105.0


def test_what_runs_goes_on_while_nobody_took_it_or_raised_it() -> None:
    view = seen(entry("x", MINE), entry("c", MINE, "x"))
    assert view.is_own("c", 3)
    assert not view.is_own("c", 2)
    view.put(entry("x", Marks("a", 3, "b", 9), version=2), 91.0)
    assert view.is_own("c", 3), "what is asked for may end in peace"
    view.drop("x")
    assert not view.is_own("c", 3), "its root is not in sight"


def test_an_object_that_carries_another_name_is_dropped() -> None:
    view = seen(entry("x", MINE))
    view.put(entry("x", Marks("b", 4), version=2), 91.0)
    assert not view.entries
    assert not view.known


def test_a_watch_that_lags_does_not_bring_back_what_was_given_away() -> None:
    view = seen(entry("x", MINE, version=5))
    view.wrote(entry("x", Marks("b", 4), version=7), 91.0, fences=False)
    assert view.was_let_go("x")
    assert not view.put(entry("x", MINE, version=6), 92.0)
    assert not view.entries
    assert view.put(entry("x", Marks("a", 5), version=9), 93.0), "it came back"
    assert view.known["x"].gained_at_s == 93.0
    assert not view.was_let_go("x")


def test_without_versions_that_are_compared_it_would_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_view, "is_older", lambda _version, _known: False)
    with pytest.raises(AssertionError):
        test_a_watch_that_lags_does_not_bring_back_what_was_given_away()


def test_an_own_fence_is_no_gain_and_ends_the_inheritance() -> None:
    view = View("a")
    view.put(entry("x", MINE), 90.0, inherited=True)
    eager = msgspec.structs.replace(GRIP, eager=True)
    assert view.judge("x", eager, 101.0, ()) is Verdict.FENCE_FIRST
    view.wrote(entry("x", Marks("a", 4), version=2), 105.0, fences=True)
    assert view.judge("x", eager, 106.0, ()) is Verdict.ACT
    view.put(entry("x", Marks("a", 4), version=2), 107.0)
    assert view.judge("x", eager, 108.0, ()) is Verdict.ACT, "the watch shows the own write"


def test_a_drain_is_timed_from_its_first_sight_for_the_whole_family() -> None:
    view = seen(entry("x", MINE), entry("c", MINE, "x"))
    assert view.asked_since_s("c") is None
    view.put(entry("x", Marks("a", 3, "b", 9), version=2), 91.0)
    view.put(entry("x", Marks("a", 3, "d", 9), version=3), 95.0)
    assert view.asked_since_s("c") == 91.0, "who it is reserved for may change"
    assert view.drained == ("x",)
    view.put(entry("x", Marks("a", 4, "d", 9), version=4), 96.0)
    assert view.asked_since_s("x") == 96.0, "another epoch is another drain"
    view.put(entry("x", Marks("a", 4), version=5), 97.0)
    assert view.asked_since_s("x") is None


def test_a_child_that_is_adopted_is_below_its_new_owner() -> None:
    view = seen(entry("x", MINE), entry("y", MINE), entry("c", MINE, "x"))
    view.put(entry("c", MINE, "y", version=2), 91.0)
    assert view.below("x") == []
    assert [each.uid for each in view.below("y")] == ["c"]


UIDS = st.sampled_from(list("uvwxyz"))
CHANGES = st.lists(st.tuples(UIDS, st.sampled_from(["put", "drop"]), st.none() | UIDS), max_size=30)


@settings(max_examples=150, deadline=None)
@given(CHANGES)
def test_after_any_changes_families_are_those_of_all_that_is_in_sight(
    changes: list[tuple[str, str, str | None]],
) -> None:
    check_families(changes)


def check_families(changes: list[tuple[str, str, str | None]]) -> None:
    view = View("a")
    for version, (uid, verb, owner) in enumerate(changes, 1):
        if verb == "put":
            view.put(entry(uid, MINE, owner or "", version), float(version))
        else:
            view.drop(uid)
    found = find_families(each.seen for each in view.entries.values())
    roots = {child.uid: family.root.uid for family in found.families for child in (family.root, *family.children)}
    assert {uid: root.uid for uid in view.entries if (root := view.root(uid)) is not None} == roots
    for family in found.families:
        below = {each.uid for each in view.below(family.root.uid)}
        assert below == {child.uid for child in family.children}


def test_a_view_that_forgets_to_part_families_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "_part", lambda _view, _parent, _uid: None)
    with pytest.raises(AssertionError):
        check_families([("x", "put", None), ("y", "put", None), ("u", "put", "x"), ("u", "put", "y")])
