"""For each law a planner that breaks it, a world where that matters, and the sentence of the checker that says so."""

from __future__ import annotations

from itertools import cycle

import pytest
from msgspec.structs import replace
from tests.partition_driver import (
    ASSIGNED,
    PENDING,
    REQUESTED,
    UNASSIGNED,
    assigned,
    fixpoint_faults,
    nodes,
    rows,
    sound_plan,
)

from poise.decide import partition_board, partitions
from poise.decide.partition_check import check_partitions
from poise.decide.partition_facts import Facts
from poise.decide.partition_values import (
    MoveBudgets,
    Node,
    Partition,
    PartitionPolicy,
    Step,
    StepKind,
)
from poise.decide.partitions import plan_partitions
from poise.decide.shares import Shares

World = tuple[list[Partition], list[Node], PartitionPolicy]
FULL = PartitionPolicy(12, budgets=MoveBudgets(2, 4, 4))
WORLDS: dict[str, World] = {
    "uneven": (
        assigned(n1=7, n2=1) + rows([8, 9], UNASSIGNED) + rows([10], REQUESTED, "n2", "n3"),
        nodes("n1 n2 n3"),
        FULL,
    ),
    "many sources": (assigned(n1=6, n2=6), nodes("n1 n2 n3 n4"), replace(FULL, budgets=MoveBudgets(None, 1, None))),
    "one target": (assigned(n1=6, n2=6), nodes("n1 n2 n3"), replace(FULL, budgets=MoveBudgets(None, None, 1))),
    "fresh": ([], nodes("n1 n2 n3 n4 n5"), PartitionPolicy(13)),
    "adrift": (assigned(n1=2, n2=4) + rows(range(6, 12), PENDING, "n1"), nodes("n1 n2 n3"), PartitionPolicy(16)),
    "lost": ([Partition("0", ASSIGNED, "n9", epoch=1, lease_until_s=5.0)], nodes("n1"), PartitionPolicy(1)),
    "expired": ([Partition("0", ASSIGNED, "n9", epoch=1)], nodes("n1"), PartitionPolicy(1)),
    "restart": (
        [Partition("0", UNASSIGNED, None, "n9", deadline_s=5.0, reason="restart")],
        nodes("n1"),
        PartitionPolicy(1),
    ),
    "refused": ([*assigned(n2=1), Partition("1", offers={"n1": 3})], nodes("n1 n2"), PartitionPolicy(2)),
    "shrunk": ([*assigned(n1=2), Partition("2")], nodes("n1"), PartitionPolicy(1)),
    "overtaken": (rows(range(4), REQUESTED, "n1", "n2"), nodes("n1 n2"), PartitionPolicy(4)),
    "orphaned": (assigned(n1=1) + rows([1], PENDING, "n1", "n9"), nodes("n1 n2"), PartitionPolicy(2)),
    "in vain": (assigned(n1=1) + rows([1], REQUESTED, "n1", "n9"), nodes("n1"), PartitionPolicy(2)),
    "reserved": (
        assigned(n1=1) + rows([1], UNASSIGNED, None, "n1") + rows([2, 3], UNASSIGNED, None, "n2"),
        nodes("n1 n2"),
        PartitionPolicy(4),
    ),
}


def _nothing(_: object) -> None:
    """Do nothing where a phase should do something."""


def _never(*_: object) -> bool:
    return False


def _always(*_: object) -> bool:
    return True


def _only_takers(planning: partitions._Planning) -> None:
    planning.takers = partition_board.Takers(planning.loads, planning.quotas, planning.scores)


def _twice(planning: partitions._Planning, kind: StepKind, row: Partition, target: str | None, reason: str) -> None:
    planning.steps += [Step(kind, row.id, row.owner, target, reason)] * 2


def _fullest_first(takers: partition_board.Takers, name: str) -> tuple[int, int, str]:
    room = takers._quotas[name] - takers._loads[name]
    return room if room > 0 else 1_000, 0, name


def _held_only(standing: partition_board.Standing, name: str) -> int:
    return len(standing.held[name])


def _also_acknowledged(standing: partition_board.Standing, _: object, row: Partition, owner: str) -> None:
    standing.reverting[owner].append(row)


