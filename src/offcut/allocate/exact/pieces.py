"""Step 1: each job's value as a function of its size, in pieces on which it is linear.

What depends on the job alone (its curve, its sizes) is built once and kept; what changes from decision to decision (the
node count, current sizes, costs, the horizon) is worked in by one compiled pass, `_assemble`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from offcut.allocate.objective import Terms, may_be_zero, rate_now, terms
from offcut.errors import AllocationError
from offcut.model import AllocationProblem, JobRequest, Objective, ScalingCurve

# mypy: disallow-untyped-decorators=False
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Pieces(NamedTuple):
    """The value of every size to every job, as linear pieces: disjoint runs of consecutive sizes.

    All jobs' pieces stand one after another: job j has `start[j]`..`start[j + 1]`, in increasing order of size. Piece k
    covers the sizes `low[k]`..`high[k]` (nodes), each worth `base[k] + slope[k] * n` in units of the objective.
    """

    #: Shape (jobs + 1,): where each job's pieces begin.
    start: Ints
    #: Shape (pieces,): the first and the last size of each piece.
    low: Ints
    high: Ints
    #: Shape (pieces,): the value per node, and the value at 0 nodes if the line went there.
    slope: Floats
    base: Floats
    #: Shape (jobs,): the nodes that each job holds now.
    current: Ints

    def subset(self, jobs: Sequence[int] | Ints) -> Pieces:
        """Return the pieces of some of the jobs.

        Args:
            jobs: the positions of the jobs, in the order of the result.

        Returns:
            Pieces of these jobs alone.
        """
        spans = [np.arange(self.start[j], self.start[j + 1]) for j in jobs]
        start = np.zeros(len(spans) + 1, np.int64)
        np.cumsum([len(span) for span in spans], out=start[1:])
        k = np.concatenate(spans) if spans else np.empty(0, np.int64)
        return Pieces(start, self.low[k], self.high[k], self.slope[k], self.base[k], self.current[list(jobs)])


@lru_cache(maxsize=4096)
def _rates(
    curve: ScalingCurve, smallest: int, largest: int, sizes: tuple[int, ...] | None, cap: float | None
) -> tuple[Ints, Ints, Floats, Floats]:
    """Return the pieces (low, high, slope, base) of the rate as the objective counts it, over allowed sizes."""
    top = curve.max_nodes
    runs = [(max(1, smallest), min(largest, top))] if sizes is None else _runs(n for n in sizes if 1 <= n <= top)
    marks = list(curve.nodes)
    if cap is not None:
        marks = sorted({*marks, *_crossings(curve, cap)})
    low, high, slope, base = [], [], [], []
    t = Terms(1.0, cap)
    for first, last in runs:
        for a, b in pairwise(marks):
            u, v = max(first, a + 1), min(last, b)
            if u > v:
                continue
            at_u, at_v = t.counted(curve.rate_at(u)), t.counted(curve.rate_at(v))
            s = (at_v - at_u) / (v - u) if v > u else 0.0
            low.append(u)
            high.append(v)
            slope.append(s)
            base.append(at_u - s * u)
    return np.array(low, np.int64), np.array(high, np.int64), np.array(slope, np.float64), np.array(base, np.float64)


def rate_pieces(
    curve: ScalingCurve, smallest: int, largest: int, sizes: tuple[int, ...] | None, cap: float | None
) -> list[tuple[int, int, float, float]]:
    """Return the pieces of a curve's rate over the allowed sizes, without any cost of a resize.

    Args:
        curve: rates (samples/s) by node count.
        smallest: the smallest allowed size in nodes.
        largest: the largest one.
        sizes: the allowed sizes, increasing; None: all from `smallest` to `largest`.
        cap: the rate beyond which more hardly counts (see `Terms`); None: none.

    Returns:
        Per piece the first size, the last size, the slope and the base; the rate at n nodes is base + slope * n.
    """
    return [
        (int(u), int(v), float(s), float(b))
        for u, v, s, b in zip(*_rates(curve, smallest, largest, sizes, cap), strict=True)
    ]


def _runs(sizes: Iterable[int]) -> list[tuple[int, int]]:
    """Return the maximal runs of consecutive numbers in an increasing sequence."""
    runs: list[tuple[int, int]] = []
    for n in sizes:
        if runs and n == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], n)
        else:
            runs.append((n, n))
    return runs


def _crossings(curve: ScalingCurve, cap: float) -> list[int]:
    """Return the last whole size before each point at which the curve crosses `cap`."""
    points = list(zip(curve.nodes, curve.rate, strict=True))
    return [
        math.floor(a + (cap - ra) / (rb - ra) * (b - a))
        for (a, ra), (b, rb) in pairwise(points)
        if (ra - cap) * (rb - cap) < 0
    ]


def _job_rates(job: JobRequest, cap: float | None) -> tuple[Ints, Ints, Floats, Floats]:
    """Return the pieces of one job's rate; a locked job has one size."""
    if not job.locked:
        return _rates(job.curve, job.min_nodes, job.max_nodes, job.sizes, cap)
    if job.current == 0:
        return _rates(job.curve, 1, 0, None, None)
    here = np.array([job.current], np.int64)
    return here, here, np.zeros(1), np.array([Terms(1.0, cap).counted(rate_now(job))])


