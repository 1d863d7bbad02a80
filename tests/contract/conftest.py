"""The three stores, as one parameter of every test in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres_server import running_server
from tests.store_places import Place

from poise.stores.base import Store


def _place(kind: str, directory: Path) -> Place:
    if kind == "sqlite":
        return Place(kind, f"sqlite:///{directory / 'poise.db'}")
    return Place(kind, "memory:" if kind == "memory" else running_server().new_place())


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Give every kind of place."""
    place = _place(str(request.param), tmp_path)
    yield place
    place.close()


@pytest.fixture(params=["sqlite", "postgres"])
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Give the places that several processes can share."""
    place = _place(str(request.param), tmp_path)
    yield place
    place.close()


@pytest.fixture
def store(place: Place) -> Store:
    """Give one open store of every kind."""
    return place.open()
