"""The checker of plans: every sentence it can say, seen when a plan is spoiled or the planner is broken on purpose."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

import msgspec
import numpy as np
import pytest
import xxhash
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.decide import balance, rendezvous, ring
from poise.decide.balance import Quotas, rebalance
from poise.decide.plan import Certificate, Move, Plan
from poise.decide.plan_check import check
from poise.decide.rendezvous import NOBODY, Positions, fill, plan_hashed
from poise.decide.ring import plan_ring
from poise.decide.scores import Hashes, best_hashes, hashes
from poise.errors import InvalidSpec
from poise.inputs import sorted_names

ABC = ["a", "b", "c"]
NEW = [f"x{index}" for index in range(10)]
Held = dict[str, str | None]

SENTENCES = {
    "stranger": r"^\S+ is in the plan but not among the items$",
    "missing": r"^\S+ is missing from the plan$",
    "not live": r"^\S+ is assigned to \S+, which is not a live member$",
    "unassigned": r"^unassigned lists \[.*\], the assignment leaves \[.*\]$",
    "loads": r"^loads (say (\d+|None) for \S+, the assignment says \d+|lists \S+, which is not a live member)$",
    "twice": r"^moves lists \S+ twice$",
    "no reason": r"^\S+ moves without a reason$",
    "untold": r"^\S+ goes .+, moves says .+$",
    "moves": r"^the certificate says moves \d+, the plan has \d+$",
    "spread": r"^the certificate says spread \d+, the plan has \d+$",
    "uneven": r"^\S+ holds \d+, its share is \S+: neither floor nor ceiling$",
    "unfit": r"^\d+ are unassigned, \d+ of \d+ fit$",
    "fewest": r"^the certificate says fewest \d+, the facts say \d+$",
    "needless": r"^\d+ moves are made, \d+ would do$",
    "ceilings": r"^the ceilings went to \[.*\], they belong to \[.*\]$",
    "kept": r"^\S+ left \S+, but \S+, which stayed, has the lower score there$",
    "room": r"^\S+ takes \d+, its room is \d+$",
    "prefers": r"^\S+ prefers \S+, which had room at its turn$",
    "capacity": r"^\S+ holds \d+, over its capacity \d+$",
    "ring": r"^\S+ is at \S+, its next token is \S+'s$",
}


def kinds(faults: Iterable[str]) -> set[str]:
    """Name the kind of every sentence; one that nobody knows stands for itself."""
    return {next((kind for kind, text in SENTENCES.items() if re.match(text, fault)), fault) for fault in faults}


def held(**loads: int) -> Held:
    return {f"{member}{index}": member for member, load in loads.items() for index in range(load)}


def retold(sound: Plan, current: Mapping[str, str | None], changes: Mapping[str, str | None]) -> Plan:
    """Seat some items elsewhere and tell it honestly: all that is wrong then is the seat."""
    seats = {**sound.assignment, **changes}
    counted = Counter(seats.values())
    loads = {member: counted[member] for member in sound.loads}
    moves = [Move(item, current.get(item), to, "moved") for item, to in seats.items() if current.get(item) != to]
    made = sum(move.source is not None for move in moves)
    spread = max(loads.values()) - min(loads.values())
    unassigned = sorted(item for item, to in seats.items() if to is None)
    return Plan(seats, moves, unassigned, loads, Certificate(made, sound.certificate.moves_min, spread))


def swapped(sound: Plan, current: Mapping[str, str | None], one: str, two: str) -> Plan:
    return retold(sound, current, {one: sound.assignment[two], two: sound.assignment[one]})


def certified(sound: Plan, **numbers: int) -> Plan:
    return msgspec.structs.replace(sound, certificate=msgspec.structs.replace(sound.certificate, **numbers))


def first_on(sound: Plan, member: str) -> str:
    return min(item for item, holder in sound.assignment.items() if holder == member)


def raised(sound: Plan) -> str:
    return max(sound.loads, key=sound.loads.__getitem__)


FULL = held(a=4, b=3, c=2) | {"lost": "gone", "new": None}
SOUND = rebalance(FULL, ABC, FULL)
ONE_LESS = SOUND.loads | {"b": SOUND.loads["b"] - 1}
replaced = msgspec.structs.replace


@pytest.mark.parametrize(
    ("kind", "spoiled"),
    [
        ("stranger", replaced(SOUND, assignment=SOUND.assignment | {"who": None}, unassigned=["who"])),
        (
            "missing",
            replaced(SOUND, assignment={i: m for i, m in SOUND.assignment.items() if i != "b0"}, loads=ONE_LESS),
        ),
        ("not live", replaced(SOUND, assignment=SOUND.assignment | {"b0": "gone"}, loads=ONE_LESS)),
        ("unassigned", replaced(SOUND, unassigned=["a0"])),
        ("loads", replaced(SOUND, loads=SOUND.loads | {"a": 9})),
        ("loads", replaced(SOUND, loads=SOUND.loads | {"gone": 0})),
        ("loads", replaced(SOUND, loads={"a": SOUND.loads["a"], "b": SOUND.loads["b"]})),
        ("twice", replaced(SOUND, moves=[*SOUND.moves, SOUND.moves[0]])),
        ("no reason", replaced(SOUND, moves=[replaced(move, reason="") for move in SOUND.moves])),
        ("untold", replaced(SOUND, moves=SOUND.moves[1:])),
        ("untold", replaced(SOUND, moves=[replaced(move, source="c") for move in SOUND.moves])),
        ("untold", replaced(SOUND, moves=[*SOUND.moves, Move("b0", "b", "a", "for fun")])),
        ("moves", certified(SOUND, moves=7)),
        ("spread", certified(SOUND, spread=0)),
        ("fewest", certified(SOUND, moves_min=0)),
    ],
)
def test_a_plan_that_contradicts_itself(kind: str, spoiled: Plan) -> None:
    assert check(SOUND, FULL, ABC, FULL) == []
    assert kinds(check(spoiled, FULL, ABC, FULL)) == {kind}


def test_uneven_loads() -> None:
    sound = rebalance(NEW, ABC, {})
    low, high = sorted(ABC, key=lambda member: (sound.loads[member], member))[::2]
    assert kinds(check(retold(sound, {}, {first_on(sound, low): high}), NEW, ABC, {})) == {"uneven"}


def test_only_one_member_is_below_its_floor() -> None:
    """Shares of 5/2 and loads 1, 3, 3, 3: the others are all at their ceiling, and the sum is right."""
    four, sound = [*ABC, "d"], rebalance(NEW, [*ABC, "d"], {})
    low = [member for member in four if sound.loads[member] == 2]
    (fault,) = check(retold(sound, {}, {first_on(sound, low[0]): low[1]}), NEW, four, {})
    assert fault == f"{low[0]} holds 1, its share is 5/2: neither floor nor ceiling"


def test_a_whole_share_has_no_ceiling() -> None:
    """Shares of 3, 3/2 and 3/2 and loads 4, 1, 1: the others are at their floor, and the sum is right."""
    sound = rebalance(NEW[:6], ABC, {}, weights={"a": 2})
    wrong = retold(sound, {}, {first_on(sound, "b" if sound.loads["b"] == 2 else "c"): "a"})
    (fault,) = check(wrong, NEW[:6], ABC, {}, weights={"a": 2})
    assert fault == "a holds 4, its share is 3: neither floor nor ceiling"


def test_too_many_unassigned() -> None:
    sound = rebalance(NEW, ABC, {})
    assert kinds(check(retold(sound, {}, {first_on(sound, raised(sound)): None}), NEW, ABC, {})) == {"unfit"}


def test_needless_moves() -> None:
    current = held(a=3, b=3)
    sound = rebalance(current, ["a", "b"], current)
    assert kinds(check(swapped(sound, current, "a0", "b0"), current, ["a", "b"], current)) == {"needless"}


def test_a_ceiling_that_belongs_to_another() -> None:
    sound = rebalance(NEW, ABC, {})
    high, low = sorted(ABC, key=lambda member: -sound.loads[member])[:2]
    assert kinds(check(retold(sound, {}, {first_on(sound, high): low}), NEW, ABC, {})) == {"ceilings"}


def test_the_wrong_item_was_kept() -> None:
    current = held(a=6)
    sound = rebalance(current, ["a", "b"], current)
    wrong = swapped(sound, current, first_on(sound, "a"), first_on(sound, "b"))
    assert kinds(check(wrong, current, ["a", "b"], current)) == {"kept"}


def test_an_item_at_a_worse_member() -> None:
    sound = rebalance(NEW, ABC, {})
    wrong = swapped(sound, {}, first_on(sound, "a"), first_on(sound, "b"))
    assert kinds(check(wrong, NEW, ABC, {})) == {"prefers"}


def test_hashed_over_a_capacity() -> None:
    sound = plan_hashed(NEW, ABC, {}, capacity=3)
    wrong = retold(sound, {}, {sound.unassigned[0]: "a"})
    assert kinds(check(wrong, NEW, ABC, {}, capacity=3, policy="hashed")) == {"capacity", "room"}


def test_hashed_at_a_worse_member() -> None:
    sound = plan_hashed(NEW, ABC, {})
    wrong = swapped(sound, {}, first_on(sound, "a"), first_on(sound, "b"))
    assert kinds(check(wrong, NEW, ABC, {}, policy="hashed")) == {"prefers"}


def test_hashed_left_out_though_there_is_room() -> None:
    sound = plan_hashed(NEW, ABC, {}, capacity=9)
    wrong = retold(sound, {}, {"x0": None})
    assert kinds(check(wrong, NEW, ABC, {}, capacity=9, policy="hashed")) == {"prefers"}


def test_hashed_with_another_bound() -> None:
    sound = plan_hashed(FULL, ABC, FULL)
    assert check(sound, FULL, ABC, FULL, policy="hashed") == []
    wrong = certified(sound, moves_min=sound.certificate.moves_min + 1)
    assert kinds(check(wrong, FULL, ABC, FULL, policy="hashed")) == {"fewest"}


def test_a_key_off_the_ring() -> None:
    sound = plan_ring(NEW, ABC, {})
    wrong = retold(sound, {}, {"x0": next(member for member in ABC if member != sound.assignment["x0"])})
    assert kinds(check(wrong, NEW, ABC, {}, policy="ring")) == {"ring"}


def test_a_ring_with_another_bound() -> None:
    sound = plan_ring(FULL, ABC, FULL)
    assert check(sound, FULL, ABC, FULL, policy="ring") == []
    wrong = certified(sound, moves_min=sound.certificate.moves_min + 1)
    assert kinds(check(wrong, FULL, ABC, FULL, policy="ring")) == {"fewest"}


def test_a_ring_of_other_tokens() -> None:
    sound = plan_ring(NEW, ABC, {}, tokens=3)
    assert check(sound, NEW, ABC, {}, policy="ring", tokens=3) == []
    assert kinds(check(sound, NEW, ABC, {}, policy="ring", tokens=100)) == {"ring"}


def test_a_sentence_reads_like_one() -> None:
    assert check(certified(SOUND, moves_min=0), FULL, ABC, FULL) == ["the certificate says fewest 0, the facts say 1"]


@pytest.mark.parametrize("policy", ["balanced", "Sticky", ""])
def test_a_policy_that_nobody_knows_is_refused(policy: str) -> None:
    """It must not be judged by some other policy's laws, and least of all found sound."""
    with pytest.raises(InvalidSpec, match=r"^\$\.policy: "):
        check(rebalance(["x"], ["a"], {}), ["x"], ["a"], {}, policy=policy)


