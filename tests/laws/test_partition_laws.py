"""The laws of the partition planner on random worlds, and for each law a planner that is broken on purpose."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.partition_driver import (
    ASSIGNED,
    PENDING,
    REQUESTED,
    UNASSIGNED,
    Settled,
    answer,
    assigned,
    nodes,
    rows,
    sound_plan,
    write,
)

from poise.decide import partition_board, partitions
from poise.decide.partition_check import check_partitions
from poise.decide.partition_explain import explain_partition
from poise.decide.partition_facts import Facts
from poise.decide.partition_values import (
    MoveBudgets,
    Node,
    NodeState,
    Partition,
    PartitionPolicy,
    PartitionState,
    ReleaseTimeout,
    Step,
    StepKind,
)
from poise.decide.partitions import plan_partitions

NAMES = ["n0", "n1", "n2", "n3", "n4"]
LIMITS = st.none() | st.integers(0, 4)
World = tuple[list[Partition], list[Node], PartitionPolicy]


@st.composite
def some_rows(draw: st.DrawFn, count: int, *, refused: bool) -> list[Partition]:
    """Rows in any state a store could be in, and some that only a broken one could."""
    names = st.sampled_from([*NAMES, "stranger"])
    made = []
    for number in draw(st.sets(st.integers(0, count + 3), max_size=count + 3)):
        state = draw(st.sampled_from([*PartitionState, ASSIGNED, ASSIGNED]))
        owned, releasing = state != UNASSIGNED, state in (REQUESTED, PENDING)
        made.append(
            Partition(
                id=str(number),
                state=state,
                owner=draw(names) if owned else None,
                target=draw(st.none() | names) if state != ASSIGNED else None,
                epoch=draw(st.integers(1, 9)),
                owner_incarnation=draw(st.sampled_from([None, None, 1, 2])) if owned else None,
                confirmed=draw(st.booleans()),
                lease_until_s=draw(st.sampled_from([None, None, -20.0, -1.0, 0.0, 5.0])) if owned else None,
                deadline_s=draw(st.sampled_from([None, -30.0, -5.0, 5.0])) if releasing or not owned else None,
                offers=draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from([1, 3]))) if refused else {},
                reason=draw(st.sampled_from(["", "restart", "retire"])),
            )
        )
    return draw(st.permutations(made))


@st.composite
def some_world(draw: st.DrawFn, *, refused: bool = False) -> World:
    """Any rows, nodes and policy."""
    count = draw(st.integers(0, 14))
    states = st.sampled_from([*NodeState, NodeState.ACTIVE, NodeState.ACTIVE])
    known = [
        Node(name, draw(states), draw(st.sampled_from([0, 0, 2])), draw(st.sampled_from([1, 1, 1, 2, 3, 0])))
        for name in draw(st.sets(st.sampled_from(NAMES)))
    ]
    policy = PartitionPolicy(
        count,
        on_release_timeout=draw(st.sampled_from(list(ReleaseTimeout))),
        budgets=MoveBudgets(draw(LIMITS), draw(LIMITS), draw(LIMITS)),
        weights=draw(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), max_size=2)),
        debt=draw(st.dictionaries(st.sampled_from(NAMES), st.integers(-2, 2), max_size=2)),
        seed=draw(st.sampled_from(["", "PartitionSet/orders"])),
    )
    return draw(some_rows(count, refused=refused)), known, policy


@st.composite
def lively_world(draw: st.DrawFn) -> World:
    """A world that can settle: live owners renew without end, and every budget allows at least one move."""
    before, known, policy = draw(some_world())
    alive = {node.name for node in known if node.state != NodeState.GONE}
    budgets = policy.budgets
    least = [
        None if limit is None else max(1, limit) for limit in (budgets.moves_in_flight_max, budgets.per_source_max)
    ]
    per_target = None if budgets.per_target_max is None else max(1, budgets.per_target_max)
    before = [replace(row, lease_until_s=None) if row.owner in alive else row for row in before]
    return before, known, replace(policy, budgets=MoveBudgets(least[0], least[1], per_target))


def active(known: Iterable[Node]) -> list[str]:
    return [node.name for node in known if node.state == NodeState.ACTIVE]


@settings(max_examples=250, deadline=None)
@given(some_world())
def test_every_plan_is_sound_and_makes_the_fewest_moves(world: World) -> None:
    before, known, policy = world
    plan = sound_plan(before, known, policy)
    assert plan.certificate.moves == plan.certificate.moves_min


@settings(max_examples=100, deadline=None)
@given(some_world(refused=True))
def test_every_plan_is_sound_also_where_nodes_refuse(world: World) -> None:
    before, known, policy = world
    plan = sound_plan(before, known, policy)
    offers = {row.id: row.offers for row in before}
    assert all(
        offers.get(step.partition, {}).get(step.target or "", 0) < 3 for step in plan.steps if step.kind != "unassign"
    )


def fixpoint_faults(before: list[Partition], known: list[Node], policy: PartitionPolicy) -> list[Step]:
    """List what a second plan adds before anybody answers; only what was freed may go on, to be given or retired."""
    first = plan_partitions(before, known, now_s=0.0, policy=policy)
    freed = {step.partition for step in first.steps if step.kind == StepKind.UNASSIGN}
    second = plan_partitions(write(before, first.steps, policy, 0.0), known, now_s=0.0, policy=policy)
    onward = (StepKind.ASSIGN, StepKind.RETIRE)
    return [step for step in second.steps if step.partition not in freed or step.kind not in onward]


@settings(max_examples=200, deadline=None)
@given(some_world())
def test_a_second_plan_before_anybody_answers_adds_nothing(world: World) -> None:
    assert fixpoint_faults(*world) == []


@settings(max_examples=100, deadline=None)
@given(some_world())
def test_the_order_of_the_input_does_not_matter(world: World) -> None:
    before, known, policy = world
    plan = plan_partitions(before, known, now_s=0.0, policy=policy)
    assert plan_partitions(sorted(before, key=lambda row: row.id), known[::-1], now_s=0.0, policy=policy) == plan


@settings(max_examples=100, deadline=None)
@given(lively_world(), st.booleans())
def test_every_world_settles_at_its_quotas_with_no_release_too_many(world: World, fused: bool) -> None:
    before, known, policy = world
    settled = Settled(before, known, policy, fused=fused)
    first, last = settled.plans[0], settled.plans[-1]
    loads = settled.loads()
    if active(known):
        assert {name: loads.get(name, 0) for name in active(known)} == last.quotas
        assert len(settled.rows) == policy.count
        assert last.certificate.moves == 0
    retired = sum(int(row.id) >= policy.count for row in before)
    gone = sum(1 for row in before if int(row.id) < policy.count and row.owner and not _is_live(row.owner, known))
    assert settled.releases.total() <= first.certificate.moves_min - gone + retired


def _is_live(name: str, known: list[Node]) -> bool:
    return any(node.name == name and node.state != NodeState.GONE for node in known)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 30))
def test_equal_weights_settle_within_one(held: list[int], more: int) -> None:
    before = assigned(**{f"n{index}": count for index, count in enumerate(held)})
    known = nodes(" ".join(f"n{index}" for index in range(len(held))))
    settled = Settled(before, known, PartitionPolicy(len(before) + more))
    loads = [settled.loads().get(node.name, 0) for node in known]
    assert max(loads) - min(loads) <= 1
    assert settled.plans[-1].certificate.spread <= 1
    stayed = sum(row.epoch == 1 and row.owner is not None for row in settled.rows[: len(before)])
    assert len(before) - stayed == settled.plans[0].certificate.moves_min


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 40), st.integers(1, 6), st.data())
def test_losing_a_node_moves_only_its_own_and_adding_one_moves_only_to_it(
    count: int, size: int, data: st.DataObject
) -> None:
    known = [Node(f"n{index}") for index in range(size)]
    policy = PartitionPolicy(count)
    even = Settled([], known, policy).rows
    lost = data.draw(st.sampled_from(known))
    without = [replace(node, state=NodeState.GONE) if node == lost else node for node in known]
    moved = {
        now.id for was, now in zip(even, Settled(even, without, policy).rows, strict=True) if now.owner != was.owner
    }
    assert moved == {row.id for row in even if row.owner == lost.name}
    joined = Settled(even, [*known, Node("new")], policy).rows
    assert {now.owner for was, now in zip(even, joined, strict=True) if now.owner != was.owner} <= {"new"}


@settings(max_examples=100, deadline=None)
@given(lively_world(), st.data())
def test_a_plan_may_be_interrupted_anywhere(world: World, data: st.DataObject) -> None:
    """Whatever part of a plan is written, the next plan is sound and the world settles."""
    before, known, policy = world
    for _ in range(3):
        plan = sound_plan(before, known, policy)
        kept = data.draw(st.sets(st.integers(0, max(0, len(plan.steps) - 1))))
        before = write(before, [step for index, step in enumerate(plan.steps) if index in kept], policy, 0.0)
        if data.draw(st.booleans()):
            before = answer(before, known, fused=data.draw(st.booleans()))
    Settled(before, known, policy)


@settings(max_examples=60, deadline=None)
@given(lively_world(), st.data())
def test_events_between_plans_never_break_a_law_or_lower_an_epoch(world: World, data: st.DataObject) -> None:
    before, known, policy = world
    epochs = {row.id: row.epoch for row in before}
    for now in range(5):
        plan = sound_plan(before, known, policy, float(now))
        before = write(before, plan.steps, policy, float(now))
        granted = {step.partition for step in plan.steps if step.kind == StepKind.ASSIGN}
        for row in before:
            assert row.epoch == epochs.get(row.id, 0) + (row.id in granted)
        epochs = {row.id: row.epoch for row in before}  # A retired row leaves its epoch to the store's tombstone.
        if data.draw(st.booleans()):
            before = answer(before, known)
        change = data.draw(st.sampled_from(NAMES))
        state = data.draw(st.sampled_from(list(NodeState)))
        known = [*(node for node in known if node.name != change), Node(change, state, incarnation=2)]
        policy = replace(policy, count=data.draw(st.integers(0, 14)))
    Settled(before, known, policy, 5.0)


@settings(max_examples=50, deadline=None)
@given(some_world(refused=True))
def test_every_partition_can_be_explained(world: World) -> None:
    before, known, policy = world
    plan = plan_partitions(before, known, now_s=0.0, policy=policy)
    for name in plan.assignment:
        sentences = explain_partition(name, before, known, now_s=0.0, policy=policy, plan=plan)
        assert len(sentences) >= 3
        assert all(sentence.endswith(".") and "None" not in sentence for sentence in sentences)


# Broken on purpose: for each law a planner that breaks it, a world where that matters, and the sentence that says so.

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


def test_a_planner_that_lets_go_of_too_much_is_seen_by_the_law_of_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loads end even, and yet too many were asked: only counting the rows that stayed shows it."""
    before, known, policy = assigned(n1=3, n2=3), nodes("n1 n2"), PartitionPolicy(6)
    assert Settled(before, known, policy).releases.total() == 0
    monkeypatch.setattr(partitions, "choose_quotas", lambda *_: {"n1": 2, "n2": 4})
    said = faults((before, known, policy))
    assert "n1 has quota 2, its share 3 and its turn give 3" in said
