"""The coordinator on a store in memory, with members that run the real state machine on a clock of the test."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import msgspec
import pytest
from tests.set_world import TERMS, World

from poise.decide.partition_values import PartitionPlan
from poise.errors import Conflict
from poise.hold.holding import Phase, Stop, speak, stopped, watch
from poise.jobs.debts import Debts
from poise.jobs.snapshots import plan_snapshot
from poise.model.ownership import OWNED
from poise.model.partition_set import PartitionGuards
from poise.move.executor import (
    Snapshot,
    apply_plan,
    drain_member,
    lead,
    pause_set,
    put_set,
    take_heartbeat,
)
from poise.move.heartbeat import Superseded


def test_even_15_on_5() -> None:
    world = World(15, "n1", "n2", "n3", "n4", "n5")
    world.settle()
    assert sorted(world.loads().values()) == [3, 3, 3, 3, 3]
    assert all(len(names) == 1 for names in world.acting().values())
    assert len(world.acting()) == 15
    assert all(row.confirmed for row in world.facts().rows.values())


def test_a_member_that_joins_gets_its_share_by_hand_over_without_two_owners() -> None:
    world = World(12, "n1", "n2")
    world.settle()
    before = {item: row.epoch for item, row in world.facts().rows.items()}
    world.join("n3")
    for _ in range(20):
        world.settle(1)
        assert all(len(names) == 1 for names in world.acting().values())
    assert world.loads() == {"n1": 4, "n2": 4, "n3": 4}
    moved = [item for item, row in world.facts().rows.items() if row.epoch != before[item]]
    assert len(moved) == 4, "the fewest possible"
    assert world.sound()


def test_a_crashed_member_is_replaced_after_lease_and_grace_and_not_before() -> None:
    world = World(12, "n1", "n2", "n3")
    world.settle()
    world.kill("n3")
    died_s = max(row.lease_until_s for row in world.facts().rows.values() if row.owner == "n3")
    while world.now_s < died_s + TERMS.grace_s:
        assert world.loads()["n3"] == 4
        world.settle(1)
    world.settle(4)
    assert world.loads() == {"n1": 6, "n2": 6}
    assert world.sound()


def test_a_restart_under_the_same_name_gets_its_items_back_with_the_next_epoch() -> None:
    world = World(6, "n1", "n2")
    world.settle()
    before = {item: row.epoch for item, row in world.facts().rows.items() if row.owner == "n2"}
    old = world.members["n2"]
    world.join("n2", process="second")
    _, said = speak(old)
    answer = world.store.transact("orders", lambda tx: take_heartbeat(tx, "orders", "n2", said))
    assert isinstance(answer, Superseded)
    world.settle(20)
    after = {item: row.epoch for item, row in world.facts().rows.items() if row.owner == "n2"}
    assert after == {item: epoch + 1 for item, epoch in before.items()}


def test_a_member_that_leaves_to_restart_is_not_given_back_what_it_lets_go_of() -> None:
    world = World(2, "n1", "n2", terms=msgspec.structs.replace(TERMS, restart_grace_s=30))
    world.settle()
    holding = world.members["n1"]
    for item, piece in holding.pieces.items():
        holding = stopped(holding, item, piece.epoch)
    _, said = speak(holding, leaving="restart")
    world.store.transact("orders", lambda tx: take_heartbeat(tx, "orders", "n1", said))
    [row] = [row for row in world.facts().rows.values() if row.owner != "n2"]
    assert (row.state, row.target, row.reason) == ("Unassigned", "n1", "restart")
    assert row.deadline_s == world.now_s + 30


def test_a_drained_member_hands_everything_over() -> None:
    world = World(9, "n1", "n2", "n3")
    world.settle()
    world.store.transact("orders", lambda tx: drain_member(tx, "orders", "n1", True))
    world.settle()
    assert set(world.loads()) == {"n2", "n3"}
    world.store.transact("orders", lambda tx: drain_member(tx, "orders", "n1", False))
    world.settle()
    assert world.loads() == {"n1": 3, "n2": 3, "n3": 3}


def test_a_paused_set_balances_nothing_and_still_recovers() -> None:
    world = World(8, "n1", "n2")
    world.settle()
    world.store.transact("orders", lambda tx: pause_set(tx, "orders", True))
    world.join("n3")
    world.settle()
    assert world.loads() == {"n1": 4, "n2": 4}
    world.kill("n2")
    world.settle(20)
    assert "n2" not in world.loads()


def test_partitions_changed_10_to_4_to_10_go_on_from_their_epochs() -> None:
    world = World(10, "n1", "n2")
    world.settle()
    before = {item: row.epoch for item, row in world.facts().rows.items()}
    world.store.transact("orders", lambda tx: put_set(tx, world.job(4)))
    world.settle()
    assert sorted(world.facts().rows) == ["0", "1", "2", "3"]
    assert all(len(names) == 1 for names in world.acting().values())
    world.store.transact("orders", lambda tx: put_set(tx, world.job(10)))
    world.settle()
    rows = world.facts().rows
    assert len(rows) == 10
    assert all(rows[str(number)].epoch > before[str(number)] for number in range(4, 10))
    assert sum(world.loads().values()) == 10
    assert world.sound()


def test_a_set_deleted_while_owned_ends_when_its_owners_let_go() -> None:
    world = World(4, "n1")
    world.settle()
    world.store.transact("orders", lambda tx: put_set(tx, world.job(0)))
    world.settle()
    assert world.facts().rows == {}
    assert world.members["n1"].pieces == {}


def test_ten_idle_cycles_write_nothing() -> None:
    world = World(12, "n1", "n2", "n3")
    world.settle()
    version, lines = world.store.version(), len(world.store.journal("orders"))
    rows = world.facts().rows
    for _ in range(10):
        assert world.coordinator.cycle("orders").written == 0
    assert world.store.version() == version
    assert len(world.store.journal("orders")) == lines
    assert world.facts().rows == rows


def test_a_set_whose_members_only_go_on_living_is_not_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(12, "n1", "n2", "n3")
    world.settle()
    honest, planned = Debts.plan, list[float]()

    def plan(self: Debts, facts: Snapshot) -> PartitionPlan:
        planned.append(world.now_s)
        return honest(self, facts)

    monkeypatch.setattr(Debts, "plan", plan)
    world.settle(60)
    assert planned == []
    heard_s = world.now_s - 1
    while not planned:
        world.now_s += 1
        world.beat("n1")
        world.beat("n2")
        world.coordinator.cycle("orders")
    assert planned[0] - heard_s == TERMS.lease_s, "as soon as n3 counts as gone"


def test_a_row_that_nobody_renews_is_due_while_its_member_lives() -> None:
    world = World(1, "n1")
    world.settle()
    heard_s = world.now_s - 1
    while world.facts().rows["0"].owner is not None:
        world.now_s += 1
        holding, said = speak(world.members["n1"])
        world.members["n1"] = holding
        mute = msgspec.structs.replace(said, holds=())
        world.store.transact("orders", partial(take_heartbeat, name="orders", member="n1", said=mute))
        world.coordinator.cycle("orders")
    assert world.now_s - heard_s == TERMS.lease_s + TERMS.grace_s


def test_a_stale_leaders_plan_changes_no_row() -> None:
    world = World(6, "n1")
    facts = world.facts()
    led = world.store.transact("orders", lambda tx: lead(tx, "late", 10))
    assert led is not None
    plan = plan_snapshot(facts)
    seen = {item: row.revision for item, row in facts.rows.items()}
    world.now_s += 11
    world.coordinator.cycle("orders")
    rows = world.facts().rows
    with pytest.raises(Conflict, match="term 1 is over"):
        world.store.transact("orders", lambda tx: apply_plan(tx, "orders", led.term, seen, plan.steps, 1))
    assert world.facts().rows == rows


def test_a_row_that_changed_drops_only_itself() -> None:
    world = World(4, "n1")
    facts = world.facts()
    led = world.store.transact("orders", lambda tx: lead(tx, "leader-1", 10))
    assert led is not None
    seen = {item: row.revision for item, row in facts.rows.items()} | {"2": 77}
    steps = plan_snapshot(facts).steps
    done = world.store.transact("orders", lambda tx: apply_plan(tx, "orders", led.term, seen, steps, 1))
    assert done.written == 3
    assert done.refused == {"2": "it has changed since the plan was made"}


def test_commits_that_were_lost_start_a_new_generation() -> None:
    world = World(3, "n1", "n2")
    world.settle()
    epochs = {item: row.epoch for item, row in world.facts().rows.items()}
    name = next(name for name, holding in world.members.items() if holding.pieces)
    item, piece = next(iter(world.members[name].pieces.items()))
    ahead = msgspec.structs.replace(piece, epoch=piece.epoch + 5)
    holding = msgspec.structs.replace(world.members[name], pieces={**world.members[name].pieces, item: ahead})
    _, said = speak(holding)
    world.store.transact("orders", lambda tx: take_heartbeat(tx, "orders", name, said))
    facts = world.facts()
    assert facts.job.generation == 1
    assert facts.job.quarantine_until_s == world.now_s + 12
    assert all(row.state not in OWNED for row in facts.rows.values())
    assert all(row.epoch > epochs[item] + 5 for item, row in facts.rows.items())


def test_a_lie_about_a_far_generation_is_refused_and_changes_nothing() -> None:
    world = World(3, "n1")
    world.settle()
    rows = world.facts().rows
    holding = world.members["n1"]
    item, piece = next(iter(holding.pieces.items()))
    liar = msgspec.structs.replace(holding, pieces={item: msgspec.structs.replace(piece, epoch=9 * 2**32)})
    _, said = speak(liar)
    with pytest.raises(Conflict, match="names generation 9"):
        world.store.transact("orders", lambda tx: take_heartbeat(tx, "orders", "n1", said))
    assert world.facts().rows == rows


def test_a_member_that_hears_nothing_fences_itself_before_its_lease_ends() -> None:
    world = World(2, "n1")
    world.settle()
    holding = world.members["n1"]
    ends_s = min(row.lease_until_s for row in world.facts().rows.values())
    fenced, orders = watch(holding, ends_s - 1)
    assert {type(order) for order in orders} == {Stop}
    assert {piece.phase for piece in fenced.pieces.values()} == {Phase.STOPPING}


def test_budgets_bound_what_is_under_way() -> None:
    guards = PartitionGuards(moves_in_flight_max=2, per_source_max=1, per_target_max=2)
    world = World(20, "n1", "n2", guards=guards)
    world.settle()
    world.join("n3")
    world.beat("n3")
    world.coordinator.cycle("orders")
    asked = [row for row in world.facts().rows.values() if row.state == "RequestedRelease"]
    assert len(asked) == 2
    assert {row.owner for row in asked} == {"n1", "n2"}
    world.settle(30)
    assert sorted(world.loads().values()) == [6, 7, 7]


def test_an_item_that_its_only_member_never_confirms_is_offered_again_after_pauses_that_double() -> None:
    world = World(1, "n1")
    offered: list[float] = []
    for _ in range(700):
        while (cycle := world.coordinator.cycle("orders")).written:
            assert cycle.plan is not None
            offered += [world.now_s for step in cycle.plan.steps if step.kind == "assign"]
        holding, said = speak(world.members["n1"])  # It speaks, and never of the item.
        world.members["n1"] = holding
        world.store.transact("orders", partial(take_heartbeat, name="orders", member="n1", said=said))
        world.now_s += 1
    gaps = [later - earlier for earlier, later in pairwise(offered)]
    assert gaps[:2] == [12, 12], "three times, each as soon as lease and grace are over"
    assert gaps[2:] == [12 + 30, 12 + 60, 12 + 120, 12 + 240]
