"""`poise explain`, and the claims it makes: each "would move" is tried by planning again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poise.cli.main import run
from poise.decide.balance import rebalance
from poise.decide.divide import divide
from poise.decide.explain import Explanation, explain
from poise.decide.plan import Plan
from poise.decide.rendezvous import fill, place, plan_hashed
from poise.decide.ring import Ring, plan_ring
from poise.decide.scores import hashes, score
from poise.errors import InvalidSpec
from poise.jobs.clusters import explain_clusters
from poise.model import ReplicaDivision

EXAMPLES = Path(__file__).parents[2] / "examples"
Printed = pytest.CaptureFixture[str]


def told(capsys: Printed, *arguments: str) -> str:
    assert run(["explain", *arguments]) == 0
    return capsys.readouterr().out


def test_a_target_that_moves_says_why_and_what_would_have_kept_it(capsys: Printed) -> None:
    text = told(capsys, str(EXAMPLES / "routers.yaml"), "router4")
    assert text.startswith("TargetPool core-routers   router4   gnmic-2 -> gnmic-3\n")
    assert "because   gnmic-2 over its share (4 of 3)" in text
    assert "\n  it would stay if gnmic-2 could keep one more\n" in text


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
    assert set(data["alternatives"][0]) == {"rank", "member", "score", "load", "share", "verdict", "distance"}
    assert {row["distance"] for row in data["alternatives"]} == {""}
    assert data["wouldMove"][0] == "it would stay if gnmic-2 could keep one more"


def test_on_a_ring_the_column_is_a_distance_and_the_nearest_is_first(capsys: Printed) -> None:
    web = (str(EXAMPLES / "web.yaml"), "apps/Deployment/shop/cart")
    assert "rank   member   distance" in told(capsys, *web)
    rows = json.loads(told(capsys, *web, "-o", "json"))["alternatives"]
    assert {row["score"] for row in rows} == {""}
    distances = [int(row["distance"], 16) for row in rows]
    assert distances == sorted(distances)
    assert len(set(distances)) == len(rows) > 1


def test_without_its_clusters_a_workload_is_said_to_be_unplaced(capsys: Printed) -> None:
    gone = [word for name in ("east", "north", "west") for word in ("--remove", name)]
    text = told(capsys, str(EXAMPLES / "shop.yaml"), "cart", *gone)
    assert "east: it had 4, and it is no longer a cluster.\n" in text
    assert text.endswith("7 replicas are unplaced until there is a cluster.\n")


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
    """Read `… if m2 had room for 3 more (…)` or `… if m2 could keep one more`."""
    found = re.search(r" if (\S+) (?:had room for|could keep) (one|\d+) more", sentence)
    assert found, sentence
    return found[1], 1 if found[2] == "one" else int(found[2])


class Facts(msgspec.Struct, frozen=True):
    """A fleet in any state: some items are new, some on a member that is gone, some members take nothing."""

    items: list[str]
    members: list[str]
    current: dict[str, str | None]
    capacity: dict[str, int]


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    salt = draw(st.integers(0, 10**6))
    items = sorted(f"i{salt}-{number}" for number in range(draw(st.integers(1, 25))))
    members = [f"m{number}" for number in range(draw(st.integers(1, 5)))]
    holders = st.sampled_from([None, "gone", *members[: draw(st.integers(1, 5))]])
    current = {item: draw(holders) for item in items}
    return Facts(items, members, current, draw(st.dictionaries(st.sampled_from(members), st.integers(0, 6))))


def attracting(why: Explanation) -> list[str]:
    return [text for text in why.would_move if "had room for" in text]


@settings(max_examples=200, deadline=None)
@given(facts())
def test_with_room_for_so_many_more_the_preferred_member_takes_it(known: Facts) -> None:
    """What attracts an item is tried: its queue is placed again with that much more room."""
    items, members, current = known.items, known.members, known.current
    plan = rebalance(items, members, current, capacity=known.capacity)
    kept = {item for item in items if current[item] == plan.assignment[item] is not None}
    queue = sorted((item for item in items if item not in kept), key=lambda item: (current[item] is None, item))
    room = [plan.loads[member] - sum(current[item] == member for item in kept) for member in members]
    for item in queue:
        for sentence in attracting(explain(plan, item, members, current, capacity=known.capacity)):
            member, more = member_and_count(sentence)
            assert known.capacity.get(member) != 0, sentence
            wider = [free + more * (members[at] == member) for at, free in enumerate(room)]
            assert members[fill(hashes(queue), members, wider)[queue.index(item)]] == member, sentence


@settings(max_examples=150, deadline=None)
@given(facts())
def test_with_a_larger_capacity_the_hashed_member_takes_it(known: Facts) -> None:
    """By hash alone room is the capacity: with that much more of it the item goes to the named member, or stays."""
    items, members = known.items, known.members
    plan = plan_hashed(items, members, known.current, capacity=known.capacity)
    for item in items:
        why = explain(plan, item, members, known.current, capacity=known.capacity, policy="hashed")
        assert not any("could keep" in text or "lets it go" in text for text in why.would_move + why.because)
        for sentence in attracting(why):
            member, more = member_and_count(sentence)
            even = -(-len(items) // len(members))
            wider = {name: known.capacity.get(name, even) + more * (name == member) for name in members}
            assert place(items, members, capacity=wider)[item] == member, sentence
            assert sentence.startswith("it would stay") == (known.current[item] == member)


@settings(max_examples=150, deadline=None)
@given(facts())
def test_an_item_stays_if_its_member_can_keep_so_many_more(known: Facts) -> None:
    """A member keeps its best items up to its quota: the sentence gives the exact distance of the item's rank."""
    plan = rebalance(known.items, known.members, known.current, capacity=known.capacity)
    for move in plan.moves:
        why = explain(plan, move.item, known.members, known.current, capacity=known.capacity)
        sentences = [text for text in why.would_move if "could keep" in text]
        assert len(sentences) == (move.source in known.members)
        for sentence in sentences:
            member, more = member_and_count(sentence)
            held = [item for item in known.items if known.current[item] == member]
            best = sorted(held, key=lambda item: -score(item, member))
            kept = sum(plan.assignment[item] == member for item in held)
            assert (member, best.index(move.item)) == (move.source, kept + more - 1), sentence


