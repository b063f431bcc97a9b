"""The entry of the exact solver: from a problem to its optimal allocation."""

from __future__ import annotations

import math
import time
from functools import cache, partial

import numpy as np

from offcut.allocate.exact.counts import optimal_counts
from offcut.allocate.exact.max_min import highest_floor
from offcut.allocate.exact.pieces import Pieces, build
from offcut.allocate.exact.priority import priority_counts
from offcut.allocate.exact.quotas import counts_within_quotas
from offcut.errors import AllocationError
from offcut.model import Allocation, AllocationProblem, JobRequest, ScalingCurve

#: Values that add up to more than this may overflow within the search.
_MOST_VALUE = 1e290


def solve(problem: AllocationProblem, *, time_limit_s: float | None = None) -> Allocation:
    """Find the best node count for every job.

    Among equally good allocations it is the one with the fewest resizes, then the one with more for earlier jobs.

    Args:
        problem: what to decide; without node classes and without a limit on resizes (see `offcut.allocate.milp`).
        time_limit_s: seconds after which the search stops with the best answer so far; None: no limit.

    Returns:
        The allocation. `proven` is False only where the time limit ended the search; `bound` then says how much better
        any allocation could be. `solve_ms` counts the decision alone, with pieces built and kernels loaded.

    Raises:
        AllocationError: jobs that may not wait need more nodes than there are, no allocation meets the quotas, values
            overflow, or the problem says things that counts cannot express.
    """
    if problem.needs_milp:
        raise AllocationError(
            "node classes and a limit on resizes are beyond the exact solver.", next_step="Use --solver milp."
        )
    warm()
    pieces = _build(problem)
    started = time.perf_counter()
    until = math.inf if time_limit_s is None else started + time_limit_s
    floor = highest_floor(pieces, problem) if problem.objective == "max_min" else None
    if floor is not None:
        pieces = floor.pieces
    if problem.objective == "priority":
        found = priority_counts(pieces, problem, partial(optimal_counts, until=until))
    else:
        found = optimal_counts(pieces, problem.nodes, until)
        if problem.groups:
            found = counts_within_quotas(pieces, problem, found)
    if floor is not None:
        found = found._replace(objective=floor.objective, bound=floor.bound)
    solve_ms = (time.perf_counter() - started) * 1e3
    return Allocation(
        nodes=dict(zip([job.id for job in problem.jobs], found.sizes.tolist(), strict=True)),
        objective=float(found.objective),
        bound=float(found.bound),
        proven=found.proven,
        solve_ms=solve_ms,
        price=float(found.price),
    )


def _build(problem: AllocationProblem) -> Pieces:
    """Build the pieces; AllocationError where the search, which compares sums of values, could not compare them."""
    try:
        pieces = build(problem)
    except (ZeroDivisionError, OverflowError):
        raise _out_of_range() from None
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.abs(pieces.base).sum() + (np.abs(pieces.slope) * pieces.high).sum()
    if not total < _MOST_VALUE:
        raise _out_of_range()
    return pieces


def _out_of_range() -> AllocationError:
    return AllocationError(
        "the jobs' values are too large or too small to be compared.",
        next_step="Bring weights, rates, costs and the horizon nearer to each other.",
    )


@cache
def warm() -> None:
    """Load the compiled kernels, or compile them where no cache of them exists (seconds, once per installation)."""
    curve = ScalingCurve((1, 2), (1.0, 2.0))
    jobs = tuple(JobRequest(id=str(j), min_nodes=1, max_nodes=2, curve=curve, sizes=(2,)) for j in range(2))
    optimal_counts(build(AllocationProblem(nodes=3, horizon_s=1.0, jobs=jobs)), 3)
