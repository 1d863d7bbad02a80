"""The auditor, on logs made by hand: silent where all is well, and for every law a log that breaks it and no other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.chaos.chaos_audit import (
    ELECTION_S,
    RECONNECT_S,
    Case,
    Fault,
    Grant,
    Terms,
    audit,
    gaps,
    late_writes,
    taken_from_paused,
)
from tests.chaos.chaos_numbers import handovers_s, moves, recoveries
from tests.chaos.chaos_sink import Entry

TERMS = Terms(lease_s=3, grace_s=1)
END_S = 40.0
KILLED_S = 10.0


def writes(item: str, epoch: int, pid: int, holder: str, from_s: float, until_s: float) -> list[Entry]:
    """Make the writes of one process, four a second."""
    times = [from_s + number / 4 for number in range(int((until_s - from_s) * 4) + 1)]
    return [Entry(0, "write", item, epoch, pid, holder, at_s, at_s, accepted=True) for at_s in times]


def log(*parts: list[Entry]) -> list[Entry]:
    """Put parts into the order of the sink."""
    entries = sorted((entry for part in parts for entry in part), key=lambda entry: entry.sink_s)
    return [entry._replace(number=number) for number, entry in enumerate(entries, 1)]


def one(item: str, epoch: int, pid: int, holder: str, at_s: float, *, accepted: bool = True) -> list[Entry]:
    """Make one write."""
    return [Entry(0, "write", item, epoch, pid, holder, at_s, at_s, accepted)]


def crash(back_s: float = KILLED_S + 4, *more: list[Entry]) -> list[Entry]:
    """Two workers share two items; `a` is killed, and `b` goes on with its item after a while."""
    first = writes("0", 1, 10, "a/1", 0, KILLED_S)
    return log(first, writes("0", 2, 20, "b/2", back_s, END_S), writes("1", 1, 21, "b/2", 0, END_S), *more)


def case(entries: list[Entry], *faults: Fault, workers: tuple[str, ...] = ("b",)) -> Case:
    """Put a case together; all faults are over in the last ten seconds."""
    hits = faults or (Fault(KILLED_S, "kill", "a"),)
    return Case(entries, ("0", "1"), TERMS, 0.0, END_S - 10, END_S, workers, hits)


def frozen(*pids: int, kind: str = "freeze all") -> Fault:
    return Fault(KILLED_S, kind, "a", KILLED_S + 6, frozenset(pids))


def kinds(findings: list[str]) -> list[str]:
    """Name the laws that were broken."""
    return sorted({finding.partition(":")[0].partition(" ")[0] for finding in findings})


def test_nothing_is_found_where_all_is_well() -> None:
    assert audit(case(crash())) == []


def test_the_auditor_knows_nothing_of_poise() -> None:
    code = (
        "import sys, tests.chaos.chaos_audit; sys.exit(any(name.partition('.')[0] == 'poise' for name in sys.modules))"
    )
    root = Path(__file__).parent.parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


# One broken log for each law; a broken log breaks no other one.


def falling() -> Case:
    return case([entry._replace(epoch=3) if entry.pid == 10 else entry for entry in crash()])


def two_writers() -> Case:
    return case(crash(14, one("0", 1, 10, "a/1", 14.1, accepted=False)))


def two_writers_by_their_clocks() -> Case:
    entries = crash()
    late = [
        entry._replace(child_s=14.1) if entry.pid == 10 and entry.sink_s == KILLED_S else entry for entry in entries
    ]
    return case(late)


def two_writers_at_one_epoch() -> Case:
    return case(log(crash(14), one("1", 1, 10, "a/1", 12.1)))


def children_outlive_a_frozen_worker() -> Case:
    return case(crash(14, one("0", 1, 10, "a/1", 14.1, accepted=False)), frozen(kind="freeze worker"))


def late_write() -> Case:
    return case(crash(14, one("0", 2, 10, "a/1", 16.1)), frozen(10))


def forgotten() -> Case:
    return case(crash(KILLED_S + TERMS.bound_s + 0.1))


def never_begun() -> Case:
    return case(crash())._replace(items=("0", "1", "2"), settled_s=END_S + 1)


def silent_in_the_end() -> Case:
    kept = [entry for entry in crash() if entry.item == "1" or entry.sink_s < 33]
    return case(kept)


def uneven() -> Case:
    return case(crash(), workers=("b", "c"))


def held_by_one_that_is_gone() -> Case:
    return case(crash(), workers=("c",))


def moving_in_the_end() -> Case:
    entries = crash(14)
    return case(
        [entry._replace(holder="c/3") if entry.sink_s > 35 and entry.item == "0" else entry for entry in entries]
    )


@pytest.mark.parametrize(
    ("law", "broken"),
    [
        ("epochs", falling),
        ("interleaved", two_writers),
        ("interleaved", two_writers_by_their_clocks),
        ("interleaved", two_writers_at_one_epoch),
        ("interleaved", children_outlive_a_frozen_worker),
        ("late", late_write),
        ("unowned", forgotten),
        ("unowned", silent_in_the_end),
        ("loads", uneven),
        ("loads", held_by_one_that_is_gone),
        ("loads", moving_in_the_end),
    ],
)
def test_a_broken_law_is_named_and_no_other(law: str, broken: Callable[[], Case]) -> None:
    assert kinds(audit(broken())) == [law], audit(broken())


def test_an_item_that_nobody_ever_wrote_is_missed_at_once() -> None:
    assert kinds(audit(never_begun())) == ["loads", "unowned"]


def test_late_writes_of_a_paused_worker_are_refused_and_break_no_law() -> None:
    refused = one("0", 1, 10, "a/1", 16.1, accepted=False)
    paused = case(crash(14, refused), frozen(10))
    assert audit(paused) == []
    assert [entry.sink_s for entry in late_writes(paused)] == [16.1]
    assert taken_from_paused(paused) == {("0", 10)}
    early = case(crash(17, one("0", 1, 10, "a/1", 16.1)), Fault(KILLED_S, "kill", "a"), frozen(10))
    assert late_writes(early) == [], "nobody else had written yet"
    assert taken_from_paused(early) == set()
    assert kinds(audit(early)) == ["unowned"], "it does not end the time without an owner either"


# What lengthens a gap, and by how much.

BOUND_S = TERMS.bound_s
WASTED = (Grant("0", "c", 14.0), Grant("0", "b", 18.0))


def bound_of(*faults: Fault, grants: tuple[Grant, ...] = (), stalls: tuple[tuple[float, float], ...] = ()) -> float:
    """Give the bound of the gap from 10 to 20 s; from 14 s on there is something to decide."""
    judged = case(crash(20), Fault(KILLED_S, "kill", "a"), *faults)._replace(grants=grants, stalls=stalls)
    [gap] = gaps(judged)
    assert gap.length_s == 10
    return gap.bound_s


@pytest.mark.parametrize(
    ("faults", "grants", "stalls", "more_s"),
    [
        ((), (), (), 0.0),
        ((), WASTED, (), 0.0),
        ((Fault(15, "kill", "c"),), WASTED, (), BOUND_S),
        ((Fault(11.5, "freeze all", "c", 30),), WASTED, (), BOUND_S),
        ((Fault(11, "coordinator", "c"),), WASTED, (), BOUND_S + TERMS.lease_s + ELECTION_S - 3),
        ((Fault(10.5, "kill", "c"),), WASTED, (), 0.0),
        ((Fault(15, "kill", "c"),), WASTED[:1], (), 0.0),
        ((Fault(15, "kill", "c"),), (Grant("1", "c", 14), *WASTED[1:]), (), 0.0),
        ((Fault(15, "join", "c"),), WASTED, (), 0.0),
        ((Fault(12, "kill", "c", led=True),), (), (), TERMS.lease_s + ELECTION_S - 2),
        ((Fault(12, "coordinator", until_s=12.5),), (), (), TERMS.lease_s + ELECTION_S - 2),
        ((Fault(12, "coordinator", until_s=16),), (), (), 2 + ELECTION_S),
        ((Fault(19, "coordinator", until_s=19.5),), (), (), 1.0),
        ((Fault(12, "coordinator", until_s=12.5), Fault(13, "coordinator", until_s=13.5)), (), (), 2 + ELECTION_S),
        ((Fault(9, "coordinator", until_s=9.5),), (), (), 0.0),
        ((Fault(13, "store", until_s=14),), (), (), RECONNECT_S),
        ((Fault(2, "store", until_s=3),), (), (), 0.0),
        ((), (), ((12, 15),), 0.0),
        ((Fault(11, "freeze worker", "c", 17),), (), ((11, 17),), 3 + RECONNECT_S),
        ((Fault(11, "freeze worker", "c", 17),), (), ((2, 5),), 0.0),
    ],
)
def test_only_the_faults_within_a_gap_lengthen_its_bound(
    faults: tuple[Fault, ...], grants: tuple[Grant, ...], stalls: tuple[tuple[float, float], ...], more_s: float
) -> None:
    assert bound_of(*faults, grants=grants, stalls=stalls) == pytest.approx(BOUND_S + more_s)


# The numbers.


def note(kind: str, item: str, pid: int, at_s: float) -> Entry:
    return Entry(0, kind, item, 1, pid, "a/1", at_s, at_s, accepted=True)


def test_hand_overs_are_measured_from_the_exit_to_the_start_of_the_same_item() -> None:
    notes = [note("start", "0", 1, 1), note("stop", "0", 1, 5), note("stop", "1", 2, 5.5), note("start", "0", 3, 6)]
    killed = [note("start", "1", 4, 9), note("start", "1", 5, 12)]
    assert handovers_s([*notes, *killed]) == [1, 3.5]


def test_a_restart_under_the_same_name_is_no_move() -> None:
    assert moves(crash()) == 1
    assert moves([entry._replace(holder=f"a/{entry.pid}") for entry in crash()]) == 0


def test_a_crash_is_measured_from_the_kill_to_the_next_write() -> None:
    [gap] = recoveries(case(crash(14)))
    assert (gap.item, gap.length_s, gap.bound_s) == ("0", 4.0, BOUND_S)
    assert recoveries(case(crash(14), Fault(KILLED_S, "kill", "c"))) == []
