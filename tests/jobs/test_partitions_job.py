"""PartitionSet documents: what waits and why, what is under way, and what a what-if may ask."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from poise.cli.render import render
from poise.documents import load
from poise.errors import InvalidSpec
from poise.jobs.entries import ItemsEntry, Planned, Told, Waits
from poise.jobs.planning import explain_document, plan_document
from poise.jobs.what_if import WhatIf

NOW = datetime(2026, 11, 15, 3, 0, tzinfo=UTC)
ONE_AN_HOUR = "budgets: [{limit: 1, windowSeconds: 3600}]"
AT_TWO = "windows: [{schedule: '0 2 * * *', duration: 1h}]"


def rows(owners: str, *special: str) -> str:
    """Write rows: one Assigned row for every owner named, then rows written out."""
    plain = [f"{{id: '{number}', state: Assigned, owner: {owner}}}" for number, owner in enumerate(owners.split())]
    return f"[{', '.join([*plain, *special])}]"


def planned(partitions: str, nodes: str, guards: str = "", *, count: int = 4, what_if: WhatIf | None = None) -> Planned:
    [document] = load(text(partitions, nodes, guards, count=count), "test")
    made = plan_document(document, NOW, what_if)
    assert made.faults == []
    return made


def text(partitions: str, nodes: str, guards: str = "", *, count: int = 4) -> str:
    spec = f"{{partitions: {count}, guards: {{{guards}}}}}"
    status = f"{{nodes: [{nodes}], partitions: {partitions}}}"
    return f"{{kind: PartitionSet, metadata: {{name: s}}, spec: {spec}, status: {status}}}"


def entry(made: Planned) -> ItemsEntry:
    assert isinstance(made.entry, ItemsEntry)
    return made.entry


def told(partition: str, document: str) -> list[str]:
    [made] = load(document, "test")
    explained = explain_document(made, partition, NOW)
    assert isinstance(explained, Told)
    return explained.because


TWO = "{name: n1}, {name: n2}"
RELEASING = "{id: '3', state: RequestedRelease, owner: n1, target: n2, deadline: '2026-11-15T03:00:20Z'}"


class TestWaits:
    def test_a_budget_that_the_plan_itself_spends_says_when_it_frees(self) -> None:
        first, second = entry(planned(rows("n1 n1 n1 n1"), TWO, ONE_AN_HOUR)).moves
        assert first.waits is None
        assert second.waits is not None
        assert (second.waits.code, second.waits.until) == ("budget", NOW + timedelta(hours=1))
        assert second.reason == "n1 over its share (4 of 2)"

    def test_the_time_at_which_a_budget_frees_must_also_lie_in_a_window(self) -> None:
        windows = "windows: [{schedule: '0 2 * * *', duration: 90m}]"
        _, second = entry(planned(rows("n1 n1 n1 n1"), TWO, f"{ONE_AN_HOUR}, {windows}")).moves
        assert second.waits is not None
        assert second.waits.until == datetime(2026, 11, 16, 2, tzinfo=UTC)

    @pytest.mark.parametrize("state", ["RequestedRelease", "PendingRelease"])
    def test_a_release_in_flight_uses_the_budget(self, state: str) -> None:
        row = RELEASING.replace("RequestedRelease", state)
        [move] = entry(planned(rows("n1 n1 n1", row), TWO, ONE_AN_HOUR)).moves
        assert move.waits == Waits("budget", None, "1 of 1 in 3600 s started or in flight in the workload")

    def test_a_row_of_a_node_that_is_gone_is_not_in_flight(self) -> None:
        lost = "{id: '3', state: PendingRelease, owner: n3, target: n2}"
        nodes = f"{TWO}, {{name: n3, state: gone}}"
        moves = entry(planned(rows("n1 n1 n1", lost), nodes, ONE_AN_HOUR)).moves
        assert [(move.step, move.waits) for move in moves] == [("unassign", None), ("release", None)]

    def test_another_target_for_a_release_under_way_asks_no_guard(self) -> None:
        row = "{id: '3', state: RequestedRelease, owner: n1, target: n3}"
        nodes = "{name: n1, state: draining}, {name: n2}, {name: n3, state: gone}"
        moves = entry(planned(rows("n2 n2 n2", row), nodes, AT_TWO)).moves
        assert [(move.item, move.step, move.target, move.waits) for move in moves] == [("3", "release", "n2", None)]

    def test_a_closed_window_holds_new_releases_and_not_recovery(self) -> None:
        nodes = f"{TWO}, {{name: n3, state: gone}}"
        moves = entry(planned(rows("n1 n1 n1 n3"), nodes, AT_TWO)).moves
        codes = {move.step: move.waits.code if move.waits else None for move in moves}
        assert codes == {"unassign": None, "release": "window"}

    def test_waiting_moves_say_what_they_are_for_and_what_they_wait_for(self) -> None:
        drained = planned(rows("n1 n1 n1 n1"), "{name: n1, state: draining}, {name: n2}", "movesInFlightMax: 1")
        last = entry(drained).moves[-1]
        assert (last.reason, last.waits) == ("n1 is draining", Waits("budget", None, "1 of 1 moves in flight"))
        shrunk = planned(rows("n1 n1 n1 n1"), "{name: n1}", "movesInFlightMax: 1", count=2)
        assert entry(shrunk).moves[-1].reason == "the set shrank to 2"

    def test_a_cooldown_is_named_since_a_document_cannot_judge_it(self) -> None:
        assert planned(rows("n1"), "{name: n1}", "cooldownSeconds: 5", count=1).notes == [
            "the cooldown of 5 s is judged where plans are carried out"
        ]
        assert planned(rows("n1"), "{name: n1}", count=1).notes == []


class TestExplanations:
    def test_a_release_that_waits_is_not_told_as_if_it_happened(self) -> None:
        lines = told("3", text(rows("n1 n1 n1 n1"), TWO, AT_TWO))
        assert lines[1:3] == [
            "Now: nothing is written for it, though n1 over its share (4 of 2).",
            "It waits (window): outside of its windows, next: 0 2 * * * UTC for 1h, until 2026-11-16T02:00:00Z.",
        ]
        assert "asked to let go" in told("3", text(rows("n1 n1 n1 n1"), TWO))[1]

    def test_who_is_gone_holds_nothing(self) -> None:
        lines = told("0", text(rows("n1"), "{name: n1, state: gone}, {name: n2}", count=1))
        assert lines[0] == "0 is Assigned: n1 (gone) held it last, at epoch 0."
        assert any(line.startswith("Nobody holds it: n1 is gone") for line in lines)


class TestTable:
    def test_what_is_under_way_is_shown_and_the_numbers_add_up(self) -> None:
        made = planned(rows("n1 n1 n2", RELEASING), TWO)
        assert made.notes == ["3: n1 -> n2 is under way, n1 is to let go of it within 20 s"]
        assert "\nPlan: 0 moves, 1 under way, 3 stay." in render(made, everything=False)

    def test_a_cancelled_request_stays_where_it_is(self) -> None:
        row = "{id: '3', state: RequestedRelease, owner: n1, target: n3}"
        made = planned(rows("n1 n2 n2", row), f"{TWO}, {{name: n3, state: gone}}")
        assert [move.step for move in entry(made).moves] == ["cancel"]
        assert "stays on n1" in render(made, everything=False)

    def test_a_node_that_drains_is_no_longer_counted(self) -> None:
        made = planned(rows("n1 n1 n2 n3"), f"{TWO}, {{name: n3, state: draining}}")
        assert entry(made).loads == {"n1": 2, "n2": 2}
        assert entry(made).certificate.spread == 0
        assert render(made, everything=False).startswith("PartitionSet s   3 -> 2 nodes ")

    def test_retirements_that_wait_are_no_moves(self) -> None:
        made = planned(rows("n1 n1 n1 n1"), "{name: n1}", "movesInFlightMax: 1", count=2)
        assert "\nPlan: 0 moves, 2 stay, 2 to retire." in render(made, everything=False)

    @pytest.mark.parametrize(
        ("nodes", "last"),
        [
            ("{name: n1}, {name: n2}, {name: n3, state: gone}", "1 placed first, 2 stay"),
            ("{name: n1, state: gone}, {name: n2, state: gone}", "1 left unassigned, 0 stay"),
        ],
    )
    def test_every_partition_is_counted_once(self, nodes: str, last: str) -> None:
        made = planned(rows("n1 n2", "{id: '2'}"), nodes, count=3)
        assert f", {last}." in render(made, everything=False)


class TestWhatIf:
    GONE = "{name: n1}, {name: n2, state: gone}"

    def test_a_node_that_is_gone_cannot_be_drained_and_may_come_back(self) -> None:
        with pytest.raises(InvalidSpec, match=r"^\$\.drain\['n2'\]: n2 is gone: there is nothing to drain$"):
            planned(rows("n1 n1 n1 n1"), self.GONE, what_if=WhatIf(drain=["n2"]))
        back = entry(planned(rows("n1 n1 n1 n1"), self.GONE, what_if=WhatIf(add=["n2"])))
        assert back.loads == {"n1": 2, "n2": 2}

    def test_a_node_that_comes_back_has_started_again(self) -> None:
        row = "{id: '1', state: Assigned, owner: n2, ownerIncarnation: 4, leaseUntil: '2026-11-15T02:00:00Z'}"
        nodes = "{name: n1}, {name: n2, state: gone, incarnation: 4}"
        [move] = entry(planned(rows("n1", row), nodes, count=2, what_if=WhatIf(add=["n2"]))).moves
        assert move.reason.startswith("n2 has started again")

    def test_a_node_that_is_there_cannot_be_added(self) -> None:
        with pytest.raises(InvalidSpec, match="n1 is a node already"):
            planned(rows("n1 n1 n1 n1"), self.GONE, what_if=WhatIf(add=["n1"]))