class Case(msgspec.Struct, frozen=True):
    """Facts that a planner is asked about, and the planner."""

    items: list[str]
    members: list[str]
    current: Held
    capacity: int | None = None
    debt: dict[str, int | Fraction | float] | None = None
    seed: str = ""
    policy: str = "sticky"

    def faults(self) -> list[str]:
        """Plan, and check the plan."""
        match self.policy:
            case "hashed":
                made = plan_hashed(self.items, self.members, self.current, capacity=self.capacity)
            case "ring":
                made = plan_ring(self.items, self.members, self.current)
            case _:
                made = rebalance(
                    self.items, self.members, self.current, capacity=self.capacity, debt=self.debt, seed=self.seed
                )
        return check(
            made,
            self.items,
            self.members,
            self.current,
            capacity=self.capacity,
            debt=self.debt,
            seed=self.seed,
            policy=self.policy,
        )


FRESH = [Case(NEW, ABC, {})]
OWED = [Case(NEW, ABC, {}, debt={member: 1}) for member in ABC]
SEEDED = [Case(NEW, ABC, {}, seed=f"TargetPool/{index}") for index in range(8)]
ONE_ABOVE = [Case([*now], ABC, now) for now in (held(a=4, b=3, c=3), held(a=3, b=4, c=3), held(a=3, b=3, c=4))]
CROWDED = [Case([*held(a=6)], ["a", "b"], held(a=6))]
SHORT = [Case(["a-new", "z-old"], ["a"], {"z-old": "gone"}, capacity=1)]
HASHED = [Case([f"{site}/{name}" for name in NEW], ABC, {}, policy="hashed") for site in "pqrstuvw"]
RING = [Case(NEW, ABC, {}, policy="ring")]


