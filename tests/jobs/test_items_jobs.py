"""TargetPool, ShardRing and ReplicaDivision documents: what their status means for the plan."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from poise.documents import load
from poise.errors import InvalidSpec
from poise.jobs import explain_document, plan_document
from poise.jobs.entries import DivisionEntry, ItemsEntry, Planned, TotalEntry
from poise.jobs.what_if import WhatIf

NOW = datetime(2026, 11, 15, 3, 0, tzinfo=UTC)


def planned(text: str, what_if: WhatIf | None = None) -> Planned:
    [document] = load(text, "test")
    made = plan_document(document, NOW, what_if)
    assert made.faults == []
    return made


def items(text: str, what_if: WhatIf | None = None) -> ItemsEntry:
    entry = planned(text, what_if).entry
    assert isinstance(entry, ItemsEntry)
    return entry


def pool(spec: str, status: str = "{}") -> str:
    return f"{{kind: TargetPool, metadata: {{name: p}}, spec: {spec}, status: {status}}}"


FOUR = "targets: {list: [{name: a}, {name: b}, {name: c}, {name: d}]}"
TWO = "pods: {endpoints: [{name: p0}, {name: p1}]}"


class TestTargetPool:
    def test_a_pod_that_is_gone_gives_its_targets_away(self) -> None:
        status = "{members: [{name: p0}, {name: p1, state: gone}], assignment: {a: p0, b: p0, c: p1, d: p1}}"
        entry = items(pool(f"{{{TWO}, {FOUR}}}", status))
        assert entry.loads == {"p0": 4}
        assert {move.reason for move in entry.moves} == {"p1 is gone"}
        assert entry.certificate.moves == entry.certificate.moves_min == 2

    def test_a_pod_that_drains_has_no_share(self) -> None:
        status = "{members: [{name: p0}, {name: p1, state: draining}], assignment: {a: p0, b: p0, c: p1, d: p1}}"
        assert {move.reason for move in items(pool(f"{{{TWO}, {FOUR}}}", status)).moves} == {"p1 is draining"}

    def test_a_pods_own_capacity_replaces_the_pools(self) -> None:
        own = "pods: {endpoints: [{name: p0, capacity: 3}, {name: p1}]}"
        entry = items(pool(f"{{{own}, {FOUR}, capacity: 1}}"))
        assert entry.loads == {"p0": 3, "p1": 1}

    def test_weights_share_the_targets_out(self) -> None:
        weighed = "pods: {endpoints: [{name: p0, weight: 3}, {name: p1}]}"
        assert items(pool(f"{{{weighed}, {FOUR}}}")).loads == {"p0": 3, "p1": 1}

    def test_hashed_takes_what_names_decide(self) -> None:
        entry = items(pool(f"{{{TWO}, {FOUR}, policy: hashed}}", "{assignment: {a: p0, b: p0, c: p0, d: p0}}"))
        assert max(entry.loads.values()) <= 2
        assert entry.certificate.moves_min == 2

    def test_pods_of_a_stateful_set_come_from_the_status(self) -> None:
        made = f"{{pods: {{statefulSet: {{name: gnmic}}}}, {FOUR}}}"
        assert items(pool(made, "{members: [{name: g-0}, {name: g-1}]}")).loads == {"g-0": 2, "g-1": 2}

    def test_a_source_that_cannot_be_read_offline_says_so(self) -> None:
        with pytest.raises(InvalidSpec, match=r"\$\.spec\.targets\.http: cannot be read offline"):
            planned(pool(f"{{{TWO}, targets: {{http: {{url: 'http://127.0.0.1/'}}}}}}"))

    def test_a_hashed_pool_cannot_be_weighed(self) -> None:
        with pytest.raises(InvalidSpec, match="policy hashed knows no weights"):
            planned(pool(f"{{{TWO}, {FOUR}, policy: hashed}}"), WhatIf(weights={"p0": 2}))

    @pytest.mark.parametrize("endpoints", ["[]", "[{name: p0}]", "[{name: p0}, {name: p1}, {name: p2}]"])
    def test_no_pods_no_targets_and_more_pods_than_targets_are_ordinary(self, endpoints: str) -> None:
        entry = items(pool(f"{{pods: {{endpoints: {endpoints}}}, targets: {{list: [{{name: a}}]}}}}"))
        assert sum(entry.loads.values()) == (1 if entry.loads else 0)
        assert [each.reason for each in entry.unassigned] == ([] if entry.loads else ["there is no pod to hold it"])
        assert items(pool(f"{{pods: {{endpoints: {endpoints}}}, targets: {{list: []}}}}")).moves == []

    def test_all_draining_leaves_everything_without_a_pod(self) -> None:
        status = "{members: [{name: p0, state: draining}, {name: p1, state: draining}], assignment: {a: p0, b: p1}}"
        entry = items(pool(f"{{{TWO}, {FOUR}}}", status))
        assert len(entry.unassigned) == 4
        assert entry.certificate.moves == 2


def ring(spec: str, status: str) -> str:
    return f"{{kind: ShardRing, metadata: {{name: r}}, spec: {spec}, status: {status}}}"


class TestShardRing:
    @pytest.mark.parametrize("policy", ["ring", "balanced"])
    @pytest.mark.parametrize("state", ["expired", "uncertain"])
    def test_nothing_moves_from_or_to_an_instance_that_is_late(self, policy: str, state: str) -> None:
        instances = f"[{{name: i0}}, {{name: i1, state: {state}}}]"
        status = f"{{instances: {instances}, assignment: {{a: i1, b: i1, c: i0}}}}"
        made = planned(ring(f"{{policy: {policy}, objects: [a, b, c, new1, new2]}}", status))
        assert isinstance(made.entry, ItemsEntry)
        assert made.entry.loads == {"i0": 3, "i1": 2}
        assert {move.target for move in made.entry.moves} == {"i0"}
        assert made.notes == ["i1 is late: nothing moves from or to it"]

    @pytest.mark.parametrize("state", ["dead", "orphaned"])
    def test_objects_of_a_dead_instance_move(self, state: str) -> None:
        status = f"{{instances: [{{name: i0}}, {{name: i1, state: {state}}}], assignment: {{a: i1, b: i1, c: i0}}}}"
        entry = items(ring("{objects: [a, b, c]}", status))
        assert entry.loads == {"i0": 3}
        assert {move.source for move in entry.moves} == {"i1"}

    def test_balanced_is_exactly_even(self) -> None:
        objects = ", ".join(f"k{number}" for number in range(10))
        status = "{instances: [{name: i0}, {name: i1}, {name: i2}]}"
        entry = items(ring(f"{{policy: balanced, objects: [{objects}]}}", status))
        assert sorted(entry.loads.values()) == [3, 3, 4]

    def test_on_kubernetes_the_objects_are_those_of_the_status(self) -> None:
        status = "{instances: [{name: i0}], assignment: {a: i0, b: i0}}"
        assert items(ring("{}", status)).assignment == {"a": "i0", "b": "i0"}

    def test_an_object_of_a_late_instance_is_explained(self) -> None:
        text = ring("{objects: [a]}", "{instances: [{name: i1, state: expired}], assignment: {a: i1}}")
        [document] = load(text, "test")
        assert "is late" in str(explain_document(document, "a", NOW))


class TestReplicaDivision:
    TEXT = (
        "{{kind: ReplicaDivision, metadata: {{name: d}}, spec: {{clusters: [{{name: a}}, {{name: b}}], "
        "workloads: [{{name: w, replicas: 3}}], strategy: {strategy}}}, status: {{divisions: {{w: {{replicas: 3, "
        "weights: {{a: 1, b: 1}}, strategy: {last}, result: {{a: 1, b: 2}}}}}}}}}}"
    )

    def divided(self, strategy: str, last: str) -> DivisionEntry:
        entry = planned(self.TEXT.format(strategy=strategy, last=last)).entry
        assert isinstance(entry, DivisionEntry)
        return entry

    def test_what_fits_is_kept(self) -> None:
        assert self.divided("StaticWeight", "StaticWeight").divisions["w"].kept

    def test_a_last_result_of_another_strategy_is_none(self) -> None:
        assert not self.divided("StaticWeight", "Duplicated").divisions["w"].kept

    def test_duplicated_gives_everyone_all(self) -> None:
        assert self.divided("Duplicated", "StaticWeight").divisions["w"].replicas == {"a": 3, "b": 3}

    def test_a_fleet_of_nothing_is_an_ordinary_answer(self) -> None:
        clusters = "[{name: a, min: 1, max: 3, capacity: 4}]"
        text = f"{{kind: ReplicaDivision, metadata: {{name: d}}, spec: {{clusters: {clusters}, workloads: []}}}}"
        entry = planned(text).entry
        assert isinstance(entry, DivisionEntry)
        assert (entry.divisions, entry.totals) == ({}, {"a": TotalEntry(0, "0")})

    def test_a_drifted_fleet_says_what_a_repair_would_do(self) -> None:
        names = [f"w{number}" for number in range(8)]
        workloads = ", ".join(f"{{name: {name}, replicas: 3}}" for name in names)
        divisions = ", ".join(
            f"{name}: {{replicas: 3, weights: {{a: 1, b: 1}}, strategy: StaticWeight, result: {{a: 2, b: 1}}}}"
            for name in names
        )
        spec = f"{{clusters: [{{name: a}}, {{name: b}}], workloads: [{workloads}], movesMax: %s}}"
        text = f"{{kind: ReplicaDivision, metadata: {{name: d}}, spec: {spec}, status: {{divisions: {{{divisions}}}}}}}"
        drifted = planned(text % 0)
        assert drifted.notes == [
            "a repair of 4 moves would bring the largest error of a total from 4 to 0 (movesMax is 0)"
        ]
        assert not drifted.pending
        assert planned(text % 4).notes == []
        assert planned(text % 4).pending