def _is_lost(facts: Facts, row: Partition) -> bool:
    return facts.is_lost(row)


MUTATIONS: list[tuple[str, object, str, object, str]] = [
    ("uneven", partitions._Planning, "give_fresh", _nothing, "is free and is not given to anybody"),
    ("uneven", partitions._Planning, "balance", _nothing, "waits, and could leave"),
    ("uneven", partitions._Planning, "_leave", _never, "the certificate says"),
    ("uneven", partitions._Planning, "_step", _twice, "has 2 steps, one is allowed"),
    ("uneven", partition_board.Flights, "is_full", _never, "moves in flight are under way, 2 are allowed"),
    ("uneven", partition_board.Flights, "is_full", _always, "waits, and could leave"),
    ("many sources", partition_board.Flights, "is_source_full", _never, "moves from n1 are under way, 1 are allowed"),
    ("one target", partition_board.Flights, "is_target_full", _never, "moves to n3 are under way, 1 are allowed"),
    ("adrift", partition_board.Takers, "_entry", _fullest_first, "is given more while others are further below"),
    ("uneven", partition_board.Standing, "firm", _held_only, "loads say"),
    ("uneven", partitions, "fewest_releases", lambda *_: 0, "the certificate says fewest 0"),
    ("uneven", partitions, "spread", lambda *_: 99, "the certificate says spread 99"),
    ("uneven", partitions, "choose_quotas", lambda *_: {"n1": 5, "n2": 4, "n3": 3}, "its share 4 and its turn give 4"),
    ("fresh", partitions, "score", lambda _, name: -ord(name[-1]), "has quota"),
    ("uneven", partitions, "_held", lambda *_: {"n1": 0}, "held says {'n1': 0}"),
    ("fresh", partitions, "share_out", lambda *_: Shares([3, 3, 3, 2, 2], 1), "owed says"),
    ("lost", partitions, "unowned", lambda *_: {}, "is unowned without a reason"),
    ("lost", Facts, "is_due", _is_lost, "its lease and grace have not ended"),
    ("expired", partitions._Planning, "free_lost", _nothing, "is not taken from n9"),
    ("restart", Facts, "is_awaited", _never, "it is awaited by its target"),
    ("refused", partition_board, "is_barred", _never, "never confirmed it"),
    ("shrunk", partitions._Planning, "retire", _nothing, "beyond the count, free, and not retired"),
    ("shrunk", partitions._Planning, "retire", _nothing, "is not asked to let go"),
    ("overtaken", partitions._Planning, "recall", _nothing, "which has too much, from n1, which has room"),
    ("orphaned", partitions._Planning, "mend_orphaned", _only_takers, "is still being released for n9, which is gone"),
    ("orphaned", partition_board.Standing, "_sort_aimless", _also_acknowledged, "only a request that is not acknowl"),
    ("in vain", partitions._Planning, "mend_reverting", _nothing, "n1 has room for what it was asked to let go of"),
    ("reserved", partitions._Planning, "give_meant", _nothing, "what is reserved for n1 goes elsewhere"),
]


def faults(world: World) -> str:
    before, known, policy = world
    plan = plan_partitions(before, known, now_s=0.0, policy=policy)
    return "\n".join(check_partitions(plan, before, known, now_s=0.0, policy=policy))


@pytest.mark.parametrize("name", WORLDS)
def test_the_planner_is_sound_where_the_broken_ones_are_not(name: str) -> None:
    assert faults(WORLDS[name]) == ""


