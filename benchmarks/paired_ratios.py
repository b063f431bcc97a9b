"""The median of paired ratios and its confidence interval, for benchmarks in which systems take turns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """The median of paired ratios, and the ends of its 95 % interval."""

    median: float
    low: float
    high: float


def interval_of_median(values: Sequence[float]) -> Interval:
    """Return the median, and the order statistics between which it lies with at least 95 % probability.

    With fewer than six values no two of them are that far apart: then these are the smallest and the largest.
    """
    ordered = sorted(values)
    n, outside, below = len(ordered), 0, 0.0
    # The k-th smallest value is above the median with the probability that fewer than k of n lie below it.
    while (below := below + math.comb(n, outside) / 2**n) <= 0.025:
        outside += 1
    first = max(outside - 1, 0)
    return Interval(statistics.median(ordered), ordered[first], ordered[n - 1 - first])
