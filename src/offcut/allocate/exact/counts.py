"""The best counts for given pieces: the relaxation, then the search.

Which node goes where does not matter to the optimum (keep what you hold, then take what is free: any counts with a sum
within the node count can be placed without migration), so the problem is a multiple-choice knapsack with unit weights.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from offcut.allocate.exact.pieces import Ints, Pieces
from offcut.allocate.exact.relaxation import Relaxation, relax
from offcut.allocate.exact.search import search
from offcut.allocate.exact.search_in_blocks import search_in_blocks
from offcut.errors import AllocationError

#: Tables up to this much work are made in one go, without looking at the clock: about 5 ms.
_AT_ONCE = 2_000_000


class Counts(NamedTuple):
    """A size for every job of some pieces, in their order. Values are in units of the objective."""

    sizes: Ints
    #: The value of the sizes.
    objective: float
    #: An upper bound on the value of any allocation.
    bound: float
    #: True if the sizes are proven to be optimal.
    proven: bool
    #: An upper bound on the value of one node more.
    price: float


def optimal_counts(pieces: Pieces, nodes: int, until: float = math.inf) -> Counts:
    """Find the best sizes; among equals those with fewest resizes, then with more for earlier jobs.

    Args:
        pieces: the jobs' values.
        nodes: how many nodes there are.
        until: the reading of `time.perf_counter` (s) at which the search gives up with the best answer so far.

    Returns:
        The counts. They are proven to `RESIZE` times the number of jobs, 1e-9 of the values at stake for 2,000 jobs,
        because the search works on values from which each resize takes that little.

    Raises:
        AllocationError: jobs that may not wait need more nodes than there are.
    """
    if not len(pieces.current):
        return Counts(pieces.current, 0.0, 0.0, True, 0.0)
    price, bound, tie, nudged, best, fewest = relax(nodes, *pieces)
    if fewest > nodes:
        raise AllocationError(
            f"the jobs that may not wait need {fewest} nodes, but there are {nodes}.",
            next_step="Unlock a job, allow it to wait, or give more nodes.",
        )
    proven, tried, sizes, regret, value = search(nodes, _AT_ONCE, *pieces, price, bound, tie, nudged, best, fewest)
    if not proven:
        relaxation = Relaxation(price, bound, tie, nudged, best, fewest)
        proven, sizes, value = search_in_blocks(
            pieces, relaxation, nodes, sizes=sizes, regret=regret, tried=tried, until=until
        )
    return Counts(sizes, value, value if proven else max(value, bound), proven, price)
