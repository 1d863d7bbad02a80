"""Settings of the whole run."""

from __future__ import annotations

import signal

import pytest
from tests import examples


def pytest_configure(config: pytest.Config) -> None:
    """Let the quick part of the tests try a third of the examples of each law; processes of tests hear SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background has it ignored, and whatever the tests start would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("markexpr") == "not slow":
        examples.part = 3
