"""Pollux's objective on the same curves (Qiao et al., OSDI 2021, section 4.2).

Pollux maximises the power mean, with p = -1, of the jobs' speed-ups over their fair share, a speed-up of a job that is
resized being scaled by what is left of the horizon after the resize. For p = -1 that is the same as minimising the sum
of 1 / speed-up, one term per job, so it is solved here to optimality rather than by Pollux's genetic algorithm. Batch
sizes stay as they are: goodput is throughput.
"""

from __future__ import annotations

import numpy as np

from offcut.allocate.exact.counts import optimal_counts
from offcut.allocate.exact.pieces import Pieces
from offcut.allocate.objective import allowed_sizes
from offcut.model import AllocationProblem, JobRequest

#: The speed-up that a job without nodes counts as; the power mean would be zero with a single one of them.
WAITING = 1e-2


def allocate(problem: AllocationProblem) -> dict[str, int]:
    """The sizes with the best power mean."""
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
    base = max(job.curve.rate_at(min(fair, job.curve.max_nodes)), 1e-12)
    cost_s = 0.0 if n == job.current else job.grow_cost_s if n > job.current else job.shrink_cost_s
    left = max(0.0, 1.0 - cost_s / problem.horizon_s)
    return max(WAITING, left * job.curve.rate_at(min(n, job.curve.max_nodes)) / base)
