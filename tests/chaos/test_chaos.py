"""Chaos with real processes: whatever is killed, frozen and restarted, no item has two owners and none is forgotten.

A run is printed with `-s`; POISE_CHAOS_SEED repeats the faults of another one.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

import pytest
from tests.chaos.chaos_audit import late_writes, taken_from_paused
from tests.chaos.chaos_run import Story, run_chaos
from tests.chaos.chaos_server import own_server


@pytest.fixture
def seed() -> int:
    """Draw another run every time, unless one is asked for."""
    return int(os.environ.get("POISE_CHAOS_SEED") or secrets.randbelow(1_000_000))


def assert_sound(story: Story) -> None:
    """No law is broken, and those who were paused have really tried to write."""
    sys.stdout.write(f"\n{story}\n")
    assert story.findings == [], str(story)
    assert late_writes(story.case) or not taken_from_paused(story.case), str(story)


@pytest.mark.slow
def test_chaos_on_sqlite_with_the_coordinator_inside_the_workers(tmp_path: Path, seed: int) -> None:
    assert_sound(run_chaos(tmp_path, f"sqlite:///{tmp_path / 'poise.db'}", seed, own_coordinator=False))


@pytest.mark.slow
def test_chaos_on_postgresql_with_a_coordinator_of_its_own(tmp_path: Path, seed: int) -> None:
    with own_server() as server:
        assert_sound(run_chaos(tmp_path, server.new_place(), seed, server, own_coordinator=True))
