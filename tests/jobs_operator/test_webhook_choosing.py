"""The webhook chooses as the sharder does, and not at all where it does not know: judged against the sharder itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from poise.jobs.sharder.deciding import Deciding
from poise.jobs.sharder.instances import Instances
from poise.jobs.sharder.orders import Orders
from poise.jobs.sharder.view import Kind, Known, View
from poise.jobs.sharder.webhook import choosing
from poise.jobs.sharder.webhook.choosing import Arrival, Chooser
from poise.kube import Lease, Meta, OwnerReference
from poise.kube.objects import LeaseSpec
from poise.kube.resources import CONFIG_MAPS, SECRETS
from poise.model.shard_ring import ShardRingSpec
from poise.model.sharding import Marks, label_names
from poise.move.sharding.keys import object_key
from poise.observe.leases import LeaseTerms

ROOTS, CHILDREN = Kind(SECRETS), Kind(CONFIG_MAPS, shared=False)
RING, BALANCED = ShardRingSpec(), ShardRingSpec(policy="balanced")
D = 10.0
BARE = Marks()


def key_of(name: str) -> str:
    return object_key("", "Secret", "team", name)


def labels(marks: Marks) -> dict[str, str]:
    values = (marks.shard, marks.epoch, marks.drain, marks.drain_until)
    return {name: str(value) for name, value in zip(label_names("web"), values, strict=True) if value is not None}


class World:
    """A ring as one process sees it, with instances and objects."""

    def __init__(self, spec: ShardRingSpec = RING, names: Iterable[str] = ("a", "b", "c")) -> None:
        """All instances are ready, and were seen to be."""
        self.spec = spec
        self.instances = Instances(LeaseTerms(me="me", duration_s=D, margin_s=D / 2))
        self.view = View("web", (ROOTS, CHILDREN))
        self.proven: set[str] = set()
        self.chooser = Chooser(self.instances, self.proven)
        self.now_s, self._version = 100.0, 0
        for name in names:
            self.lease(name)

    def lease(self, name: str, holder: str = "", *, proven: bool = True) -> None:
        """Let an instance be there, by its own process unless another holder is named."""
        self._version += 1
        meta = Meta(name=name, uid=name, resource_version=str(self._version))
        self.instances.see(Lease(meta, LeaseSpec(holder or f"{name}_1", int(D))), self.now_s)
        self.chooser.changed = True
        if proven:
            self.proven.add(name)

    def put(self, name: str, marks: Marks = BARE, parent: str = "", kind: Kind = ROOTS) -> Meta:
        """Let an object be there; its uid is its name."""
        self._version += 1
        owners = (OwnerReference("v1", "Secret", parent, parent, True),) if parent else ()
        meta = Meta(name, "team", name, str(self._version), labels=labels(marks), owner_references=owners)
        self.view.take(Known(kind, meta, key_of(name)), self.now_s)
        return meta

    def asked(self, name: str, parent: str = "", *, dry: bool = False, kind: Kind = ROOTS) -> Marks | None:
        """Ask the webhook for a new object; one without a name gets it later."""
        key = key_of(name) if name else None
        meta = Meta(name, "team", f"uid-of-{name or 'someone'}")
        arrival = Arrival(kind, meta, key, parent or None, dry)
        return self.chooser.choose(self.spec, self.view, arrival, self.now_s)

    def sharded(self, name: str, parent: str = "", kind: Kind = ROOTS) -> Marks | None:
        """Let the object be made without labels, and give what the sharder writes on it first; None for nothing."""
        self.put(name, parent=parent, kind=kind)
        deciding = Deciding(self.spec, self.view, self.instances)
        changed = self.instances.judge_all(self.view.named.keys(), self.spec.brake_percent, self.now_s)
        deciding.judged(changed, self.instances.braked)
        deciding.plan()
        steps = deciding.decide(parent or name, self.now_s, 0)
        return next((write.marks for step in steps for write in step.writes if write.uid == name), None)


_NAMES = st.sampled_from(["a", "b", "c", "d"])
_MARKS = st.builds(
    Marks,
    st.none() | _NAMES,
    st.none() | st.integers(1, 4),
    st.none() | _NAMES | st.just(""),
    st.none() | st.integers(1, 9),
)


@settings(max_examples=300, deadline=None)
@given(
    st.sets(_NAMES),
    st.dictionaries(_NAMES, st.sampled_from(["late", "silent", "stolen", "empty"])),
    st.integers(0, 50),
    _MARKS,
    st.booleans(),
    st.sampled_from(["", "moves", "all"]),
    st.sets(_NAMES, max_size=2),
)
def test_what_it_gives_the_sharder_would_have_written(
    there: set[str],
    odd: dict[str, str],
    number: int,
    marks: Marks,
    child: bool,
    paused: str,
    drained: set[str],
) -> None:
    """Law: an answer is what the sharder writes on the same object made without labels, or it is none."""
    world = World(names=there)
    world.instances.orders = Orders(paused, frozenset(drained))  # type: ignore[arg-type]  # The three that there are.
    world.put("root", marks)
    world.now_s += 1.5 * D
    for name in sorted(there):
        match odd.get(name):
            case "late":
                pass
            case "silent":
                world.lease(name, proven=False)
                world.proven.discard(name)
            case "stolen":
                world.lease(name, "poise-sharder-x_1")
            case "empty":
                world.lease(name, " ")
            case _:
                world.lease(name)
    kind, parent = (CHILDREN, "root") if child else (ROOTS, "")
    given_marks = world.asked(f"n{number}", parent, kind=kind)
    written = world.sharded(f"n{number}", parent, kind=kind)
    if given_marks is not None:
        assert given_marks.drain is None
        assert given_marks.shard in world.proven
        assert given_marks == written
    elif written is not None and written.shard is not None:
        # Left to the sharder: nobody whom this process saw, or a child whose root is given away at the same time.
        assert written.shard not in world.proven or (child and marks.shard is None)


def test_a_new_root_goes_where_its_key_is_with_the_first_epoch() -> None:
    world = World()
    for number in range(50):
        found = world.asked(f"n{number}")
        assert found is not None
        assert found == world.sharded(f"n{number}")
        assert found.epoch == 1


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        (Marks("a", 7), True),
        (Marks("a", 7, "b", 9), False),
        (Marks("a", 7, "", 9), False),
        (Marks("a", 7, None, 9), False),
        (Marks(None, 7), False),
        (Marks("a", None), False),
        (Marks("gone", 7), False),
    ],
)
def test_a_child_gets_the_labels_of_a_root_that_stays(root: Marks, expected: bool) -> None:
    world = World(names=["a"])
    world.put("root", root)
    found = world.asked("child", "root", kind=CHILDREN)
    assert found == (Marks("a", 7) if expected else None)
    assert world.asked("child", "never-seen", kind=CHILDREN) is None


def test_a_grandchild_follows_its_root() -> None:
    world = World(names=["a"])
    world.put("root", Marks("a", 7))
    world.put("middle", Marks("a", 7), "root")
    assert world.asked("leaf", "middle", kind=CHILDREN) == Marks("a", 7)


def test_a_child_of_a_root_that_is_to_move_waits() -> None:
    world = World(names=["a", "b"])
    names = [f"r{number}" for number in range(20)]
    for name in names:
        world.put(name, Marks("a", 1))
    found = {name: world.asked(f"{name}-child", name, kind=CHILDREN) for name in names}
    stays = {name for name in names if (home := world.asked(name)) is not None and home.shard == "a"}
    assert 0 < len(stays) < len(names)
    assert {name for name, marks in found.items() if marks == Marks("a", 1)} == stays
    assert all(found[name] is None for name in set(names) - stays)


def test_only_who_was_seen_to_live_is_given_something() -> None:
    world = World(names=["a"])
    assert world.asked("x") == Marks("a", 1)
    world.proven.clear()
    assert world.asked("x") is None
    world.lease("a")
    assert world.asked("x") == Marks("a", 1)
    world.now_s += D
    assert world.asked("x") is None, "it was not renewed in time"
    world.lease("a")
    assert world.asked("x") == Marks("a", 1)
    world.lease("a", "poise-sharder-x_1")
    assert world.asked("x") is None
    assert World(names=()).asked("x") is None


def test_a_name_that_comes_later_leaves_the_key_open() -> None:
    assert World().asked("") is None
    found = World(BALANCED).asked("")
    assert found is not None
    assert found.epoch == 1


def test_a_stray_object_of_a_controlled_resource_is_nobodys() -> None:
    assert World().asked("x", kind=CHILDREN) is None


def test_a_namespace_that_is_not_selected_gets_nothing() -> None:
    world = World()
    world.view.namespaces = {"team": True}
    assert world.asked("x") is not None
    for known in ({"team": False}, {}):
        world.view.namespaces = dict(known)
        assert world.asked("x") is None


def test_a_burst_is_shared_out_evenly_before_any_of_it_is_seen() -> None:
    world = World(BALANCED)
    for number in range(6):
        world.put(f"old{number}", Marks("a", 1))
    given_to = [found.shard for number in range(30) if (found := world.asked(f"n{number}")) is not None]
    assert Counter(given_to) == {"a": 6, "b": 12, "c": 12}
    for number, shard in enumerate(given_to):
        world.put(f"n{number}", Marks(shard, 1))
    # Then the sharder has nothing to move.
    deciding = Deciding(BALANCED, world.view, world.instances)
    deciding.judged(dict.fromkeys(("a", "b", "c")), False)
    deciding.plan()
    assert not [step for name in world.view.known for step in deciding.decide(name, world.now_s, 0)]


def test_a_dry_request_and_one_that_failed_are_not_counted_for_long() -> None:
    world = World(BALANCED, ["a", "b"])
    first = world.asked("x", dry=True)
    assert world.asked("x", dry=True) == first
    assert not world.chooser._given
    real = world.asked("x")
    assert real is not None
    assert world.asked("x") == real, "asked again, the same is said"
    other = world.asked("y")
    assert other is not None
    assert {real.shard, other.shard} == {"a", "b"}
    world.now_s += 6.0
    world.lease("a")
    world.lease("b")
    world.asked("x", dry=True)
    assert not world.chooser._given


@pytest.mark.parametrize(
    ("part", "instead", "law"),
    [
        ("_judge", lambda _chooser, _spec, _now_s: None, "only_who_was_seen_to_live_is_given_something"),
        ("_child", lambda _chooser, _spec, _view, _parent, _now_s: Marks("a", 7), "a_child_of_a_root_that_is_to_move"),
        ("_count", lambda _chooser, _view, _now_s: None, "a_burst_is_shared_out_evenly_before_any_of_it_is_seen"),
    ],
)
def test_a_broken_rule_is_seen(monkeypatch: pytest.MonkeyPatch, part: str, instead: object, law: str) -> None:
    monkeypatch.setattr(Chooser, part, instead)
    checks = [check for name, check in globals().items() if law in name]
    with pytest.raises(AssertionError):
        checks[0]()


def test_a_process_that_believed_every_lease_it_found_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Everybody(set[str]):
        def __contains__(self, _name: object) -> bool:
            return True

    usual = Chooser.__init__
    monkeypatch.setattr(Chooser, "__init__", lambda chooser, instances, _proven: usual(chooser, instances, Everybody()))
    with pytest.raises(AssertionError):
        test_only_who_was_seen_to_live_is_given_something()


def test_a_step_that_is_not_about_the_new_object_alone_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child of a root that nobody holds would be written before its root: it must wait."""
    world = World(names=["a"])
    world.put("root", Marks(None, 7))
    assert world.asked("child", "root", kind=CHILDREN) is None
    usual = choosing._written
    monkeypatch.setattr(
        choosing, "_written", lambda family, home, outlook, _kind: usual(family, home, outlook, "assign")
    )
    assert world.asked("child", "root", kind=CHILDREN) is not None


def test_replaced_documents_are_taken() -> None:
    world = World(names=["a", "b"])
    world.spec = replace(world.spec, tokens=1)
    world.chooser.changed = True
    found = {world.asked(f"n{number}") for number in range(40)}
    assert Marks("a", 1) in found
