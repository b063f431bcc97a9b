"""The core of the exact solver: dynamic programming over what the Lagrangian bound leaves open.

With a limit on the total regret, every size of larger regret drops out (Pisinger's core idea for multiple-choice
knapsacks): most jobs keep one size, the others a few short runs of sizes. Rows of least total regret are built from the
last job to the first, so that the walk back, from the first job to the last, can give earlier jobs more among ties. A
piece is linear in the size, so one row takes one sliding-window minimum per piece, whatever the piece's length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = Any


# mypy: disallow-untyped-decorators=False, disable-error-code="assignment"
#: What `search` can say: the answer is proven; the answer is the best so far and the rows would be too large.
PROVEN, TOO_LARGE = 0, 1


@njit(cache=True)
def within(limit: float, top: float, lam: float, low: int, high: int, slope: float, base: float) -> Any:
    """The part of one piece with regret at most `limit`: first and last size; empty (1, 0) where there is none."""
    s = slope - lam
    at_low = top - (base + s * low)
    at_high = top - (base + s * high)
    if at_low <= limit and at_high <= limit:
        return low, high
    if at_low > limit and at_high > limit:
        return 1, 0
    if at_low <= limit:
        return low, min(high - 1, low + np.int64((limit - at_low) / -s))
    return max(low + 1, high - np.int64((limit - at_high) / s)), high


@njit(cache=True)
def share_out(
    nodes: int, lam: float, tie: float, start: Array, low: Array, high: Array, slope: Array, base: Array, best: Array,
    answer: Array,
) -> bool:  # fmt: skip
    """Give every job one of its regret-free sizes, earlier jobs the larger ones, so that the regrets add up to nothing.

    Writes `answer` and returns True where that is certain to be the first among the ties: every job's regret-free sizes
    are consecutive, and together they can use all nodes (or a node has no price). Else `answer` holds the smallest
    regret-free sizes, raised where that fits.
    """
    jobs = len(start) - 1
    most = np.empty(jobs, np.int64)
    least = 0
    reach = 0
    plain = True
    for j in range(jobs):
        first, last, count = np.int64(0), np.int64(-1), 0
        for k in range(start[j], start[j + 1]):
            u, v = within(tie, best[j], lam, low[k], high[k], slope[k], base[k])
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
    certain = plain and (lam == 0.0 or reach >= nodes)
    for j in range(jobs):
        more = abs(most[j]) - answer[j]
        if more <= left or most[j] >= 0:
            take = min(more, left)
            answer[j] += take
            left -= take
    return certain


@njit(cache=True)
def improve(
    nodes: int, start: Array, low: Array, high: Array, slope: Array, base: Array, answer: Array, rounds: int
) -> None:
    """Make `answer` feasible if it is not, then spend what is left where it gains most, at most `rounds` times."""
    jobs = len(start) - 1
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
    for _ in range(rounds):
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
def value_of(start: Array, low: Array, high: Array, slope: Array, base: Array, answer: Array) -> float:
    """The sum of the jobs' values at the sizes in `answer`."""
    total = 0.0
    for j in range(len(start) - 1):
        for k in range(start[j], start[j + 1]):
            if low[k] <= answer[j] <= high[k]:
                total += base[k] + slope[k] * answer[j]
                break
    return total


@njit(cache=True)
def regret_of(
    nodes: int, lam: float, start: Array, low: Array, high: Array, slope: Array, base: Array, best: Array, answer: Array
) -> Any:
    """The regrets of `answer`, unused nodes included: what it lies below the bound."""
    total = lam * (nodes - answer.sum())
    for j in range(len(start) - 1):
        for k in range(start[j], start[j + 1]):
            if low[k] <= answer[j] <= high[k]:
                total += best[j] - (base[k] + (slope[k] - lam) * answer[j])
                break
    return total


