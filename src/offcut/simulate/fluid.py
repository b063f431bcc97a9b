"""The fluid upper bound: the throughput of jobs on N nodes if resizes were free and nodes could be divided."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate, pairwise

Segments = tuple[tuple[float, int], ...]


@lru_cache(maxsize=4096)
def hull(speed: tuple[float, ...], smallest: int) -> Segments:
    """Return the concave hull of 0 and of a job's speed-ups.

    Args:
        speed: `speed[n]` is the speed-up on n nodes, shape (largest + 1,).
        smallest: the job's smallest size in nodes.

    Returns:
        Pairs (slope, nodes), slopes falling.
    """
    corners: list[tuple[int, float]] = [(0, 0.0)]
    for n in range(max(1, smallest), len(speed)):
        while len(corners) >= 2:
            (n0, r0), (n1, r1) = corners[-2:]
            if (r1 - r0) * (n - n0) > (speed[n] - r0) * (n1 - n0):
                break
            corners.pop()
        corners.append((n, speed[n]))
    return tuple(((r1 - r0) / (n1 - n0), n1 - n0) for (n0, r0), (n1, r1) in pairwise(corners) if r1 > r0)


class FluidOptimum:
    """F_J(N): the largest throughput of the jobs J on N nodes with free resizes; concave and piecewise linear in N."""

    __slots__ = ("_nodes", "_rate", "capacity")

    def __init__(self, hulls: Iterable[Segments]) -> None:
        # Many jobs share a curve.
        equal_hulls = Counter(hulls)
        segments = sorted(
            ((slope, nodes * jobs) for one, jobs in equal_hulls.items() for slope, nodes in one), reverse=True
        )
        self._nodes = [0, *accumulate(nodes for _, nodes in segments)]
        self._rate = [0.0, *accumulate(slope * nodes for slope, nodes in segments)]
        #: The number of nodes that the jobs can use.
        self.capacity = self._nodes[-1]

    def rate_on(self, nodes: float) -> float:
        """Return the throughput on a number of nodes.

        Args:
            nodes: the number of nodes; need not be whole.

        Returns:
            The sum of the jobs' speed-ups over one node.
        """
        i = bisect_right(self._nodes, nodes) - 1
        if i + 1 == len(self._nodes):
            return self._rate[-1]
        share = (nodes - self._nodes[i]) / (self._nodes[i + 1] - self._nodes[i])
        return self._rate[i] + share * (self._rate[i + 1] - self._rate[i])