def test_a_full_member_that_is_preferred_is_named_with_the_room_it_lacks() -> None:
    items, members, capacity = [f"i{number}" for number in range(12)], ["a", "b", "c"], {"a": 1}
    plan = rebalance(items, members, {}, capacity=capacity)
    told = [text for item in items for text in attracting(explain(plan, item, members, {}, capacity=capacity))]
    assert any(sentence.endswith("had room for one more") for sentence in told)
    assert any("had room for 2 more (1 that comes before it wants" in sentence for sentence in told)


def test_a_member_that_takes_nothing_attracts_nobody() -> None:
    items, members = [f"i{number}" for number in range(12)], ["a", "b"]
    plan = rebalance(items, members, {}, capacity={"a": 0})
    for item in items:
        why = explain(plan, item, members, {}, capacity={"a": 0})
        assert why.would_move == ["it would move if b were drained or gone"]
        assert why.because[-1] in ("b has the highest score for it, and room", "b is the best of those with room")


def test_one_leaves_and_two_leave() -> None:
    items = [f"i{number}" for number in range(4)]
    for current, sentence in (
        (dict(zip(items, ["p0", "p0", "p0", "p1"], strict=True)), "1 leaves p0: its score there is lower"),
        (dict.fromkeys(items, "p0"), "2 leave p0: their score there is lower"),
    ):
        plan = rebalance(items, ["p0", "p1"], current)
        stayer = next(item for item in items if current[item] == plan.assignment[item] == "p0")
        assert explain(plan, stayer, ["p0", "p1"], current).because[1] == sentence


