"""The exact solver: counts to proven optimality, usually in well under a millisecond."""

from __future__ import annotations

import math
import time
from functools import cache

import numpy as np

from offcut.allocate.exact import counts, objectives, quotas
from offcut.allocate.exact.pieces import Pieces, build
from offcut.errors import AllocationError
from offcut.model import Allocation, AllocationProblem, JobRequest, ScalingCurve

#: Values that add up to more than this may overflow within the search.
_MOST_VALUE = 1e290


def solve(problem: AllocationProblem, *, time_limit_s: float | None = None) -> Allocation:
    """The best node count for every job; among equals the one with fewest resizes, then with more for earlier jobs.

    With `time_limit_s` the search stops about then and returns the best answer found, its bound and `proven=False`.
    Raises AllocationError where jobs that may not wait need more nodes than there are, where values overflow, and
    where the problem says things that counts cannot express (see `offcut.allocate.milp`).
    """
    if problem.needs_milp:
        raise AllocationError(
            "node classes and a limit on resizes are beyond the exact solver.", next_step="Use --solver milp."
        )
    warm()
    pieces = _build(problem)
    started = time.perf_counter()
    until = math.inf if time_limit_s is None else started + time_limit_s
    if problem.objective == "max_min":
        found = objectives.max_min(pieces, problem, until)
    elif problem.objective == "priority":
        found = objectives.priority(pieces, problem, until)
    else:
        found = quotas.decide(pieces, problem, until)
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
    """The pieces; AllocationError where the search, which compares sums of values, could not tell answers apart."""
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
    counts.decide(build(AllocationProblem(nodes=3, horizon_s=1.0, jobs=jobs)), 3)
