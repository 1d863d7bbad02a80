"""`poise explain`: what it prints of each kind."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from poise.cli.main import run
from poise.decide.divide import divide
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