@njit(cache=True)
def options(
    limit: float, nodes: int, lam: float, start: Array, low: Array, high: Array, slope: Array, base: Array, best: Array,
    answer: Array,
) -> Any:  # fmt: skip
    """What is left to decide under `limit`.

    Writes every job's smallest remaining size into `answer`. Returns the jobs with a choice; per such job the range of
    its options in the three arrays after it, each option a run of sizes counted from the job's smallest one: first,
    last, regret at the first; then regret per node; and the node count left to share out (negative: none of this fits).
    """
    jobs = len(start) - 1
    job, option_start = np.empty(jobs, np.int64), np.zeros(jobs + 1, np.int64)
    first, last = np.empty(len(low), np.int64), np.empty(len(low), np.int64)
    regret, per_node = np.empty(len(low)), np.empty(len(low))
    m = 0
    q = 0
    left = nodes
    for j in range(jobs):
        begin = m
        smallest = np.int64(0)
        for k in range(start[j], start[j + 1]):
            u, v = within(limit, best[j], lam, low[k], high[k], slope[k], base[k])
            if u > v:
                continue
            if m == begin:
                smallest = u
            first[m], last[m] = u - smallest, v - smallest
            regret[m] = best[j] - (base[k] + (slope[k] - lam) * u)
            per_node[m] = lam - slope[k]
            m += 1
        answer[j] = smallest
        left -= smallest
        if m == begin + 1 and last[begin] == 0:
            m = begin
        else:
            job[q] = j
            q += 1
            option_start[q] = m
    return job[:q], option_start[: q + 1], first[:m], last[:m], regret[:m], per_node[:m], left


@njit(cache=True)
def windows(limit: float, lam: float, left: int, option_start: Array, last: Array) -> Any:
    """Per row the first and the last node count that a solution can pass through; the work of filling all rows."""
    rows = len(option_start)
    lower, upper = np.empty(rows, np.int64), np.empty(rows, np.int64)
    unused = left if lam * left <= limit else np.int64(limit / lam)
    upper[rows - 1] = min(left, unused)
    for j in range(rows - 2, -1, -1):
        upper[j] = min(left, upper[j + 1] + last[option_start[j + 1] - 1])
    lower[0] = left
    for j in range(rows - 1):
        lower[j + 1] = max(0, lower[j] - last[option_start[j + 1] - 1])
    work = 0
    for j in range(rows - 1):
        work += max(0, upper[j] - lower[j] + 1) * (option_start[j + 1] - option_start[j])
    return lower, upper, work


@njit(cache=True)
def last_row(limit: float, lam: float, lower: Array, upper: Array, row: Array) -> None:
    """The regret of leaving w nodes unused, for w in the last row's window."""
    for w in range(lower[-1], upper[-1] + 1):
        row[w - lower[-1]] = lam * w


