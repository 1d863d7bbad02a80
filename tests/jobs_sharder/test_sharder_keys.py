"""Selectors of namespaces, keys of every source, the resources of a ring, and homes of the balanced policy."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.jobs_sharder.sharder_events import FOLLOWING, RING, SHARED, Put, known_of

from poise.errors import InvalidSpec
from poise.jobs.sharder.homes import balanced_homes
from poise.jobs.sharder.mirrors import Wanted, wanted_resources
from poise.jobs.sharder.selecting import read_keys, selects
from poise.jobs.sharder.view import View
from poise.kube.resources import SECRETS
from poise.model import LabelSelector
from poise.model.shard_ring import KeySource, ShardRingSpec
from poise.model.sharding import Marks, Standing

BODY = b"""{"kind": "Secret", "metadata": {"name": "n", "namespace": "ns", "labels": {"team": "red"},
"annotations": {"a.b/c": "note"}}, "spec": {"tenant": "t", "many": [1, 2.5], "on": true, "map": {}}, "part": "own"}"""


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        ({}, {}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "2"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, {"a": "2"}, True),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {"a": "1"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False),
        ({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}, {"a": "1"}, False),
    ],
)
def test_a_selector_chooses_as_the_api_server_does(
    selector: dict[str, object], labels: dict[str, str], expected: bool
) -> None:
    assert selects(msgspec.convert(selector, LabelSelector), labels) is expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("object", "/Secret/ns/n"),
        ("namespace", "ns"),
        (KeySource(label="team"), "red"),
        (KeySource(label="none"), "/Secret/ns/n"),
        (KeySource(json_path="{.spec.tenant}"), "t"),
        (KeySource(json_path="{.spec.many[1]}"), "2.5"),
        (KeySource(json_path="{.spec.on}"), "true"),
        (KeySource(json_path="{.spec.map}"), "/Secret/ns/n"),
        (KeySource(json_path="{.spec.none.deep}"), "/Secret/ns/n"),
        (KeySource(json_path="{.nothing}"), "/Secret/ns/n"),
        (KeySource(json_path="{.metadata.annotations['a.b/c']}"), "note"),
        (KeySource(json_path="{.metadata.labels.team}"), "red"),
        (KeySource(json_path="{.kind}"), "Secret"),
        (KeySource(json_path="{.part}"), "own"),
        (KeySource(json_path="{.found}"), "/Secret/ns/n"),
    ],
)
def test_a_key_is_read_from_what_is_kept(key: str | KeySource, expected: str) -> None:
    keys = read_keys(key)
    kept = keys.keep(msgspec.json.decode(BODY, type=keys.shape))
    assert keys.read(SECRETS, kept) == expected
    # Nothing of the body is kept but that value.
    assert len(repr(kept)) < 600
    assert keys.keep(kept).metadata == kept.metadata


def test_a_path_that_means_nothing_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="jsonPath"):
        read_keys(KeySource(json_path="{.a[*]}"))


def test_a_resource_that_is_named_both_ways_is_shared_out() -> None:
    body = {
        "resources": [
            {"group": "apps", "resource": "deployments", "controlled": [{"group": "apps", "resource": "replicasets"}]},
            {"group": "apps", "resource": "replicasets", "controlled": [{"resource": "pods"}]},
            {"resource": "secrets"},
        ]
    }
    assert wanted_resources(msgspec.convert(body, ShardRingSpec)) == (
        Wanted("apps", "deployments", True),
        Wanted("apps", "replicasets", True),
        Wanted("", "secrets", True),
        Wanted("", "pods", False),
    )


held = st.lists(st.sampled_from((None, "x-0", "x-1", "x-2", "late", "gone")), max_size=30)
READY = {"x-0": Standing.READY, "x-1": Standing.READY, "x-2": Standing.READY}
STANDINGS = {**READY, "late": Standing.LATE, "gone": Standing.LOST}


def view_of(owners: list[str | None]) -> View:
    view = View(RING, (SHARED, FOLLOWING))
    for number, owner in enumerate(owners):
        view.take(known_of(Put(f"o{number}", None, Marks(owner, 1 if owner else None)), number + 1), 0.0)
    return view


@settings(max_examples=150, deadline=None)
@given(held)
def test_balanced_homes_are_even_and_late_ones_keep_what_they_have(owners: list[str | None]) -> None:
    homes = balanced_homes(view_of(owners), STANDINGS)
    kept = [number for number, owner in enumerate(owners) if owner == "late"]
    assert all(f"/Secret/ns/o{number}" not in homes for number in kept)
    loads = Counter(dict.fromkeys(READY, 0))
    loads.update(home for home in homes.values() if home is not None)
    assert set(loads) == set(READY)
    assert sum(loads.values()) == len(owners) - len(kept)
    assert max(loads.values()) - min(loads.values()) <= 1
    # Planned again when all are there, nothing changes.
    settled = [homes.get(f"/Secret/ns/o{number}", "late") for number in range(len(owners))]
    assert balanced_homes(view_of(settled), STANDINGS) == homes


def test_a_move_under_way_counts_where_it_goes() -> None:
    view = View(RING, (SHARED,))
    for number in range(4):
        drain = "x-1" if number < 2 else None
        view.take(known_of(Put(f"o{number}", None, Marks("x-0", 1, drain, 9 if drain else None)), number + 1), 0.0)
    two = {"x-0": Standing.READY, "x-1": Standing.READY}
    homes = balanced_homes(view, two)
    assert [homes[f"/Secret/ns/o{number}"] for number in range(4)] == ["x-1", "x-1", "x-0", "x-0"]
