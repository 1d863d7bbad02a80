"""Exclusiveness under chaos: whatever is killed, frozen, restarted and scaled, no object has two owners, none is lost.

A run is printed with `-s`; POISE_SEED repeats the faults of another one.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from tests.cluster.auditor import late_patches, taken_from_frozen
from tests.cluster.sharding_chaos import LEASE_S, Story, run_chaos
from tests.cluster.world import Cluster


def hits(story: Story) -> set[tuple[str, str]]:
    """Say what was done to whom; a freeze counts where it outlasts a lease."""
    faults = [each for each in story.case.faults if each.kind != "freeze" or each.until_s - each.at_s > LEASE_S]
    return {(each.kind, each.instance.partition("-")[0]) for each in faults}


def test_no_object_has_two_owners_and_none_is_forgotten(breakable: Cluster, tmp_path: Path) -> None:
    seed = int(os.environ.get("POISE_SEED") or secrets.randbelow(1_000_000))
    sys.stdout.write(f"\nPOISE_SEED={seed}\n")
    story = run_chaos(breakable, f"chaos-{seed}", tmp_path, seed)
    sys.stdout.write(f"{story}\n")
    assert story.findings == [], str(story)
    sure = {("kill", "s"), ("freeze", "s"), ("kill", "op"), ("freeze", "op"), ("api", "")}
    assert hits(story) >= sure, str(story)
    assert {each.instance for each in story.case.processes} == {f"s-{number}" for number in range(6)}
    assert {each.shard for each in story.case.finals} == {"s-0", "s-1"}
    assert list(late_patches(story.case)) or not taken_from_frozen(story.case), str(story)
