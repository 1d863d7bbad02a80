"""Bad input to the planners of items: InvalidSpec with the place of the fault, never a wrong answer or other error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from fractions import Fraction

import numpy as np
import pytest

from poise.decide.balance import rebalance
from poise.decide.rendezvous import place, place_one_by_one, plan_hashed
from poise.decide.ring import Ring, plan_ring
from poise.errors import Fault, InvalidSpec, PoiseError, invalid
from poise.inputs import is_utf8, sorted_names, text_names, unique_names, whole

NAN, INFINITY = float("nan"), float("inf")
Planner = Callable[..., object]


def told(planner: Planner, *facts: object, **how: object) -> str:
    """Give what the error says; there must be one, and it must be InvalidSpec itself."""
    with pytest.raises(InvalidSpec) as caught:
        planner(*facts, **how)
    assert type(caught.value) is InvalidSpec
    return str(caught.value)


BAD_NAMES = [
    pytest.param(["a", "b", "a"], "[2]: duplicate of [0]", id="duplicate"),
    pytest.param(["a", ""], "[1]: a name may not be empty", id="empty"),
    pytest.param(["a", 5], "[1]: expected a name, got int", id="number"),
    pytest.param([None], "[0]: expected a name, got NoneType", id="None"),
    pytest.param([b"a"], "[0]: expected a name, got bytes", id="bytes"),
    pytest.param([["a"]], "[0]: expected a name, got list", id="list, which has no hash"),
    pytest.param(["a", "b\ud800"], "[1]: a name must be text that UTF-8 can hold", id="half a surrogate pair"),
    pytest.param(["\ud83d", "\ude00"], "[0]: a name must be text that UTF-8 can hold", id="two halves, apart"),
    pytest.param(["é", "é"], "[1]: duplicate of [0]", id="duplicate that is not ASCII"),
    pytest.param(["é", 5], "[1]: expected a name, got int", id="number behind a name that is not ASCII"),
    pytest.param(["é", None], "[1]: expected a name, got NoneType", id="None behind a name that is not ASCII"),
    pytest.param(["é", ["a"]], "[1]: expected a name, got list", id="list behind a name that is not ASCII"),
    pytest.param(["", ""], "[0]: a name may not be empty", id="the first fault is named"),
    pytest.param("abc", ": expected a list of names, got 'abc'", id="text instead of a list"),
    pytest.param(5, ": expected a list of names, got 5", id="number instead of a list"),
    pytest.param(None, ": expected a list of names, got None", id="None instead of a list"),
]
OF_ITEMS: list[tuple[str, Callable[[object], object]]] = [
    ("place", lambda names: told(place, names, ["m"])),
    ("place_one_by_one", lambda names: told(place_one_by_one, names, ["m"])),
    ("rebalance", lambda names: told(rebalance, names, ["m"], {})),
    ("plan_hashed", lambda names: told(plan_hashed, names, ["m"], {})),
    ("plan_ring", lambda names: told(plan_ring, names, ["m"], {})),
]
OF_MEMBERS: list[tuple[str, Callable[[object], object]]] = [
    ("place", lambda names: told(place, ["x"], names)),
    ("rebalance", lambda names: told(rebalance, ["x"], names, {})),
    ("plan_hashed", lambda names: told(plan_hashed, ["x"], names, {})),
    ("plan_ring", lambda names: told(plan_ring, ["x"], names, {})),
    ("Ring", lambda names: told(Ring, names)),
]
OF_DRAINING: list[tuple[str, Callable[[object], object]]] = [
    ("rebalance", lambda names: told(rebalance, ["x"], ["m"], {}, draining=names)),
    ("plan_hashed", lambda names: told(plan_hashed, ["x"], ["m"], {}, draining=names)),
    ("plan_ring", lambda names: told(plan_ring, ["x"], ["m"], {}, draining=names)),
]


@pytest.mark.parametrize(("names", "message"), BAD_NAMES)
@pytest.mark.parametrize("ask", [pytest.param(ask, id=planner) for planner, ask in OF_ITEMS])
def test_bad_items(ask: Callable[[object], str], names: object, message: str) -> None:
    assert ask(names) == f"$.items{message}"


@pytest.mark.parametrize(("names", "message"), BAD_NAMES)
@pytest.mark.parametrize("ask", [pytest.param(ask, id=planner) for planner, ask in OF_MEMBERS])
def test_bad_members(ask: Callable[[object], str], names: object, message: str) -> None:
    assert ask(names) == f"$.members{message}"


@pytest.mark.parametrize(("names", "message"), BAD_NAMES)
@pytest.mark.parametrize("ask", [pytest.param(ask, id=planner) for planner, ask in OF_DRAINING])
def test_bad_draining(ask: Callable[[object], str], names: object, message: str) -> None:
    assert ask(names) == f"$.draining{message}"


BAD_NUMBERS = [
    pytest.param(-1, "expected >= 0, got -1", id="negative"),
    pytest.param(1.0, "expected a whole number, got 1.0", id="float"),
    pytest.param(1e308, "expected a whole number, got 1e+308", id="huge float"),
    pytest.param(NAN, "expected a whole number, got nan", id="NaN"),
    pytest.param(INFINITY, "expected a whole number, got inf", id="infinity"),
    pytest.param(True, "expected a whole number, got True", id="bool"),
    pytest.param("3", "expected a whole number, got '3'", id="text"),
    pytest.param(Fraction(3), "expected a whole number, got Fraction", id="fraction"),
    pytest.param(np.int64(3), "expected a whole number, got int64", id="a number of numpy"),
    pytest.param([1], "expected a whole number, got list", id="list"),
]


@pytest.mark.parametrize(("number", "message"), BAD_NUMBERS)
@pytest.mark.parametrize(
    "planner",
    [
        pytest.param(lambda **how: place(["x"], ["m"], **how), id="place"),
        pytest.param(lambda **how: place([], [], **how), id="place, nothing on nobody"),
        pytest.param(lambda **how: place_one_by_one(["x"], ["m"], **how), id="place_one_by_one"),
        pytest.param(lambda **how: rebalance(["x"], ["m"], {}, **how), id="rebalance"),
        pytest.param(lambda **how: rebalance([], [], {}, **how), id="rebalance, nothing on nobody"),
        pytest.param(lambda **how: plan_hashed(["x"], ["m"], {}, **how), id="plan_hashed"),
    ],
)
def test_bad_capacities(planner: Planner, number: object, message: str) -> None:
    assert told(planner, capacity=number) == f"$.capacity: {message}"
    assert told(planner, capacity={"m": number}) == f"$.capacity['m']: {message}"
    assert told(planner, capacity={"stranger": number}) == f"$.capacity['stranger']: {message}"


@pytest.mark.parametrize(("number", "message"), BAD_NUMBERS)
def test_bad_weights(number: object, message: str) -> None:
    assert told(rebalance, ["x"], ["m"], {}, weights={"m": number}) == f"$.weights['m']: {message}"
    assert told(rebalance, [], [], {}, weights={"é": number}) == f"$.weights['é']: {message}"


@pytest.mark.parametrize(("number", "message"), BAD_NUMBERS)
def test_bad_tokens(number: object, message: str) -> None:
    assert told(Ring, ["m"], number) == told(Ring, [], number) == f"$.tokens: {message}"
    assert told(Ring, {"m": number}) == f"$.members['m']: {message}"
    assert told(plan_ring, ["x"], ["m"], {}, tokens=number) == f"$.tokens: {message}"


@pytest.mark.parametrize("debt", [NAN, INFINITY, -INFINITY, True, "1", None, [1], 1j])
def test_bad_debt(debt: object) -> None:
    assert told(rebalance, ["x"], ["m"], {}, debt={"m": debt}) == f"$.debt['m']: expected a number, got {debt!r}"


@pytest.mark.parametrize(
    "debt",
    [
        pytest.param(10**400, id="huge"),
        pytest.param(-(10**400), id="huge and negative"),
        pytest.param(Fraction(10**400, 3), id="huge fraction"),
        pytest.param(Fraction(1, 10**400), id="tiny fraction"),
        pytest.param(1e308, id="huge float"),
    ],
)
def test_debt_of_any_size_is_a_number(debt: int | Fraction | float) -> None:
    """A whole number or a fraction has no upper end: it must not be pressed into a float on the way."""
    plan = rebalance(["x"], ["a", "b"], {}, debt={"a": debt, "b": -debt})
    assert plan.assignment == {"x": "a" if debt > 0 else "b"}


def test_a_number_too_long_to_print_is_still_refused_with_its_place() -> None:
    """Python itself refuses to write out more than 4,300 digits."""
    said = told(rebalance, ["x"], ["m"], {}, weights={"m": -(10**5_000)})
    assert said.startswith("$.weights['m']: expected >= 0, got ")


@pytest.mark.parametrize("argument", ["weights", "debt"])
@pytest.mark.parametrize("value", [[1], "m", 5, True])
def test_what_should_be_a_mapping(argument: str, value: object) -> None:
    assert told(rebalance, ["x"], ["m"], {}, **{argument: value}).startswith(f"$.{argument}: expected a mapping")


@pytest.mark.parametrize("planner", [rebalance, plan_hashed, plan_ring])
@pytest.mark.parametrize("current", [None, ["x"], "x", 5])
def test_current_must_be_a_mapping(planner: Planner, current: object) -> None:
    assert told(planner, ["x"], ["m"], current).startswith("$.current: expected a mapping")


@pytest.mark.parametrize("planner", [rebalance, plan_hashed, plan_ring])
@pytest.mark.parametrize("holder", [5, ["m"], b"m", "", "m\ud800"], ids=repr)
def test_a_holder_must_be_a_name(planner: Planner, holder: object) -> None:
    """Text that cannot be written, or no text at all, would end up as the source of a move."""
    assert told(planner, ["x", "y"], ["m"], {"x": "m", "y": holder}).startswith("$.current['y']: ")


@pytest.mark.parametrize("seed", [5, None, b"s", "\ud800"], ids=repr)
@pytest.mark.parametrize("members", [["a", "b"], ["a"], []])
def test_a_seed_must_be_text(seed: object, members: list[str]) -> None:
    """Also where nothing has to be settled by it: the same call must not fail on the day a tie turns up."""
    assert told(rebalance, ["x"], members, {}, seed=seed).startswith("$.seed: ")


@pytest.mark.parametrize("key", [5, None, "", "\ud800"])
def test_bad_keys(key: object) -> None:
    assert told(Ring(["a"]).owner, key).startswith("$.keys[0]: ")
    assert told(Ring([]).owners, ["k", key]).startswith("$.keys[1]: ")
    assert told(Ring(["a"]).owners, "abc") == "$.keys: expected a list of names, got 'abc'"


class Site(StrEnum):
    """A name that is text by inheritance."""

    PARIS = "paris"
    LYON = "lyon"


def test_names_may_be_a_kind_of_text() -> None:
    """StrEnum and numpy's text are text: they are placed like the plain words."""
    assert place(Site, ["a"]) == place(["paris", "lyon"], ["a"])
    assert rebalance(["x"], [Site.PARIS], {}) == rebalance(["x"], ["paris"], {})
    assert rebalance(list(np.array(["x", "y"])), ["a"], {}) == rebalance(["x", "y"], ["a"], {})
    assert Ring(Site).owners(["k"]) == Ring(["paris", "lyon"]).owners(["k"])