@pytest.mark.parametrize(
    ("policy", "plan"),
    [
        ("sticky", rebalance(["a"], [], {"a": "old"})),
        ("hashed", plan_hashed(["a"], [], {"a": "old"})),
        ("ring", plan_ring(["a"], [], {"a": "old"})),
    ],
)
def test_without_any_member_nobody_is_said_to_lack_room(policy: str, plan: Plan) -> None:
    why = explain(plan, "a", [], {"a": "old"}, policy=policy)
    nobody = "the ring has no member with a token" if policy == "ring" else "there is no member to take it"
    assert why.because == ["old is gone", nobody]


def test_a_full_fleet_says_why_the_item_left_and_that_nobody_has_room() -> None:
    plan = rebalance(["a", "b"], ["m"], {"a": "m", "b": "m"}, capacity=1)
    [lost] = plan.unassigned
    why = explain(plan, lost, ["m"], {"a": "m", "b": "m"}, capacity=1)
    assert why.because == ["m over its share (2 of 1)", "no member has room for it"]
    assert why.would_move == [
        "it would stay if m could keep one more",
        "it would be placed if a member joined that has room at its turn",
    ]


def recorded(**changes: object) -> ReplicaDivision:
    """Give a document whose one workload is kept, with the record of the draw that decided it."""
    record = msgspec.structs.replace(divide(7, {"a": 1, "b": 1}, seed="cart").record, **changes)
    document = {
        "metadata": {"name": "shop"},
        "spec": {"clusters": [{"name": "a"}, {"name": "b"}], "workloads": [{"name": "cart", "replicas": 7}]},
        "status": {"divisions": {"cart": msgspec.to_builtins(record)}},
    }
    return msgspec.convert(document, ReplicaDivision)


def test_a_kept_workload_tells_from_its_record_who_had_won() -> None:
    told = explain_clusters(recorded(), "cart").because
    at = told.index(
        "When it was last decided: 7 replicas over 2 clusters by StaticWeight; "
        "there is no last result: 1 of 2 clusters get one more, drawn with exact chances."
    )
    assert [line[:7] for line in told[at + 1 :]] == ["Then a:", "Then b:"]
    winner = divide(7, {"a": 1, "b": 1}, seed="cart").record.draws[0].winners[0]
    [won] = [line for line in told if "it got one more, which had a chance of 1/2" in line]
    assert won.startswith(f"Then {winner}:")


def test_a_record_that_does_not_replay_is_not_told() -> None:
    drawn = divide(7, {"a": 1, "b": 1}, seed="cart").record
    turned = explain_clusters(recorded(result={"a": drawn.result["b"], "b": drawn.result["a"]}), "cart").because
    forged = explain_clusters(recorded(quotas={"a": "9", "b": "1"}), "cart").because
    short = explain_clusters(recorded(draws=[]), "cart").because
    for lines in (turned, forged, short):
        assert not any(line.startswith("When it was last decided") for line in lines)
    refused = "The record of the last decision is not told: a replay does not give the same."
    assert (turned[-1], forged[-1]) == (refused, refused)
    assert forged[:-1] == short


def test_a_repair_that_may_come_is_told() -> None:
    document = recorded()
    spec = msgspec.structs.replace(document.spec, moves_max=2)
    told = explain_clusters(msgspec.structs.replace(document, spec=spec), "cart").because
    assert "A repair of the totals may move one replica of it even so: movesMax is 2." in told


def test_the_heir_of_a_key_is_who_gets_it_when_the_owner_leaves() -> None:
    keys, members = [f"k{n}" for n in range(200)], ["a", "b", "c", "d"]
    plan = plan_ring(keys, members, {})
    for key in keys:
        heirs = Ring(members).successors(key)
        why = explain(plan, key, members, {}, policy="ring")
        assert [row.member for row in why.alternatives] == heirs
        assert Ring([member for member in members if member != heirs[0]]).owner(key) == heirs[1]
