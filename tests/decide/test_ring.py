"""The ring: who owns a key, what joins and leaves move, and the plan of it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.decide import ring as module
from poise.decide.plan import Certificate, Move
from poise.decide.plan_check import check
from poise.decide.ring import Ring, plan_ring
from poise.decide.scores import hashes

KEYS = [f"apps/Deployment/default/web{index}" for index in range(2_000)]
NAMES = st.lists(
    st.one_of(st.integers(0, 30).map(lambda index: f"web-{index}"), st.text("aBé#0", min_size=1, max_size=4)),
    unique=True,
    max_size=6,
)


def digest(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode())


def walk(key: str, tokens: Mapping[str, int]) -> str | None:
    """Find the owner as the rule reads: the next token clockwise, and of equal ones the smaller name's."""
    laid = sorted((digest(f"{member}#{index}"), member) for member, count in tokens.items() for index in range(count))
    at = bisect_left([token for token, _ in laid], digest(key))
    return laid[at % len(laid)][1] if laid else None


@given(tokens=st.dictionaries(st.sampled_from(["web-0", "web-1", "web-11", "é", "a#1"]), st.integers(0, 12)))
@settings(max_examples=examples(60), deadline=None)
def test_a_key_belongs_to_the_next_token_clockwise(tokens: dict[str, int]) -> None:
    ring = Ring(tokens)
    assert ring.owners(KEYS[:40]) == [walk(key, tokens) for key in KEYS[:40]]
    assert [ring.owner(key) for key in KEYS[:5]] == ring.owners(KEYS[:5])


def test_a_key_after_the_last_token_belongs_to_the_first() -> None:
    """With one token each there is such a key, and the circle closes."""
    ring, tokens = Ring(["a", "b"], tokens=1), sorted((digest(f"{name}#0"), name) for name in "ab")
    late = [key for key in KEYS if digest(key) > tokens[-1][0]]
    assert late
    assert set(ring.owners(late)) == {tokens[0][1]}


def test_a_key_on_a_token_belongs_to_it() -> None:
    ring = Ring(["a", "b", "c"])
    assert [ring.owner(f"{name}#{index}") for name in "abc" for index in (0, 57, 99)] == list("aaabbbccc")


