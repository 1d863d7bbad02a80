"""What a run found, in words."""

from __future__ import annotations

import msgspec
import pytest

from poise.sim.findings import columns, finding, notes, number
from poise.sim.summary import PolicySummary, Summary

PLAIN = PolicySummary(
    moves=10,
    moves_min=10,
    innocent_moves=0,
    innocent_after={},
    worst_spread=1,
    end_spread=1,
    worst_error="1/2",
    end_error="1/4",
    worst_unassigned=0,
    end_loads={},
)


def one(**fields: object) -> PolicySummary:
    return msgspec.structs.replace(PLAIN, **fields)


def found(kind: str = "TargetPool", **policies: PolicySummary) -> Summary:
    named = {name.replace("_", "-"): each for name, each in policies.items()}
    return Summary(kind, "x", 200, 7, {}, named, 0 if kind == "ReplicaDivision" else msgspec.UNSET)


EVEN = "exactly the fewest that keep loads even"
FOUND = [
    (
        found(sticky=one(moves=1204, moves_min=1204)),
        [f"Over 200 events, sticky moved 1,204 items, {EVEN}; loads never differed by more than 1."],
    ),
    (
        found(sticky=one(worst_spread=9), ring=one(moves=9, worst_spread=12), modulo=one(moves=266, worst_spread=8)),
        [
            f"Over 200 events, sticky moved 10 items, {EVEN}; no load was further than 0.50 from its exact share.",
            "Ring moved 0.9 times as many and let loads differ by up to 12;",
            "modulo moved 27 times as many and let loads differ by up to 8.",
        ],
    ),
    (
        found(hashed=one(moves=100, moves_min=0), modulo=one(moves=103), ring=one(moves=100), sticky=one(moves=0)),
        [
            "Over 200 events, hashed moved 100 items (0 would keep loads even); loads never differed by more than 1.",
            "Modulo moved about as many and let loads differ by up to 1;",
            "ring moved as many and let loads differ by up to 1; sticky moved 0 and let loads differ by up to 1.",
        ],
    ),
    (
        found("ReplicaDivision", fleet=one(), name_order=one(moves=31, end_error="111/2")),
        [
            "Over 200 events, fleet ends with every cluster's total within 0.25 of its exact share (name order 55.50).",
            "Fleet moved 10 replicas, the fewest possible; name order 31.",
        ],
    ),
    (
        found("ReplicaDivision", exact=one(moves=12)),
        [
            "Over 200 events, exact ends with every cluster's total within 0.25 of its exact share.",
            "Exact moved 12 replicas.",
        ],
    ),
    (found(), []),
]


@pytest.mark.parametrize(("summary", "said"), FOUND)
def test_the_finding_is_a_sentence_or_two(summary: Summary, said: list[str]) -> None:
    assert finding(summary) == " ".join(said)


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        (found(), []),
        (found(sticky=one()), []),
        (found(sticky=one(), ring=one(moves=3)), ["ring moved less than even loads take, and did not become even"]),
        (
            found(sticky=one(innocent_moves=3, innocent_after={"remove": 2, "weight": 1})),
            ["sticky could not do without its innocent moves: 2 after removals, 1 after new weights"],
        ),
        (found(hashed=one(moves=12, innocent_moves=3, innocent_after={"join": 3})), []),
        (
            found("ReplicaDivision", fleet=one(worst_error="7/2")),
            ["fleet keeps what fits, so old results drift; movesMax in the document lets it repair some each time"],
        ),
    ],
)
def test_notes_say_how_to_read_what_could_surprise(summary: Summary, said: list[str]) -> None:
    assert notes(summary) == said


def test_the_unassigned_are_a_column_where_there_are_any() -> None:
    assert "unassigned" not in [column.heading for column in columns(found(sticky=one()))]
    assert columns(found(sticky=one(worst_unassigned=1200)))[-1].text(one(worst_unassigned=1200)) == "1,200"
    assert columns(found("ReplicaDivision", exact=one(worst_unassigned=1)))[-1].heading == "unplaced"


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (12345, "12,345")])
def test_numbers_are_written_for_people(value: int, text: str) -> None:
    assert number(value) == text
