"""Compiled parts of the exact solver: the pieces of a decision and the Lagrangian bound.

Vocabulary: lambda is the price of a node. At price lambda, a job's *regret* of size n is
`max_m (f(m) - lambda m) - (f(n) - lambda n) >= 0`; an unused node's regret is lambda. For any lambda the bound is
`lambda * nodes + sum of the maxima`, and an allocation's value is the bound less its regrets: the exact solver
minimises regrets, numbers near zero, which keeps rounding far from the answer.

A compiled function here calls only functions of its own file: numba's cache of compiled code looks at that file alone,
and would go on using the old version of a function that changed elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# mypy: disallow-untyped-decorators=False, disable-error-code="assignment"
#: Everything within this share of the objective's magnitude is a tie.
TIE = 5e-14
#: What a resize costs beside its cost: enough to decide between ties, too little to count.
RESIZE = 5e-13

Array = Any


@njit(cache=True)
def assemble(
    nodes: int, horizon_s: float, stall: bool, start: Array, low: Array, high: Array, slope: Array, base: Array,
    current: Array, numbers: Array,
) -> Any:  # fmt: skip
    """Work cost model, horizon, current sizes and node count into the static pieces of the rate.

    `numbers[j]`: weight, rate now, grow cost, shrink cost, whether 0 is allowed. Returns start, low, high, slope, base.
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
            for side in range(3):
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


@njit(cache=True)
def price(nodes: int, start: Array, low: Array, high: Array, slope: Array, base: Array) -> Any:
    """The multiplier of the node count in the relaxation to concave envelopes, and the fewest nodes possible.

    Each job's upper concave hull runs through the ends of its pieces; taking the hulls' segments by falling slope until
    the nodes are used solves the relaxation, and the slope reached is the multiplier (0 where nodes are left over).
    """
    jobs = len(start) - 1
    segment_slope, segment_nodes = np.empty(2 * len(low)), np.empty(2 * len(low), np.int64)
    x, y = np.empty(2 * len(low) + 1, np.int64), np.empty(2 * len(low) + 1)
    count = 0
    fewest = 0
    for j in range(jobs):
        top = 0
        for k in range(start[j], start[j + 1]):
            for n in (low[k], high[k]):
                if top > 0 and n == x[top - 1]:
                    continue
                v = base[k] + slope[k] * n
                while top >= 2 and (y[top - 1] - y[top - 2]) * (n - x[top - 2]) <= (v - y[top - 2]) * (
                    x[top - 1] - x[top - 2]
                ):
                    top -= 1
                x[top] = n
                y[top] = v
                top += 1
        fewest += x[0]
        for q in range(1, top):
            s = (y[q] - y[q - 1]) / (x[q] - x[q - 1])
            if s <= 0:
                break
            segment_slope[count] = s
            segment_nodes[count] = x[q] - x[q - 1]
            count += 1
    left = nodes - fewest
    for i in np.argsort(-segment_slope[:count]):
        left -= segment_nodes[i]
        if left < 0:
            return segment_slope[i], fewest
    return 0.0, fewest


@njit(cache=True)
def best_at(lam: float, start: Array, low: Array, high: Array, slope: Array, base: Array, best: Array) -> Any:
    """Write every job's `max_n (f(n) - lam n)` into `best`; return their sum and the magnitude of what was added."""
    total = 0.0
    magnitude = 0.0
    for j in range(len(start) - 1):
        top = -np.inf
        for k in range(start[j], start[j + 1]):
            s = slope[k] - lam
            top = max(top, base[k] + s * low[k], base[k] + s * high[k])
        best[j] = top
        total += top
        magnitude += abs(top)
    return total, magnitude


@njit(cache=True)
def relax(nodes: int, start: Array, low: Array, high: Array, slope: Array, base: Array, current: Array) -> Any:
    """The price of a node and the bound that it gives.

    Returns the price, the bound, what counts as a tie, the bases with a resize costing a little more than nothing,
    every job's best value with them at that price, and the fewest nodes that the jobs can do with.
    """
    jobs = len(start) - 1
    best = np.empty(jobs)
    lam, fewest = price(nodes, start, low, high, slope, base)
    total, magnitude = best_at(lam, start, low, high, slope, base, best)
    bound = total + lam * nodes
    magnitude += lam * nodes
    if magnitude == 0.0:  # nothing is worth anything: ties still want the fewest resizes
        for k in range(len(low)):
            magnitude = max(magnitude, abs(base[k] + slope[k] * low[k]), abs(base[k] + slope[k] * high[k]))
        magnitude = magnitude if magnitude > 0.0 else 1.0
    nudged = base.copy()
    for j in range(jobs):
        for k in range(start[j], start[j + 1]):
            if low[k] != current[j] or high[k] != current[j]:
                nudged[k] -= RESIZE * magnitude
    best_at(lam, start, low, high, slope, nudged, best)
    return lam, bound, TIE * magnitude, nudged, best, fewest
