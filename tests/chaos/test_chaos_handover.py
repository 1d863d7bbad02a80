"""Hand-overs between real processes, without chaos: a crash ends in time, and a rolling restart moves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.chaos_handover import measure_crashes, measure_rolling_restart
from tests.chaos.chaos_server import own_server
from tests.chaos.chaos_world import TERMS
from tests.postgres_server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Share one server."""
    with own_server() as made:
        yield made


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the address of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'poise.db'}"
    server = request.getfixturevalue("server")
    assert isinstance(server, Server)
    return server.new_place()


@pytest.mark.slow
def test_every_item_of_a_killed_worker_acts_again_within_the_bound_also_when_it_led(url: str, tmp_path: Path) -> None:
    gaps_s = measure_crashes(tmp_path, url, own_coordinator=False, times=1)
    assert len(gaps_s) >= 4
    assert max(gaps_s) <= TERMS.bound_s


@pytest.mark.slow
def test_a_rolling_restart_with_kept_items_moves_nothing(url: str, tmp_path: Path) -> None:
    moved, _ = measure_rolling_restart(tmp_path, url, own_coordinator=False, workers=3)
    assert moved == 0
