"""Leases as they are read and written: whatever stands there is read, and what others wrote stays."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poise.hold.ring_leases import Dress, read_lease, shard_lease, sharder_lease
from poise.kube.objects import Lease, LeaseSpec, Meta, OwnerReference
from poise.model.sharding import LeaseFact, LeaseWrite

POD = OwnerReference("v1", "Pod", "web-0", "pod-2")
DRESS = Dress(namespace="n", ring="web", tokens=50, pod=POD)
NOW = "2026-01-01T00:00:00.000000Z"
replace = msgspec.structs.replace


def held(holder: str = "web-0_1", **meta: object) -> Lease:
    usual = Meta(name="web-0", namespace="n", uid="u", resource_version="7", labels={"poise.dev/ring": "web"})
    spec = LeaseSpec(holder, 15, "then", "then", 3)
    return Lease(replace(usual, **meta), spec)


def test_a_lease_is_created_whole() -> None:
    made = shard_lease(LeaseWrite("hold", "web-0", None, None, "web-0_1", 15.0), None, DRESS, NOW)
    labels = {"poise.dev/ring": "web", "poise.dev/tokens": "50"}
    assert made.metadata == Meta(name="web-0", namespace="n", labels=labels, owner_references=(POD,))
    assert made.spec == LeaseSpec("web-0_1", 15, NOW, NOW, 0)


def test_a_renewal_keeps_when_it_was_acquired_and_what_others_wrote() -> None:
    other = OwnerReference("apps/v1", "StatefulSet", "web", "set-1")
    old = held(
        labels={"team": "x", "poise.dev/tokens": "9"},
        annotations={"note": "y", "poise.dev/released": "restart"},
        owner_references=(other, OwnerReference("v1", "Pod", "web-0", "pod-1")),
    )
    write = LeaseWrite("hold", "web-0", "8", None, "web-0_1", 15.0)
    renewed = shard_lease(write, old, DRESS, NOW)
    assert renewed.spec == LeaseSpec("web-0_1", 15, "then", NOW, 3)
    assert renewed.metadata.uid == "u", "a write over a vanished Lease must fail"
    assert renewed.metadata.resource_version == "8"
    assert renewed.metadata.labels == {"team": "x", "poise.dev/ring": "web", "poise.dev/tokens": "50"}
    assert renewed.metadata.annotations == {"note": "y"}
    assert renewed.metadata.owner_references == (other, POD), "an earlier Pod no longer owns it"


def test_taking_over_is_a_transition_and_a_release_empties_the_holder() -> None:
    taken = shard_lease(LeaseWrite("hold", "web-0", "7", "u", "web-0_2", 15.0), held(), DRESS, NOW)
    assert taken.spec == LeaseSpec("web-0_2", 15, NOW, NOW, 4)
    let_go = LeaseWrite("empty", "web-0", "7", duration_s=15.0, released="restart")
    empty = shard_lease(let_go, held(), DRESS, NOW)
    assert empty.spec == LeaseSpec(None, 15, None, NOW, 3)
    assert empty.metadata.annotations == {"poise.dev/released": "restart"}
    assert read_lease(empty) == LeaseFact("web-0", "u", "7", "", 15.0, "restart", 50)


def test_what_was_released_or_taken_does_not_vanish_with_its_pod() -> None:
    other = OwnerReference("apps/v1", "StatefulSet", "web", "set-1")
    owned = held(owner_references=(POD, other))
    empty = shard_lease(LeaseWrite("empty", "web-0", "7", duration_s=15.0, released="stop"), owned, DRESS, NOW)
    taken = sharder_lease(LeaseWrite("hold", "web-0", "7", "u", "sharder_1", 30.0), owned, ("n", "web"), NOW)
    assert empty.metadata.owner_references == taken.metadata.owner_references == (other,)


@settings(max_examples=200, deadline=None)
@given(
    st.none() | st.text(max_size=70),
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.dictionaries(st.sampled_from(["poise.dev/tokens", "poise.dev/ring"]), st.text(max_size=8)),
    st.dictionaries(st.just("poise.dev/released"), st.text(max_size=8)),
)
def test_a_lease_with_nonsense_in_it_is_read(
    holder: str | None, duration_s: int | None, labels: dict[str, str], notes: dict[str, str]
) -> None:
    fact = read_lease(Lease(Meta(name="a", labels=labels, annotations=notes), LeaseSpec(holder, duration_s)))
    assert fact.holder == (holder or "")
    assert fact.tokens is None or 1 <= fact.tokens <= 99_999


@pytest.mark.parametrize("tokens", ["", "0", "-1", "1e3", "٣", "123456", "x"])
def test_tokens_that_are_no_number_are_not_said(tokens: str) -> None:
    assert read_lease(held(labels={"poise.dev/tokens": tokens})).tokens is None
