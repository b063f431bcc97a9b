"""The frontier of a chain of layers, each of which leaves its output in one of a few layouts.

From layer to layer the frontier of everything so far is kept for each layout. It is exact as long as it has few points.
A chain of many different layers has more points than anybody can use; then the frontier is thinned at every layer, and
a lower bound says how far what is left may be from exact: for any price of memory, the least time + price x memory of
the chain is a shortest path, and no strategy with so much memory is faster than that path less the price.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from offcut.pipeline.frontier.points import Frontier, single, thinned, union_of_products
from offcut.pipeline.layer_profile import Floats

#: Points per layout that are kept from layer to layer.
MOST_POINTS = 512
_PRICES = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOption:
    """A way to run one layer: where its input and output lie, and what it costs."""

    name: Hashable
    layout: int
    memory_bytes: float
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainFrontier:
    """The frontier; `choices` of its points are the names of the options, layer by layer.

    `gap`: for no limit of memory is there a strategy faster than 1 / (1 + gap) of the best point within that limit. 0
    if the frontier is exact.
    """

    frontier: Frontier
    gap: float


def chain_frontier(
    options: Sequence[Sequence[LayerOption]], relayout_s: Floats, *, most_points: int = MOST_POINTS
) -> ChainFrontier:
    """Compute the frontier of a chain of layers.

    Args:
        options: the options of each layer, L of them; each has at least one.
        relayout_s: seconds to bring the output of layer k from layout a into layout b, shape (L - 1, A, A).
        most_points: points per layout that are kept; more are thinned.

    Returns:
        The frontier, and how far it may be from exact.
    """
    layouts = range(relayout_s.shape[1])
    thin = False
    so_far: dict[int, Frontier] = {}
    for k, layer in enumerate(options):
        following: dict[int, Frontier] = {}
        for b in layouts:
            made = [single(x.memory_bytes, x.time_s, x.name) for x in layer if x.layout == b]
            if not made:
                continue
            into = [(so_far[a], single(0.0, float(relayout_s[k - 1, a, b]))) for a in so_far]
            before = [union_of_products(into)] if k else []
            whole = union_of_products([*before, x] for x in made)
            following[b] = thinned(whole, most_points)
            thin = thin or len(following[b]) < len(whole)
        so_far = following
    frontier = union_of_products((x,) for x in so_far.values())
    return ChainFrontier(frontier=frontier, gap=_gap(frontier, options, relayout_s) if thin else 0.0)


def _gap(frontier: Frontier, options: Sequence[Sequence[LayerOption]], relayout_s: Floats) -> float:
    """Return the largest ratio of a point's time to the least time just below the next point's memory, less 1."""
    prices = _prices(frontier)
    least = _least_priced(options, relayout_s, prices)
    limits = np.append(frontier.memory_bytes[1:], math.inf)
    finite = np.where(np.isfinite(limits), limits, 0.0)
    bounds = least[:, None] - prices[:, None] * finite[None, :]
    bounds[:, -1] = np.where(prices > 0, -math.inf, least)
    return max(0.0, float((frontier.time_s / bounds.max(0)).max()) - 1)


def _prices(frontier: Frontier) -> Floats:
    """Return prices of memory (s per byte): 0, and slopes of the lower convex hull of the frontier."""
    hull: list[tuple[float, float]] = []
    for m, t in frontier.points():
        while len(hull) > 1 and _above((m, t), hull[-2], hull[-1]):
            hull.pop()
        hull.append((m, t))
    slopes = [(a[1] - b[1]) / (b[0] - a[0]) for a, b in pairwise(hull)]
    if len(slopes) > _PRICES:
        slopes = [slopes[k] for k in np.linspace(0, len(slopes) - 1, _PRICES).astype(int)]
    return np.array([*slopes, 0.0])


def _above(point: tuple[float, float], before: tuple[float, float], middle: tuple[float, float]) -> bool:
    """Return True if `middle` lies on or above the line from `before` to `point`."""
    return (middle[1] - before[1]) * (point[0] - before[0]) >= (point[1] - before[1]) * (middle[0] - before[0])


def _least_priced(options: Sequence[Sequence[LayerOption]], relayout_s: Floats, prices: Floats) -> Floats:
    """Return the least time + price x memory of the chain for every price, shape (prices,)."""
    best = np.full((len(prices), relayout_s.shape[1]), math.inf)
    for k, layer in enumerate(options):
        into = (best[:, :, None] + relayout_s[k - 1][None]).min(1) if k else np.zeros_like(best)
        best = np.full_like(best, math.inf)
        for x in layer:
            priced = into[:, x.layout] + (x.time_s + prices * x.memory_bytes)
            best[:, x.layout] = np.minimum(best[:, x.layout], priced)
    return np.asarray(best.min(1))
