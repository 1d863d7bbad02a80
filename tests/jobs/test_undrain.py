"""What if a member took part again: for every kind, and by the fewest moves."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from poise.documents import load
from poise.errors import InvalidSpec
from poise.jobs.entries import ItemsEntry
from poise.jobs.planning import plan_document
from poise.jobs.what_if import WhatIf

NOW = datetime(2026, 11, 15, 3, 0, tzinfo=UTC)
SET = """{kind: PartitionSet, metadata: {name: s}, spec: {partitions: 4}, status: {
  nodes: [{name: a}, {name: b, state: draining}, {name: c, state: gone}],
  partitions: [{id: '0', state: Assigned, owner: a}, {id: '1', state: Assigned, owner: a},
    {id: '2', state: Assigned, owner: a}, {id: '3', state: Assigned, owner: a}]}}"""
POOL = """{kind: TargetPool, metadata: {name: p}, spec: {
  pods: {endpoints: [{name: a}, {name: b}, {name: c}]},
  targets: {list: [{name: t1}, {name: t2}, {name: t3}, {name: t4}]}},
  status: {members: [{name: a, state: ready}, {name: b, state: draining}, {name: c, state: gone}],
    assignment: {t1: a, t2: a, t3: a, t4: a}}}"""
DIVISION = "{kind: ReplicaDivision, metadata: {name: d}, spec: {clusters: [{name: a}], workloads: []}}"
SPLIT = "{kind: CapacitySplit, metadata: {name: c}, spec: {workloads: []}}"


def moves(text: str, what_if: WhatIf | None = None) -> list[tuple[str | None, str | None]]:
    planned = plan_document(load(text, "test")[0], NOW, what_if)
    assert planned.faults == []
    assert isinstance(planned.entry, ItemsEntry)
    return [(move.source, move.target) for move in planned.entry.moves]


@pytest.mark.parametrize("text", [SET, POOL])
def test_a_member_that_takes_part_again_gets_its_share(text: str) -> None:
    assert moves(text) == []
    assert moves(text, WhatIf(undrain=["b"])) == [("a", "b"), ("a", "b")]
    assert moves(text, WhatIf(undrain=["b"], drain=["a"])) == [("a", "b")] * 4


def test_a_node_that_is_gone_takes_part_when_it_comes_back() -> None:
    assert moves(SET, WhatIf(undrain=["c"])) == [], "it is no longer drained, and still not there"


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        (SET, "a", "a is in service already"),
        (SET, "d", "no node of that name; there are a, b, c"),
        (POOL, "a", "a is in service already"),
        (POOL, "d", "no pod of that name; there are a, b"),
    ],
)
def test_who_is_not_drained_cannot_be_taken_back(text: str, name: str, why: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        moves(text, WhatIf(undrain=[name]))
    assert [(fault.path, fault.message) for fault in refused.value.faults] == [(f"$.undrain[{name!r}]", why)]


@pytest.mark.parametrize("text", [DIVISION, SPLIT])
def test_what_only_counts_has_nothing_to_take_back(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"\$\.undrain"):
        plan_document(load(text, "test")[0], NOW, WhatIf(undrain=["a"]))
