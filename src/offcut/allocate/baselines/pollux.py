"""Pollux's objective on the same curves (Qiao et al., OSDI 2021, section 4.2).

Pollux maximises the power mean, with p = -1, of the jobs' speed-ups over their fair share, where the
speed-up of a resized job is scaled by the share of the horizon that is left after the resize. For p = -1 that is the
same as minimising the sum of 1 / speed-up, one term per job, so it is solved here to optimality rather than by Pollux's
genetic algorithm. Batch sizes stay as they are: goodput is throughput.
"""

from __future__ import annotations

import numpy as np

from offcut.allocate.exact.counts import optimal_counts
from offcut.allocate.exact.pieces import Pieces
from offcut.allocate.objective import allowed_sizes
from offcut.model import AllocationProblem, JobRequest

#: The speed-up of a job without nodes. With 0 instead, a single such job would make the power mean 0.
WAITING = 1e-2


def allocate(problem: AllocationProblem) -> dict[str, int]:
    """Maximise the power mean of the speed-ups over the fair share.

    Args:
        problem: what to decide.

    Returns:
        The node count of each job, by its id.
    """
    fair = max(1, problem.nodes // max(1, len(problem.jobs)))
    sizes = [list(allowed_sizes(job, problem.nodes)) for job in problem.jobs]
    values = [[-1.0 / _speed_up(problem, job, n, fair) for n in s] for job, s in zip(problem.jobs, sizes, strict=True)]
    start = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum([len(s) for s in sizes], out=start[1:])
    flat = np.array([n for s in sizes for n in s], np.int64)
    base = np.array([v for of_job in values for v in of_job], np.float64)
    pieces = Pieces(
        start, flat, flat, np.zeros(len(flat)), base, np.array([job.current for job in problem.jobs], np.int64)
    )
    best = optimal_counts(pieces, problem.nodes)
    return {job.id: int(n) for job, n in zip(problem.jobs, best.sizes, strict=True)}


def _speed_up(problem: AllocationProblem, job: JobRequest, n: int, fair: int) -> float:
    """Return the speed-up of `n` nodes over `fair` nodes, scaled by the share of the horizon after a resize."""
    base = max(job.curve.rate_at(min(fair, job.curve.max_nodes)), 1e-12)
    cost_s = 0.0 if n == job.current else job.grow_cost_s if n > job.current else job.shrink_cost_s
    left = max(0.0, 1.0 - cost_s / problem.horizon_s)
    return max(WAITING, left * job.curve.rate_at(min(n, job.curve.max_nodes)) / base)
