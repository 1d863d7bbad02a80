"""`poise explain`, and the claims it makes: each "would move" is tried by planning again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poise.cli.main import run
from poise.decide.balance import rebalance
from poise.decide.explain import Explanation, explain
from poise.decide.rendezvous import fill
from poise.decide.ring import Ring, plan_ring
from poise.decide.scores import hashes
from poise.errors import InvalidSpec

EXAMPLES = Path(__file__).parents[2] / "examples"
Printed = pytest.CaptureFixture[str]


def told(capsys: Printed, *arguments: str) -> str:
    assert run(["explain", *arguments]) == 0
    return capsys.readouterr().out


def test_a_target_that_moves_says_why_and_what_would_have_kept_it(capsys: Printed) -> None:
    text = told(capsys, str(EXAMPLES / "routers.yaml"), "router4")
    assert text.startswith("TargetPool core-routers   router4   gnmic-2 -> gnmic-3\n")
    assert "because   gnmic-2 over its share (4 of 3)" in text
    assert "\n  it would stay if gnmic-2 had one item fewer\n" in text


def test_a_target_that_stays_says_who_would_leave_first(capsys: Printed) -> None:
    text = told(capsys, str(EXAMPLES / "routers.yaml"), "router2")
    assert "it is on gnmic-2 already" in text
    assert "it would move if gnmic-2 were drained or gone" in text


def test_a_key_of_a_ring_names_the_next_token_and_the_heir(capsys: Printed) -> None:
    text = told(capsys, str(EXAMPLES / "web.yaml"), "apps/Deployment/shop/cart")
    assert "the next token clockwise is" in text
    assert "if web-1 left" in text


def test_a_workload_says_quota_chance_and_who_got_the_extra(capsys: Printed) -> None:
    text = told(capsys, str(EXAMPLES / "shop.yaml"), "search")
    assert "3/2" in text


def test_a_split_says_which_term_bound_and_why_it_waits(capsys: Printed) -> None:
    text = told(capsys, str(EXAMPLES / "spot.yaml"), "api", "--at", "2026-11-15T12:00:00Z")
    assert "the percentage decided: ceil(10·70/100) = 7" in text
    assert "migrate-to-spot" in text
    assert "waits until 2026-11-16T02:00:00Z (window)" in text


def test_a_partition_says_what_it_waits_for(capsys: Printed) -> None:
    assert "n3 is gone" in told(capsys, str(EXAMPLES / "orders.yaml"), "12")


def test_json_has_the_ranked_alternatives(capsys: Printed) -> None:
    data = json.loads(told(capsys, str(EXAMPLES / "routers.yaml"), "router4", "-o", "json"))
    assert [row["rank"] for row in data["alternatives"]] == [1, 2, 3, 4]
    assert set(data["alternatives"][0]) == {"rank", "member", "score", "load", "share", "verdict"}


def test_a_what_if_can_be_explained(capsys: Printed) -> None:
    text = told(capsys, str(EXAMPLES / "routers.yaml"), "router1", "--drain", "gnmic-1")
    assert "because   gnmic-1 is draining" in text


@pytest.mark.parametrize(
    ("file", "item"), [("routers", "router99"), ("web", "nothing"), ("shop", "x"), ("spot", "x"), ("orders", "99")]
)
def test_an_unknown_item_is_one_line(file: str, item: str, capsys: Printed) -> None:
    assert run(["explain", str(EXAMPLES / f"{file}.yaml"), item]) == 64
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert item in printed.err


def test_a_library_call_with_an_unknown_item_is_invalid() -> None:
    plan = rebalance(["a"], ["m"], {})
    with pytest.raises(InvalidSpec, match="not among the 1 items"):
        explain(plan, "b", ["m"], {})


def member_and_count(sentence: str) -> tuple[str, int]:
    """Read `… if m2 had 3 items fewer (…)`."""
    words = sentence.partition(" if ")[2].split()
    return words[0], 1 if words[2] == "one" else int(words[2])


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 30), st.integers(2, 6), st.integers(0, 10**6))
def test_with_so_many_fewer_the_preferred_member_takes_it(count: int, size: int, salt: int) -> None:
    """What attracts an item is tried: with that much more room it goes to the named member."""
    items, members = sorted(f"i{salt}-{n}" for n in range(count)), [f"m{n}" for n in range(size)]
    plan = rebalance(items, members, {})
    room = [plan.loads[member] for member in members]
    for item in items:
        why: Explanation = explain(plan, item, members, {})
        attracting = [text for text in why.would_move if text.startswith("it would go to")]
        for sentence in attracting:
            member, more = member_and_count(sentence)
            wider = [free + more * (members[at] == member) for at, free in enumerate(room)]
            placed = fill(hashes(items), members, wider)
            assert members[placed[items.index(item)]] == member, sentence


@settings(max_examples=100, deadline=None)
@given(st.integers(4, 40), st.integers(2, 5), st.integers(0, 10**6))
def test_an_item_stays_if_its_member_has_so_many_fewer(count: int, size: int, salt: int) -> None:
    """What keeps an item is tried: without that many of those that stay, it is not given up."""
    items, members = [f"i{salt}-{n}" for n in range(count)], [f"m{n}" for n in range(size)]
    current = dict.fromkeys(items, "m0")
    plan = rebalance(items, members, current)
    for move in plan.moves:
        [sentence] = [text for text in explain(plan, move.item, members, current).would_move if "stay" in text]
        _, fewer = member_and_count(sentence)
        lower = sorted(scored(items, "m0"), reverse=True)
        quota = plan.loads["m0"]
        rank = [item for _, item in lower].index(move.item)
        assert rank - fewer < quota <= rank - fewer + 1, sentence


def scored(items: list[str], member: str) -> list[tuple[int, str]]:
    from poise.decide.scores import score

    return [(score(item, member), item) for item in items]


def test_the_heir_of_a_key_is_who_gets_it_when_the_owner_leaves() -> None:
    keys, members = [f"k{n}" for n in range(200)], ["a", "b", "c", "d"]
    plan = plan_ring(keys, members, {})
    for key in keys:
        heirs = Ring(members).successors(key)
        why = explain(plan, key, members, {}, policy="ring")
        assert [row.member for row in why.alternatives] == heirs
        assert Ring([member for member in members if member != heirs[0]]).owner(key) == heirs[1]
