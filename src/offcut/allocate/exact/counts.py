"""Counts to proven optimality, given the pieces: bound, first answer, then dynamic programming on what is left open.

Which node goes where does not matter to the optimum (keep what you hold, then take what is free: any counts with a sum
within the node count can be placed without migration), so the problem is a multiple-choice knapsack with unit weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from offcut.allocate.exact import relaxation as kernels
from offcut.allocate.exact import search as core
from offcut.allocate.exact import search_in_blocks as large
from offcut.allocate.exact.pieces import Ints, Pieces
from offcut.errors import AllocationError

#: Rows up to this many entries are made in one go, without looking at the clock: about 5 ms.
_AT_ONCE = 2_000_000


@dataclass(frozen=True, slots=True)
class Counts:
    """Sizes in the order of the pieces' jobs, their value, a bound on any value, and the price of a node."""

    sizes: Ints
    objective: float
    bound: float
    proven: bool
    price: float


def decide(pieces: Pieces, nodes: int, until: float = math.inf) -> Counts:
    """The best sizes; among equals those with fewest resizes, then with more for earlier jobs.

    `until` is a reading of `time.perf_counter` at which the search gives up and says so. Raises AllocationError where
    jobs that may not wait need more nodes than there are.
    """
    arrays = (pieces.start, pieces.low, pieces.high, pieces.slope, pieces.base)
    if not len(pieces.current):
        return Counts(pieces.current, 0.0, 0.0, True, 0.0)
    lam, bound, tie, nudged, best, fewest = kernels.relax(nodes, *arrays, pieces.current)
    if fewest > nodes:
        raise AllocationError(
            f"the jobs that may not wait need {fewest} nodes, but there are {nodes}.",
            next_step="Unlock a job, allow it to wait, or give more nodes.",
        )
    status, sizes, regret, objective = core.search(nodes, lam, tie, *arrays, nudged, best, _AT_ONCE)
    proven = True
    if status == core.TOO_LARGE:
        sizes, regret, proven = large.search(
            pieces, nodes, lam=lam, tie=tie, nudged=nudged, best=best, answer=sizes, gap=regret, until=until
        )
        objective = core.value_of(*arrays, sizes)
    # Proven means to RESIZE times the number of jobs, 1e-9 of the values at stake for 2,000 jobs: the search works on
    # values from which each resize takes that trifle.
    return Counts(sizes, objective, objective if proven else max(objective, bound), proven, lam)