@pytest.mark.parametrize("name", ["a" * 10_000, "a\nb", " ", "\x00", "😀", "'", "{target}", "#"])
def test_odd_names_are_names(name: str) -> None:
    assert place([name], [name]) == {name: name}
    assert rebalance([name], [name], {name: "{x}"}).assignment == {name: name}
    assert plan_hashed([name], [name], {name: "{x}"}).assignment == {name: name}
    assert plan_ring([name], [name], {name: "{x}"}).assignment == {name: name}


@pytest.mark.parametrize("read", [text_names, unique_names, sorted_names])
def test_names_are_listed(read: Callable[[str, Iterable[str]], list[str]]) -> None:
    assert read("$.x", (name for name in ["a", "b"])) == ["a", "b"]
    assert read("$.x", {"a": 1}) == ["a"]
    assert read("$.x", []) == []
    assert told(read, "$.x", b"ab") == "$.x: expected a list of names, got b'ab'"


def test_only_text_names_may_repeat() -> None:
    assert text_names("$.x", ["b", "a", "b"]) == ["b", "a", "b"]
    assert unique_names("$.x", ["b", "a"]) == ["b", "a"]
    assert sorted_names("$.x", ["b", "é", "B", "a"]) == ["B", "a", "b", "é"]


def test_is_utf8() -> None:
    assert is_utf8("")
    assert is_utf8("é😀")
    assert not is_utf8("\ud800")


@pytest.mark.parametrize("value", [0, 1, 10**30])
def test_whole_numbers_come_back(value: int) -> None:
    assert whole("$.x", value) == value


def test_whole_has_a_least() -> None:
    assert whole("$.x", 1, least=1) == 1
    assert told(whole, "$.x", 0, least=1) == "$.x: expected >= 1, got 0"


def test_a_long_value_is_cut_short_in_the_message() -> None:
    assert len(told(whole, "$.x", "9" * 10_000)) < 100
    assert len(told(whole, "$.x", -(10**4_000))) < 100
    assert len(told(place, "x" * 10_000, ["m"])) < 100


def test_an_error_carries_all_its_faults() -> None:
    first = Fault("$.spec.capacity", "expected >= 1, got 0", "routers.yaml, document 2")
    error = InvalidSpec(first, Fault("$.kind", "unknown"))
    assert str(error) == "routers.yaml, document 2: $.spec.capacity: expected >= 1, got 0\n$.kind: unknown"
    assert error.faults[0] is first
    assert isinstance(error, PoiseError)
    assert isinstance(error, ValueError)
    assert invalid("$.a", "wrong").faults == (Fault("$.a", "wrong"),)
