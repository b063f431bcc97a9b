"""The interval that benchmarks state with the median of paired ratios."""

from __future__ import annotations

import importlib
import random
import statistics
from pathlib import Path

import pytest


@pytest.fixture
def interval_of_median(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    return importlib.import_module("paired_ratios").interval_of_median


@pytest.mark.parametrize(("n", "first"), [(5, 1), (6, 1), (8, 1), (9, 2), (12, 3), (20, 6), (60, 22), (100, 40)])
def test_ranks_are_those_of_the_tables_of_the_sign_test(interval_of_median, n: int, first: int) -> None:
    found = interval_of_median([float(rank) for rank in range(n, 0, -1)])
    assert (found.median, found.low, found.high) == (statistics.median(range(1, n + 1)), first, n + 1 - first)


def test_the_interval_covers_the_true_median_as_often_as_it_says(interval_of_median) -> None:
    drawn, covered = random.Random(0), 0
    for _ in range(1000):
        found = interval_of_median([drawn.lognormvariate(0.0, 1.0) for _ in range(12)])
        covered += found.low <= 1.0 <= found.high
    assert covered / 1000 > 0.95
