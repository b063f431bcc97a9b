"""Step 3: an allocation without regret, or else dynamic programming over the sizes of small regret.

Under a limit on the total regret, every size of larger regret drops out (Pisinger's core idea for multiple-choice
knapsacks): most jobs keep one size, the others a few short runs of sizes. Rows of least total regret are built from the
last job to the first, so that the way back, from the first job to the last, can give earlier jobs more among ties. A
piece is linear in the size, so one row takes one sliding-window minimum per piece, for pieces of any length.

The rules for compiled functions stand in `relaxation`. Pieces have nudged bases here (see `Relaxation.nudged`), except
where an answer's values are added up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from offcut.allocate.exact.pieces import Pieces
from offcut.allocate.exact.relaxation import Relaxation
from offcut.allocate.exact.tables import Options, Rows

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
        price: field of `Relaxation`.
        bound: field of `Relaxation`.
        tie: field of `Relaxation`.
        nudged: field of `Relaxation`, shape (pieces,).
        best: field of `Relaxation`, shape (jobs,).
        fewest: field of `Relaxation`.

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
    """Return the regret of job j at size n, which lies in its piece k."""
    return relaxation.best[j] - (pieces.base[k] + (pieces.slope[k] - relaxation.price) * n)


@njit(cache=True)
def _sizes_within(pieces: Pieces, relaxation: Relaxation, limit: float, j: int, k: int) -> Any:
    """Return the first and last size of job j's piece k with regret at most `limit`; (1, 0) if there are none."""
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
    """Make `answer` feasible if it is not, then give each remaining node to the job that gains most."""
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
    """Return the `Options` under `limit`; writes every job's smallest remaining size into `answer`, shape (jobs,)."""
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


@njit(cache=True)
def row_ranges(options: Options, limit: float, price: float) -> Any:
    """Compute, per row, the fewest and the most nodes that an allocation can have left, and the work of filling all
    rows.

    The ranges have the shape (rows,). The work is -1 if no allocation within the limit exists.
    """
    start, last, left = options.start, options.last, options.left
    rows = len(start)
    lower, upper = np.empty(rows, np.int64), np.empty(rows, np.int64)
    if left < 0:
        return lower, upper, -1
    unused = left if price * left <= limit else np.int64(limit / price)
    upper[rows - 1] = min(left, unused)
    for q in range(rows - 2, -1, -1):
        upper[q] = min(left, upper[q + 1] + last[start[q + 1] - 1])
    lower[0] = left
    for q in range(rows - 1):
        lower[q + 1] = max(0, lower[q] - last[start[q + 1] - 1])
    if upper[0] < left or lower[-1] > upper[-1]:
        return lower, upper, -1
    work = 0
    for q in range(rows - 1):
        work += max(0, upper[q] - lower[q] + 1) * (start[q + 1] - start[q])
    return lower, upper, work


@njit(cache=True)
def fill_last_row(rows: Rows, price: float, row: Array) -> None:
    """Write the regret of leaving w nodes unused into `row`, for every w in the last row's range."""
    for w in range(rows.lower[-1], rows.upper[-1] + 1):
        row[w - rows.lower[-1]] = price * w


@njit(cache=True)
def fill_rows(options: Options, rows: Rows, limit: float, begin: int, end: int) -> None:
    """Fill the rows `end - 1` down to `begin`, given row `end`; entries above `limit` need not be the least."""
    _, start, first, last, regret, per_node, _ = options
    lower, upper, offset, table = rows
    widest = 1
    for q in range(begin, end + 1):
        widest = max(widest, upper[q] - lower[q] + 1)
    queue, key = np.empty(widest, np.int64), np.empty(widest)
    live = np.empty(widest, np.int64)
    for q in range(end - 1, begin - 1, -1):
        old = offset[q + 1] - lower[q + 1]
        count = 0
        for w in range(lower[q + 1], upper[q + 1] + 1):
            if table[old + w] <= limit:
                live[count] = w
                count += 1
        a, b = (live[0], live[count - 1]) if count > 0 else (1, 0)
        new = offset[q] - lower[q]
        for w in range(lower[q], upper[q] + 1):
            table[new + w] = np.inf
        for i in range(start[q], start[q + 1]):
            u, v, at_u, more = first[i], last[i], regret[i], per_node[i]
            if v - u < 4:
                for n in range(u, v + 1):
                    r = at_u + more * (n - u)
                    if 3 * count > b - a:
                        for w in range(max(lower[q], a + n), min(upper[q], b + n) + 1):
                            x = table[old + w - n] + r
                            table[new + w] = min(x, table[new + w])
                        continue
                    for k in range(count):  # far apart, as with rigid sizes
                        w = live[k] + n
                        if lower[q] <= w <= upper[q]:
                            x = table[old + live[k]] + r
                            table[new + w] = min(x, table[new + w])
                continue
            # table[new + w] = at_u + more * (w - u) + min over m in [w - v, w - u] of (table[old + m] - more * m)
            head = tail = 0
            entered = max(a, lower[q] - v)
            for w in range(max(lower[q], a + u), min(upper[q], b + v) + 1):
                while entered <= min(b, w - u):
                    x = table[old + entered] - more * entered
                    while tail > head and key[tail - 1] >= x:
                        tail -= 1
                    queue[tail] = entered
                    key[tail] = x
                    tail += 1
                    entered += 1
                while head < tail and queue[head] < w - v:
                    head += 1
                if head < tail:
                    # Not key[head] + more * w: the difference of two large numbers would lose what ties need.
                    m = queue[head]
                    x = table[old + m] + (at_u + more * (w - m - u))
                    table[new + w] = min(x, table[new + w])


@njit(cache=True)
def trace_back(
    options: Options, rows: Rows, begin: int, end: int, left: int, spent: float, target: float, answer: Array
) -> Any:
    """Choose the sizes of jobs `begin` to `end - 1`, each the largest with which the total regret stays within
    `target`.

    `left` nodes are left and `spent` is the regret before job `begin`; both are returned as they are after the last
    job. The sizes are added to `answer`, shape (jobs,).
    """
    job, start, first, last, regret, per_node, _ = options
    lower, upper, offset, table = rows
    for q in range(begin, end):
        found = False
        nearest, size, cost = np.inf, np.int64(0), 0.0
        for i in range(start[q + 1] - 1, start[q] - 1, -1):
            for n in range(min(last[i], left - lower[q + 1]), first[i] - 1, -1):
                if left - n > upper[q + 1]:
                    break
                r = regret[i] + per_node[i] * (n - first[i])
                total = spent + r + table[offset[q + 1] + left - n - lower[q + 1]]
                if total < nearest:
                    nearest, size, cost = total, n, r
                if total <= target:
                    size, cost, found = n, r, True
                    break
            if found:
                break
        answer[job[q]] += size
        left -= size
        spent += cost
    return left, spent