def shift_quotas(patch: pytest.MonkeyPatch) -> None:
    honest = balance.quotas

    def shifted(true: Quotas) -> Quotas:
        return Quotas(true.shares, [true.quotas[0] - 1, *true.quotas[1:-1], true.quotas[-1] + 1])

    patch.setattr(balance, "quotas", lambda *told, **how: shifted(honest(*told, **how)))


def ignore_debt(patch: pytest.MonkeyPatch) -> None:
    honest = balance.quotas
    patch.setattr(balance, "quotas", lambda *told, **how: honest(*told, **(how | {"debt": None})))


def ignore_holding(patch: pytest.MonkeyPatch) -> None:
    honest = balance.quotas
    patch.setattr(balance, "quotas", lambda n, live, _, **how: honest(n, live, [0] * len(live), **how))


def ignore_seed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(balance, "score", lambda _seed, _member: 0)


def keep_the_lowest(patch: pytest.MonkeyPatch) -> None:
    honest = balance._lowest
    patch.setattr(balance, "_lowest", lambda kept, scored, *rest: honest(kept, ~scored, *rest))


def ignore_scores(patch: pytest.MonkeyPatch) -> None:
    def by_turn(items: Hashes, _members: Sequence[str], room: Sequence[int]) -> Positions:
        seats = [member for member, free in enumerate(room) for _ in range(free)]
        return np.array([*seats, *[NOBODY] * len(items)][: len(items)], np.int64)

    patch.setattr(balance, "fill", by_turn)


