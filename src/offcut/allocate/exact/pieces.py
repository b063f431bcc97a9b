"""Value functions as pieces: per job, disjoint runs of consecutive sizes on which the value is linear.

What depends on the job alone (its curve, its sizes) is built once and kept; what changes from decision to decision (the
node count, current sizes, costs, the horizon) is worked in by one compiled pass, `kernels.assemble`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from offcut.allocate.exact import relaxation as kernels
from offcut.allocate.value import Terms, may_be_zero, rate_now, terms
from offcut.errors import AllocationError
from offcut.model import AllocationProblem, JobRequest, Objective, ScalingCurve

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pieces:
    """All jobs' pieces behind one another; job j's are `start[j]`..`start[j + 1]`, in increasing order of size.

    Piece k covers the sizes `low[k]`..`high[k]`, each worth `base[k] + slope[k] * n` (units of the objective).
    """

    start: Ints
    low: Ints
    high: Ints
    slope: Floats
    base: Floats
    current: Ints


@lru_cache(maxsize=4096)
def _rates(
    curve: ScalingCurve, smallest: int, largest: int, sizes: tuple[int, ...] | None, cap: float | None
) -> tuple[Ints, Ints, Floats, Floats]:
    """Pieces (low, high, slope, base) of the counted rate over the allowed sizes from 1 on."""
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
            at_u, at_v = t.of(curve.at(u)), t.of(curve.at(v))
            s = (at_v - at_u) / (v - u) if v > u else 0.0
            low.append(u)
            high.append(v)
            slope.append(s)
            base.append(at_u - s * u)
    return np.array(low, np.int64), np.array(high, np.int64), np.array(slope, np.float64), np.array(base, np.float64)


def rate_pieces(
    curve: ScalingCurve, smallest: int, largest: int, sizes: tuple[int, ...] | None, cap: float | None
) -> list[tuple[int, int, float, float]]:
    """The counted rate over the allowed sizes: (first size, last size, slope, base); the rate is base + slope * n."""
    return [
        (int(u), int(v), float(s), float(b))
        for u, v, s, b in zip(*_rates(curve, smallest, largest, sizes, cap), strict=True)
    ]


def _runs(sizes: Iterable[int]) -> list[tuple[int, int]]:
    """Maximal runs of consecutive numbers in an increasing sequence."""
    runs: list[tuple[int, int]] = []
    for n in sizes:
        if runs and n == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], n)
        else:
            runs.append((n, n))
    return runs


def _crossings(curve: ScalingCurve, cap: float) -> list[int]:
    """The last whole size before each point at which the curve crosses `cap`."""
    points = list(zip(curve.nodes, curve.rate, strict=True))
    return [
        math.floor(a + (cap - ra) / (rb - ra) * (b - a))
        for (a, ra), (b, rb) in pairwise(points)
        if (ra - cap) * (rb - cap) < 0
    ]


def _static(job: JobRequest, cap: float | None) -> tuple[Ints, Ints, Floats, Floats]:
    if not job.locked:
        return _rates(job.curve, job.min_nodes, job.max_nodes, job.sizes, cap)
    if job.current == 0:
        return _rates(job.curve, 1, 0, None, None)
    here = np.array([job.current], np.int64)
    return here, here, np.zeros(1), np.array([Terms(1.0, cap).of(rate_now(job))])


_Row = tuple[tuple[Ints, Ints, Floats, Floats], tuple[float, ...]]
#: Rows by the identity of the request, which each entry keeps alive: hashing a request would cost more than it saves.
_rows: dict[tuple[int, Objective], tuple[JobRequest, _Row]] = {}


def _row(objective: Objective, job: JobRequest) -> _Row:
    """What one job contributes: its static pieces, and its numbers for `kernels.assemble`."""
    key = (id(job), objective)
    known = _rows.get(key)
    if known is not None:
        return known[1]
    t = terms(objective, job)
    now = t.of(rate_now(job)) if job.current else 0.0
    row = _static(job, t.cap), (t.weight, now, job.grow_cost_s, job.shrink_cost_s, may_be_zero(job))
    if len(_rows) >= 16384:
        _rows.clear()
    _rows[key] = job, row
    return row


def build(problem: AllocationProblem) -> Pieces:
    """The pieces of every job under the problem's cost model and objective, cut off at its node count.

    Raises AllocationError where a job that may not wait has no size that fits.
    """
    jobs = problem.jobs
    rows = [_row(problem.objective, job) for job in jobs]
    static = [pieces for pieces, _ in rows]
    start = np.zeros(len(jobs) + 1, np.int64)
    np.cumsum([len(s[0]) for s in static], out=start[1:])
    current = np.array([job.current for job in jobs], np.int64)
    numbers = np.array([numbers for _, numbers in rows], np.float64).reshape(len(jobs), 5)
    if static:
        low, high, slope, base = (np.concatenate(column) for column in zip(*static, strict=True))
    else:
        low, high, slope, base = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0)
    stall = problem.cost_model == "stall"
    made = kernels.assemble(
        problem.nodes, float(problem.horizon_s), stall, start, low, high, slope, base, current, numbers
    )
    for j in np.flatnonzero(np.diff(made[0]) == 0):
        raise AllocationError(
            f"job '{jobs[j].id}' may not wait, but none of its sizes fits on {problem.nodes} nodes.",
            next_step="Allow it to wait, unlock it, or give it a smaller size.",
        )
    return Pieces(made[0], made[1], made[2], made[3], made[4], current)


def subset(pieces: Pieces, jobs: Sequence[int] | Ints) -> Pieces:
    """The pieces of some of the jobs, given by their numbers."""
    spans = [np.arange(pieces.start[j], pieces.start[j + 1]) for j in jobs]
    start = np.zeros(len(spans) + 1, np.int64)
    np.cumsum([len(span) for span in spans], out=start[1:])
    k = np.concatenate(spans) if spans else np.empty(0, np.int64)
    return Pieces(start, pieces.low[k], pieces.high[k], pieces.slope[k], pieces.base[k], pieces.current[list(jobs)])


def worth(pieces: Pieces, j: int, n: int) -> float:
    """The value of size `n` to job number `j`; minus infinity where the size is not allowed."""
    for k in range(int(pieces.start[j]), int(pieces.start[j + 1])):
        if pieces.low[k] <= n <= pieces.high[k]:
            return float(pieces.base[k] + pieces.slope[k] * n)
    return -math.inf
