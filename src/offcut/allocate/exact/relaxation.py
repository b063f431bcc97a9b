"""Step 2: the price of a node, the bound that it proves, and the regret of every size.

Replacing each job's value f(n) by its concave envelope gives a problem that sorting solves. The multiplier of its node
count is the *price* of a node. At that price, a job's *regret* of size n is

    max_m (f(m) - price m) - (f(n) - price n) >= 0

and the regret of an unused node is the price. For any price the bound is `price * nodes + sum of the maxima`, and an
allocation's value is the bound less its regrets. The search minimises regrets instead of maximising values, because
they are numbers near zero: rounding stays far from the answer.

Two rules for every compiled function of this package:

- It calls compiled functions of its own file only. Numba caches compiled code per file and looks for changes in that
  file alone: it would go on using the old version of a function that changed elsewhere. For the same reason, change the
  order of a named tuple's fields only together with `make clean`.
- What Python calls once per decision takes plain arrays and makes the named tuple inside, because a named tuple costs
  about 2 microseconds on the way into compiled code and nothing within it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from offcut.allocate.exact.pieces import Floats, Pieces

# mypy: disallow-untyped-decorators=False, disable-error-code="assignment"
#: Everything within this share of the objective's magnitude is a tie.
TIE = 5e-14
#: A small extra cost of each resize: large enough to decide between ties, too small to matter otherwise.
RESIZE = 5e-13

Array = Any


class Relaxation(NamedTuple):
    """The result of the relaxation of a problem. Values are in units of the objective."""

    #: The multiplier of the node count: what one node more would be worth at most; 0 where nodes are left over.
    price: float
    #: An upper bound on the value of any allocation.
    bound: float
    #: Differences up to this one are ties.
    tie: float
    #: The bases of the pieces, each resize charged `RESIZE` of the objective's magnitude: between ties it decides.
    nudged: Floats
    #: Every job's `max_n (f(n) - price n)`, with the nudged bases.
    best: Floats
    #: The fewest nodes that the jobs need together.
    fewest: int


@njit(cache=True)
def relax(nodes: int, start: Array, low: Array, high: Array, slope: Array, base: Array, current: Array) -> Any:
    """Solve the relaxation of a problem, given the fields of its `Pieces`.

    Args:
        nodes: the number of nodes.
        start: field of `Pieces`, shape (jobs + 1,).
        low: field of `Pieces`, shape (pieces,).
        high: field of `Pieces`, shape (pieces,).
        slope: field of `Pieces`, shape (pieces,).
        base: field of `Pieces`, shape (pieces,).
        current: field of `Pieces`, shape (jobs,).

    Returns:
        The fields of `Relaxation`; `fewest` may exceed `nodes`.
    """
    pieces = Pieces(start, low, high, slope, base, current)
    best = np.empty(len(current))
    price, fewest = _envelope_price(pieces, nodes)
    total, magnitude = best_at(pieces, price, best)
    bound = total + price * nodes
    magnitude += price * nodes
    if magnitude == 0.0:  # every value is 0: among ties, the fewest resizes still win
        for k in range(len(low)):
            magnitude = max(magnitude, abs(base[k] + slope[k] * low[k]), abs(base[k] + slope[k] * high[k]))
        magnitude = magnitude if magnitude > 0.0 else 1.0
    nudged = base.copy()
    for j in range(len(current)):
        for k in range(start[j], start[j + 1]):
            if low[k] != current[j] or high[k] != current[j]:
                nudged[k] -= RESIZE * magnitude
    best_at(Pieces(start, low, high, slope, nudged, current), price, best)
    return price, bound, TIE * magnitude, nudged, best, fewest


@njit(cache=True)
def _envelope_price(pieces: Pieces, nodes: int) -> Any:
    """Return the multiplier of the node count in the relaxation to concave envelopes, and the fewest nodes possible.

    Each job's upper concave hull runs through the ends of its pieces; taking the hulls' segments by falling slope until
    the nodes are used solves the relaxation, and the slope reached is the multiplier (0 where nodes are left over).
    """
    start, low, high, slope, base, current = pieces
    segment_slope, segment_nodes = np.empty(2 * len(low)), np.empty(2 * len(low), np.int64)
    x, y = np.empty(2 * len(low) + 1, np.int64), np.empty(2 * len(low) + 1)
    count = 0
    fewest = 0
    for j in range(len(current)):
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
def best_at(pieces: Pieces, price: float, best: Array) -> Any:
    """Compute every job's `max_n (f(n) - price n)`.

    Args:
        pieces: the values of the jobs.
        price: the price of a node.
        best: shape (jobs,); receives the maxima.

    Returns:
        Their sum, and the sum of their magnitudes.
    """
    total = 0.0
    magnitude = 0.0
    for j in range(len(pieces.current)):
        top = -np.inf
        for k in range(pieces.start[j], pieces.start[j + 1]):
            s = pieces.slope[k] - price
            top = max(top, pieces.base[k] + s * pieces.low[k], pieces.base[k] + s * pieces.high[k])
        best[j] = top
        total += top
        magnitude += abs(top)
    return total, magnitude
