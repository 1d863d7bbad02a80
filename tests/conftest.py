"""Settings of the whole run."""

from __future__ import annotations

import pytest
from tests import examples


def pytest_configure(config: pytest.Config) -> None:
    """Let the quick part of the tests try a third of the examples of each law."""
    if config.getoption("markexpr") == "not slow":
        examples.part = 3
