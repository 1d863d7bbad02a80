"""The mirror: what is told, taken together, is exactly what is there."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.kube.mirror import Added, Deleted, Event, Mirror, Modified, Synced
from poise.kube.objects import Meta, Partial


def one(name: str, uid: str = "u1", version: str = "1") -> Partial:
    return Partial(Meta(name=name, namespace="n", uid=uid, resource_version=version))


def told(mirror: Mirror[Partial], events: Iterable[Event[Partial]]) -> list[str]:
    """Write events as short text."""
    del mirror
    lines = []
    for event in events:
        match event:
            case Added(object=seen):
                lines.append(f"+{seen.metadata.name}/{seen.metadata.uid}")
            case Modified(object=seen, old=old):
                lines.append(f"~{seen.metadata.name} {old.metadata.resource_version}>{seen.metadata.resource_version}")
            case Deleted(old=old, last=last):
                lines.append(f"-{old.metadata.name}/{old.metadata.uid}{'' if last else '?'}")
            case Synced(version=version):
                lines.append(f"synced {version}")
    return lines


def test_a_first_list_is_told_whole() -> None:
    mirror = Mirror[Partial]()
    assert told(mirror, mirror.replace([one("a"), one("b")], "7")) == ["+a/u1", "+b/u1", "synced 7"]


def test_a_later_list_tells_only_what_changed_and_what_vanished_first() -> None:
    mirror = Mirror[Partial]()
    list(mirror.replace([one("a"), one("b"), one("c"), one("d")], "7"))
    listed = [one("a"), one("b", version="2"), one("c", uid="u2"), one("e")]
    assert told(mirror, mirror.replace(listed, "9")) == ["-d/u1?", "~b 1>2", "-c/u1?", "+c/u2", "+e/u1", "synced 9"]


def test_news_of_a_watch() -> None:
    mirror = Mirror[Partial]()
    assert told(mirror, mirror.put(one("a"))) == ["+a/u1"]
    assert told(mirror, mirror.put(one("a"))) == [], "what is known is no news"
    assert told(mirror, mirror.put(one("a", version="2"))) == ["~a 1>2"]
    assert told(mirror, mirror.put(one("a", uid="u2", version="3"))) == ["-a/u1?", "+a/u2"]
    assert told(mirror, mirror.drop(one("a", uid="u2", version="4"))) == ["-a/u2"]
    assert told(mirror, mirror.drop(one("a"))) == [], "what was never known is no news"
    assert told(mirror, mirror.drop(one("z"))) == []


def test_a_mirror_cannot_be_written_from_outside() -> None:
    mirror = Mirror[Partial]()
    with pytest.raises(TypeError):
        mirror.objects["n", "a"] = one("a")  # type: ignore[index]  # That it cannot be written is what is tested.


OBJECTS = st.builds(one, st.sampled_from("abcd"), st.sampled_from(["u1", "u2"]), st.sampled_from("123"))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), OBJECTS.map(lambda seen: [seen])),
        st.tuples(st.just("drop"), OBJECTS.map(lambda seen: [seen])),
        st.tuples(st.just("list"), st.lists(OBJECTS, unique_by=lambda seen: seen.metadata.name, max_size=4)),
    ),
    max_size=20,
)


def _play(steps: list[tuple[str, list[Partial]]]) -> None:
    """Build the same picture from the events alone; every event fits to the ones before."""
    mirror, seen = Mirror[Partial](), dict[str, Partial]()
    for what, objects in steps:
        before = dict(seen)
        events = {
            "put": lambda objects=objects: mirror.put(objects[0]),
            "drop": lambda objects=objects: mirror.drop(objects[0]),
            "list": lambda objects=objects: mirror.replace(objects, "1"),
        }[what]()
        for event in events:
            match event:
                case Added(object=new):
                    assert new.metadata.name not in seen
                    seen[new.metadata.name] = new
                case Modified(object=new, old=old):
                    assert seen[new.metadata.name] == old
                    assert old.metadata.uid == new.metadata.uid
                    seen[new.metadata.name] = new
                case Deleted(old=old):
                    assert seen.pop(old.metadata.name) == old
        if what == "list":
            assert seen == {each.metadata.name: each for each in objects}
        assert {key[1]: each for key, each in mirror.objects.items()} == seen
        del before


@settings(max_examples=examples(300))
@given(STEPS)
def test_the_events_alone_give_the_same_picture(steps: list[tuple[str, list[Partial]]]) -> None:
    _play(steps)


def test_a_mirror_that_forgets_to_tell_what_vanished_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def lazy(self: Mirror[Partial], listed: Iterable[Partial], version: str) -> Iterable[Event[Partial]]:
        for seen in listed:
            yield from self.put(seen)
        yield Synced(version)

    monkeypatch.setattr(Mirror, "replace", lazy)
    with pytest.raises(AssertionError):
        _play([("list", [one("a")]), ("list", [])])
