"""Step 3 where its tables are too large to be made at once: in blocks, with an eye on the clock.

Rows are kept only at every block's end and made again, block by block, on the way back: twice the work in the square
root of the memory. Instances that need this exist (rigid sizes with a subset-sum flavour, hundreds of equal jobs that
all start), but not among those that a queue of measured jobs gives.
"""

from __future__ import annotations

import math
import time
from itertools import pairwise

import numpy as np

from offcut.allocate.exact.pieces import Ints, Pieces
from offcut.allocate.exact.relaxation import Relaxation
from offcut.allocate.exact.search import (
    fill_last_row,
    fill_rows,
    limits,
    options_within,
    row_ranges,
    total_value,
    trace_back,
)
from offcut.allocate.exact.tables import Options, Rows

#: Entries made between two looks at the clock, about 10 ms of work.
_CHUNK = 4_000_000


class _OutOfTimeError(Exception):
    pass


def search_in_blocks(
    pieces: Pieces, relaxation: Relaxation, nodes: int, *, sizes: Ints, regret: float, tried: int, until: float
) -> tuple[bool, Ints, float]:
    """Continue `search` from the limit at which it gave up.

    Args:
        pieces: the jobs' values.
        relaxation: that of the pieces.
        nodes: how many nodes there are.
        sizes: the best sizes that `search` knew, shape (jobs,).
        regret: their regret.
        tried: how many of `limits` no allocation keeps.
        until: the reading of `time.perf_counter` (s) at which to give up.

    Returns:
        Whether the sizes are proven to be optimal, which they are unless the time ran out; the sizes; their value in
        units of the objective.
    """
    nudged = pieces._replace(base=relaxation.nudged)
    for limit in limits(regret, relaxation.tie)[tried:]:
        trial = np.empty(len(sizes), np.int64)
        options = options_within(nudged, relaxation, limit, nodes, trial)
        try:
            least = _least_regret(options, relaxation, limit, trial, until)
        except _OutOfTimeError:
            return False, sizes, total_value(pieces, sizes)
        if least <= limit - relaxation.tie:
            return True, trial, total_value(pieces, trial)
    return True, sizes, total_value(pieces, sizes)


def _least_regret(options: Options, relaxation: Relaxation, limit: float, sizes: Ints, until: float) -> float:
    """Complete `sizes` to an allocation of least regret and return that; infinity where none is within `limit`."""
    lower, upper, work = row_ranges(options, limit, relaxation.price)
    if work < 0:
        return math.inf
    jobs = len(options.job)
    widths = np.maximum(0, upper - lower + 1)
    block = max(1, math.isqrt(jobs))
    kept = {jobs: np.empty(widths[-1])}
    fill_last_row(Rows(lower, upper, widths, kept[jobs]), relaxation.price, kept[jobs])

    def rows_of(begin: int, end: int) -> Rows:
        """Return the rows `begin` to `end`, computed from row `end`, which was stored."""
        offset = np.zeros(jobs + 2, np.int64)
        offset[begin + 1 : end + 2] = np.cumsum(widths[begin : end + 1])
        rows = Rows(lower, upper, offset, np.empty(offset[end + 1]))
        rows.table[offset[end] :] = kept[end]
        q = end
        while q > begin:
            if time.perf_counter() > until:
                raise _OutOfTimeError
            choices = options.start[q] - options.start[max(0, q - 1)]
            step = max(1, int(_CHUNK / max(1, widths[q - 1] * choices)))
            following = max(begin, q - step)
            fill_rows(options, rows, limit, following, q)
            q = following
        return rows

    ends = [*range(jobs, 0, -block), 0]
    for end, begin in pairwise(ends):
        kept[begin] = rows_of(begin, end).table[: widths[begin]].copy()
    least = float(kept[0][options.left - lower[0]])
    if least > limit:
        return math.inf
    left, spent = options.left, 0.0
    for end, begin in reversed(list(pairwise(ends))):
        rows = rows_of(begin, end)
        left, spent = trace_back(options, rows, begin, end, left, spent, least + relaxation.tie, sizes)
    return least