@njit(cache=True)
def fill_rows(
    begin: int, end: int, limit: float, option_start: Array, first: Array, last: Array, regret: Array, per_node: Array,
    lower: Array, upper: Array, offset: Array, table: Array,
) -> None:  # fmt: skip
    """From row `end`, which stands in `table` at `offset[end]`, make the rows `end - 1` down to `begin`.

    Row j holds, for each node count w in its window, the least total regret of jobs j and later with exactly w nodes
    between them and the unused; what lies above `limit` need not be the least.
    """
    widest = 1
    for j in range(begin, end + 1):
        widest = max(widest, upper[j] - lower[j] + 1)
    queue, key = np.empty(widest, np.int64), np.empty(widest)
    live = np.empty(widest, np.int64)
    for j in range(end - 1, begin - 1, -1):
        old = offset[j + 1] - lower[j + 1]
        count = 0
        for w in range(lower[j + 1], upper[j + 1] + 1):
            if table[old + w] <= limit:
                live[count] = w
                count += 1
        a, b = (live[0], live[count - 1]) if count > 0 else (1, 0)
        new = offset[j] - lower[j]
        for w in range(lower[j], upper[j] + 1):
            table[new + w] = np.inf
        for i in range(option_start[j], option_start[j + 1]):
            u, v, at_u, more = first[i], last[i], regret[i], per_node[i]
            if v - u < 4:
                for n in range(u, v + 1):
                    r = at_u + more * (n - u)
                    if 3 * count > b - a:
                        for w in range(max(lower[j], a + n), min(upper[j], b + n) + 1):
                            x = table[old + w - n] + r
                            table[new + w] = min(x, table[new + w])
                        continue
                    for k in range(count):  # far apart, as with rigid sizes
                        w = live[k] + n
                        if lower[j] <= w <= upper[j]:
                            x = table[old + live[k]] + r
                            table[new + w] = min(x, table[new + w])
                continue
            # table[new + w] = at_u + more * (w - u) + min over m in [w - v, w - u] of (table[old + m] - more * m)
            head = tail = 0
            entered = max(a, lower[j] - v)
            for w in range(max(lower[j], a + u), min(upper[j], b + v) + 1):
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
def walk(
    begin: int, end: int, w: int, spent: float, target: float, job: Array, option_start: Array, first: Array,
    last: Array, regret: Array, per_node: Array, lower: Array, upper: Array, offset: Array, table: Array,
    answer: Array,
) -> Any:  # fmt: skip
    """Choose the sizes of jobs `begin`..`end - 1`, each the largest with which the total regret stays within `target`.

    `w` nodes are left before, `spent` is the regret so far. Adds to `answer`; returns both as they are after.
    """
    for j in range(begin, end):
        found = False
        nearest, size, cost = np.inf, np.int64(0), 0.0
        for i in range(option_start[j + 1] - 1, option_start[j] - 1, -1):
            for n in range(min(last[i], w - lower[j + 1]), first[i] - 1, -1):
                if w - n > upper[j + 1]:
                    break
                r = regret[i] + per_node[i] * (n - first[i])
                total = spent + r + table[offset[j + 1] + w - n - lower[j + 1]]
                if total < nearest:
                    nearest, size, cost = total, n, r
                if total <= target:
                    size, cost, found = n, r, True
                    break
            if found:
                break
        answer[job[j]] += size
        w -= size
        spent += cost
    return w, spent


@njit(cache=True)
def search(
    nodes: int, lam: float, tie: float, start: Array, low: Array, high: Array, slope: Array, base: Array, nudged: Array,
    best: Array, max_work: int,
) -> Any:  # fmt: skip
    """Decide, given the results of `kernels.relax`. Returns status, answer, its regret and its value.

    The limit on the regret starts far below what the first answer shows to be enough and grows until a solution fits
    under it; that solution is optimal, for every better one would have fitted too.
    """
    answer = np.empty(len(best), np.int64)
    certain = share_out(nodes, lam, tie, start, low, high, slope, nudged, best, answer)
    if not certain:
        improve(nodes, start, low, high, slope, nudged, answer, 24)
    gap = regret_of(nodes, lam, start, low, high, slope, nudged, best, answer)
    if certain:
        return PROVEN, answer, gap, value_of(start, low, high, slope, base, answer)
    limit = max(gap / 64, 4 * tie)
    trial = np.empty(len(answer), np.int64)
    while True:
        limit = min(limit, gap + 4 * tie)
        job, option_start, first, last, regret, per_node, left = options(
            limit, nodes, lam, start, low, high, slope, nudged, best, trial
        )
        if left >= 0:
            lower, upper, work = windows(limit, lam, left, option_start, last)
            if upper[0] >= left and lower[-1] <= upper[-1]:
                if work > max_work:
                    return TOO_LARGE, answer, gap, value_of(start, low, high, slope, base, answer)
                rows = len(option_start)
                offset = np.zeros(rows + 1, np.int64)
                for j in range(rows):
                    offset[j + 1] = offset[j] + max(0, upper[j] - lower[j] + 1)
                table = np.empty(offset[rows])
                last_row(limit, lam, lower, upper, table[offset[rows - 1] :])
                fill_rows(0, rows - 1, limit, option_start, first, last, regret, per_node, lower, upper, offset, table)
                least = table[offset[0] + left - lower[0]]
                if least <= limit - tie:  # so that all its ties lie within the limit too
                    walk(
                        0, rows - 1, left, 0.0, least + tie, job, option_start, first, last, regret, per_node, lower,
                        upper, offset, table, trial,
                    )  # fmt: skip
                    return PROVEN, trial, least, value_of(start, low, high, slope, base, trial)
        if limit >= gap + 4 * tie:
            return PROVEN, answer, gap, value_of(start, low, high, slope, base, answer)
        limit *= 8