_Row = tuple[tuple[Ints, Ints, Floats, Floats], tuple[float, ...]]
#: Rows by the identity of the request, which each entry keeps alive: hashing a request would cost more than it saves.
_rows: dict[tuple[int, Objective], tuple[JobRequest, _Row]] = {}


def _row(objective: Objective, job: JobRequest) -> _Row:
    """Return what one job contributes: the pieces of its rate, and its numbers for `_assemble`."""
    key = (id(job), objective)
    known = _rows.get(key)
    if known is not None:
        return known[1]
    t = terms(objective, job)
    now = t.counted(rate_now(job)) if job.current else 0.0
    row = _job_rates(job, t.cap), (t.weight, now, job.grow_cost_s, job.shrink_cost_s, may_be_zero(job))
    if len(_rows) >= 16384:
        _rows.clear()
    _rows[key] = job, row
    return row


def build(problem: AllocationProblem) -> Pieces:
    """Build the pieces of every job under the problem's cost model and objective, up to its node count.

    Args:
        problem: what to decide; groups and classes are not looked at.

    Returns:
        The pieces of all jobs, in the problem's order.

    Raises:
        AllocationError: a job that may not wait has no size that fits.
    """
    jobs = problem.jobs
    rows = [_row(problem.objective, job) for job in jobs]
    rates = [pieces for pieces, _ in rows]
    start = np.zeros(len(jobs) + 1, np.int64)
    np.cumsum([len(s[0]) for s in rates], out=start[1:])
    current = np.array([job.current for job in jobs], np.int64)
    numbers = np.array([numbers for _, numbers in rows], np.float64).reshape(len(jobs), 5)
    if rates:
        low, high, slope, base = (np.concatenate(column) for column in zip(*rates, strict=True))
    else:
        low, high, slope, base = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0)
    stall = problem.cost_model == "stall"
    made = _assemble(problem.nodes, float(problem.horizon_s), stall, numbers, start, low, high, slope, base, current)
    pieces = Pieces(made[0], made[1], made[2], made[3], made[4], current)
    for j in np.flatnonzero(np.diff(pieces.start) == 0):
        raise AllocationError(
            f"job '{jobs[j].id}' may not wait, but its smallest size does not fit on {problem.nodes} nodes.",
            next_step="Allow it to wait, unlock it, or give it a smaller size.",
        )
    return pieces


@njit(cache=True)
def _assemble(
    nodes: int, horizon_s: float, stall: bool, numbers: Any, start: Any, low: Any, high: Any, slope: Any, base: Any,
    current: Any,
) -> Any:  # fmt: skip
    """Turn the pieces of the jobs' rates into pieces of their values: (start, low, high, slope, base).

    `numbers[j]`: weight, rate now, grow cost (s), shrink cost (s), whether 0 is allowed.
    """
    jobs = len(start) - 1
    room = len(low) + 3 * jobs
    out_start = np.zeros(jobs + 1, np.int64)
    out_low, out_high = np.empty(room, np.int64), np.empty(room, np.int64)
    out_slope, out_base = np.empty(room), np.empty(room)
    m = 0
    for j in range(jobs):
        weight, now, grow_s, shrink_s, zero = numbers[j]
        c = current[j]
        if zero > 0:
            out_low[m] = out_high[m] = 0
            out_slope[m] = 0.0
            out_base[m] = 0.0 if stall or c == 0 else -weight * shrink_s * now
            m += 1
        for k in range(start[j], start[j + 1]):
            for side in range(3):  # what shrinks, what stays, what grows
                u, v, cost_s = low[k], min(high[k], nodes), 0.0
                if side == 0:
                    v, cost_s = min(v, c - 1), shrink_s
                elif side == 1:
                    u, v = max(u, c), min(v, c)
                else:
                    u, cost_s = max(u, c + 1), grow_s
                if u > v:
                    continue
                useful_s = max(0.0, horizon_s - cost_s) if stall else horizon_s
                out_low[m], out_high[m] = u, v
                out_slope[m] = weight * useful_s * slope[k]
                out_base[m] = weight * useful_s * base[k]
                if not stall:
                    out_base[m] -= weight * cost_s * now
                m += 1
        out_start[j + 1] = m
    return out_start, out_low[:m], out_high[:m], out_slope[:m], out_base[:m]
