"""Settings of the whole run."""

from __future__ import annotations

import gc
import signal
from pathlib import Path

import pytest
from tests import examples

# Files that take minutes begin first, so that at the end no process of tests works alone while the others idle.
_LONGEST = (
    "cluster/test_sharding_chaos.py",
    "jobs/test_servers_away.py",
    "chaos/test_chaos.py",
    "browser/test_browser_demo.py",
    "cluster/test_conformance.py",
    "cluster/test_install.py",
    "serve/test_schemathesis.py",
    "cluster/test_operator.py",
    "cluster/test_sharding_outages.py",
    "cluster/test_operator_faults.py",
    "cluster/test_webhook.py",
    "cluster/test_kopf_example.py",
    "demo/test_demo_life.py",
    "browser/test_browser_live.py",
    "jobs/test_servers.py",
    "cluster/test_quickstart.py",
    "test_tutorial.py",
    "model/test_mutants.py",
    "model/test_exploration.py",
    "sim/test_drill.py",
    "model/test_sharding_mutants.py",
    "model/test_sharding_exploration.py",
)
_RANKS = {name: rank for rank, name in enumerate(_LONGEST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, else by their names."""
    tests = Path(__file__).parent
    items.sort(key=lambda item: _RANKS.get(item.path.relative_to(tests).as_posix(), len(_RANKS)))


def pytest_collection_finish() -> None:
    """Let the collector of cycles leave out what stays to the end anyhow: thousands of tests are a lot to look at."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Let the quick part of the tests try a third of the examples of each law; processes of tests hear SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background has it ignored, and whatever the tests start would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("markexpr") == "not slow":
        examples.part = 3
