"""The number of explored states, at the end of the run: pytest keeps what tests print to itself."""

from __future__ import annotations

import pytest
from tests.model.explore import VISITED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many states the protocol was explored in, where it was."""
    if VISITED:
        states = sum(VISITED)
        terminalreporter.write_line(f"explored {states:,} states in {len(VISITED)} worlds")
