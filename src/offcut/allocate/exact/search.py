"""Step 3: an allocation without regret, or else dynamic programming over the sizes of small regret.

Under a limit on the total regret, every size of larger regret drops out (Pisinger's core idea for multiple-choice
knapsacks): most jobs keep one size, the others a few short runs of sizes. Rows of least total regret are built from the
last job to the first, so that the way back, from the first job to the last, can give earlier jobs more among ties. A
piece is linear in the size, so one row takes one sliding-window minimum per piece, whatever the piece's length.

The rules for compiled functions stand in `relaxation`. Pieces have nudged bases here (see `Relaxation.nudged`), except
where an answer's values are added up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from offcut.allocate.exact.pieces import Pieces
from offcut.allocate.exact.relaxation import Relaxation
from offcut.allocate.exact.rows import Options, Rows, fill_last_row, fill_rows, row_ranges, trace_back

Array = Any

# mypy: disallow-untyped-decorators=False, disable-error-code="assignment"
#: How often the first answer is improved greedily.
_GREEDY_STEPS = 24


@njit(cache=True)
def search(
    nodes: int, max_work: int, start: Array, low: Array, high: Array, slope: Array, base: Array, current: Array,
    price: float, bound: float, tie: float, nudged: Array, best: Array, fewest: int,
) -> Any:  # fmt: skip
    """Find the best sizes, unless that would take tables of more than `max_work` steps.

    Args:
        nodes: the number of nodes; at least `fewest`.
        max_work: steps of the largest dynamic program to run at once (about 2.5 ns each).
        start: field of `Pieces`, shape (jobs + 1,).
        low: field of `Pieces`, shape (pieces,).
        high: field of `Pieces`, shape (pieces,).
        slope: field of `Pieces`, shape (pieces,).
        base: field of `Pieces`, shape (pieces,).
        current: field of `Pieces`, shape (jobs,).
        price: field of `Relaxation`, units of the objective per node.
        bound: field of `Relaxation`, units of the objective.
        tie: field of `Relaxation`, units of the objective.
        nudged: field of `Relaxation`, shape (pieces,).
        best: field of `Relaxation`, shape (jobs,).
        fewest: field of `Relaxation`, nodes.

    Returns:
        True if the sizes are proven to be optimal; the number of `limits` that no allocation keeps; the sizes, shape
        (jobs,); their regret; their value in units of the objective. If not proven, the sizes are the best known, and
        the tables under the next of the limits would have been too large.
    """
    given = Pieces(start, low, high, slope, base, current)
    pieces = Pieces(start, low, high, slope, nudged, current)
    relaxation = Relaxation(price, bound, tie, nudged, best, fewest)
    answer = np.empty(len(current), np.int64)
    certain = _without_regret(pieces, relaxation, nodes, answer)
    if not certain:
        _fill_greedily(pieces, nodes, answer)
    gap = _total_regret(pieces, relaxation, nodes, answer)
    if certain:
        return True, 0, answer, gap, total_value(given, answer)
    trial = np.empty(len(current), np.int64)
    tried = 0
    for limit in limits(gap, tie):
        options = options_within(pieces, relaxation, limit, nodes, trial)
        lower, upper, work = row_ranges(options, limit, price)
        if work > max_work:
            return False, tried, answer, gap, total_value(given, answer)
        if work >= 0:
            last = len(options.job)
            offset = np.zeros(last + 2, np.int64)
            for q in range(last + 1):
                offset[q + 1] = offset[q] + max(0, upper[q] - lower[q] + 1)
            rows = Rows(lower, upper, offset, np.empty(offset[last + 1]))
            fill_last_row(rows, price, rows.table[offset[last] :])
            fill_rows(options, rows, limit, 0, last)
            least = rows.table[options.left - lower[0]]
            if least <= limit - tie:  # so that all its ties lie within the limit too
                trace_back(options, rows, 0, last, options.left, 0.0, least + tie, trial)
                return True, tried, trial, least, total_value(given, trial)
        tried += 1
    return True, tried, answer, gap, total_value(given, answer)


@njit(cache=True)
def limits(gap: float, tie: float) -> Any:
    """Return the limits on the total regret to try in turn.

    They start far below the gap, where few sizes remain, and end just above it. The first under which an allocation
    fits is enough: that allocation is optimal, because every better one would have fitted too.

    Args:
        gap: the regret of a known answer.
        tie: differences up to this one are ties.

    Returns:
        Four increasing limits.
    """
    least, most = max(gap / 64, 4 * tie), gap + 4 * tie
    return min(least, most), min(8 * least, most), min(64 * least, most), most


@njit(cache=True)
def _regret(pieces: Pieces, relaxation: Relaxation, j: int, k: int, n: int) -> Any:
    """The regret of job j at size n, which lies in its piece k."""
    return relaxation.best[j] - (pieces.base[k] + (pieces.slope[k] - relaxation.price) * n)


@njit(cache=True)
def _sizes_within(pieces: Pieces, relaxation: Relaxation, limit: float, j: int, k: int) -> Any:
    """The part of job j's piece k with regret at most `limit`: first and last size; (1, 0) where there is none."""
    low, high = pieces.low[k], pieces.high[k]
    s = pieces.slope[k] - relaxation.price
    at_low = _regret(pieces, relaxation, j, k, low)
    at_high = _regret(pieces, relaxation, j, k, high)
    if at_low <= limit and at_high <= limit:
        return low, high
    if at_low > limit and at_high > limit:
        return 1, 0
    if at_low <= limit:
        return low, min(high - 1, low + np.int64((limit - at_low) / -s))
    return max(low + 1, high - np.int64((limit - at_high) / s)), high


