"""The figures of benchmarks beside their bounds: the most that is allowed, or the least."""

from __future__ import annotations

import pytest
from benchmarks.measure import Row


@pytest.mark.parametrize(
    ("row", "words", "verdict"),
    [
        (Row("size", 10.0, 20, "kB"), "at most 20 kB", "ok"),
        (Row("size", 30.0, 20, "kB"), "at most 20 kB", "OVER"),
        (Row("moves a second", 120.0, 100, "", at_least=True), "at least 100", "ok"),
        (Row("moves a second", 90.0, 100, "", at_least=True), "at least 100", "UNDER"),
    ],
)
def test_a_figure_is_judged_by_its_bound(row: Row, words: str, verdict: str) -> None:
    assert words in str(row)
    assert str(row).split()[-1] == verdict


def test_a_figure_without_a_bound_is_only_shown() -> None:
    assert str(Row("nodes", 3.0, None, "")).split() == ["nodes", "3"]
