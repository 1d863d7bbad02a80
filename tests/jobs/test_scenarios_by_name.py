"""The scenarios of the design by their names, on a store: the real coordinator, and members that keep the protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

import pytest
from msgspec.structs import replace
from tests.decide.test_partitions import SCENARIOS
from tests.partition_driver import ASSIGNED, PENDING, REQUESTED, UNASSIGNED, assigned, nodes, rows
from tests.set_world import TERMS, World

from poise.decide.partition_values import Node, NodeState, Partition
from poise.model.ownership import Heartbeat, Hold, MemberRow, Row, Word
from poise.move.executor import take_heartbeat
from poise.stores.base import Transaction


class SetWorld(World):
    """A set that begins in the middle of things: rows and nodes as a scenario has them, leases that have just begun."""

    def __init__(self, count: int, before: Sequence[Partition], known: Iterable[Node]) -> None:
        super().__init__(max(count, len(before)))
        self.known = list(known)
        self.put(replace(self.job(count), weights={node.name: node.weight for node in self.known}))
        self.store.transact("orders", lambda tx: self._begin(tx, before))
        for node in self.known:
            if node.state is not NodeState.GONE:
                self.join(node.name)

    def _begin(self, tx: Transaction, before: Iterable[Partition]) -> None:
        for node in self.known:
            draining = node.state is NodeState.DRAINING
            tx.write_member(MemberRow(name=node.name, incarnation=0, process="", draining=draining))
        tx.write_rows([self._row(tx.rows()[each.id], each) for each in before])

    def _row(self, known: Row, wanted: Partition) -> Row:
        """Write a row as the scenario has it; what has an owner is confirmed, and was renewed just now."""
        owned = wanted.owner is not None
        releasing = wanted.state in (REQUESTED, PENDING)
        return replace(
            known,
            state=wanted.state,
            confirmed=owned,
            owner=wanted.owner,
            owner_incarnation=1 if owned else None,
            target=wanted.target,
            epoch=wanted.epoch,
            lease_until_s=self.now_s + TERMS.lease_s if owned else 0.0,
            granted_s=TERMS.lease_s if owned else 0.0,
            deadline_s=self.now_s + TERMS.release_s if releasing else None,
            since_s=self.now_s,
            revision=known.revision + 1,
        )

    def settle_safely(self, rounds: int) -> None:
        """Go on; in no round has an item two that act."""
        for _ in range(rounds):
            self.settle(1)
            assert all(len(names) == 1 for names in self.acting().values())

    def written(self, transition: str) -> int:
        return sum(line.transition == transition for line in self.store.journal("orders", most=10_000))


@pytest.mark.parametrize("name", SCENARIOS)
def test_settles_at_on_a_store(name: str) -> None:
    scenario = SCENARIOS[name]
    world = SetWorld(scenario.size, scenario.before, scenario.known)
    world.settle_safely(40)
    active = [node.name for node in scenario.known if node.state is NodeState.ACTIVE]
    loads = world.loads()
    assert sorted(loads.get(each, 0) for each in active) == scenario.loads
    assert world.written("release requested") == scenario.releases, "the fewest possible"
    assert len(world.facts().rows) == scenario.size
    assert len(world.acting()) == sum(count for owner, count in loads.items() if owner is not None)


def test_release_states_on_a_store() -> None:
    """3, 4, 7, 8 and 9 stay with their owners until they let go, and nothing else has to move."""
    before = rows(range(3), ASSIGNED, "n1") + rows([3, 4], PENDING, "n1")
    before += rows([5, 6], ASSIGNED, "n2") + rows([7, 8, 9], REQUESTED, "n2")
    before += rows(range(10, 15), UNASSIGNED)
    world = SetWorld(15, before, nodes("n1 n2 n3 n4 n5"))
    world.coordinator.cycle("orders")
    owners = {item: row.owner for item, row in world.facts().rows.items()}
    assert [owners[item] for item in ["3", "4", "7", "8", "9"]] == ["n1", "n1", "n2", "n2", "n2"]
    world.settle_safely(8)
    assert set(world.loads().values()) == {3}
    assert world.written("release requested") == 0


def test_mixed_on_a_store() -> None:
    """The 14 that are free or assigned settle at 4,4,3,3 while 2-7 stay with n1."""
    before = rows([0, 1], ASSIGNED, "n1") + rows([2, 3, 4], PENDING, "n1") + rows([5, 6, 7], REQUESTED, "n1")
    before += rows(range(8, 12), ASSIGNED, "n2") + rows([12, 13], ASSIGNED, "n3") + rows(range(14, 20), UNASSIGNED)
    world = SetWorld(20, before, nodes("n1 n2 n3 n4"))
    world.coordinator.cycle("orders")
    after = world.facts().rows
    held = Counter(row.owner for row in after.values() if row.state is ASSIGNED)
    assert sorted(held.values()) == [3, 3, 4, 4]
    assert all(after[item].owner == "n1" and after[item].state is not ASSIGNED for item in "234567")
    world.settle_safely(12)
    assert set(world.loads().values()) == {5}


def test_target_dies_before_the_acknowledgement_on_a_store() -> None:
    """Back to Assigned, same epoch, no move."""
    before = assigned(n1=4, n2=5) + rows([9], REQUESTED, "n1", "n3")
    world = SetWorld(10, before, nodes("n1 n2", gone="n3"))
    world.coordinator.cycle("orders")
    row = world.facts().rows["9"]
    assert (row.state, row.owner, row.target, row.epoch, row.deadline_s) == ("Assigned", "n1", None, 1, None)
    world.settle_safely(20)
    assert {row.epoch for row in world.facts().rows.values()} == {1}, "nothing has moved"


def test_source_dies_while_releasing_on_a_store() -> None:
    """To the target after lease and grace, epoch + 1."""
    before = [*assigned(n2=2), Partition("2", PENDING, "n1", "n3", 7)]
    world = SetWorld(3, before, nodes("n2 n3", gone="n1"))
    due_s = world.now_s + TERMS.lease_s + TERMS.grace_s
    while world.now_s < due_s:
        world.settle_safely(1)
        assert world.facts().rows["2"].owner == "n1"
    world.settle_safely(2)
    row = world.facts().rows["2"]
    assert (row.owner, row.epoch) == ("n3", 8)


def test_ten_passes_without_an_answer_write_nothing_and_the_deadline_stays() -> None:
    """Time goes on, leases are renewed, and the owner has not seen the request yet."""
    world = World(4, "n1")
    world.settle()
    world.join("n2")
    world.coordinator.cycle("orders")
    asked = {item: row for item, row in world.facts().rows.items() if row.state == REQUESTED}
    assert len(asked) == 2
    version, incarnation = world.store.version(), world.members["n1"].incarnation
    for seq in range(101, 111):
        world.now_s += 1.0
        holds = tuple(Hold(item, row.epoch, Word.HELD) for item, row in world.facts().rows.items())
        said = Heartbeat(process="first", incarnation=incarnation, seq=seq, holds=holds)
        world.store.transact("orders", partial(take_heartbeat, name="orders", member="n1", said=said))
        world.beat("n2")
        assert world.coordinator.cycle("orders").written == 0
    assert world.store.version() == version
    now = world.facts().rows
    still = {item: replace(now[item], lease_until_s=row.lease_until_s) for item, row in asked.items()}
    assert still == asked, "revision, since and deadline are as they were"
