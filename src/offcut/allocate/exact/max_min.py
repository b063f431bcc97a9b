"""The objective `max_min`: the largest smallest value, then the largest sum.

Bisection finds the highest floor that every job's value can reach. With only the sizes worth that much left, the sum is
maximised as for any other problem.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from offcut.allocate.exact.pieces import Floats, Pieces
from offcut.errors import AllocationError
from offcut.model import AllocationProblem

# mypy: disallow-untyped-decorators=False


class Floor(NamedTuple):
    """The highest floor: values per second of the horizon, which are speed-ups over weights."""

    #: The pieces with only those sizes that are worth at least the floor.
    pieces: Pieces
    #: The smallest value among the jobs that count, at every allocation of these sizes; 0 where none counts.
    objective: float
    #: No allocation has a larger smallest value.
    bound: float


def highest_floor(pieces: Pieces, problem: AllocationProblem) -> Floor:
    """Find the largest value that all jobs can have at once; jobs of weight 0 do not count.

    Args:
        pieces: the values of the problem's jobs.
        problem: the node count, the groups' caps, the weights and the horizon (s).

    Returns:
        The floor. Where no allocation fits at all its pieces are those that were given.

    Raises:
        AllocationError: a group has a share.
    """
    if any(group.share is not None for group in problem.groups):
        raise AllocationError(
            "the objective max_min and shares of groups are two ideas of fairness.", next_step="Choose one of them."
        )
    counted = np.array([job.weight > 0 for job in problem.jobs])
    sizes = np.zeros(len(counted), np.int64)
    caps = [
        (np.array([job.group == group.id for job in problem.jobs]), group.max_nodes)
        for group in problem.groups
        if group.max_nodes is not None
    ]

    def fits(floor: float) -> bool:
        floors = np.where(counted, floor, -math.inf)
        return bool(
            _smallest_sizes(pieces, floors, sizes)
            and sizes.sum() <= problem.nodes
            and all(sizes[members].sum() <= cap for members, cap in caps)
        )

    if not fits(-math.inf):
        return Floor(pieces, -math.inf, -math.inf)
    ends = np.concatenate([pieces.base + pieces.slope * pieces.low, pieces.base + pieces.slope * pieces.high])
    below, above = float(ends.min()), float(ends.max())
    if fits(above):
        below = above
    while below < (middle := 0.5 * (below + above)) < above:
        if fits(middle):
            below = middle
        else:
            above = middle
    # Below and above are neighbouring numbers now: the smallest value of what is left is the floor itself.
    smallest = below / problem.horizon_s + 0.0 if counted.any() else 0.0  # not -0.0
    enough = _worth_at_least(pieces, np.where(counted, below, -math.inf))
    return Floor(enough, smallest, max(smallest, above / problem.horizon_s))


@njit(cache=True)
def _smallest_sizes(pieces: Pieces, floor: Any, out: Any) -> bool:
    """Write every job's smallest size worth at least `floor[j]` into `out`; False if a job has none."""
    start, low, high, slope, base, _ = pieces
    for j in range(len(start) - 1):
        found = False
        for k in range(start[j], start[j + 1]):
            at_low = base[k] + slope[k] * low[k]
            if at_low >= floor[j]:
                out[j] = low[k]
                found = True
            elif base[k] + slope[k] * high[k] >= floor[j]:
                n = low[k] + np.int64((floor[j] - at_low) / slope[k])
                while base[k] + slope[k] * n < floor[j]:
                    n += 1
                out[j] = n
                found = True
            if found:
                break
        if not found:
            return False
    return True


def _worth_at_least(pieces: Pieces, floor: Floats) -> Pieces:
    """Return the pieces with only those sizes that are worth at least `floor[j]` to job j."""
    low, high = pieces.low.copy(), pieces.high.copy()
    jobs = np.repeat(np.arange(len(pieces.current)), np.diff(pieces.start))
    need = floor[jobs]
    at_low, at_high = pieces.base + pieces.slope * low, pieces.base + pieces.slope * high
    for k in np.flatnonzero((at_low < need) != (at_high < need)):
        inside = np.arange(low[k], high[k] + 1)
        inside = inside[pieces.base[k] + pieces.slope[k] * inside >= need[k]]
        low[k], high[k] = inside[0], inside[-1]
    enough = (at_low >= need) | (at_high >= need)
    start = np.zeros_like(pieces.start)
    np.cumsum(np.bincount(jobs[enough], minlength=len(pieces.current)), out=start[1:])
    return Pieces(start, low[enough], high[enough], pieces.slope[enough], pieces.base[enough], pieces.current)
