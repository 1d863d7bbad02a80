"""The auditor of the sharder, on logs made by hand: silent where all is well; for every law a log that breaks it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
from tests.cluster.audit_case import FOREVER_S, Case, Fault, Final, Patch, Process, Reconcile, Sighting, Terms
from tests.cluster.audit_lines import AuditFile, boot_s, read_audit
from tests.cluster.auditor import SEEN_S, WAKE_S, audit, gaps, late_patches, taken_from_frozen

TERMS = Terms(lease_s=4, period_s=5, child_period_s=6, catch_up_s=0.5)
BOUND_S = 5 + 2 * 4 + 3 + 0.5
END_S, LOST_S, BACK_S = 100.0, 20.0, 30.0
A, B = ("a", 10), ("b", 20)


def works(
    name: str, who: tuple[str, int], epoch: int, from_s: float, until_s: float, every_s: float = 5.0
) -> list[Reconcile]:
    """Make the reconciles of one process: each takes half a second."""
    instance, process = who
    count = int((until_s - from_s) / every_s) + 1
    starts = [from_s + number * every_s for number in range(count)]
    return [Reconcile(name, "s", instance, process, epoch, at_s, at_s + 0.5) for at_s in starts if at_s <= until_s]


def written(reconciles: list[Reconcile], first: int = 1) -> list[Patch]:
    """Let every reconcile write once, in the order of time."""
    ordered = sorted(reconciles, key=lambda each: each.start_s)
    return [
        Patch(each.object, each.instance, each.process, each.epoch, each.start_s + 0.1, "written", first + number)
        for number, each in enumerate(ordered)
    ]


def crash(back_s: float = BACK_S) -> list[Reconcile]:
    """`a` reconciles a Secret and its child until it is lost; `b` goes on with both."""
    return [
        *chain(works("s", A, 1, 0, LOST_S - 1), works("c", A, 1, 0, LOST_S - 1)),
        *chain(works("s", B, 2, back_s, END_S), works("c", B, 2, back_s, END_S)),
    ]


def case(reconciles: list[Reconcile], *faults: Fault, patches: list[Patch] | None = None) -> Case:
    """Put a case together, with a loss of `a` where nothing else is named."""
    hits = faults or (Fault(LOST_S, "kill", *A),)
    lost_s = min((fault.at_s for fault in hits if fault.kind == "kill"), default=FOREVER_S)
    return Case(
        TERMS,
        0.0,
        END_S,
        tuple(reconciles),
        tuple(written(reconciles) if patches is None else patches),
        (Process(*A, -5.0, lost_s), Process(*B, -5.0)),
        hits,
        (Sighting("s", -1.0, "a", 1), Sighting("s", BACK_S - 1, "b", 2)),
        (Final("s", "s", "b", 2), Final("c", "s", "b", 2)),
        {"s": "b"},
    )


def frozen(until_s: float = BACK_S + 10) -> Fault:
    return Fault(LOST_S, "freeze", *A, until_s)


def stuck(epoch: int = 1, until_s: float = BACK_S + 10.2) -> Reconcile:
    """Make a reconcile of `a` that is frozen in its middle."""
    return Reconcile("s", "s", *A, epoch, LOST_S - 0.1, until_s)


def kinds(findings: list[str]) -> list[str]:
    """Name the laws that were broken."""
    return sorted({finding.partition(":")[0] for finding in findings})


def test_nothing_is_found_where_all_is_well() -> None:
    assert audit(case(crash())) == []
    assert audit(case(crash(), frozen())) == []


def test_the_auditor_knows_nothing_of_poise() -> None:
    code = "import sys, tests.cluster.auditor; sys.exit(any(name.partition('.')[0] == 'poise' for name in sys.modules))"
    root = Path(__file__).parent.parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


# One broken log for each law; a broken log breaks no other one.


def two_at_once() -> Case:
    return case([*crash(), Reconcile("s", "s", *A, 1, BACK_S - 0.1, BACK_S + 0.1)], Fault(60, "stop", *A))


def two_at_once_in_one_family() -> Case:
    only_child = [each for each in crash() if each.object == "c" or each.epoch == 1]
    both = case([*only_child, Reconcile("s", "s", *A, 1, BACK_S - 0.1, BACK_S + 0.1)], Fault(60, "stop", *A))
    return both._replace(finals=(Final("c", "c", "b", 2),))


def two_processes_of_one_name() -> Case:
    twin = [Reconcile("s", "s", "b", 21, 2, BACK_S + 0.2, BACK_S + 0.4)]
    return case([*crash(), *twin])


def a_short_freeze_excuses_nobody() -> Case:
    return case([*crash(), stuck()], frozen(LOST_S + TERMS.lease_s - 0.1))


def a_frozen_one_that_goes_on_for_too_long() -> Case:
    awake = Reconcile("s", "s", *A, 1, BACK_S + 10 + WAKE_S, BACK_S + 20)
    return case([*crash(), awake], frozen(), patches=written(crash()))


def one_that_was_killed_in_mid_reconcile_and_lives_on() -> Case:
    endless = Reconcile("s", "s", *A, 1, LOST_S - 0.1)
    return case([*crash(), endless], Fault(60, "stop", *A))


def twice_at_once() -> Case:
    return case([*crash(), Reconcile("s", "s", *B, 2, BACK_S + 0.2, BACK_S + 0.3)])


def a_late_write() -> Case:
    broken = case([*crash(), stuck()], frozen())
    late = Patch("s", *A, 1, BACK_S + 10.1, "written", 1)
    return broken._replace(patches=(*written(crash(), 2), late))


def a_falling_epoch() -> Case:
    wrote = written(crash())
    return case(crash(), patches=[each._replace(version=100) if each.epoch == 1 else each for each in wrote])


def a_falling_epoch_in_the_end() -> Case:
    return case(crash())._replace(finals=(Final("s", "s", "b", 1), Final("c", "s", "b", 1)))


def a_falling_epoch_by_the_observer() -> Case:
    good = case(crash())
    return good._replace(sightings=(*good.sightings, Sighting("s", BACK_S, "b", 1)))


def one_epoch_for_two() -> Case:
    return case([each._replace(epoch=2) for each in crash()])


def forgotten() -> Case:
    late_s = LOST_S - 5 + BOUND_S + 0.2
    return case(crash(late_s))


def never_written() -> Case:
    good = case(crash())
    return good._replace(finals=(*good.finals, Final("d", "s", "b", 2)))


def refused_for_ever() -> Case:
    return case(crash(), patches=[each._replace(outcome="refused") for each in written(crash())])


def given_to_one_that_is_gone() -> Case:
    good = case(crash())
    again = Sighting("s", LOST_S + TERMS.lease_s + SEEN_S + 0.1, "a", 2)
    back = Sighting("s", BACK_S - 1, "b", 3)
    return good._replace(sightings=(Sighting("s", -1.0, None, 1), again, back))


def asked_for_in_the_end() -> Case:
    return case(crash())._replace(finals=(Final("s", "s", "b", 2, drain="c"), Final("c", "s", "b", 2)))


def a_child_that_differs() -> Case:
    return case(crash())._replace(finals=(Final("s", "s", "b", 3), Final("c", "s", "b", 2)))


def held_by_one_that_is_gone() -> Case:
    return case(crash())._replace(processes=(Process(*A, -5.0, LOST_S), Process(*B, -5.0, END_S)))


def not_where_it_is_wanted() -> Case:
    return case(crash())._replace(wanted={"s": "c"})


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (two_at_once, "overlap"),
        (two_at_once_in_one_family, "overlap"),
        (two_processes_of_one_name, "overlap"),
        (a_short_freeze_excuses_nobody, "overlap"),
        (a_frozen_one_that_goes_on_for_too_long, "overlap"),
        (one_that_was_killed_in_mid_reconcile_and_lives_on, "overlap"),
        (twice_at_once, "twice"),
        (a_late_write, "late"),
        (a_falling_epoch, "epochs"),
        (a_falling_epoch_in_the_end, "epochs"),
        (a_falling_epoch_by_the_observer, "epochs"),
        (one_epoch_for_two, "shared"),
        (forgotten, "unowned"),
        (never_written, "unowned"),
        (refused_for_ever, "unowned"),
        (given_to_one_that_is_gone, "gone"),
        (asked_for_in_the_end, "unsettled"),
        (a_child_that_differs, "unsettled"),
        (held_by_one_that_is_gone, "unsettled"),
        (not_where_it_is_wanted, "unsettled"),
    ],
)
def test_a_broken_law_is_named(broken: Callable[[], Case], law: str) -> None:
    allowed = {"late": {"late", "epochs"}}.get(law, {law})
    found = set(kinds(audit(broken())))
    assert law in found
    assert found <= allowed, "a broken log breaks no other law"


# What the laws allow.


def test_a_frozen_reconcile_may_overlap_and_its_write_is_late() -> None:
    refused = Patch("s", *A, 1, BACK_S + 10.1, "refused")
    allowed = case([*crash(), stuck()], frozen(), patches=[*written(crash()), refused])
    assert audit(allowed) == []
    assert [patch for patch, _ in late_patches(allowed)] == [refused]
    assert taken_from_frozen(allowed) == {("s", 10)}


def test_a_killed_reconcile_ends_with_its_process() -> None:
    endless = Reconcile("s", "s", *A, 1, LOST_S - 0.1)
    assert audit(case([*crash(), endless])) == []


def test_what_was_reserved_in_time_may_still_be_handed_over() -> None:
    broken = given_to_one_that_is_gone()
    reserved = Sighting("s", LOST_S - 1, None, 1, drain="a")
    assert audit(broken._replace(sightings=(broken.sightings[0], reserved, *broken.sightings[1:]))) == []


def test_an_instance_that_started_again_may_be_given_something() -> None:
    broken = given_to_one_that_is_gone()
    again = Process("a", 11, LOST_S + 1)
    assert audit(broken._replace(processes=(*broken.processes, again))) == []


def bound_s(judged: Case) -> float:
    """Give the bound of the gap that the loss makes."""
    return next(gap.bound_s for gap in gaps(judged, 9.0) if gap.object == "s")


def test_every_further_loss_of_the_owner_adds_a_whole_bound() -> None:
    good = case(crash())
    assert bound_s(good) == BOUND_S
    assert {gap.bound_s for gap in gaps(good, 9.0) if gap.object == "c"} == {BOUND_S + 1}
    lost = (Sighting("s", LOST_S + 5, "c", 2), Sighting("s", BACK_S - 1, "b", 3))
    given = good._replace(sightings=(good.sightings[0], *lost))
    hop_s = 3 + 0.5  # It changed its owner once more than it had to.
    assert bound_s(given) == BOUND_S + hop_s
    missed = given._replace(faults=(*good.faults, Fault(LOST_S + 6, "kill", "c", 30)))
    assert bound_s(missed) == 2 * BOUND_S + hop_s
    before = given._replace(faults=(*good.faults, Fault(LOST_S + 5 - 4, "freeze", "c", 30)))
    assert bound_s(before) == 2 * BOUND_S + hop_s
    again = good._replace(faults=(*good.faults, Fault(LOST_S + 5, "end", "a", 11)))
    assert bound_s(again) == 2 * BOUND_S
    long_ago = given._replace(faults=(*good.faults, Fault(LOST_S - 5, "kill", "c", 30)))
    assert bound_s(long_ago) == BOUND_S + hop_s
    nobody = given._replace(faults=(*good.faults, Fault(LOST_S + 6, "kill", "x", 30)))
    assert bound_s(nobody) == BOUND_S + hop_s


@pytest.mark.parametrize("kind", ["api", "leader", "brake"])
def test_the_time_in_which_nothing_can_be_decided_is_added_once(kind: str) -> None:
    good = case(crash())
    outage = Fault(LOST_S, kind, until_s=LOST_S + 1)
    assert bound_s(good._replace(faults=(*good.faults, outage))) == BOUND_S + 1 + 8
    assert bound_s(good._replace(faults=(*good.faults, outage, outage))) == BOUND_S + 1 + 8
    slow = good._replace(faults=(*good.faults, outage), stalls=((LOST_S - 1, LOST_S + 2), (LOST_S + 4, LOST_S + 5)))
    assert bound_s(slow) == BOUND_S + 1 + 9
    over = Fault(0.0, kind, until_s=1.0)
    assert bound_s(good._replace(faults=(*good.faults, over))) == BOUND_S


def test_an_outage_of_one_instance_excuses_only_what_it_held() -> None:
    good = case(crash())
    holders = {each.shard for each in good.sightings if each.shard is not None}
    for name in (*holders, "another"):
        outage = Fault(LOST_S, "api", name, until_s=LOST_S + 1)
        assert bound_s(good._replace(faults=(*good.faults, outage))) == BOUND_S + (9 if name in holders else 0)


def test_the_audit_file_gives_back_what_was_noted(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    assert read_audit(path) == ((), ())
    first, second = AuditFile(path, "a"), AuditFile(path, "b")
    with first.begin("s", "s", 1) as noted:
        endless = second.begin("c", "s", 2)
        noted.patch(boot_s(), 1, "written", "77")
    endless.patch(boot_s(), 3, "unknown")
    reconciles, patches = read_audit(path)
    assert [(each.object, each.family, each.instance, each.epoch) for each in reconciles] == [
        ("s", "s", "a", 1),
        ("c", "s", "b", 2),
    ]
    assert reconciles[0].end_s is not None
    assert reconciles[0].start_s <= reconciles[0].end_s
    assert reconciles[1].end_s is None
    assert [(each.instance, each.epoch, each.outcome, each.version) for each in patches] == [
        ("a", 1, "written", 77),
        ("b", 3, "unknown", 0),
    ]
