"""The objective `priority`: one priority class after the other, higher ones first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from offcut.allocate.exact.counts import Counts
from offcut.allocate.exact.pieces import Pieces
from offcut.errors import AllocationError
from offcut.model import AllocationProblem


def priority_counts(pieces: Pieces, problem: AllocationProblem, best_sum: Callable[[Pieces, int], Counts]) -> Counts:
    """Find the best sizes of the highest class, then of the next; each class leaves as many nodes as it can without
    loss.

    Args:
        pieces: the values of the problem's jobs.
        problem: the node count and the jobs' classes.
        best_sum: finds the best counts of some pieces on a number of nodes (`optimal_counts`).

    Returns:
        The sizes of all jobs and their bound.

    Raises:
        AllocationError: the problem has groups, or jobs that may not wait need more nodes than there are.
    """
    if problem.groups:
        raise AllocationError(
            "the objective priority and group quotas cannot be combined.", next_step="Use weights instead of classes."
        )
    levels = sorted({job.priority for job in problem.jobs}, reverse=True)
    classes = [np.flatnonzero([job.priority == level for job in problem.jobs]) for level in levels]
    smallest = pieces.low[pieces.start[:-1]]
    sizes = np.zeros(len(pieces.current), np.int64)
    left = problem.nodes
    objective, bound, proven, price = 0.0, 0.0, True, 0.0
    for i, jobs in enumerate(classes):
        reserved = int(sum(smallest[lower].sum() for lower in classes[i + 1 :]))
        best = _class_counts(pieces.subset(jobs), left - reserved, best_sum, frugal=i + 1 < len(classes))
        sizes[jobs] = best.sizes
        left -= int(best.sizes.sum())
        objective += best.objective
        bound += best.bound
        proven = proven and best.proven
        price = best.price
    return Counts(sizes, objective, bound, proven, price)


def _class_counts(pieces: Pieces, nodes: int, best_sum: Callable[[Pieces, int], Counts], *, frugal: bool) -> Counts:
    """Return the best counts of one class; if `frugal`, on the fewest nodes that allow them.

    More nodes are never worth less, so the fewest are found by bisection.
    """
    best = best_sum(pieces, nodes)
    if not frugal:
        return best
    few, enough = int(pieces.low[pieces.start[:-1]].sum()), int(best.sizes.sum())
    target = best.objective - 1e-12 * abs(best.objective)
    while few < enough:
        middle = (few + enough) // 2
        tried = best_sum(pieces, middle)
        if tried.objective >= target:
            enough, best = int(tried.sizes.sum()), tried
        else:
            few = middle + 1
    return best