def serve_the_last_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(balance, "fill", lambda items, *rest: fill(items[::-1], *rest)[::-1])


def raise_the_bound(patch: pytest.MonkeyPatch) -> None:
    honest = balance.fewest_releases
    patch.setattr(balance, "fewest_releases", lambda *told: honest(*told) + 1)


def misjudge_the_spread(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(balance, "spread", lambda _: 0)


def hide_a_move(patch: pytest.MonkeyPatch) -> None:
    honest = balance._moves
    patch.setattr(balance, "_moves", lambda *told: honest(*told)[1:])


def raise_the_capacity(patch: pytest.MonkeyPatch) -> None:
    honest = rendezvous.even_capacity
    patch.setattr(rendezvous, "even_capacity", lambda *told: honest(*told) + 1)


def prefer_the_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rendezvous, "best_hashes", lambda items, members: best_hashes(items, members[:1]))


def drop_the_separator(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ring, "hashes", lambda names: hashes([name.replace("#", "") for name in names]))


@pytest.mark.parametrize(
    ("mutate", "cases", "expected"),
    [
        pytest.param(shift_quotas, FRESH, {"uneven"}, id="a quota off by one"),
        pytest.param(ignore_debt, OWED, {"ceilings"}, id="ignored debt"),
        pytest.param(ignore_seed, SEEDED, {"ceilings"}, id="a dropped tie-break"),
        pytest.param(ignore_holding, ONE_ABOVE, {"needless"}, id="ceilings not to those who hold more"),
        pytest.param(keep_the_lowest, CROWDED, {"kept"}, id="the lowest kept, not the highest"),
        pytest.param(ignore_scores, FRESH, {"prefers"}, id="ignored scores"),
        pytest.param(serve_the_last_first, SHORT, {"prefers"}, id="new ones before those that had a member"),
        pytest.param(raise_the_bound, FRESH, {"fewest"}, id="a bound too high"),
        pytest.param(misjudge_the_spread, FRESH, {"spread"}, id="a spread of the wrong members"),
        pytest.param(hide_a_move, FRESH, {"untold"}, id="a move that is not listed"),
        pytest.param(raise_the_capacity, HASHED, {"capacity", "room"}, id="hashed: a capacity off by one"),
        pytest.param(prefer_the_first, HASHED, {"prefers"}, id="hashed: some other member than the best"),
        pytest.param(drop_the_separator, RING, {"ring"}, id="ring: no separator"),
    ],
)
def test_mutation(
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[pytest.MonkeyPatch], None],
    cases: list[Case],
    expected: set[str],
) -> None:
    """Sound before, and after the break every sentence is of the expected kinds."""
    assert [case.faults() for case in cases] == [[]] * len(cases)
    mutate(monkeypatch)
    assert kinds(fault for case in cases for fault in case.faults()) == expected