def test_equal_tokens_go_to_the_smaller_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tokens are one: whoever has the smallest name owns all, whatever the order of the input."""
    monkeypatch.setattr(xxhash, "xxh3_64_intdigest", lambda _: 7)
    assert Ring(["é", "b", "B"]).owner("any") == Ring(["B", "é", "b"]).owner("any") == "B"
    assert Ring({"B": 0, "b": 1, "é": 9}).owner("any") == "b"
    monkeypatch.setattr(xxhash, "xxh3_64_intdigest", lambda text: len(text) % 4)
    tokens = {"x": 3, "yy": 12, "aaaaa": 2, "zzz": 5}
    assert Ring(tokens).owners(KEYS[:40]) == [walk(key, tokens) for key in KEYS[:40]]


def test_the_separator_keeps_foo_1_and_foo_11_apart() -> None:
    """Without it foo-1 + 10 and foo-11 + 0 are one text, and one of the two loses that token."""
    labels = [f"{name}#{index}" for name in ("foo-1", "foo-11") for index in range(100)]
    assert len(set(labels)) == 200
    assert len({label.replace("#", "") for label in labels}) < 200
    alone = Ring({"foo-11": 1, "foo-1": 11})
    assert alone.owner("foo-1#10") == "foo-1"
    assert alone.owner("foo-11#0") == "foo-11"


@pytest.mark.parametrize("members", [[], {}, {"a": 0, "b": 0}])
def test_an_empty_ring_owns_nothing(members: list[str] | dict[str, int]) -> None:
    assert Ring(members).owner("x") is None
    assert Ring(members).owners(["x", "y"]) == [None, None]
    assert Ring(["a"], tokens=0).owner("x") is None


def test_no_tokens_own_nothing_beside_others() -> None:
    assert set(Ring({"a": 0, "b": 1}).owners(KEYS[:50])) == {"b"}


@given(tokens=st.dictionaries(st.sampled_from(["web-0", "web-1", "web-11", "é"]), st.integers(0, 6)), key=st.text("ab"))
@settings(max_examples=examples(60), deadline=None)
def test_successors_take_over_one_after_the_other(tokens: dict[str, int], key: str) -> None:
    """The next in line is whoever owns the key once those before have left."""
    key, left, line = f"key{key}", dict(tokens), []
    while (owner := walk(key, left)) is not None:
        line.append(owner)
        del left[owner]
    assert Ring(tokens).successors(key) == line
    far = [Ring(tokens).distance(key, member) for member in line]
    assert far == sorted(far)
    assert far == [min((digest(f"{m}#{i}") - digest(key)) % 2**64 for i in range(tokens[m])) for m in line]


def test_keys_may_repeat_and_none_is_an_answer_too() -> None:
    """Many objects can share the key of their owner."""
    assert Ring(["a"]).owners(["k", "k"]) == ["a", "a"]
    assert Ring(["a"]).owners([]) == []


def test_the_default_is_100_tokens() -> None:
    assert Ring(["a", "b"]).tokens == {"a": 100, "b": 100}
    assert Ring(["a", "b"], 7).tokens == {"a": 7, "b": 7}
    assert Ring({"b": 3, "a": 5}, 7).tokens == {"a": 5, "b": 3}


@pytest.mark.parametrize(
    "tokens",
    [
        pytest.param({"a": 100, "b": 100, "c": 100, "d": 100}, id="equal"),
        pytest.param({"a": 400, "b": 200, "c": 100, "d": 100}, id="4 to 2 to 1 to 1"),
    ],
)
def test_keys_are_shared_in_proportion_to_tokens(tokens: dict[str, int]) -> None:
    """100 tokens leave a standard deviation of about a tenth of the share: three of them are allowed."""
    owned = Counter(Ring(tokens).owners(KEYS))
    for member, count in tokens.items():
        share = len(KEYS) * count / sum(tokens.values())
        assert owned[member] == pytest.approx(share, rel=0.3)


@given(members=NAMES, joins=st.text("xyz", min_size=1, max_size=3), count=st.integers(0, 40))
@settings(max_examples=examples(60), deadline=None)
def test_law_joins_only_take_and_leaves_only_give(members: list[str], joins: str, count: int) -> None:
    own = {member: 5 + 10 * place for place, member in enumerate(members)}
    without, within = Ring(own).owners(KEYS[:300]), Ring(own | {joins: count}).owners(KEYS[:300])
    assert all(after in (before, joins) for before, after in zip(without, within, strict=True))


def test_mutation_tokens_that_depend_on_the_others_break_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """With labels numbered through the whole ring a newcomer in the middle renames the tokens behind it."""
    monkeypatch.setattr(
        module, "hashes", lambda names: hashes([f"{i}" if "#" in n else n for i, n in enumerate(names)])
    )
    without, within = Ring(["a", "c"]).owners(KEYS), Ring(["a", "b", "c"]).owners(KEYS)
    assert any(after not in (before, "b") for before, after in zip(without, within, strict=True))


@given(members=NAMES)
@settings(max_examples=examples(40), deadline=None)
def test_law_the_order_of_members_is_nothing(members: list[str]) -> None:
    assert Ring(members, 9).owners(KEYS[:50]) == Ring(members[::-1], 9).owners(KEYS[:50])


@given(
    members=NAMES,
    draining=NAMES,
    tokens=st.integers(0, 8),
    holders=st.lists(st.sampled_from([None, "gone", "web-1", "web-2", "a"]), max_size=30),
)
@settings(max_examples=examples(80), deadline=None)
def test_laws_of_a_plan_of_the_ring(
    members: list[str], draining: list[str], tokens: int, holders: list[str | None]
) -> None:
    current = dict(zip(KEYS, holders, strict=False))
    plan = plan_ring(current, members, current, tokens=tokens, draining=draining)
    live = [member for member in members if member not in draining]
    assert plan.assignment == dict(zip(current, Ring(live, tokens).owners(current), strict=True))
    assert plan.certificate.moves == plan.certificate.moves_min
    assert check(plan, current, members, current, draining=draining, policy="ring", tokens=tokens) == []
    turned = plan_ring(list(current)[::-1], members[::-1], current, tokens=tokens, draining=draining[::-1])
    assert turned == plan
    again = plan_ring(current, members, plan.assignment, tokens=tokens, draining=draining)
    assert again.moves == []


def test_a_plan_of_the_ring_by_example() -> None:
    owner = dict(zip(KEYS, Ring(["a", "b"]).owners(KEYS), strict=True))
    mine = next(key for key in KEYS if owner[key] == "a")
    theirs = next(key for key in KEYS if owner[key] == "b")
    new, lost, leaves = KEYS[-3:]
    current: dict[str, str | None] = {mine: "a", theirs: "a", lost: "gone", leaves: "c", "stranger": "a"}
    plan = plan_ring([mine, theirs, new, lost, leaves], ["a", "b", "c"], current, draining=["c"])
    assert sorted(plan.moves, key=lambda move: move.item) == sorted(
        [
            Move(theirs, "a", "b", "the ring gives it to b"),
            Move(lost, "gone", owner[lost], "gone is gone"),
            Move(leaves, "c", owner[leaves], "c is draining"),
            Move(new, None, owner[new], "new item"),
        ],
        key=lambda move: move.item,
    )
    assert plan.certificate.moves == plan.certificate.moves_min == 3
    assert list(plan.loads) == ["a", "b"]


def test_a_plan_takes_each_members_own_tokens() -> None:
    own = {"a": 1, "b": 30}
    plan = plan_ring(KEYS, own, {})
    assert plan.assignment == dict(zip(KEYS, Ring(own).owners(KEYS), strict=True))
    assert check(plan, KEYS, own, {}, policy="ring", tokens=own) == []


def test_a_plan_of_an_empty_ring() -> None:
    plan = plan_ring(["x", "y"], [], {"x": "gone"})
    assert plan.assignment == {"x": None, "y": None}
    assert plan.unassigned == ["x", "y"]
    assert plan.moves == [Move("x", "gone", None, "gone is gone; no member has room")]
    assert plan.certificate == Certificate(moves=1, moves_min=1, spread=0)


def test_a_live_member_without_tokens_is_not_said_to_be_gone() -> None:
    (move,) = plan_ring(["x"], {"a": 0}, {"x": "a"}).moves
    assert (move.source, move.target) == ("a", None)
    assert "gone" not in move.reason