@njit(cache=True)
def _without_regret(pieces: Pieces, relaxation: Relaxation, nodes: int, answer: Array) -> bool:
    """Give every job one of its regret-free sizes, earlier jobs the larger ones, so that the regrets add up to nothing.

    Writes `answer` and returns True where that is certain to be the first among the ties: every job's regret-free sizes
    are consecutive, and together they can use all nodes (or a node has no price). Else `answer` holds the smallest
    regret-free sizes, raised where that fits.
    """
    jobs = len(pieces.current)
    most = np.empty(jobs, np.int64)
    least = 0
    reach = 0
    plain = True
    for j in range(jobs):
        first, last, count = np.int64(0), np.int64(-1), 0
        for k in range(pieces.start[j], pieces.start[j + 1]):
            u, v = _sizes_within(pieces, relaxation, relaxation.tie, j, k)
            if u <= v:
                if count == 0:
                    first = u
                last = v
                count += v - u + 1
        answer[j] = first
        most[j] = last if last - first + 1 == count else -last
        plain = plain and most[j] >= 0
        least += first
        reach += last
    left = nodes - least
    if left < 0:
        return False
    certain = plain and (relaxation.price == 0.0 or reach >= nodes)
    for j in range(jobs):
        more = abs(most[j]) - answer[j]
        if more <= left or most[j] >= 0:
            given = min(more, left)
            answer[j] += given
            left -= given
    return certain


@njit(cache=True)
def _fill_greedily(pieces: Pieces, nodes: int, answer: Array) -> None:
    """Make `answer` feasible if it is not, then spend what is left where it gains most."""
    start, low, high, slope, base, current = pieces
    jobs = len(current)
    left = nodes - answer.sum()
    for j in range(jobs - 1, -1, -1):
        if left >= 0:
            break
        left += answer[j] - low[start[j]]
        answer[j] = low[start[j]]
    here = np.empty(jobs)
    for j in range(jobs):
        for k in range(start[j], start[j + 1]):
            if low[k] <= answer[j] <= high[k]:
                here[j] = base[k] + slope[k] * answer[j]
    for _ in range(_GREEDY_STEPS):
        if left <= 0:
            return
        gain, job, size, then = 0.0, -1, np.int64(0), 0.0
        for j in range(jobs):
            for k in range(start[j], start[j + 1]):
                if high[k] <= answer[j] or low[k] > answer[j] + left:
                    continue
                for n in (low[k], min(high[k], answer[j] + left)):
                    v = base[k] + slope[k] * n
                    if n > answer[j] and v - here[j] > gain:
                        gain, job, size, then = v - here[j], j, n, v
        if job < 0:
            return
        left -= size - answer[job]
        answer[job] = size
        here[job] = then


@njit(cache=True)
def total_value(pieces: Pieces, answer: Array) -> float:
    """Return the sum of the jobs' values.

    Args:
        pieces: the values of the jobs.
        answer: shape (jobs,), the size of each job.

    Returns:
        Units of the objective.
    """
    total = 0.0
    for j in range(len(pieces.current)):
        for k in range(pieces.start[j], pieces.start[j + 1]):
            if pieces.low[k] <= answer[j] <= pieces.high[k]:
                total += pieces.base[k] + pieces.slope[k] * answer[j]
                break
    return total


@njit(cache=True)
def _total_regret(pieces: Pieces, relaxation: Relaxation, nodes: int, answer: Array) -> Any:
    """Return the regrets of `answer`, unused nodes included: its distance from the bound."""
    total = relaxation.price * (nodes - answer.sum())
    for j in range(len(pieces.current)):
        for k in range(pieces.start[j], pieces.start[j + 1]):
            if pieces.low[k] <= answer[j] <= pieces.high[k]:
                total += _regret(pieces, relaxation, j, k, answer[j])
                break
    return total


@njit(cache=True)
def options_within(pieces: Pieces, relaxation: Relaxation, limit: float, nodes: int, answer: Array) -> Any:
    """Find the sizes whose regret is within a limit.

    Args:
        pieces: the values of the jobs.
        relaxation: their relaxation.
        limit: the largest regret of a size.
        nodes: the number of nodes.
        answer: shape (jobs,); receives every job's smallest remaining size.

    Returns:
        The fields of `Options`.
    """
    jobs, count = len(pieces.current), len(pieces.low)
    job, start = np.empty(jobs, np.int64), np.zeros(jobs + 1, np.int64)
    first, last = np.empty(count, np.int64), np.empty(count, np.int64)
    regret, per_node = np.empty(count), np.empty(count)
    m = 0
    q = 0
    left = nodes
    for j in range(jobs):
        begin = m
        smallest = np.int64(0)
        for k in range(pieces.start[j], pieces.start[j + 1]):
            u, v = _sizes_within(pieces, relaxation, limit, j, k)
            if u > v:
                continue
            if m == begin:
                smallest = u
            first[m], last[m] = u - smallest, v - smallest
            regret[m] = _regret(pieces, relaxation, j, k, u)
            per_node[m] = relaxation.price - pieces.slope[k]
            m += 1
        answer[j] = smallest
        left -= smallest
        if m == begin + 1 and last[begin] == 0:
            m = begin
        else:
            job[q] = j
            q += 1
            start[q] = m
    return Options(job[:q], start[: q + 1], first[:m], last[:m], regret[:m], per_node[:m], left)
