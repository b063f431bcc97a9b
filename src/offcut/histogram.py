"""Counts of measured durations by size, in the form that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate


class Histogram:
    """How many values lie between bounds, how many there are, and their sum.

    Args:
        bounds: the buckets' upper bounds, rising; values above the last are counted too.
    """

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.sum = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one value. A value that is equal to a bound belongs to that bucket."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, int]]:
        """Return each bound as text, `+Inf` last, with how many values are at most that large."""
        names = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True))
