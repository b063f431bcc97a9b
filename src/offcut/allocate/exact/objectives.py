"""Objectives that are not one sum: max-min fairness and priority classes, each made of several exact solutions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit

from offcut.allocate.exact import counts, quotas
from offcut.allocate.exact.counts import Counts
from offcut.allocate.exact.pieces import Pieces, subset, worth
from offcut.errors import AllocationError
from offcut.model import AllocationProblem

# mypy: disallow-untyped-decorators=False


@njit(cache=True)
def _least_sizes(floor: Any, start: Any, low: Any, high: Any, slope: Any, base: Any, out: Any) -> bool:
    """Every job's smallest size worth at least `floor[j]`; False where a job has none."""
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


def max_min(pieces: Pieces, problem: AllocationProblem, until: float = math.inf) -> Counts:
    """First the largest smallest value, then, with every job at least there, the largest sum.

    Objective and bound are the smallest value per second of the horizon: the smallest speed-up over weight. Jobs of
    weight 0 do not count for it.
    """
    if any(group.share is not None for group in problem.groups):
        raise AllocationError(
            "the objective max_min and shares of groups are two ideas of fairness.", next_step="Choose one of them."
        )
    counted = np.array([job.weight > 0 for job in problem.jobs])
    arrays = (pieces.start, pieces.low, pieces.high, pieces.slope, pieces.base)
    sizes = np.zeros(len(counted), np.int64)
    caps = [
        (np.array([job.group == group.id for job in problem.jobs]), group.max_nodes)
        for group in problem.groups
        if group.max_nodes is not None
    ]

    def fits(floor: float) -> bool:
        floors = np.where(counted, floor, -math.inf)
        return bool(
            _least_sizes(floors, *arrays, sizes)
            and sizes.sum() <= problem.nodes
            and all(sizes[members].sum() <= cap for members, cap in caps)
        )

    if not fits(-math.inf):
        # Say why, in the words of whoever finds out.
        return quotas.decide(pieces, problem, until)
    ends = np.concatenate([pieces.base + pieces.slope * pieces.low, pieces.base + pieces.slope * pieces.high])
    below, above = float(ends.min()), float(ends.max())
    if fits(above):
        below = above
    while below < (middle := 0.5 * (below + above)) < above:
        if fits(middle):
            below = middle
        else:
            above = middle
    best = quotas.decide(_at_least(pieces, np.where(counted, below, -math.inf)), problem, until)
    values = [worth(pieces, j, int(n)) for j, n in enumerate(best.sizes) if counted[j]]
    smallest = min(values, default=0.0) / problem.horizon_s
    return replace(best, objective=smallest, bound=max(smallest, above / problem.horizon_s))


def _at_least(pieces: Pieces, floor: Any) -> Pieces:
    """Only the sizes that are worth at least `floor[j]` to job j."""
    low, high = pieces.low.copy(), pieces.high.copy()
    jobs = np.repeat(np.arange(len(pieces.current)), np.diff(pieces.start))
    need = floor[jobs]
    at_low, at_high = pieces.base + pieces.slope * low, pieces.base + pieces.slope * high
    for k in np.flatnonzero((at_low < need) != (at_high < need)):
        inside = np.arange(low[k], high[k] + 1)
        inside = inside[pieces.base[k] + pieces.slope[k] * inside >= need[k]]
        low[k], high[k] = inside[0], inside[-1]
    keep = (at_low >= need) | (at_high >= need)
    start = np.zeros_like(pieces.start)
    np.cumsum(np.bincount(jobs[keep], minlength=len(pieces.current)), out=start[1:])
    return Pieces(start, low[keep], high[keep], pieces.slope[keep], pieces.base[keep], pieces.current)


def priority(pieces: Pieces, problem: AllocationProblem, until: float = math.inf) -> Counts:
    """One priority class after the other, higher ones first, each leaving as many nodes as it can without loss."""
    if problem.groups:
        raise AllocationError(
            "the objective priority and group quotas cannot be combined.", next_step="Use weights instead of classes."
        )
    classes = sorted({job.priority for job in problem.jobs}, reverse=True)
    parts = [np.flatnonzero([job.priority == level for job in problem.jobs]) for level in classes]
    first = pieces.low[pieces.start[:-1]]
    sizes = np.zeros(len(pieces.current), np.int64)
    left = problem.nodes
    objective, bound, proven, price = 0.0, 0.0, True, 0.0
    for i, jobs in enumerate(parts):
        part = subset(pieces, jobs)
        reserved = int(sum(first[later].sum() for later in parts[i + 1 :]))
        best = counts.decide(part, left - reserved, until)
        if i + 1 < len(parts):
            best = _fewest_nodes(part, best, until)
        sizes[jobs] = best.sizes
        left -= int(best.sizes.sum())
        objective += best.objective
        bound += best.bound
        proven = proven and best.proven
        price = best.price
    return Counts(sizes, objective, bound, proven, price)


def _fewest_nodes(part: Pieces, best: Counts, until: float) -> Counts:
    """An answer as good as `best` on as few nodes as possible: more nodes are never worth less, so bisect."""
    few, enough = int(part.low[part.start[:-1]].sum()), int(best.sizes.sum())
    target = best.objective - 1e-12 * abs(best.objective)
    while few < enough:
        middle = (few + enough) // 2
        tried = counts.decide(part, middle, until)
        if tried.objective >= target:
            enough, best = int(tried.sizes.sum()), tried
        else:
            few = middle + 1
    return best
