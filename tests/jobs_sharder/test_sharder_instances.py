"""Leases as the sharder knows them: what is read of them, what is written, and answers that come late."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poise.hold.ring_leases import read_lease, sharder_lease
from poise.jobs.sharder.instances import Instances
from poise.jobs.sharder.sharder import lease_terms
from poise.jobs.sharder.writing import longest_s
from poise.kube import Lease, Meta
from poise.kube.objects import LeaseSpec
from poise.model import Metadata, ShardRing
from poise.model.shard_ring import ShardRingSpec
from poise.model.sharding import RELEASED_ANNOTATION, RING_LABEL, TOKENS_LABEL, LeaseFact, LeaseWrite, Standing
from poise.observe.leases import Health, LeaseTerms, WatchedLease, may_move

ME = "poise-sharder-x_1"
TERMS = LeaseTerms(me=ME, duration_s=2.0, margin_s=1.0, restart_grace_s=3.0)
TOLD = "2026-11-16T00:00:00.000001Z"


def lease(
    holder: str | None = "a_1", version: str = "5", *, uid: str = "u", duration: int | None = 2, **labels: str
) -> Lease:
    named = {name.replace("_", "."): value for name, value in labels.items()}
    return Lease(Meta("a", "ns", uid, version, labels=named), LeaseSpec(holder, duration))


@pytest.mark.parametrize(
    ("given_lease", "expected"),
    [
        pytest.param(lease(), LeaseFact("a", "u", "5", "a_1", 2.0), id="plain"),
        pytest.param(lease(None), LeaseFact("a", "u", "5", "", 2.0), id="no holder"),
        pytest.param(lease(duration=None), LeaseFact("a", "u", "5", "a_1", 0.0), id="no duration"),
        pytest.param(lease(duration=-5), LeaseFact("a", "u", "5", "a_1", 0.0), id="a duration below zero"),
    ],
)
def test_a_lease_is_read(given_lease: Lease, expected: LeaseFact) -> None:
    assert read_lease(given_lease) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100", 100),
        ("1", 1),
        ("10000", 10000),
        ("10001", None),
        ("0", None),
        ("-1", None),
        ("", None),
        ("x", None),
        ("١", None),
    ],
)
def test_tokens_are_a_number_from_1_to_10000(text: str, expected: int | None) -> None:
    labelled = Lease(Meta("a", "ns", "u", "5", labels={TOKENS_LABEL: text}))
    assert read_lease(labelled).tokens == expected


def test_a_hold_keeps_what_the_instance_wrote_of_itself() -> None:
    meta = Meta(
        "a", "ns", "u", "5", labels={RING_LABEL: "web", TOKENS_LABEL: "7"}, annotations={RELEASED_ANNOTATION: "stop"}
    )
    old = Lease(meta, LeaseSpec("a_1", 2, "then", "then", 3))
    write = LeaseWrite("hold", "a", "5", "u", ME, 4.0)
    made = sharder_lease(write, old, ("ns", "web"), TOLD)
    assert made.spec == LeaseSpec(ME, 4, TOLD, TOLD, 4)
    assert (made.metadata.labels, made.metadata.annotations) == (meta.labels, {})
    assert (made.metadata.uid, made.metadata.resource_version) == ("u", "5")
    # Renewed, it was acquired when it was; emptied, it has no holder, and gives no reason.
    again = sharder_lease(write, made, ("ns", "web"), "later")
    assert again.spec == LeaseSpec(ME, 4, TOLD, "later", 4)
    emptied = sharder_lease(LeaseWrite("empty", "a", "5", "u", duration_s=2.0), again, ("ns", "web"), "last")
    assert emptied.spec == LeaseSpec(None, 2, None, "last", 4)
    assert read_lease(emptied).released == ""


def test_a_vanished_lease_is_made_with_the_label_of_the_ring() -> None:
    made = sharder_lease(LeaseWrite("hold", "a", None, None, ME, 4.0), None, ("ns", "web"), TOLD)
    assert made.metadata == Meta("a", "ns", labels={RING_LABEL: "web"})
    assert made.spec == LeaseSpec(ME, 4, TOLD, TOLD, 0)


def test_an_answer_that_comes_after_the_watch_told_that_the_lease_is_gone_is_not_believed() -> None:
    known = Instances(TERMS)
    known.see(lease(), 0.0)
    sent = known.watched["a"]
    answer = lease(ME, "6", duration=4)
    known.see(answer, 5.1)
    known.miss(answer, 5.2)
    known.wrote(sent, answer, 5.0, 5.3)
    assert known.watched["a"].fact is None
    assert known.watched["a"].held_from_s is None


def test_an_answer_that_comes_after_the_watch_showed_it_is_the_hold() -> None:
    known = Instances(TERMS)
    known.see(lease(), 0.0)
    sent = known.watched["a"]
    answer = lease(ME, "6", duration=4)
    known.see(answer, 5.1)
    assert known.watched["a"].held_from_s is None
    known.wrote(sent, answer, 5.0, 5.3)
    assert known.watched["a"].held_from_s == 5.0
    assert known.leases["a"] is answer


def test_the_deletion_of_an_earlier_lease_does_not_hide_the_new_one() -> None:
    known = Instances(TERMS)
    known.see(lease(uid="new", version="9"), 0.0)
    known.miss(lease(uid="old"), 1.0)
    assert known.watched["a"].fact is not None


def test_a_name_that_fits_no_label_is_no_instance() -> None:
    known = Instances(TERMS)
    known.see(Lease(Meta("x" * 64, "ns", "u", "5"), LeaseSpec("x_1", 2)), 0.0)
    assert known.judge_all((), 50, 0.0) == {}


def test_named_without_a_lease_it_is_waited_for_and_then_forgotten() -> None:
    known = Instances(TERMS)
    assert known.judge_all({"a"}, 50, 0.0) == {"a": None}
    assert known.standings == {"a": Standing.LATE}
    assert known.next_s == 2.0
    assert known.next_write("a", 3.9, work=True, named=True) is None
    written = known.next_write("a", 4.0, work=True, named=True)
    assert written == LeaseWrite("hold", "a", None, None, ME, 4.0)
    assert known.judge_all((), 50, 4.0) == {"a": Standing.LATE}
    assert known.watched == {}


def test_only_members_have_a_place_on_the_ring() -> None:
    known = Instances(TERMS)
    for name, holder, age_s in (
        ("ready", "ready_1", 0.0),
        ("late", "late_1", 3.0),
        ("gone", "gone_1", 9.0),
        ("strange", "somebody", 0.0),
    ):
        known.see(Lease(Meta(name, "ns", name, "5"), LeaseSpec(holder, 2)), 10.0 - age_s)
    restarting = Meta("again", "ns", "again", "5", annotations={RELEASED_ANNOTATION: "restart"})
    known.see(Lease(restarting, LeaseSpec(None, 2)), 9.0)
    known.judge_all({"never-seen"}, 50, 10.0)
    assert known.tokens(100) == {"ready": 100, "late": 100, "again": 100}


def test_the_brake_holds_while_more_than_its_share_vanished_at_once() -> None:
    known = Instances(TERMS)
    for number in range(4):
        known.see(Lease(Meta(f"a{number}", "ns", f"a{number}", "5"), LeaseSpec(f"a{number}_1", 2)), 0.0)
    named = {f"a{number}" for number in range(4)}
    known.see(Lease(Meta("a3", "ns", "a3", "6"), LeaseSpec("a3_1", 2)), 5.0)
    known.judge_all(named, 50, 5.0)
    assert known.vanished == ("a0", "a1", "a2")
    assert known.next_write("a0", 5.0, work=True, named=True) is None
    known.released_s = 5.0
    known.judge_all(named, 50, 5.0)
    assert not known.braked
    assert known.next_write("a0", 5.0, work=True, named=True) is not None


def test_what_is_odd_is_told() -> None:
    known = Instances(TERMS)
    known.see(lease("somebody"), 0.0)
    known.judge_all({"a", "b"}, 50, 0.0)
    one, two = known.shown(100, {"a": ["x", "y"]}, 0.0)
    assert (one.name, one.state, one.objects) == ("a", Health.EXPIRED, 2)
    assert "'somebody', which is no process of it" in one.note
    assert "no Lease" in two.note


times = st.floats(0, 30, allow_nan=False)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(times, st.sampled_from(("see", "miss", "answer"))), max_size=12), times)
def test_a_judgement_is_due_again_before_it_changes(happened: list[tuple[float, str]], later_s: float) -> None:
    """Between two looks that are due nobody stands otherwise: nothing is missed by sleeping."""
    known = Instances(TERMS)
    now_s, version = 0.0, 10
    for wait_s, kind in happened:
        now_s, version = now_s + wait_s, version + 1
        seen = lease("a_1", str(version))
        if kind == "see":
            known.see(seen, now_s)
        elif kind == "miss" and "a" in known.leases:
            known.miss(known.leases["a"], now_s)
        elif kind == "answer" and "a" in known.watched:
            held = msgspec.structs.replace(seen, spec=LeaseSpec(ME, 4))
            known.wrote(known.watched["a"], held, now_s, now_s)
        known.judge_all({"a"}, 50, now_s)
    until_s = min(known.next_s, now_s + later_s)
    assert all(
        known.is_current(name, now_s + (until_s - now_s) * part) for name in known.watched for part in (0, 0.5, 0.999)
    )


@pytest.mark.parametrize("lease_s", [1, 2, 15, 600])
def test_no_request_that_needs_a_hold_outlasts_the_margin(lease_s: int) -> None:
    """Law: what is sent while a hold may be used has arrived, or was given up, before the hold of 2·D can end."""
    ring = ShardRing(metadata=Metadata("web"), spec=ShardRingSpec(lease_seconds=lease_s, restart_grace_seconds=7))
    terms = lease_terms(ring, ME)
    assert (terms.me, terms.duration_s, terms.hold_s, terms.restart_grace_s) == (ME, lease_s, 2 * lease_s, 7)
    assert 0 < longest_s(terms) < terms.margin_s < terms.duration_s
    last_s = terms.hold_s - terms.margin_s
    assert last_s + longest_s(terms) < terms.hold_s
    fact = read_lease(lease(ME, duration=2 * lease_s))
    held = WatchedLease(name="a", seen_at_s=0.0, alive_at_s=0.0, fact=fact, held_from_s=0.0)
    assert may_move(held, terms, last_s - 0.01)
    assert not may_move(held, terms, last_s)
