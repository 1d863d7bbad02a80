"""ShardRing on the stores: keys as items, ring or balanced, the second waiting time, the brake, restart grace."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.set_world import FREE, World

from poise.decide.ring import Ring
from poise.hold.holding import speak, stopped
from poise.jobs.coordinator import Coordinator
from poise.jobs.snapshots import braking, plan_snapshot
from poise.model.ownership import OwnerState, Reply, SetRow, Terms
from poise.model.partition_set import PartitionGuards
from poise.move.executor import drain_member, pause_set, release_brake, take_heartbeat

Policy = Literal["ring", "balanced"]
D = 10.0
KEYS = [f"apps/Deployment/default/web-{number}" for number in range(60)]


class RingWorld(World):
    """A ring in the place of a set; D is its lease, and its second waiting time."""

    def __init__(
        self, *members: str, policy: Policy = "ring", guards: PartitionGuards = FREE, restart_grace_s: float = 0.0
    ) -> None:
        terms = Terms(lease_s=D, grace_s=D, release_s=30, restart_grace_s=restart_grace_s)
        self.ring = SetRow(name="orders", kind="ShardRing", policy=policy, guards=guards, terms=terms)
        self.keys = KEYS
        super().__init__(0, *members)

    def put(self, job: SetRow, keys: Iterable[str] | None = None) -> None:
        del job, keys
        super().put(self.ring, self.keys)

    def change(self, keys: list[str]) -> None:
        self.keys = keys
        self.put(self.ring)

    def owners(self) -> dict[str, str | None]:
        return {item: row.owner for item, row in self.facts().rows.items()}

    def homes(self, *members: str) -> dict[str, str | None]:
        return dict(zip(self.keys, Ring(members).owners(self.keys), strict=True))

    def never_two(self, rounds: int) -> None:
        for _ in range(rounds):
            self.settle(1)
            assert all(len(names) == 1 for names in self.acting().values())


def test_every_key_goes_to_its_ring_owner_and_a_joiner_takes_only_its_own() -> None:
    world = RingWorld("web-0", "web-1", "web-2")
    world.settle()
    before = world.owners()
    assert before == world.homes("web-0", "web-1", "web-2")
    world.join("web-3")
    world.never_two(12)
    after = world.owners()
    assert after == world.homes("web-0", "web-1", "web-2", "web-3")
    assert {after[key] for key in KEYS if after[key] != before[key]} == {"web-3"}
    assert {row.epoch for key, row in world.facts().rows.items() if after[key] == before[key]} == {1}
    assert world.sound()


def test_balanced_is_exactly_even_with_the_fewest_moves() -> None:
    world = RingWorld("web-0", "web-1", "web-2", policy="balanced")
    world.settle()
    assert sorted(world.loads().values()) == [20, 20, 20]
    before = world.owners()
    world.join("web-3")
    world.never_two(12)
    assert sorted(world.loads().values()) == [15, 15, 15, 15]
    assert sum(before[key] != owner for key, owner in world.owners().items()) == 15


@pytest.mark.parametrize("policy", ["ring", "balanced"])
def test_ten_idle_cycles_write_nothing(policy: Policy) -> None:
    world = RingWorld("web-0", "web-1", policy=policy)
    world.settle()
    lines = len(world.store.journal("orders", most=10_000))
    for _ in range(10):
        assert world.coordinator.cycle("orders").written == 0
    assert len(world.store.journal("orders", most=10_000)) == lines


def test_an_expired_instance_keeps_its_objects_for_a_second_lease_and_gets_no_new_ones() -> None:
    world = RingWorld("web-0", "web-1", "web-2")
    world.settle()
    mine = [key for key, owner in world.owners().items() if owner == "web-2"]
    ends_s = max(row.lease_until_s for row in world.facts().rows.values() if row.owner == "web-2")
    world.kill("web-2")
    while world.now_s < ends_s:
        world.settle(1)
    world.change([*KEYS, *(f"new-{number}" for number in range(40))])
    while world.now_s < ends_s + D:
        assert [key for key, owner in world.owners().items() if owner == "web-2"] == mine
        world.settle(1)
    world.settle(6)
    assert world.owners() == world.homes("web-0", "web-1")
    assert world.sound()


def test_an_instance_that_releases_gives_its_objects_away_at_once() -> None:
    world = RingWorld("web-0", "web-1")
    world.settle()
    _leave(world, "web-1", "stop")
    world.settle(2)
    assert set(world.owners().values()) == {"web-0"}


def test_with_restart_grace_the_objects_wait_for_the_same_name() -> None:
    world = RingWorld("web-0", "web-1", restart_grace_s=20.0)
    world.settle()
    before = world.owners()
    _leave(world, "web-1", "restart")
    world.settle(5)
    assert {owner for key, owner in world.owners().items() if before[key] == "web-1"} == {None}
    world.join("web-1", process="second")
    world.settle(4)
    assert world.owners() == before
    _leave(world, "web-1", "restart")
    world.settle(25)
    assert set(world.owners().values()) == {"web-0"}


def _leave(world: World, name: str, why: Literal["stop", "restart"]) -> None:
    holding = world.members[name]
    for item, piece in holding.pieces.items():
        holding = stopped(holding, item, piece.epoch)
    _, said = speak(holding, leaving=why)
    answer = world.store.transact("orders", lambda tx: take_heartbeat(tx, "orders", name, said))
    assert isinstance(answer, Reply)
    world.kill(name)


def test_the_brake_holds_when_most_vanish_at_once_and_opens_when_somebody_says_so() -> None:
    world = RingWorld("web-0", "web-1", "web-2", "web-3")
    world.settle()
    before = world.owners()
    for name in ("web-1", "web-2", "web-3"):
        world.kill(name)
    world.settle(60)
    assert world.owners() == before, "three of four are more than half"
    assert braking(world.facts()) == ["web-1", "web-2", "web-3"]
    told = [line.reason for line in world.store.journal("orders", most=10_000) if "brake" in line.reason]
    assert told == ["the brake holds: web-1, web-2, web-3 vanished at once"], "said once, for whoever reads events"
    plan = plan_snapshot(world.facts())
    assert all("the brake holds" in plan.unowned[key] for key, owner in before.items() if owner != "web-0")
    world.change([*KEYS, "one more"])
    world.settle(3)
    assert world.owners()["one more"] == "web-0", "what is free is still given"
    world.store.transact("orders", lambda tx: release_brake(tx, "orders"))
    world.settle(3)
    assert set(world.owners().values()) == {"web-0"}


def test_the_brake_opens_when_they_return() -> None:
    world = RingWorld("web-0", "web-1", "web-2", "web-3")
    world.settle()
    before = world.owners()
    for name in ("web-1", "web-2", "web-3"):
        world.kill(name)
    world.settle(60)
    for name in ("web-1", "web-2"):
        world.join(name, process="second")
    world.settle(6)
    assert not braking(world.facts())
    after = world.owners()
    assert after == world.homes("web-0", "web-1", "web-2")
    assert all(after[key] == owner for key, owner in before.items() if owner != "web-3")


@pytest.mark.parametrize(
    ("gone", "percent", "braked"), [(1, 0, False), (2, 50, False), (3, 50, True), (2, 49, True), (4, 100, False)]
)
def test_the_brake_needs_more_than_its_share_and_more_than_one(gone: int, percent: int, braked: bool) -> None:
    world = RingWorld("web-0", "web-1", "web-2", "web-3")
    world.ring = msgspec.structs.replace(world.ring, brake_percent=percent)
    world.put(world.ring)
    world.settle()
    for number in range(gone):
        world.kill(f"web-{number}")
    world.settle(12)
    assert bool(braking(world.facts())) is braked


def test_instances_that_vanish_one_after_the_other_do_not_brake() -> None:
    world = RingWorld("web-0", "web-1", "web-2", "web-3")
    world.settle()
    for name in ("web-1", "web-2", "web-3"):
        world.kill(name)
        world.settle(32)
    assert set(world.owners().values()) == {"web-0"}


def test_a_draining_instance_lets_go_of_everything() -> None:
    world = RingWorld("web-0", "web-1", "web-2")
    world.settle()
    world.store.transact("orders", lambda tx: drain_member(tx, "orders", "web-2", True))
    world.never_two(12)
    assert world.owners() == world.homes("web-0", "web-1")


def test_keys_that_are_taken_away_are_released_and_come_back_with_the_next_epoch() -> None:
    world = RingWorld("web-0", "web-1")
    world.settle()
    world.change(KEYS[:10])
    world.settle()
    assert sorted(world.facts().rows) == sorted(KEYS[:10])
    world.change(KEYS)
    world.settle()
    assert world.owners() == world.homes("web-0", "web-1")
    assert {world.facts().rows[key].epoch for key in KEYS[10:]} == {2}
    world.change([])
    world.settle()
    assert world.facts().rows == {}
    assert world.sound()


def test_a_key_that_returns_before_it_was_let_go_of_stays() -> None:
    world = RingWorld("web-0", "web-1")
    world.settle()
    world.change(KEYS[1:])
    world.coordinator.cycle("orders")
    assert world.facts().rows[KEYS[0]].state is OwnerState.REQUESTED_RELEASE
    world.change(KEYS)
    world.settle()
    assert world.owners() == world.homes("web-0", "web-1")
    assert world.facts().rows[KEYS[0]].epoch == 1


def test_budgets_and_a_pause_hold_moves_back_and_no_recovery() -> None:
    one = PartitionGuards(moves_in_flight_max=1, per_source_max=None, per_target_max=None)
    world = RingWorld("web-0", "web-1", guards=one)
    world.settle()
    world.join("web-2")
    world.coordinator.cycle("orders")
    moving = [row for row in world.facts().rows.values() if row.state is OwnerState.REQUESTED_RELEASE]
    assert len(moving) == 1
    world.store.transact("orders", lambda tx: pause_set(tx, "orders", True))
    world.settle()
    assert world.owners() != world.homes("web-0", "web-1", "web-2")
    world.kill("web-1")
    world.settle(30)
    assert "web-1" not in world.owners().values(), "recovery does not wait"


def test_weights_are_tokens_in_a_ring_and_shares_where_it_is_balanced() -> None:
    policies: tuple[Policy, ...] = ("ring", "balanced")
    for policy in policies:
        world = RingWorld("web-0", "web-1", policy=policy)
        holding, said = speak(world.members["web-0"], weight=3)
        world.members["web-0"] = holding
        world.store.transact("orders", partial(take_heartbeat, name="orders", member="web-0", said=said))
        world.coordinator.cycle("orders")
        loads = world.loads()
        assert loads["web-0"] > 1.5 * loads["web-1"]
        assert policy == "ring" or loads == {"web-0": 45, "web-1": 15}


def test_a_second_coordinator_goes_on_where_the_first_ended() -> None:
    world = RingWorld("web-0", "web-1")
    world.coordinator.cycle("orders")
    world.coordinator.resign("orders")
    world.coordinator = Coordinator(world.store, "leader-2")
    world.join("web-2")
    world.settle()
    assert world.owners() == world.homes("web-0", "web-1", "web-2")


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["join", "kill", "stop", "restart", "keys", "drain", "undrain", "pause", "go on"]),
        st.integers(0, 4),
        st.integers(0, 4),
    ),
    max_size=14,
)


@pytest.mark.parametrize("policy", ["ring", "balanced"])
@given(events=EVENTS)
@settings(max_examples=60, deadline=None)
def test_whatever_happens_nothing_has_two_owners_and_all_come_home(
    policy: Policy, events: list[tuple[str, int, int]]
) -> None:
    world = RingWorld("web-0", policy=policy, restart_grace_s=5.0)
    for number, (event, which, rounds) in enumerate(events):
        _befall(world, event, f"web-{which}", number)
        world.never_two(rounds)
    _befall(world, "go on", "", 0)
    world.store.transact("orders", lambda tx: release_brake(tx, "orders"))
    for name in ("web-0", "web-1"):
        world.join(name, process="last")
        world.store.transact("orders", partial(drain_member, name="orders", member=name, draining=False))
    world.never_two(60)
    facts = world.facts()
    there = [name for name in world.members if not facts.members[name].draining]
    assert sorted(facts.rows) == sorted(world.keys)
    if policy == "ring":
        assert world.owners() == world.homes(*there)
    else:
        loads = [list(world.owners().values()).count(name) for name in there]
        assert sum(loads) == len(world.keys)
        assert max(loads) - min(loads) <= 1
    assert world.sound()


def _befall(world: RingWorld, event: str, name: str, number: int) -> None:
    match event:
        case "join":
            world.join(name, process=f"process {number}")
        case "kill" if name in world.members:
            world.kill(name)
        case "stop" | "restart" if name in world.members:
            _leave(world, name, "stop" if event == "stop" else "restart")
        case "keys":
            world.change(KEYS[number :: 1 + number % 3])
        case "drain" | "undrain" if name in world.facts().members:
            world.store.transact("orders", lambda tx: drain_member(tx, "orders", name, event == "drain"))
        case "pause" | "go on":
            world.store.transact("orders", lambda tx: pause_set(tx, "orders", event == "pause"))
        case _:
            pass
