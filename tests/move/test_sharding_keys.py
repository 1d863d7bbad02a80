"""Keys and families: whose key decides, and who follows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poise.errors import InvalidSpec
from poise.model.sharding import Marks, SeenObject, label_patch, read_marks
from poise.move.sharding.families import Relatives, find_families
from poise.move.sharding.keys import Json, json_path, object_key, path_key, ring_key

OWN = object_key("apps", "Deployment", "shop", "cart")


BARE = Marks()


def thing(uid: str, parent: str | None = None, marks: Marks = BARE) -> SeenObject:
    return SeenObject(uid, f"/Thing/shop/{uid}", "1", marks, parent)


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        (("apps", "Deployment", "shop", "cart"), "apps/Deployment/shop/cart"),
        (("", "Secret", "shop", "tls"), "/Secret/shop/tls"),
        (("apps.example.dev", "Tenant", "", "acme"), "apps.example.dev/Tenant//acme"),
    ],
)
def test_the_key_of_an_object(parts: tuple[str, str, str, str], key: str) -> None:
    assert object_key(*parts) == key


@pytest.mark.parametrize(
    ("source", "label", "key"),
    [
        ("object", "", OWN),
        ("namespace", "", "shop"),
        ("label", "tenant", "acme"),
        ("label", "colour", OWN),
    ],
)
def test_a_ring_may_name_another_key(source: str, label: str, key: str) -> None:
    assert ring_key(OWN, "shop", {"tenant": "acme", "colour": ""}, source=source, label=label) == key


def test_a_cluster_scoped_object_has_its_own_key_where_the_namespace_decides() -> None:
    own = object_key("", "Node", "", "n1")
    assert ring_key(own, "", {}, source="namespace") == own


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("{.spec.tenant}", {"spec": {"tenant": "acme"}}, "acme"),
        ("{.spec.shards[1]}", {"spec": {"shards": ["a", "b"]}}, "b"),
        (
            "{.metadata.annotations['example.dev/tenant']}",
            {"metadata": {"annotations": {"example.dev/tenant": "x"}}},
            "x",
        ),
        ("{.spec.number}", {"spec": {"number": 7}}, "7"),
        ("{.spec.flag}", {"spec": {"flag": True}}, "true"),
        ("{.spec.tenant}", {"spec": {}}, OWN),
        ("{.spec.tenant}", {"spec": {"tenant": None}}, OWN),
        ("{.spec.tenant}", {"spec": {"tenant": ""}}, OWN),
        ("{.spec.tenant}", {"spec": {"tenant": {"a": 1}}}, OWN),
        ("{.spec.tenant.name}", {"spec": {"tenant": "acme"}}, OWN),
        ("{.spec[4]}", {"spec": ["a"]}, OWN),
        ("{.spec}", None, OWN),
    ],
)
def test_a_json_path_gives_the_key_or_the_object_its_own(path: str, body: Json, key: str) -> None:
    assert path_key(OWN, path, body) == key


@pytest.mark.parametrize(
    "path", ["", "{}", ".spec", "{.spec", "{spec}", "{.spec..a}", "{.spec[*]}", "{.a}{.b}", "{.a[-1]}"]
)
def test_a_json_path_of_nonsense_is_refused_with_its_place(path: str) -> None:
    with pytest.raises(InvalidSpec, match=r"\$\.key\.jsonPath"):
        json_path(path)


def test_owners_are_followed_upward_through_any_depth() -> None:
    chain = [thing("d0"), *(thing(f"d{depth}", f"d{depth - 1}") for depth in range(1, 6))]
    found = find_families(reversed(chain))
    assert [family.root.uid for family in found.families] == ["d0"]
    assert [child.uid for child in found.families[0].children] == ["d1", "d2", "d3", "d4", "d5"]
    assert found.waiting == ()


def test_an_object_whose_owner_is_not_in_sight_waits_with_all_below_it() -> None:
    found = find_families([thing("a"), thing("b", "missing"), thing("c", "b")])
    assert [family.root.uid for family in found.families] == ["a"]
    assert [each.uid for each in found.waiting] == ["b", "c"]


def test_owners_in_a_circle_wait() -> None:
    found = find_families([thing("a", "c"), thing("b", "a"), thing("c", "b"), thing("d", "a"), thing("e")])
    assert [family.root.uid for family in found.families] == ["e"]
    assert [each.uid for each in found.waiting] == ["a", "b", "c", "d"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-1, 12), max_size=12), st.integers(0, 11))
def test_every_object_is_a_root_a_child_of_one_or_waits(parents: list[int], turn: int) -> None:
    objects = [thing(f"o{at}", None if parent < 0 else f"o{parent}") for at, parent in enumerate(parents)]
    found = find_families(objects)
    assert found == find_families(reversed(objects)) == find_families(objects[turn:] + objects[:turn])
    placed = [each.uid for family in found.families for each in (family.root, *family.children)]
    assert sorted([*placed, *(each.uid for each in found.waiting)]) == sorted(each.uid for each in objects)
    assert all(family.root.parent is None for family in found.families)


def family(child: Marks, last: Relatives | None = None, parent: str | None = "r") -> Relatives:
    """Look at a root r of a at epoch 1, and a child or root c, after what was seen last."""
    return find_families(
        [thing("r", marks=Marks("a", 1)), thing("s", marks=Marks("a", 1)), thing("c", parent, child)],
        {} if last is None else last.traces,
    )


def strange(relatives: Relatives) -> bool:
    return any("c" in family.strange for family in relatives.families)


def test_a_child_is_strange_until_its_marks_change_under_its_root() -> None:
    first = family(Marks("b", 2))
    assert strange(first)
    assert strange(family(Marks("b", 2), first))
    assert strange(family(Marks("b", 2, "a", 9), first)), "a request alone is no answer"
    answered = family(Marks("a", 3), first)
    assert not strange(answered)
    assert not strange(family(Marks("a", 3), answered))


def test_a_child_with_the_same_owner_may_have_been_adopted_too() -> None:
    assert strange(family(Marks("a", 1)))


def test_a_child_without_labels_is_nobodys() -> None:
    bare = family(BARE)
    assert not strange(bare)
    assert not strange(family(Marks("b", 2), bare))


def test_whoever_changes_its_root_is_strange_again() -> None:
    settled = family(Marks("a", 1), family(BARE))
    assert not strange(settled)
    assert strange(family(Marks("a", 1), settled, parent="s"))
    assert strange(family(Marks("a", 1), family(Marks("a", 1), settled, parent=None)))


@pytest.mark.parametrize(
    ("labels", "marks"),
    [
        ({}, Marks()),
        ({"shard.poise.dev/web": "a", "epoch.poise.dev/web": "7"}, Marks("a", 7)),
        ({"shard.poise.dev/web": "", "epoch.poise.dev/web": "x"}, Marks()),
        ({"epoch.poise.dev/web": "-1"}, Marks()),
        ({"epoch.poise.dev/web": "9" * 30}, Marks()),
        ({"epoch.poise.dev/web": "٣"}, Marks()),
        ({"drain.poise.dev/web": "", "drain-until.poise.dev/web": "12"}, Marks(drain="", drain_until=12)),
        ({"shard.poise.dev/other": "a", "epoch.poise.dev/other": "7"}, Marks()),
    ],
)
def test_labels_are_read_whatever_stands_there(labels: dict[str, str], marks: Marks) -> None:
    assert read_marks(labels, "web") == marks


def test_a_patch_changes_only_the_keys_of_its_ring() -> None:
    labels = {"app": "cart", "shard.poise.dev/other": "z", "shard.poise.dev/web": "a", "drain.poise.dev/web": "b"}
    patch = label_patch(labels, "web", Marks("b", 2))
    assert patch == {"shard.poise.dev/web": "b", "epoch.poise.dev/web": "2", "drain.poise.dev/web": None}
    after = {name: text for name, text in (labels | patch).items() if text is not None}
    assert label_patch(after, "web", Marks("b", 2)) == {}
    assert read_marks(after, "web") == Marks("b", 2)
    assert after["shard.poise.dev/other"] == "z"


def test_a_number_of_nonsense_is_replaced() -> None:
    labels = {"shard.poise.dev/web": "a", "epoch.poise.dev/web": "x"}
    assert label_patch(labels, "web", Marks("a", 1)) == {"epoch.poise.dev/web": "1"}
