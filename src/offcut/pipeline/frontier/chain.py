"""The frontier of a chain of layers, each of which leaves its output in one of a few layouts.

From layer to layer the frontier of everything so far is kept for each layout. It is exact as long as it has few points.
A chain of many different layers has more points than anybody can use; then the frontier is thinned at every layer, and
a lower bound says how far what is left may be from exact: for any price of memory, the least time + price x memory of
the chain is a shortest path, and no strategy with so much memory is faster than that path less the price.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from offcut.pipeline.frontier.points import Frontier, single, thinned, union_of_products
from offcut.pipeline.layer_profile import Floats

#: Points per layout that are kept from layer to layer.
MOST_POINTS = 512
_PRICES = 96
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOption:
    """A way to run a layer, or `layers` of them in a row: where input and output lie, and what it costs."""

    name: Hashable
    layout: int
    memory_bytes: float
    time_s: float
    layers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainFrontier:
    """The frontier; `choices` of its points are the names of the options in order.

    `prices` of memory (s per byte) and `least` time + price x memory of the chain for each are empty if the frontier is
    exact.
    """

    frontier: Frontier
    prices: Floats
    least: Floats

    @property
    def gap(self) -> float:
        """How far the frontier may be from exact: see `largest_gap`."""
        return largest_gap(self.frontier, [(self, 0.0, 0.0)])

    def least_time_s(self, below_bytes: Floats) -> Floats:
        """Return a time that no strategy with less memory than this beats: inf if there is no such strategy.

        Args:
            below_bytes: bytes, any shape; inf: any memory.
        """
        point = np.searchsorted(self.frontier.memory_bytes, below_bytes, side="left") - 1
        found = self.frontier.time_s[np.maximum(point, 0)]
        if len(self.prices):
            finite = np.where(np.isfinite(below_bytes), below_bytes, 0.0)
            found = (self.least[:, None] - self.prices[:, None] * finite).max(0)
            found = np.where(np.isfinite(below_bytes), found, self.least[self.prices == 0].max())
        return np.where(point >= 0, found, math.inf)


def largest_gap(frontier: Frontier, parts: Iterable[tuple[ChainFrontier, float, float]]) -> float:
    """Return how much faster a strategy might be than the best point within the same limit of memory, for any limit.

    Args:
        frontier: the frontier of the parts' union.
        parts: frontiers of chains, with the bytes and seconds that were added to each.

    Returns:
        No strategy is faster than 1 / (1 + gap) of the point. 0 if all parts are exact.
    """
    limits = np.append(frontier.memory_bytes[1:], math.inf)
    bounds = np.min([part.least_time_s(limits - room) + seconds for part, room, seconds in parts], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(frontier.time_s > bounds, frontier.time_s / bounds, 1.0)
    gap = float(ratios.max()) - 1
    return gap if gap > _ROUNDING else 0.0


def chain_frontier(
    options: Sequence[Sequence[LayerOption]], relayout_s: Floats, *, most_points: int = MOST_POINTS
) -> ChainFrontier:
    """Compute the frontier of a chain of layers.

    Args:
        options: the options that start at each layer, L of them; together they lead to the end of the chain.
        relayout_s: seconds to bring the output of layer k from layout a into layout b, shape (L - 1, A, A).
        most_points: points per layout that are kept; more are thinned.

    Returns:
        The frontier, and how far it may be from exact.
    """
    layouts = range(relayout_s.shape[1])
    thin = False
    # The products that lead to the end of a layer, by layout.
    arriving: list[dict[int, list[list[Frontier]]]] = [{} for _ in range(len(options) + 1)]
    for k, starting in enumerate(options):
        whole = {a: union_of_products(terms) for a, terms in arriving[k].items()}
        arriving[k] = {}
        so_far = {a: thinned(frontier, most_points) for a, frontier in whole.items()}
        thin = thin or any(len(so_far[a]) < len(whole[a]) for a in whole)
        if k and not so_far:
            continue
        for b in layouts:
            into: list[Frontier] = []
            for x in starting:
                if x.layout != b:
                    continue
                if k and not into:
                    moves = ((so_far[a], single(0.0, float(relayout_s[k - 1, a, b]))) for a in so_far)
                    into = [union_of_products(moves)]
                made = single(x.memory_bytes, x.time_s, x.name)
                arriving[k + x.layers].setdefault(b, []).append([*into, made])
    all_points = union_of_products(term for terms in arriving[-1].values() for term in terms)
    frontier = thinned(all_points, most_points)
    thin = thin or len(frontier) < len(all_points)
    prices = _prices(frontier) if thin else np.zeros(0)
    least = _least_priced(options, relayout_s, prices) if thin else prices
    return ChainFrontier(frontier=frontier, prices=prices, least=least)


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
    layouts = relayout_s.shape[1]
    best = [np.full((len(prices), layouts), math.inf) for _ in range(len(options) + 1)]
    for k, starting in enumerate(options):
        into = (best[k][:, :, None] + relayout_s[k - 1][None]).min(1) if k else np.zeros((len(prices), layouts))
        for x in starting:
            priced = into[:, x.layout] + (x.time_s + prices * x.memory_bytes)
            reached = best[k + x.layers]
            reached[:, x.layout] = np.minimum(reached[:, x.layout], priced)
    return np.asarray(best[-1].min(1))
