"""The table of step 3's dynamic program: its rows, one per job with a choice, and the way back through them.

The rules for compiled functions stand in `relaxation`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from offcut.allocate.exact.pieces import Floats, Ints

Array = Any

# mypy: disallow-untyped-decorators=False, disable-error-code="assignment"


class Options(NamedTuple):
    """What is left to decide under a limit: the jobs with a choice, and per such job its runs of sizes.

    Job number `job[q]` has the options `start[q]`..`start[q + 1]`, in increasing order of size. Option i are the sizes
    `first[i]`..`last[i]`, counted from the job's smallest remaining size, with the regret
    `regret[i] + per_node[i] * (n - first[i])`. `left` is the number of nodes to share out among these jobs beyond their
    smallest sizes; negative: the smallest sizes together exceed the nodes.
    """

    job: Ints
    start: Ints
    first: Ints
    last: Ints
    regret: Floats
    per_node: Floats
    left: int


class Rows(NamedTuple):
    """The table of the dynamic program, row by row, all in one array.

    Row q holds, for each number w of nodes from `lower[q]` to `upper[q]`, the least total regret of the jobs q and
    later with exactly w nodes between them and the unused; it begins at `table[offset[q]]`. The last row is that of the
    unused nodes alone.
    """

    lower: Ints
    upper: Ints
    offset: Ints
    table: Floats


@njit(cache=True)
def row_ranges(options: Options, limit: float, price: float) -> Any:
    """Compute the range of node counts in each row of the dynamic program.

    Args:
        options: the sizes that remain.
        limit: the largest total regret.
        price: the price of a node.

    Returns:
        Per row, the fewest and the most nodes that an allocation can have left, shape (rows,) each; and the work of
        filling all rows, which is -1 if no allocation within the limit exists.
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
    """Write the regret of leaving w nodes unused, for every w in the last row's range.

    Args:
        rows: the ranges of the rows.
        price: the price of a node.
        row: receives the regrets, shape (range of the last row,).
    """
    for w in range(rows.lower[-1], rows.upper[-1] + 1):
        row[w - rows.lower[-1]] = price * w


@njit(cache=True)
def fill_rows(options: Options, rows: Rows, limit: float, begin: int, end: int) -> None:
    """Fill the rows `end - 1` down to `begin`, given row `end`. Entries above `limit` need not be the least.

    Args:
        options: the sizes that remain.
        rows: the rows; their table is written.
        limit: the largest total regret.
        begin: the first row to fill.
        end: the row after the last one to fill.
    """
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

    Args:
        options: the sizes that remain.
        rows: the filled rows.
        begin: the first job.
        end: the job after the last one.
        left: the nodes left before job `begin`.
        spent: the regret of the jobs before `begin`.
        target: the largest total regret.
        answer: shape (jobs,); the chosen sizes are added to it.

    Returns:
        The nodes left and the regret after the last job.
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
