"""The status of a ring: every condition by its case, equal texts for equal facts, and what the schema allows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.jobs_operator.ring_reports import CALM, seen

from poise.jobs.sharder.report import InstanceSeen, RingReport
from poise.jobs.sharder.status import (
    JUDGES,
    MESSAGE_MAX,
    Known,
    Looked,
    Refusal,
    names,
    read_known,
    shown_ring,
    status_of,
    summary,
)
from poise.kube.crds.status import ShownRing
from poise.model.shard_ring import GroupResource, RingResource, ShardRingSpec, ShardRingStatus
from poise.observe.leases import Health

NOW = datetime(2026, 11, 16, 10, 0, 0, 123456, tzinfo=UTC)
GONE = seen("web-1", Health.EXPIRED)


def verdicts(looked: Looked) -> dict[str, tuple[str, str]]:
    return {kind: (judge(looked).status, judge(looked).reason) for kind, judge in JUDGES.items()}


def look(**changed: object) -> Looked:
    return Looked(generation=1, report=replace(CALM, **changed))


@pytest.mark.parametrize(
    ("looked", "ready", "balanced", "progressing"),
    [
        (look(), ("True", "Sharding"), ("True", "Settled"), ("False", "Settled")),
        (
            Looked(generation=1, report=RingReport()),
            ("Unknown", "Starting"),
            ("Unknown", "Starting"),
            ("Unknown", "Starting"),
        ),
        (Looked(generation=1), ("Unknown", "Starting"), ("Unknown", "Starting"), ("Unknown", "Starting")),
        (
            Looked(generation=1, refusal=Refusal("NameTaken", "x")),
            ("False", "NameTaken"),
            ("Unknown", "NameTaken"),
            ("Unknown", "NameTaken"),
        ),
        (
            Looked(generation=2, refusal=Refusal("InvalidSpec", "x"), report=CALM),
            ("False", "InvalidSpec"),
            ("True", "Settled"),
            ("False", "Settled"),
        ),
        (
            look(synced=False, faults=("no foos",)),
            ("False", "ResourceFault"),
            ("Unknown", "ResourceFault"),
            ("Unknown", "ResourceFault"),
        ),
        (look(faults=("may not list",)), ("False", "ResourceFault"), ("True", "Settled"), ("False", "Settled")),
        (look(vanished=("a", "b")), ("False", "Braked"), ("False", "Braked"), ("False", "Braked")),
        (
            look(instances=(), unassigned=3),
            ("False", "NoInstances"),
            ("False", "Unassigned"),
            ("False", "NoInstances"),
        ),
        (look(unassigned=3), ("True", "Sharding"), ("False", "Unassigned"), ("True", "Assigning")),
        (look(waiting=3), ("True", "Sharding"), ("False", "OwnerUnseen"), ("False", "Settled")),
        (look(drains=2), ("True", "Sharding"), ("False", "Moving"), ("True", "Moving")),
        (look(delayed=2), ("True", "Sharding"), ("False", "Moving"), ("True", "Moving")),
        (look(in_flight=2), ("True", "Sharding"), ("False", "Moving"), ("True", "Moving")),
        (look(drains=2, overdue=1), ("True", "Sharding"), ("False", "DrainOverdue"), ("False", "DrainOverdue")),
        (
            look(instances=(seen("web-0"), GONE)),
            ("True", "Sharding"),
            ("False", "InstancesLost"),
            ("True", "Waiting"),
        ),
        (
            Looked(generation=1, report=CALM, removing=True),
            ("False", "Removing"),
            ("True", "Settled"),
            ("True", "Removing"),
        ),
    ],
)
def test_every_case_has_its_conditions(
    looked: Looked, ready: tuple[str, str], balanced: tuple[str, str], progressing: tuple[str, str]
) -> None:
    assert verdicts(looked) == {"Ready": ready, "Balanced": balanced, "Progressing": progressing}


def test_the_status_says_what_the_report_does() -> None:
    report = replace(CALM, drains=2, oldest_drain_s=30.0, unassigned=1, instances=(seen("web-0"), GONE))
    status = status_of(Looked(generation=7, report=report), Known(), NOW)
    assert status["observedGeneration"] == 7
    assert status["instances"] == [
        {"name": "web-0", "state": "ready", "tokens": 100},
        {"name": "web-1", "state": "expired", "tokens": 100},
    ]
    assert status["objects"] == {"web-0": 2, "web-1": 2}
    assert (status["ready"], status["drainsPending"], status["unassigned"]) == (1, 2, 1)
    assert status["oldestDrainSince"] == "2026-11-16T09:59:30Z"
    assert status["summary"] == "1 of 2 instances ready, 4 objects, 1 unassigned, 2 draining"
    conditions = status["conditions"]
    assert isinstance(conditions, list)
    assert [each["type"] for each in conditions] == ["Balanced", "Progressing", "Ready"]
    assert all(each["observedGeneration"] == 7 for each in conditions)
    assert all(each["lastTransitionTime"] == "2026-11-16T10:00:00Z" for each in conditions)


def test_instances_go_by_the_document_that_was_taken_also_while_a_newer_one_is_refused() -> None:
    pods = GroupResource(resource="pods")
    deployments = RingResource(resource="deployments", group="apps", controlled=[pods])
    spec = ShardRingSpec(lease_seconds=9, resources=[deployments, RingResource(resource="pods")])
    taken = status_of(Looked(generation=1, report=CALM, spec=spec), Known(), NOW)
    wanted = {"leaseSeconds": 9, "drainTimeoutSeconds": 60, "resources": ["deployments.apps", "pods"]}
    assert taken["terms"] == wanted
    refusal = Refusal("InvalidSpec", "x")
    running = status_of(Looked(generation=2, report=CALM, spec=spec, refusal=refusal), as_known(taken), NOW)
    restarted = status_of(Looked(generation=2, refusal=refusal), as_known(running), NOW)
    assert running["terms"] == restarted["terms"] == wanted, "a new leader has not read the older one"
    assert "terms" not in status_of(Looked(generation=1, refusal=refusal), Known(), NOW)


def test_a_zero_is_shown_and_nothing_is_guessed_where_nothing_runs() -> None:
    assert status_of(Looked(generation=1, report=CALM), Known(), NOW)["unassigned"] == 0
    refused = status_of(Looked(generation=1, refusal=Refusal("NameTaken", "x")), Known(), NOW)
    assert refused.keys() == {"observedGeneration", "conditions"}


def as_known(status: dict[str, object]) -> Known:
    return read_known(msgspec.json.encode(status))


def test_the_same_facts_later_are_the_same_text() -> None:
    report = replace(CALM, drains=1, oldest_drain_s=30.0)
    first = status_of(Looked(generation=1, report=report), Known(), NOW)
    later = replace(report, oldest_drain_s=40.4)
    again = status_of(Looked(generation=1, report=later), as_known(first), NOW + timedelta(seconds=12))
    assert again == first, "nothing is written because time goes by"
    other = replace(report, oldest_drain_s=2.0)
    changed = status_of(Looked(generation=1, report=other), as_known(first), NOW + timedelta(seconds=12))
    assert changed["oldestDrainSince"] == "2026-11-16T10:00:10Z"


def test_the_time_of_a_transition_stays_while_the_status_does() -> None:
    first = status_of(Looked(generation=1, report=CALM), Known(), NOW)
    moving = status_of(
        Looked(generation=1, report=replace(CALM, drains=1)), as_known(first), NOW + timedelta(seconds=60)
    )
    times = {each["type"]: each["lastTransitionTime"] for each in list_of(moving["conditions"])}
    assert times == {
        "Ready": "2026-11-16T10:00:00Z",
        "Balanced": "2026-11-16T10:01:00Z",
        "Progressing": "2026-11-16T10:01:00Z",
    }


def list_of(value: object) -> list[dict[str, object]]:
    return msgspec.convert(value, list[dict[str, object]])


def test_a_spoilt_status_counts_as_none() -> None:
    for text in (b"", b"[]", b'{"conditions": 5}', b'{"conditions": [{"type": "Ready"}]}', b"\xff"):
        assert read_known(text) == Known()


def test_a_condition_of_somebody_else_is_left_out_and_not_fought_over() -> None:
    foreign = b"""{"conditions": [{"type": "Mine", "status": "True", "reason": "x",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}"""
    status = status_of(Looked(generation=1, report=CALM), read_known(foreign), NOW)
    assert [each["type"] for each in list_of(status["conditions"])] == ["Balanced", "Progressing", "Ready"]


def test_many_names_are_cut_short() -> None:
    assert names(f"web-{number}" for number in range(12)) == "web-0, web-1, web-10, web-11, web-2 and 7 more"
    assert names(["b", "a"]) == "a, b"


def test_messages_are_bounded_and_printable() -> None:
    faults = tuple(f"fault {number}\nof \u202e{'x' * 100}" for number in range(100))
    ready = shown_ring(Looked(generation=1, report=RingReport(faults=faults)), Known(), NOW).conditions[-1]
    assert ready.type == "Ready"
    assert len(ready.message) == MESSAGE_MAX
    assert ready.message.isprintable()


def test_what_a_ring_that_stands_still_says() -> None:
    assert summary(CALM) == "2 of 2 instances ready, 4 objects"
    assert summary(replace(CALM, waiting=1)) == "2 of 2 instances ready, 4 objects, 1 without their owner"
    assert summary(RingReport()) == "0 of 0 instances ready, 0 objects"
    alone = RingReport(instances=(seen("a"),), roots=1)
    assert summary(alone) == "1 of 1 instance ready, 1 object"


COUNTS = st.integers(0, 1_000_000)
INSTANCES = st.lists(
    st.builds(
        InstanceSeen,
        name=st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True),
        state=st.sampled_from(Health),
        tokens=st.integers(1, 10_000),
        objects=COUNTS,
    ),
    max_size=8,
    unique_by=lambda each: each.name,
).map(tuple)
REPORTS = st.builds(
    RingReport,
    synced=st.booleans(),
    faults=st.lists(st.text(max_size=50), max_size=3).map(tuple),
    instances=INSTANCES,
    roots=COUNTS,
    children=COUNTS,
    unassigned=COUNTS,
    drains=COUNTS,
    oldest_drain_s=st.none() | st.floats(0, 1e6),
    overdue=COUNTS,
    delayed=COUNTS,
    in_flight=COUNTS,
    vanished=st.lists(st.text("abc", min_size=1, max_size=3), max_size=7).map(tuple),
)
LOOKED = st.builds(
    Looked,
    generation=st.integers(0, 9),
    report=st.none() | REPORTS,
    spec=st.none() | st.builds(ShardRingSpec, lease_seconds=st.integers(1, 99)),
    refusal=st.none() | st.builds(Refusal, st.sampled_from(["NameTaken", "InvalidSpec"]), st.text(max_size=99)),
    removing=st.booleans(),
)


class WholeStatus(ShownRing, frozen=True):
    """What the schema allows: both halves in one."""

    instances: list[dict[str, str | int]] = msgspec.field(default_factory=list)


@settings(max_examples=50, deadline=None)
@given(looked=LOOKED)
def test_every_status_keeps_the_rules_of_the_schema_and_is_steady(looked: Looked) -> None:
    status = status_of(looked, Known(), NOW)
    text = msgspec.json.encode(status)
    msgspec.json.decode(text, type=WholeStatus)
    msgspec.convert({"instances": status.get("instances", [])}, ShardRingStatus)
    assert status_of(looked, read_known(text), NOW + timedelta(seconds=1.5)) == status
    assert not {"assignment"} & status.keys(), "a status has no entry an object"


@pytest.mark.parametrize("synced", [False, True])
def test_a_removal_that_a_missing_right_holds_up_says_how_it_goes_on(synced: bool) -> None:
    right = 'may not list configmaps of the group ""'
    looked = replace(look(synced=synced, faults=(right,)), removing=True)
    ready = JUDGES["Ready"](looked)
    assert (ready.status, ready.reason) == ("False", "ResourceFault")
    assert ready.message.startswith(right)
    assert "the ring is being removed, which needs this" in ready.message
    assert JUDGES["Ready"](replace(looked, removing=False)).message == right


def test_a_removal_that_the_brake_holds_up_names_it_and_its_annotation() -> None:
    looked = replace(look(vanished=("web-0", "web-1")), removing=True)
    told = {kind: judge(looked) for kind, judge in JUDGES.items()}
    braked = ("False", "Braked")
    assert verdicts(looked) == {"Ready": ("False", "Removing"), "Balanced": braked, "Progressing": braked}
    for verdict in told.values():
        assert "the brake holds the removal up: these vanished at once: web-0, web-1" in verdict.message
        assert "until the annotation poise.dev/brake-released of this ring is changed" in verdict.message
    assert "removal" not in JUDGES["Ready"](replace(looked, removing=False)).message
    assert "brake" not in JUDGES["Ready"](replace(look(), removing=True)).message
