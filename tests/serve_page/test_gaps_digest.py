"""The mark of a what-if of a split: what the wish names decides, and what other workloads do meanwhile does not."""

from __future__ import annotations

import pytest
from tests.serve_page.picture_looks import counted_look

from poise.jobs.what_if import WhatIf
from poise.serve.page.previews import digest_of

SPLIT = """
apiVersion: poise.dev/v1alpha1
kind: CapacitySplit
metadata: {name: shop}
spec:
  workloads:
  - {name: api, replicas: 10, spotPercentage: 70, minOnDemand: 1}
  - {name: web, replicas: 24, spotPercentage: 50, minOnDemand: 4}
status:
  workloads:
    api: {spot: %d, onDemand: %d, readyOnDemand: %d}
    web: {spot: %d, onDemand: 12, readyOnDemand: 12}
"""
POOLS = """
apiVersion: poise.dev/v1alpha1
kind: CapacitySplit
metadata: {name: pooled}
spec:
  workloads: [{name: api, replicas: 20}]
  pools: [{name: on, weight: 2, min: 2}, {name: spot-a, weight: 5}, {name: spot-b, weight: %d}]
status:
  workloads: {api: {pools: {on: %d, spot-a: 9, spot-b: 5}}}
"""


def digest(api: tuple[int, int, int], web: int, what_if: WhatIf | None) -> str:
    return digest_of(counted_look(SPLIT % (*api, web), what_if=what_if))


@pytest.mark.parametrize("what_if", [WhatIf(replicas={"api": 12}), None])
def test_another_workload_that_ticks_is_no_news(what_if: WhatIf | None) -> None:
    before = digest((7, 3, 3), 12, what_if)
    assert before == digest((7, 3, 3), 9, what_if), "web has something to do now"


def test_what_the_wish_names_is_news() -> None:
    what_if = WhatIf(replicas={"api": 12})
    before = digest((7, 3, 3), 12, what_if)
    assert before != digest((9, 1, 1), 12, what_if), "the next action of api is another one"
    assert before != digest((7, 3, 3), 12, WhatIf(replicas={"api": 13}))
    both = WhatIf(replicas={"api": 12, "web": 20})
    assert digest((7, 3, 3), 12, both) != digest((7, 3, 3), 6, both)


def test_pools_are_for_all_workloads() -> None:
    what_if = WhatIf(weights={"on": 3})
    before = digest_of(counted_look(POOLS % (3, 6), what_if=what_if))
    assert before == digest_of(counted_look(POOLS % (3, 7), what_if=what_if)), "what runs ticks on"
    assert before != digest_of(counted_look(POOLS % (9, 6), what_if=what_if)), "what is wanted is another"
