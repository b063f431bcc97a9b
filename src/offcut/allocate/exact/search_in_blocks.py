"""The same search where its rows are too large to be made in one go: in blocks, with an eye on the clock.

Rows are kept only at every block's end and made again, block by block, on the way back: twice the work in the square
root of the memory. Instances that need this exist (rigid sizes with a subset-sum flavour, hundreds of equal jobs that
all start), but not among those that a queue of measured jobs gives.
"""

from __future__ import annotations

import math
import time
from itertools import pairwise
from typing import Any

import numpy as np

from offcut.allocate.exact import search as core
from offcut.allocate.exact.pieces import Pieces

#: Entries made between two looks at the clock, about 10 ms of work.
_CHUNK = 4_000_000


class _OutOfTimeError(Exception):
    pass


def search(
    pieces: Pieces, nodes: int, *, lam: float, tie: float, nudged: Any, best: Any, answer: Any, gap: float, until: float
) -> tuple[Any, float, bool]:
    """Continue `core.search` where it gave up; `until` is a reading of time.perf_counter.

    Returns the sizes, their regret, and whether they are proven optimal: they are not when the time ran out.
    """
    limit = max(gap / 64, 4 * tie)
    while True:
        limit = min(limit, gap + 4 * tie)
        trial = np.empty(len(answer), np.int64)
        left_open = core.options(
            limit, nodes, lam, pieces.start, pieces.low, pieces.high, pieces.slope, nudged, best, trial
        )
        try:
            least = _solve(limit, lam=lam, tie=tie, left_open=left_open, trial=trial, until=until)
        except _OutOfTimeError:
            return answer, gap, False
        if least <= limit - tie:
            return trial, least, True
        if limit >= gap + 4 * tie:
            return answer, gap, True
        limit *= 8


def _solve(limit: float, *, lam: float, tie: float, left_open: Any, trial: Any, until: float) -> float:
    """Fill in `trial` with the least regret under `limit`; infinity where nothing fits."""
    job, option_start, first, last, regret, per_node, left = left_open
    if left < 0:
        return math.inf
    lower, upper, _ = core.windows(limit, lam, left, option_start, last)
    if upper[0] < left or lower[-1] > upper[-1]:
        return math.inf
    jobs = len(job)
    sizes = np.maximum(0, upper - lower + 1)
    block = max(1, math.isqrt(jobs))
    kept = {jobs: np.empty(sizes[-1])}
    core.last_row(limit, lam, lower, upper, kept[jobs])

    def rows(begin: int, end: int) -> tuple[Any, Any]:
        offset = np.zeros(jobs + 2, np.int64)
        offset[begin + 1 : end + 2] = np.cumsum(sizes[begin : end + 1])
        table = np.empty(offset[end + 1])
        table[offset[end] :] = kept[end]
        j = end
        while j > begin:
            if time.perf_counter() > until:
                raise _OutOfTimeError
            width = option_start[j] - option_start[max(0, j - 1)]
            step = max(1, int(_CHUNK / max(1, sizes[j - 1] * width)))
            i = max(begin, j - step)
            core.fill_rows(i, j, limit, option_start, first, last, regret, per_node, lower, upper, offset, table)
            j = i
        return offset, table

    ends = [*range(jobs, 0, -block), 0]
    for end, begin in pairwise(ends):
        offset, table = rows(begin, end)
        kept[begin] = table[: sizes[begin]].copy()
    least = float(kept[0][left - lower[0]])
    if least > limit:
        return math.inf
    w, spent = left, 0.0
    for end, begin in reversed(list(pairwise(ends))):
        offset, table = rows(begin, end)
        w, spent = core.walk(
            begin, end, w, spent, least + tie, job, option_start, first, last, regret, per_node, lower, upper, offset,
            table, trial,
        )  # fmt: skip
    return least
