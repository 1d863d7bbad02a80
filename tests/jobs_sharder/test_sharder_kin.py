"""The law of the incremental index: after every change it is what `find_families` gives for all objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis.errors import NoSuchExample
from tests.jobs_sharder.sharder_events import Drop, Put, events

from poise.jobs.sharder import kin
from poise.jobs.sharder.kin import Kin, Touched
from poise.model.sharding import SeenObject
from poise.move.sharding.families import Trace, find_families


def seen_of(put: Put, version: int) -> SeenObject:
    return SeenObject(put.uid, f"/Kind/ns/{put.uid}", str(version), put.marks, put.parent)


def play(happened: Sequence[Put | Drop]) -> None:
    """Play changes one by one; the index and the full search must agree after each of them."""
    index, objects, traces = Kin(), dict[str, SeenObject](), dict[str, Trace]()
    for version, event in enumerate(happened):
        before = {root: index.family(root) for root in index.roots()}
        if isinstance(event, Put):
            objects[event.uid] = seen_of(event, version)
            touched = index.put(objects[event.uid])
        else:
            objects.pop(event.uid, None)
            touched = index.drop(event.uid)
        found = find_families(objects.values(), traces)
        traces = found.traces
        assert {root: index.family(root) for root in index.roots()} == {each.root.uid: each for each in found.families}
        assert set(index.waiting()) == {each.uid for each in found.waiting}
        assert index.traces() == traces
        assert index.objects == objects
        # Whatever is not named as touched is as it was.
        for root in index.roots():
            assert root in touched.roots or index.family(root) == before[root]


@settings(max_examples=400, deadline=None)
@given(events)
def test_the_index_is_what_find_families_gives(happened: list[Put | Drop]) -> None:
    play(happened)


def breaks(happened: Sequence[Put | Drop]) -> bool:
    try:
        play(happened)
    except (AssertionError, KeyError):
        return True
    return False


def _only_itself(_index: Kin, uid: str) -> dict[str, None]:
    return {uid: None}


def _no_circle(index: Kin, each: SeenObject, _below: dict[str, None]) -> str | None:
    return each.uid if each.parent is None else index.root_of(each.parent)


def _keeps_trace(index: Kin, uid: str, before: str | None) -> None:
    if before is not None and before != uid:
        index._children[before].pop(uid, None)


def _settled(child: SeenObject, root: str, _last: Trace | None) -> Trace:
    return Trace(root, child.marks.shard, child.marks.epoch, True)


def _unmarked(index: Kin, each: SeenObject) -> Touched:
    root = index.root_of(each.uid)
    return Touched() if root is None else Touched(frozenset((root,)))


@pytest.mark.parametrize(
    ("place", "mutant"),
    [
        pytest.param((Kin, "_below"), _only_itself, id="what it controls is forgotten"),
        pytest.param((Kin, "_root_above"), _no_circle, id="a circle has a root"),
        pytest.param((Kin, "_part"), _keeps_trace, id="an adopted child is remembered as settled"),
        pytest.param((kin, "trace_child"), _settled, id="every child is settled"),
        pytest.param((Kin, "_marked"), _unmarked, id="other marks are not noted"),
    ],
)
def test_a_broken_index_is_found_out(
    place: tuple[object, str], mutant: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*place, mutant)
    try:
        example = find(
            events, breaks, settings=settings(max_examples=3000, deadline=None, database=None, phases=(Phase.generate,))
        )
    except NoSuchExample:
        pytest.fail("no sequence of changes tells the mutant from the index")
    assert example
