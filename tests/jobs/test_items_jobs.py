"""TargetPool, ShardRing and ReplicaDivision documents: what their status means for the plan."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from poise.cli.render import render
from poise.documents import load
from poise.errors import InvalidSpec
from poise.jobs.entries import DivisionEntry, ItemsEntry, Planned, TotalEntry
from poise.jobs.planning import explain_document, plan_document
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

    def test_a_budget_that_the_plan_itself_spends_says_when_it_frees(self) -> None:
        guards = "guards: {budgets: [{limit: 50%, windowSeconds: 600}], cooldownSeconds: 9}"
        made = planned(
            pool(f"{{{TWO}, {FOUR}, {guards}}}", "{assignment: {a: p0, b: p0, c: p0, d: p0}}"),
            WhatIf(add=["p2"], drain=["p0"]),
        )
        assert isinstance(made.entry, ItemsEntry)
        waits = [move.waits for move in made.entry.moves]
        assert waits[:2] == [None, None]
        assert [each.until for each in waits[2:] if each] == [NOW + timedelta(seconds=600)] * 2
        assert made.notes == ["the cooldown of 9 s is judged where plans are carried out"]
        assert "Plan: 4 moves (2 of them wait), 0 stay." in render(made, everything=False)

    def test_to_drain_twice_is_to_drain_once(self) -> None:
        status = "{members: [{name: p0}, {name: p1, state: draining}], assignment: {a: p0, b: p0, c: p1, d: p1}}"
        text = pool(f"{{{TWO}, {FOUR}}}", status)
        assert items(text, WhatIf(drain=["p1", "p1"])) == items(text)

    @pytest.mark.parametrize(
        ("what_if", "fault"),
        [
            (WhatIf(add=["g", "g"]), "$.add[1]: g is added twice"),
            (WhatIf(add=["a\nb"]), "$.add[0]: expected letters and digits"),
            (WhatIf(drain=["\x1b[31m"]), "$.drain[0]: expected letters and digits"),
            (WhatIf(weights={"p0": 1_000_001}), "$.weights['p0']: expected <= 1000000, got 1000001"),
            (WhatIf(weights={"p0": -1}), "$.weights['p0']: expected >= 0, got -1"),
        ],
    )
    def test_a_what_if_keeps_the_rules_of_documents(self, what_if: WhatIf, fault: str) -> None:
        with pytest.raises(InvalidSpec) as caught:
            items(pool(f"{{{TWO}, {FOUR}}}"), what_if)
        assert str(caught.value).startswith(fault)
        assert "\n" not in str(caught.value)

    def test_every_target_is_counted_once(self) -> None:
        status = "{members: [{name: p0}], assignment: {a: p0, b: p0}}"
        text = pool(f"{{pods: {{endpoints: [{{name: p0, capacity: 1}}, {{name: p1, capacity: 1}}]}}, {FOUR}}}", status)
        assert "Plan: 1 move, 2 left unassigned, 1 stay." in render(planned(text), everything=False)
        lost = planned(text, WhatIf(remove=["p1"]))
        assert "Plan: 1 move (1 to nowhere), 2 left unassigned, 1 stay." in render(lost, everything=False)

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
        assert made.entry.loads == {"i0": 3}
        assert made.entry.certificate.spread == 0
        assert {move.target for move in made.entry.moves} == {"i0"}
        assert made.notes == ["i1 is late and keeps what it holds (2): nothing moves from or to it"]
        assert made.view is not None
        assert (made.view.members_before, made.view.members_after, made.view.stays) == (2, 2, 3)

    def test_an_instance_that_is_late_cannot_be_drained(self) -> None:
        text = ring("{objects: [a]}", "{instances: [{name: i0}, {name: i1, state: expired}], assignment: {a: i1}}")
        with pytest.raises(InvalidSpec, match=r"\$\.drain\['i1'\]: i1 is late: nothing moves from it"):
            planned(text, WhatIf(drain=["i1"]))

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

    def test_a_workload_that_was_never_divided_is_new(self) -> None:
        clusters = "[{name: a, capacity: 1}, {name: b, capacity: 1}]"
        spec = f"{{clusters: {clusters}, workloads: [{{name: w, replicas: 5}}]}}"
        text = render(planned(f"{{kind: ReplicaDivision, metadata: {{name: d}}, spec: {spec}}}"), everything=False)
        assert "new, 3 unplaced: there is no last result" in text
        assert "Plan: 0 replicas moved, 3 unplaced, 0 of 1 workloads kept." in text

    def test_more_replicas_than_a_document_may_have_are_refused(self) -> None:
        with pytest.raises(InvalidSpec, match=r"^\$\.replicas\['w'\]: expected <= 1000000000, got 1000000001$"):
            planned(
                self.TEXT.format(strategy="StaticWeight", last="StaticWeight"), WhatIf(replicas={"w": 1_000_000_001})
            )

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
