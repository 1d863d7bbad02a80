"""The laws of the partition planner on random worlds."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.partition_driver import (
    ASSIGNED,
    PENDING,
    REQUESTED,
    UNASSIGNED,
    Settled,
    answer,
    assigned,
    fixpoint_faults,
    nodes,
    sound_plan,
    write,
)

from poise.decide.partition_explain import explain_partition
from poise.decide.partition_values import (
    MoveBudgets,
    Node,
    NodeState,
    Partition,
    PartitionPolicy,
    PartitionState,
    ReleaseTimeout,
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


@settings(max_examples=examples(250), deadline=None)
@given(some_world())
def test_every_plan_is_sound_and_makes_the_fewest_moves(world: World) -> None:
    before, known, policy = world
    plan = sound_plan(before, known, policy)
    assert plan.certificate.moves == plan.certificate.moves_min


@settings(max_examples=examples(100), deadline=None)
@given(some_world(refused=True))
def test_every_plan_is_sound_also_where_nodes_refuse(world: World) -> None:
    before, known, policy = world
    plan = sound_plan(before, known, policy)
    offers = {row.id: row.offers for row in before}
    assert all(
        offers.get(step.partition, {}).get(step.target or "", 0) < 3 for step in plan.steps if step.kind != "unassign"
    )


@settings(max_examples=examples(200), deadline=None)
@given(some_world())
def test_a_second_plan_before_anybody_answers_adds_nothing(world: World) -> None:
    assert fixpoint_faults(*world) == []


@settings(max_examples=examples(100), deadline=None)
@given(some_world())
def test_the_order_of_the_input_does_not_matter(world: World) -> None:
    before, known, policy = world
    plan = plan_partitions(before, known, now_s=0.0, policy=policy)
    assert plan_partitions(sorted(before, key=lambda row: row.id), known[::-1], now_s=0.0, policy=policy) == plan


@settings(max_examples=examples(100), deadline=None)
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


@settings(max_examples=examples(100), deadline=None)
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


@settings(max_examples=examples(100), deadline=None)
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


@settings(max_examples=examples(100), deadline=None)
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


@settings(max_examples=examples(60), deadline=None)
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


@settings(max_examples=examples(50), deadline=None)
@given(some_world(refused=True))
def test_every_partition_can_be_explained(world: World) -> None:
    before, known, policy = world
    plan = plan_partitions(before, known, now_s=0.0, policy=policy)
    for name in plan.assignment:
        sentences = explain_partition(name, before, known, now_s=0.0, policy=policy, plan=plan)
        assert len(sentences) >= 3
        assert all(sentence.endswith(".") and "None" not in sentence for sentence in sentences)
