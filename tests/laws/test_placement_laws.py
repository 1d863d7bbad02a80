"""Laws of placing items, each a function that asserts. Hypothesis looks for a break; a mutation shows it is seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import ceil, floor

import msgspec
import numpy as np
import pytest
import xxhash
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.decide import balance
from poise.decide.balance import Quotas, rebalance
from poise.decide.plan import Plan
from poise.decide.plan_check import check
from poise.decide.rendezvous import Positions, plan_hashed
from poise.decide.scores import Hashes
from poise.decide.shares import fair_shares

POOL = ["a", "b", "c", "d", "é", "pod-1", "pod-11"]
Held = dict[str, str | None]
Capacity = int | dict[str, int] | None


class Facts(msgspec.Struct, frozen=True):
    """Everything that `rebalance` is told."""

    items: list[str]
    members: list[str]
    current: Held
    capacity: Capacity = None
    weights: dict[str, int] | None = None
    draining: list[str] = []
    debt: dict[str, int | Fraction | float] | None = None
    seed: str = ""

    @property
    def live(self) -> list[str]:
        """Name who may hold."""
        return sorted(set(self.members) - set(self.draining))

    def plan(self) -> Plan:
        """Plan by `sticky`."""
        return rebalance(
            self.items,
            self.members,
            self.current,
            capacity=self.capacity,
            weights=self.weights,
            draining=self.draining,
            debt=self.debt,
            seed=self.seed,
        )

    def shares(self) -> list[Fraction]:
        """Give the exact shares of the live members."""
        own = self.capacity if isinstance(self.capacity, dict) else dict.fromkeys(self.live, self.capacity)
        weights = [(self.weights or {}).get(member, 1) for member in self.live]
        weights = weights if any(weights) else [1] * len(weights)  # All weights 0 ask for nothing: they count as equal.
        upper = [own.get(member) for member in self.live]
        return fair_shares(len(self.items), weights, [0] * len(weights), upper).fractions()


@st.composite
def facts(draw: st.DrawFn, *, most: int = 24, equal: bool = False) -> Facts:
    """Draw facts of every kind; equal ones have no weights, no debt and nobody who drains."""
    members = draw(st.lists(st.sampled_from(POOL), unique=True, max_size=3 if most < 10 else 6))
    names = [f"{site}/router{index}" for index, site in enumerate(draw(st.text("abz", max_size=most)))]
    holders = st.sampled_from([*members, *members, None, "gone"])
    current = {name: draw(holders) for name in names} | {"stranger": draw(holders)}
    named = st.sampled_from(members) if members else st.nothing()
    capacity = draw(
        st.none() | st.integers(0, 8) | (st.dictionaries(named, st.integers(0, 8)) if members else st.none())
    )
    plain = Facts(draw(st.permutations(names)), members, current, capacity)
    if equal or not members:
        return plain
    return msgspec.structs.replace(
        plain,
        weights=draw(st.none() | st.dictionaries(named, st.integers(0, 5) | st.sampled_from([10**30, 3 * 10**30]))),
        draining=draw(st.lists(named, unique=True, max_size=2)),
        debt=draw(st.none() | st.dictionaries(named, st.integers(-3, 3) | st.fractions(-1, 1, max_denominator=7))),
        seed=draw(st.sampled_from(["", "TargetPool/core"])),
    )


def law_every_load_is_the_floor_or_the_ceiling_of_its_share(told: Facts) -> None:
    plan, shares = told.plan(), told.shares()
    assert list(plan.loads) == told.live
    for load, share in zip(plan.loads.values(), shares, strict=True):
        assert floor(share) <= load <= ceil(share)
    assert len(plan.unassigned) == len(told.items) - sum(shares)


def law_equal_members_below_their_capacity_differ_by_at_most_one(told: Facts) -> None:
    plan = told.plan()
    own = told.capacity if isinstance(told.capacity, dict) else dict.fromkeys(told.live, told.capacity)
    free = [load for member, load in plan.loads.items() if (most := own.get(member)) is None or load < most]
    assert not free or max(plan.loads.values()) - min(free) <= 1


def law_the_moves_are_the_fewest(told: Facts) -> None:
    plan = told.plan()
    changed = [item for item in told.items if (held := told.current[item]) and held != plan.assignment[item]]
    assert plan.certificate.moves == len(changed) == sum(move.source is not None for move in plan.moves)
    assert plan.certificate.moves == plan.certificate.moves_min


def law_a_search_of_all_assignments_finds_nothing_less(told: Facts) -> None:
    assert told.plan().certificate.moves_min == min(map(moves_of(told), even_assignments(told)))


def even_assignments(told: Facts) -> Iterator[Sequence[str | None]]:
    """Walk through every assignment with all loads at the floor or the ceiling, and as many placed as fit."""
    bounds = [(floor(share), ceil(share)) for share in told.shares()]
    unplaced = len(told.items) - sum(told.shares())
    for targets in product([*told.live, None], repeat=len(told.items)):
        counted = Counter(targets)
        loads = [counted[member] for member in told.live]
        if counted[None] == unplaced and all(a <= load <= b for load, (a, b) in zip(loads, bounds, strict=True)):
            yield targets


def moves_of(told: Facts) -> Callable[[Sequence[str | None]], int]:
    held = [told.current[item] for item in told.items]
    return lambda targets: sum(a is not None and a != b for a, b in zip(held, targets, strict=True))


def law_a_plan_of_the_result_is_empty(told: Facts) -> None:
    plan = told.plan()
    again = msgspec.structs.replace(told, current=plan.assignment).plan()
    assert again.moves == []
    assert again.assignment == plan.assignment
    assert again.certificate.moves_min == 0


def law_the_order_of_the_input_is_nothing(told: Facts) -> None:
    turned = Facts(
        told.items[::-1],
        told.members[::-1],
        dict(reversed(told.current.items())),
        dict(reversed(told.capacity.items())) if isinstance(told.capacity, dict) else told.capacity,
        dict(reversed(told.weights.items())) if told.weights is not None else None,
        told.draining[::-1],
        dict(reversed(told.debt.items())) if told.debt is not None else None,
        told.seed,
    )
    assert turned.plan() == told.plan()


def law_removing_a_member_moves_only_its_own_items(told: Facts, removed: str) -> None:
    before = told.plan().assignment
    left = [member for member in told.members if member != removed]
    plan = msgspec.structs.replace(told, members=left, current=before).plan()
    assert {move.source for move in plan.moves} <= {removed, None}
    assert plan.certificate.moves == sum(holder == removed for holder in before.values())


def law_adding_a_member_moves_only_to_it(told: Facts, added: str) -> None:
    before = told.plan().assignment
    plan = msgspec.structs.replace(told, members=[*told.members, added], current=before).plan()
    assert {move.target for move in plan.moves} <= {added}


def law_adding_an_item_moves_nobody_else(told: Facts) -> None:
    before = told.plan().assignment
    plan = msgspec.structs.replace(told, items=[*told.items, "m-new"], current=before).plan()
    assert plan.certificate.moves == 0
    assert {move.item for move in plan.moves} <= {"m-new"}


def law_the_checker_finds_nothing(told: Facts) -> None:
    faults = check(
        told.plan(),
        told.items,
        told.members,
        told.current,
        capacity=told.capacity,
        weights=told.weights,
        draining=told.draining,
        debt=told.debt,
        seed=told.seed,
    )
    assert faults == []


@given(facts())
@settings(max_examples=examples(120), deadline=None)
def test_laws_of_sticky(told: Facts) -> None:
    law_every_load_is_the_floor_or_the_ceiling_of_its_share(told)
    law_the_moves_are_the_fewest(told)
    law_a_plan_of_the_result_is_empty(told)
    law_the_order_of_the_input_is_nothing(told)
    law_the_checker_finds_nothing(told)


@given(facts(most=5))
@settings(max_examples=examples(120), deadline=None)
def test_law_a_search_of_all_assignments_finds_nothing_less(told: Facts) -> None:
    law_a_search_of_all_assignments_finds_nothing_less(told)


@given(facts(equal=True))
@settings(max_examples=examples(80), deadline=None)
def test_laws_of_sticky_with_equal_weights(told: Facts) -> None:
    law_equal_members_below_their_capacity_differ_by_at_most_one(told)
    law_adding_an_item_moves_nobody_else(told)
    law_adding_a_member_moves_only_to_it(told, "newcomer")
    for member in told.members:
        law_removing_a_member_moves_only_its_own_items(told, member)


@given(facts())
@settings(max_examples=examples(60), deadline=None)
def test_laws_of_sticky_hold_where_hashes_collide(told: Facts) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(xxhash, "xxh3_64_intdigest", lambda name: len(name) % 4)
        law_every_load_is_the_floor_or_the_ceiling_of_its_share(told)
        law_the_moves_are_the_fewest(told)
        law_a_plan_of_the_result_is_empty(told)
        law_the_order_of_the_input_is_nothing(told)
        law_the_checker_finds_nothing(told)


@given(told=facts(equal=True), draining=st.lists(st.sampled_from(POOL), unique=True, max_size=2))
@settings(max_examples=examples(120), deadline=None)
def test_laws_of_hashed(told: Facts, draining: list[str]) -> None:
    plan = plan_hashed(told.items, told.members, told.current, capacity=told.capacity, draining=draining)
    turned = plan_hashed(told.items[::-1], told.members[::-1], told.current, capacity=told.capacity, draining=draining)
    again = plan_hashed(told.items, told.members, plan.assignment, capacity=told.capacity, draining=draining)
    assert plan == turned
    assert again.moves == []
    assert plan.certificate.moves >= plan.certificate.moves_min
    facts_of_it = (told.items, told.members, told.current)
    assert check(plan, *facts_of_it, capacity=told.capacity, draining=draining, policy="hashed") == []


@given(facts(most=5, equal=True))
@settings(max_examples=examples(80), deadline=None)
def test_law_capacities_alone_force_the_fewest_moves_of_hashed(told: Facts) -> None:
    """No assignment within the capacities, placed or not, moves less than the plan's bound."""
    assume(told.members)
    even = -(-len(told.items) // len(told.members))
    own = told.capacity if isinstance(told.capacity, dict) else {}
    most = {member: own.get(member, told.capacity if isinstance(told.capacity, int) else even) for member in told.live}
    within = (
        targets
        for targets in product([*told.live, None], repeat=len(told.items))
        if all(targets.count(member) <= most[member] for member in told.live)
    )
    plan = plan_hashed(told.items, told.members, told.current, capacity=told.capacity)
    assert plan.certificate.moves_min == min(map(moves_of(told), within))


UNEVEN = Facts(
    [f"router{index}" for index in range(11)], ["a", "b", "c", "d"], {f"router{index}": "a" for index in range(11)}
)


def upside_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the ceilings first to whoever holds less than the others, instead of more than its floor."""
    honest = balance.quotas
    monkeypatch.setattr(
        balance,
        "quotas",
        lambda n, live, loads, **how: honest(n, live, [n * (load < max(loads)) for load in loads], **how),
    )


def try_sizes(law: Callable[[Facts], None]) -> None:
    """Try a law on one to twelve items that four members hold evenly."""
    for count in range(1, 13):
        items = [f"router{index}" for index in range(count)]
        law(Facts(items, ["a", "b", "c", "d"], {item: "abcd"[index % 4] for index, item in enumerate(items)}))


def test_mutation_a_quota_off_by_one_breaks_evenness(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(true: Quotas) -> Quotas:
        return Quotas(true.shares, [true.quotas[0] - 1, *true.quotas[1:-1], true.quotas[-1] + 1])

    laws = (
        law_every_load_is_the_floor_or_the_ceiling_of_its_share,
        law_equal_members_below_their_capacity_differ_by_at_most_one,
    )
    for law in laws:
        law(UNEVEN)
    honest = balance.quotas
    monkeypatch.setattr(balance, "quotas", lambda *told, **how: shifted(honest(*told, **how)))
    for law in laws:
        with pytest.raises(AssertionError):
            law(UNEVEN)


@pytest.mark.parametrize(
    "law",
    [
        pytest.param(law_the_moves_are_the_fewest, id="fewest moves"),
        pytest.param(law_a_plan_of_the_result_is_empty, id="comes to rest"),
        pytest.param(lambda told: law_removing_a_member_moves_only_its_own_items(told, "d"), id="removing a member"),
        pytest.param(lambda told: law_adding_a_member_moves_only_to_it(told, "e"), id="adding a member"),
        pytest.param(law_adding_an_item_moves_nobody_else, id="adding an item"),
    ],
)
def test_mutation_ceilings_for_whoever_holds_less(
    monkeypatch: pytest.MonkeyPatch, law: Callable[[Facts], None]
) -> None:
    try_sizes(law)
    upside_down(monkeypatch)
    with pytest.raises(AssertionError):
        try_sizes(law)


def test_mutation_a_bound_that_is_one_too_high_is_not_the_fewest(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = msgspec.structs.replace(UNEVEN, items=UNEVEN.items[:3], members=["a", "b"])
    law_a_search_of_all_assignments_finds_nothing_less(tiny)
    honest = balance.fewest_releases
    monkeypatch.setattr(balance, "fewest_releases", lambda loads, shares: honest(loads, shares) + 1)
    with pytest.raises(AssertionError):
        law_a_search_of_all_assignments_finds_nothing_less(tiny)


@pytest.mark.parametrize("collide", [False, True])
def test_mutation_releasing_what_comes_first_depends_on_the_order(
    monkeypatch: pytest.MonkeyPatch, collide: bool
) -> None:
    """Without collisions the score is dropped; with them the score stays and only the tie-break by name is dropped."""
    if collide:
        monkeypatch.setattr(xxhash, "xxh3_64_intdigest", lambda name: len(name) % 4)
    law_the_order_of_the_input_is_nothing(UNEVEN)

    def first_come(held: Positions, scored: Hashes, count: int) -> Positions:
        return held[np.argsort(scored, kind="stable")[:count]] if collide else held[:count]

    monkeypatch.setattr(balance, "_lowest", lambda held, scored, count, _: first_come(held, scored, count))
    with pytest.raises(AssertionError):
        law_the_order_of_the_input_is_nothing(UNEVEN)
