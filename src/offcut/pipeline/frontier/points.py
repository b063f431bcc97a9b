"""Frontiers: sets of (memory, time) points of which none beats another in both, and their algebra.

Strategies of two operations that run one after the other on the same devices add their memory and their time: the
product of two frontiers has every sum of a point of the one and a point of the other. A choice between strategies is
the union. Both keep only points that no other beats. Every point knows which points it was made of, so that the
strategies behind it can be named.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from offcut.pipeline.layer_profile import Floats

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frontier:
    """Points in increasing order of memory, with strictly falling time; shape (n,) each."""

    memory_bytes: Floats
    time_s: Floats
    #: What `union_of_products` made the points of: terms, and for each point the term and the place in its product.
    _terms: Sequence[Sequence[Frontier]] = field(default=(), repr=False)
    _term: Indices | None = field(default=None, repr=False)
    _place: Indices | None = field(default=None, repr=False)
    #: Of a single strategy: what was chosen.
    _choice: Hashable = field(default=None, repr=False)

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.memory_bytes)

    def points(self) -> list[tuple[float, float]]:
        """Return (memory in bytes, time in seconds) of every point, in increasing order of memory."""
        return list(zip(self.memory_bytes.tolist(), self.time_s.tolist(), strict=True))

    def choices(self, point: int) -> list[Hashable]:
        """Return the choices behind a point.

        Args:
            point: its number.

        Returns:
            The `choice` of every `single` frontier that the point is made of, in the order of the products.
        """
        found: list[Hashable] = []
        waiting = [(self, point)]
        while waiting:
            frontier, k = waiting.pop()
            if frontier._term is None or frontier._place is None:
                if frontier._choice is not None:
                    found.append(frontier._choice)
                continue
            factors = frontier._terms[int(frontier._term[k])]
            place = int(frontier._place[k])
            for factor in reversed(factors):
                place, own = divmod(place, len(factor))
                waiting.append((factor, own))
        return found


def single(memory_bytes: float, time_s: float, choice: Hashable = None) -> Frontier:
    """Return the frontier of one strategy.

    Args:
        memory_bytes: the memory that it needs.
        time_s: the time that it takes.
        choice: what `Frontier.choices` calls it; None: it is not named.
    """
    return Frontier(memory_bytes=np.array([memory_bytes]), time_s=np.array([time_s]), _choice=choice)


def union_of_products(terms: Iterable[Sequence[Frontier]]) -> Frontier:
    """Return the frontier of a choice between terms, each of which is a product of frontiers.

    Args:
        terms: the factors of each term; at least one term with at least one factor.

    Returns:
        All sums of one point per factor, of any term, that no other such sum beats.
    """
    terms = list(terms)
    memory, time = [], []
    for factors in terms:
        m, t = factors[0].memory_bytes, factors[0].time_s
        for factor in factors[1:]:
            m, t = np.add.outer(m, factor.memory_bytes).ravel(), np.add.outer(t, factor.time_s).ravel()
        memory.append(m)
        time.append(t)
    sizes = np.array([len(m) for m in memory], dtype=np.int64)
    all_memory, all_time = np.concatenate(memory), np.concatenate(time)
    kept = unbeaten(all_memory, all_time)
    ends = np.cumsum(sizes)
    term = np.searchsorted(ends, kept, side="right")
    return Frontier(
        memory_bytes=all_memory[kept],
        time_s=all_time[kept],
        _terms=terms,
        _term=term,
        _place=kept - (ends - sizes)[term],
    )


def unbeaten(memory: Floats, time: Floats) -> Indices:
    """Return the points that no other beats, in increasing order of memory; of equal points one.

    A point beats another if it has less of one and not more of the other.

    Args:
        memory: shape (n,).
        time: shape (n,).
    """
    # The parts are sorted already, which a stable sort makes use of.
    order = np.argsort(memory, kind="stable")
    sorted_time = time[order]
    before = np.minimum.accumulate(sorted_time)
    order = order[np.append(True, sorted_time[1:] < before[:-1])]
    # Of equal memory the last is the fastest.
    sorted_memory = memory[order]
    return np.asarray(order[np.append(sorted_memory[1:] > sorted_memory[:-1], True)])


def thinned(frontier: Frontier, most: int) -> Frontier:
    """Return a frontier with fewer points.

    The curve is divided evenly, by the parts of the ranges of memory and of the logarithm of time that it has passed.
    Of each division the point stays that is furthest below the line from its first point to that of the next division.
    The leanest and the fastest point stay in any case.

    Args:
        frontier: the frontier.
        most: the most points that it may have, at least 3.

    Returns:
        The same frontier if it has no more.
    """
    if len(frontier) <= most:
        return frontier
    memory, time = frontier.memory_bytes, frontier.time_s
    log_time = np.log(np.maximum(time, 1e-9 * time[0]))
    passed = (memory - memory[0]) / (memory[-1] - memory[0]) + (log_time[0] - log_time) / (log_time[0] - log_time[-1])
    division = (passed * ((most - 3) / 2)).astype(np.int64)
    starts = np.flatnonzero(np.append(True, division[1:] > division[:-1]))
    ends = np.append(starts[1:], len(memory) - 1)
    fallen, risen = time[starts] - time[ends], memory[ends] - memory[starts]
    slope = np.divide(fallen, risen, out=np.zeros_like(risen), where=risen > 0)
    counts = np.diff(np.append(starts, len(memory)))
    height = time + np.repeat(slope, counts) * memory
    lowest = np.flatnonzero(height == np.repeat(np.minimum.reduceat(height, starts), counts))
    stays = np.zeros(len(memory), dtype=bool)
    stays[lowest[np.append(True, division[lowest[1:]] > division[lowest[:-1]])]] = True
    stays[[0, -1]] = True
    kept = np.flatnonzero(stays)
    return Frontier(
        memory_bytes=memory[kept],
        time_s=time[kept],
        _terms=frontier._terms,
        _term=None if frontier._term is None else frontier._term[kept],
        _place=None if frontier._place is None else frontier._place[kept],
    )