def test_mutation_of_the_tie_break_between_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where names have one hash, the larger name first is a fault of placing and of the ring."""
    monkeypatch.setattr(xxhash, "xxh3_64_intdigest", lambda name: len(name) % 2)
    cases = [FRESH[0], replaced(FRESH[0], policy="hashed"), RING[0]]
    assert [case.faults() for case in cases] == [[], [], []]
    opened = rendezvous._OpenFloor.__init__
    monkeypatch.setattr(
        rendezvous._OpenFloor, "__init__", lambda floor, hashed, members: opened(floor, hashed, members[::-1])
    )
    monkeypatch.setattr(ring, "sorted_names", lambda *told: sorted_names(*told)[::-1])
    assert [kinds(case.faults()) for case in cases] == [{"prefers"}, {"prefers"}, {"ring"}]


@given(st.data())
@settings(max_examples=examples(100), deadline=None)
def test_law_only_one_plan_is_sound(data: st.DataObject) -> None:
    """The facts decide everything: any other seat of any item, honestly told, is refused."""
    items = [f"router{index}" for index in range(data.draw(st.integers(1, 12)))]
    members = data.draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True))
    current = {item: data.draw(st.sampled_from([*members, None, "gone"])) for item in items}
    policy = data.draw(st.sampled_from(["sticky", "hashed", "ring"]))
    capacity = data.draw(st.none() | st.integers(0, 5)) if policy != "ring" else None
    match policy:
        case "sticky":
            sound = rebalance(items, members, current, capacity=capacity)
        case "hashed":
            sound = plan_hashed(items, members, current, capacity=capacity)
        case _:
            sound = plan_ring(items, members, current)
    seats = st.sampled_from([*members, None])
    changes = data.draw(st.dictionaries(st.sampled_from(items), seats, min_size=1, max_size=4))
    other = retold(sound, current, changes)
    assume(other.assignment != sound.assignment)
    assert check(other, items, members, current, capacity=capacity, policy=policy) != []
