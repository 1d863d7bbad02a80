"""For every law of dividing replicas a planner that is broken on purpose, which its checker or its law must catch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from importlib import import_module

import msgspec
import pytest
from tests.division_asks import (
    NAMES,
    Ask,
    FleetAsk,
    answer,
    answers,
    broken,
    fleet_broken,
    order_is_free,
    reach_exactly_the_nearest,
)

from poise.decide import division_goal, draw, fleet
from poise.decide.divide import Division, Draw, Step
from poise.decide.division import with_step
from poise.decide.division_goal import Debt, Goal, Terms
from poise.decide.shares import Shares

# The package exports the function of the same name, so the module is asked for by its path.
divide_module = import_module("poise.decide.divide")

FRESH = Ask(replicas=7, weights={"a": 1, "b": 1, "c": 2}, seed="x")
BOUND = Ask(replicas=9, weights={"a": 1, "b": 1, "c": 2}, maximum={"c": 3}, minimum={"a": 4}, seed="x")
SCALED = msgspec.structs.replace(FRESH, replicas=11, last={"a": 2, "b": 2, "c": 3})
SHRUNK = msgspec.structs.replace(FRESH, replicas=3, last={"a": 2, "b": 2, "c": 3})
KEPT = msgspec.structs.replace(FRESH, last={"a": 2, "b": 2, "c": 3})
WHOLE = msgspec.structs.replace(FRESH, replicas=8, last={"a": 2, "b": 2, "c": 3})
WIDE = Ask(replicas=7, weights=dict.fromkeys(NAMES, 1), last=dict(zip(NAMES, [2, 1, 2, 1, 1], strict=True)))
COPIES = Ask(replicas=5, weights={"a": 1, "b": 1}, strategy="Duplicated", maximum={"b": 3})
SHORT = Ask(replicas=9, weights={"a": 1, "b": 1}, maximum={"a": 2, "b": 3})
POOR = Ask(replicas=5, weights={"a": 1, "b": 1}, minimum={"a": 4, "b": 6})
ZERO = Ask(replicas=7, weights={"a": 0, "b": 1, "c": 1}, minimum={"a": 1})
OWED = msgspec.structs.replace(FRESH, debt={"a": Fraction(1), "b": Fraction(0)})
TILTED = Ask(replicas=7, weights={"a": 1, "b": 1, "c": 1}, capacity={"a": 9, "b": 20, "c": 9}, mix=Fraction(1, 2))
ALL = [FRESH, BOUND, SCALED, SHRUNK, KEPT, WHOLE, WIDE, COPIES, SHORT, POOR, ZERO, OWED, TILTED]


def no_draw(*_: object, **__: object) -> tuple[list[int], Draw | None]:
    return [], None


def plain_shares(total: int, weights: Sequence[int], lower: Sequence[int], upper: Sequence[int | None]) -> Shares:
    assert len(lower) == len(upper)
    return Shares([total * weight for weight in weights], sum(weights))


def uneven_shares(total: int, weights: Sequence[int], *_: object) -> Shares:
    return Shares([total, *[0] * (len(weights) - 1)], 1)


def raised_floors(goal: Goal, last: Mapping[str, int]) -> list[int]:
    assert last
    return list(goal.floors)


def one_more(last: Mapping[str, int] | None, result: Mapping[str, int]) -> int:
    return len(last or {}) + len(result)


def backwards_scores(_: Goal, free: Sequence[int], debt: Debt, change: int) -> list[int]:
    return [-debt.amounts.get(NAMES[position], 0) * change for position in free]


def unbound(names: list[str], _: Terms) -> tuple[list[int], list[int | None]]:
    return [0] * len(names), [None] * len(names)


def two_of_one(_: Iterator[int], chances: Sequence[int], __: int) -> list[int]:
    return [0] * (2 if len(chances) > 1 else 1)


def never(_: Goal, __: Mapping[str, int]) -> bool:
    return False


def always(_: Goal, __: Mapping[str, int]) -> bool:
    return True


def first_ones(*arguments: object) -> list[int]:
    return list(range(int(str(arguments[-1]))))


def untilted(fractions: Sequence[int], unit: int, *_: object) -> tuple[list[int], int]:
    return list(fractions), unit


def without_note(replicas: int, weights: dict[str, int], terms: Terms) -> Goal:
    return msgspec.structs.replace(SET_GOAL(replicas, weights, terms), note="")


SET_GOAL = division_goal.set_goal

# The law, the request that shows it, where the planner is broken, by what, and the sentence that must be heard.
MUTATIONS: list[tuple[str, Ask, object, str, object, str]] = [
    ("sum placed", FRESH, divide_module, "_draw", no_draw, "replicas are placed, not 7"),
    ("bounded fair share", BOUND, division_goal, "fair_shares", plain_shares, "not the fair shares"),
    ("fair share", FRESH, division_goal, "fair_shares", uneven_shares, "not the fair shares"),
    ("bounds", BOUND, division_goal, "_bounds", unbound, "outside its bounds"),
    ("floor or ceiling", FRESH, divide_module, "systematic", two_of_one, "neither floor nor ceiling"),
    ("a whole quota is met", WHOLE, divide_module, "fits", always, "a whole quota is met exactly, but 3 is not 4"),
    ("weight 0 is its minimum", ZERO, division_goal, "_bounds", unbound, "weight 0 means exactly the minimum 1"),
    ("kept only when it fits", SHRUNK, divide_module, "fits", always, "kept, but the last result does not fit"),
    ("kept when it fits", KEPT, divide_module, "fits", never, "kept must say"),
    ("kept unchanged", WIDE, divide_module, "_clamped", raised_floors, "the last result still fits, but was not kept"),
    ("fewest changes", WIDE, divide_module, "_clamped", raised_floors, "would do"),
    ("moved", SCALED, divide_module, "count_moved", one_more, "moved says"),
    ("unplaced", SHORT, division_goal, "_bounds", unbound, "unplaced says 0, but 4 do not fit"),
    ("duplicates are capped", COPIES, division_goal, "_bounds", unbound, "a duplicate's quota is all 5 within"),
    ("most owed wins", OWED, divide_module, "_scores", backwards_scores, "comes before a winner"),
    ("capacities tilt", TILTED, divide_module, "tilted", untilted, "not tilted by the capacities"),
    ("unmet minimums are said", POOR, divide_module, "set_goal", without_note, "the reason does not say so"),
    ("unplaced is said", SHORT, divide_module, "set_goal", without_note, "the reason does not say so"),
]


@pytest.mark.parametrize("ask", ALL)
def test_the_examples_for_the_mutations_are_sound(ask: Ask) -> None:
    assert broken(ask, answer(ask)) == []


@pytest.mark.parametrize(
    ("ask", "module", "piece", "mutant", "sentence"),
    [mutation[1:] for mutation in MUTATIONS],
    ids=[mutation[0] for mutation in MUTATIONS],
)
def test_a_broken_planner_is_caught(
    monkeypatch: pytest.MonkeyPatch, ask: Ask, module: object, piece: str, mutant: object, sentence: str
) -> None:
    monkeypatch.setattr(module, piece, mutant)
    spoken = broken(ask, answer(ask))
    assert any(sentence in said for said in spoken), spoken


Tamper = Callable[[Division], Division]


def with_record(**changes: object) -> Tamper:
    return lambda division: msgspec.structs.replace(
        division, record=msgspec.structs.replace(division.record, **changes)
    )


def with_draw(**changes: object) -> Tamper:
    def tamper(division: Division) -> Division:
        draws = [msgspec.structs.replace(drawn, **changes) for drawn in division.record.draws]
        return with_record(draws=draws)(division)

    return tamper


def with_field(**changes: object) -> Tamper:
    return lambda division: msgspec.structs.replace(division, **changes)


TAMPERED: list[tuple[Ask, Tamper, str]] = [
    (FRESH, with_record(replicas=8), "the record's replicas is 8, not 7"),
    (FRESH, with_record(weights={"a": 1}), "the record's weights"),
    (FRESH, with_record(strategy="Duplicated"), "the record's strategy"),
    (FRESH, with_record(result={"a": 7, "b": 0, "c": 0}), "the record's result"),
    (FRESH, with_record(quotas={}), "the record's quotas"),
    (FRESH, with_record(seed="y"), "the record's seed is 'y', not 'x'"),
    (FRESH, with_record(kept=True), "the record's kept"),
    (FRESH, with_record(reason="luck"), "the record's reason"),
    (BOUND, with_record(minimum={}), "the record's minimum"),
    (BOUND, with_record(maximum={}), "the record's maximum"),
    (TILTED, with_record(capacity={}), "the record's capacity"),
    (SCALED, with_record(last=None), "the record's last"),
    (TILTED, with_record(mix="0"), "the record's mix"),
    (FRESH, with_record(draw="weighted"), "the record's draw"),
    (OWED, with_record(debt={"a": "3", "b": "0"}), "the record says that 3 is owed, not 1"),
    (FRESH, with_record(draws=[]), "the record holds 0 draws"),
    (KEPT, with_record(draws=[Draw(1, "exact", {}, [])]), "the record holds 1 draws"),
    (FRESH, with_draw(winners=["a", "c"]), "do not explain the result"),
    (FRESH, with_draw(change=-1), "clusters changed by -1"),
    (FRESH, with_draw(odds={"a": "1"}), "the draw was among a, not among"),
    (FRESH, with_draw(odds={"a": "1/4", "b": "1/4", "c": "3/2"}), "the chances of the draw are not the fractions"),
    (FRESH, with_draw(rule="weighted"), "the draw went by weighted, not by exact"),
    (SCALED, with_draw(odds={"a": "1/4", "b": "1/3", "c": "1/2"}), "the odds of the draw are not the fractions"),
    (
        msgspec.structs.replace(FRESH, draw="weighted"),
        with_draw(odds={"a": "1", "b": "1", "c": "1"}),
        "the odds of the draw are not the weights",
    ),
    (OWED, with_draw(odds={"a": "2", "b": "0", "c": "0"}), "not what the record says is owed"),
    (FRESH, with_field(moved=3), "moved says 3, but 0 replicas moved"),
    (FRESH, with_field(unplaced=3), "unplaced says 3, but 0 do not fit"),
    (FRESH, with_field(quota={"a": Fraction(7)}), "the division names others"),
    (KEPT, lambda division: with_step(division, Step("c", "c", "")), "moves nothing"),
    (KEPT, lambda division: with_step(division, Step("a", "b", "")), "3 is neither floor nor ceiling of its quota 7/4"),
]


@pytest.mark.parametrize(("ask", "tamper", "sentence"), TAMPERED)
def test_a_division_that_was_changed_by_hand_is_caught(ask: Ask, tamper: Tamper, sentence: str) -> None:
    spoken = broken(ask, tamper(answer(ask)))
    assert any(sentence in said for said in spoken), spoken


# The laws that no single division shows: order, the set of repairs, and the fleet.


def test_clusters_taken_as_they_come_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = msgspec.structs.replace(FRESH, weights=dict.fromkeys(NAMES, 1))
    assert order_is_free(ask)
    monkeypatch.setattr(division_goal, "sorted", list, raising=False)
    assert not order_is_free(ask)


def test_weights_that_are_not_reduced_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # The odds of a weighted draw are the reduced weights; 2:2 must not show.
    one, two = Ask(replicas=3, weights={"a": 1, "b": 1}, draw="weighted"), {"a": 2, "b": 2}
    assert answer(msgspec.structs.replace(one, weights=two)).record.draws == answer(one).record.draws
    monkeypatch.setattr(division_goal, "_reduced", list)
    assert answer(msgspec.structs.replace(one, weights=two)).record.draws != answer(one).record.draws


def test_ties_that_go_by_name_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def winners() -> set[str]:
        ties = [divide_module.divide(3, {"a": 1, "b": 1}, debt={}, seed=str(seed)) for seed in range(30)]
        return {division.record.draws[0].winners[0] for division in ties}

    assert winners() == {"a", "b"}
    monkeypatch.setattr(draw, "shuffled", lambda _, size: list(range(size)))
    assert winners() == {"a"}


def test_a_repair_that_always_favours_the_first_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, last = {"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 2, "c": 2}
    assert reach_exactly_the_nearest(7, weights, last)
    monkeypatch.setattr(divide_module, "weighted", first_ones)
    assert not reach_exactly_the_nearest(7, weights, last)


PAIR = {"a": 1, "b": 1}
LEANING = FleetAsk(
    workloads=dict.fromkeys(["w0", "w1", "w2", "w3", "w4", "w5"], 3),
    weights=dict.fromkeys(["w0", "w1", "w2", "w3", "w4", "w5"], PAIR),
    last={name: {"a": 2, "b": 1} for name in ("w2", "w3", "w4", "w5")},
    moves_max=1,
    fair="fleet",
    seed="",
)


def idle(*_: object) -> list[fleet.FleetStep]:
    return []


def any_gain(debts: Mapping[str, int], unit: int, source: str, target: str) -> int:
    return unit if debts and source < target else 0


def constant_unit(denominators: object) -> int:
    return 1 if denominators else 2


FLEET_MUTATIONS: list[tuple[str, str, object, str]] = [
    ("the debts are exact", "_common_unit", constant_unit, "at this turn"),
    ("a repair stops only when no step helps", "_find_steps", idle, "would help, but the repair stopped"),
    ("what fits comes first", "fits", never, "at this turn"),
]


def test_the_fleet_for_the_mutations_is_sound() -> None:
    assert fleet_broken(LEANING, answers(LEANING)) == []
    assert sum(division.record.step is not None for division in answers(LEANING).values()) == 1


@pytest.mark.parametrize(
    ("piece", "mutant", "sentence"),
    [mutation[1:] for mutation in FLEET_MUTATIONS],
    ids=[mutation[0] for mutation in FLEET_MUTATIONS],
)
def test_a_broken_fleet_is_caught(monkeypatch: pytest.MonkeyPatch, piece: str, mutant: object, sentence: str) -> None:
    monkeypatch.setattr(fleet, piece, mutant)
    spoken = fleet_broken(LEANING, answers(LEANING))
    assert any(sentence in said for said in spoken), spoken


def test_a_repair_that_does_not_help_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    even = msgspec.structs.replace(LEANING, last={}, moves_max=6)
    assert fleet_broken(even, answers(even)) == []
    monkeypatch.setattr(fleet, "_gain", any_gain)
    assert any("does not bring the totals nearer" in said for said in fleet_broken(even, answers(even)))


def test_more_steps_than_allowed_and_foreign_debts_are_caught() -> None:
    divisions = answers(LEANING)
    strict = msgspec.structs.replace(LEANING, moves_max=0)
    assert "the repair makes 1 steps, but 0 were allowed" in fleet_broken(strict, divisions)
    single = msgspec.structs.replace(LEANING, fair="single")
    assert any("but a debt decided" in said for said in fleet_broken(single, divisions))
    alone = answers(msgspec.structs.replace(LEANING, fair="single"))
    assert any("did not look at the debts" in said for said in fleet_broken(LEANING, alone))
    seeded = msgspec.structs.replace(LEANING, seed="x")
    assert any("w0: the record's seed is 'w0', not 'x/w0'" in said for said in fleet_broken(seeded, divisions))
    del divisions["w0"]
    assert fleet_broken(LEANING, divisions) == ["the divisions are not those of the workloads, in bytewise order"]