@pytest.mark.parametrize(
    ("world", "place", "name", "broken", "sentence"), MUTATIONS, ids=lambda part: part if isinstance(part, str) else ""
)
def test_a_broken_planner_is_caught(
    monkeypatch: pytest.MonkeyPatch, world: str, place: object, name: str, broken: object, sentence: str
) -> None:
    monkeypatch.setattr(place, name, broken)
    assert sentence in faults(WORLDS[world])


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (Step(StepKind.ASSIGN, "9", None, "n1", "x"), "9 has a step but no row"),
        (Step(StepKind.ASSIGN, "1", None, "n1", ""), "assign of 1 has no reason"),
        (Step(StepKind.ASSIGN, "1", "n1", "n2", "x"), "assign of 1 to n2: its owner is None, not n1"),
        (Step(StepKind.ASSIGN, "1", None, "n9", "x"), "assign of 1 to n9: n9 is gone or never confirmed it"),
        (Step(StepKind.ASSIGN, "5", None, "n1", "x"), "assign of 5 to n1: the set is smaller than that"),
        (Step(StepKind.RELEASE, "1", None, "n1", "x"), "release of 1 to n1: no live owner could answer"),
        (Step(StepKind.RELEASE, "0", "n1", None, "x"), "release of 0 to None: a release needs a target"),
        (Step(StepKind.RELEASE, "0", "n1", "n1", "x"), "release of 0 to n1: n1 is active, or its owner"),
        (Step(StepKind.RELEASE, "2", "n2", "n1", "x"), "release of 2 to n1: its target n1 is not gone"),
        (
            Step(StepKind.RELEASE, "4", "n2", None, "x"),
            "release of 4 to None: a retirement is for nobody, and is asked for",
        ),
        (Step(StepKind.RELEASE, "3", "n2", "n1", "x"), "release of 3 to n1: n1 never confirmed it"),
        (Step(StepKind.CANCEL, "0", "n1", None, "x"), "cancel of 0 to None: only a request that is not acknowledged"),
        (Step(StepKind.CANCEL, "4", "n2", None, "x"), "cancel of 4 to None: a retirement is never cancelled"),
        (Step(StepKind.UNASSIGN, "0", "n1", None, "x"), "unassign of 0 to None: its lease and grace have not ended"),
        (Step(StepKind.UNASSIGN, "1", None, None, "x"), "unassign of 1 to None: nobody owns it"),
        (Step(StepKind.UNASSIGN, "2", "n2", None, "x"), "unassign of 2 to None: its target should be n1"),
        (
            Step(StepKind.RETIRE, "1", None, None, "x"),
            "retire of 1 to None: the set has 4 partitions, it is one of them",
        ),
        (Step(StepKind.RETIRE, "4", "n2", None, "x"), "retire of 4 to None: only an Unassigned row is retired"),
    ],
)
def test_a_step_that_the_table_does_not_allow_is_named(step: Step, sentence: str) -> None:
    """0 is n1's, 1 is free, 2 is let go of for n1, 3 is n2's and n1 refused it, 4 and 5 are beyond the count."""
    before = assigned(n1=1) + rows([2], PENDING, "n2", "n1") + rows([4], REQUESTED, "n2") + rows([5], UNASSIGNED)
    before += [replace(row, offers={"n1": 3}) for row in rows([3], ASSIGNED, "n2")]
    known, policy = nodes("n1 n2"), PartitionPolicy(4)
    plan = replace(sound_plan(before, known, policy), steps=[step])
    assert check_partitions(plan, before, known, now_s=0.0, policy=policy)[0].startswith(sentence)


def test_an_owned_row_is_never_given_to_another() -> None:
    before, known, policy = assigned(n1=1), nodes("n1 n2"), PartitionPolicy(1)
    plan = sound_plan(before, known, policy)
    taken = replace(plan, steps=[Step(StepKind.ASSIGN, "0", "n1", "n2", "a short cut")])
    said = check_partitions(taken, before, known, now_s=0.0, policy=policy)
    assert said == ["assign of 0 to n2: n1 owns it, nothing is taken from an owner"]


def test_a_planner_that_forgets_what_is_under_way_has_no_fixpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    world = (assigned(n1=12), nodes("n1 n2"), FULL)
    assert fixpoint_faults(*world) == []

    def forget(flights: partition_board.Flights, facts: Facts) -> None:
        start(flights, replace(facts, rows=[], beyond=[]))

    start = partition_board.Flights.__init__
    monkeypatch.setattr(partition_board.Flights, "__init__", forget)
    assert fixpoint_faults(*world) != []


def test_a_planner_with_a_memory_is_not_a_function_of_its_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    before, known, policy = WORLDS["fresh"]
    memory = cycle([3, 1, 2])
    monkeypatch.setattr(partitions, "score", lambda *_: next(memory))
    plans = [plan_partitions(before, known, now_s=0.0, policy=policy) for _ in range(3)]
    assert plans[0] != plans[1] or plans[1] != plans[2]
