"""The exact solver: counts to proven optimality, usually in well under a millisecond.

Which node goes where does not matter to the optimum (keep what you hold, then take what is free: any counts with a sum
within the node count can be placed without migration), so the problem is a multiple-choice knapsack with unit weights.
"""

from __future__ import annotations

import math
import time
from functools import cache

from offcut.allocate import core, kernels, large
from offcut.allocate.pieces import Pieces, build
from offcut.errors import AllocationError
from offcut.model import Allocation, AllocationProblem, JobRequest, ScalingCurve

#: Rows up to this many entries are made in one go, without looking at the clock: about 5 ms.
_AT_ONCE = 2_000_000


def solve(problem: AllocationProblem, *, time_limit_s: float | None = None) -> Allocation:
    """The best node count for every job; among equals the one with fewest resizes, then with more for earlier jobs.

    With `time_limit_s` the search stops about then and returns the best answer found, its bound and `proven=False`.
    Raises AllocationError where jobs that may not wait need more nodes than there are, and where the problem says
    things that counts cannot express (see `offcut.allocate.milp`).
    """
    if problem.needs_milp:
        raise AllocationError(
            "node classes and a limit on resizes are beyond the exact solver.", next_step="Use --solver milp."
        )
    warm()
    pieces = build(problem)
    started = time.perf_counter()
    until = math.inf if time_limit_s is None else started + time_limit_s
    nodes, objective, bound, proven, lam = decide(pieces, problem.nodes, until)
    solve_ms = (time.perf_counter() - started) * 1e3
    return Allocation(
        nodes=dict(zip((job.id for job in problem.jobs), nodes, strict=True)),
        objective=objective,
        bound=bound,
        proven=proven,
        solve_ms=solve_ms,
        price=lam,
    )


@cache
def warm() -> None:
    """Load the compiled kernels, or compile them where no cache of them exists (seconds, once per installation)."""
    curve = ScalingCurve((1, 2), (1.0, 2.0))
    jobs = tuple(JobRequest(id=str(j), min_nodes=1, max_nodes=2, curve=curve, sizes=(2,)) for j in range(2))
    decide(build(AllocationProblem(nodes=3, horizon_s=1.0, jobs=jobs)), 3)


def decide(pieces: Pieces, nodes: int, until: float = math.inf) -> tuple[list[int], float, float, bool, float]:
    """Sizes, objective, bound, whether proven, and the price of a node, for pieces that are built."""
    arrays = (pieces.start, pieces.low, pieces.high, pieces.slope, pieces.base)
    if nodes < 0 or not len(pieces.current):
        return [0] * len(pieces.current), 0.0, 0.0, True, 0.0
    lam, bound, tie, nudged, best, fewest = kernels.relax(nodes, *arrays, pieces.current)
    if fewest > nodes:
        raise AllocationError(
            f"the jobs that may not wait need {fewest} nodes, but there are {nodes}.",
            next_step="Unlock a job, allow it to wait, or give more nodes.",
        )
    status, answer, regret = core.search(nodes, lam, tie, *arrays[:-1], nudged, best, _AT_ONCE)
    proven = True
    if status == core.TOO_LARGE:
        answer, regret, proven = large.search(
            pieces, nodes, lam=lam, tie=tie, nudged=nudged, best=best, answer=answer, gap=regret, until=until
        )
    objective = float(kernels.value_of(*arrays, answer))
    # The search minimises the regret of values from which each resize takes a trifle: that much it may be off.
    slack = kernels.RESIZE / kernels.TIE * tie * len(answer) if proven else math.inf
    return answer.tolist(), objective, max(objective, min(float(bound), objective + slack)), proven, float(lam)
