"""The scaling curve: a job's throughput against its size."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache

from offcut.errors import InputError


@dataclass(frozen=True, slots=True)
class ScalingCurve:
    """Throughput of the whole job against its size, piecewise linear through measured or planned points.

    `nodes` are strictly increasing node counts, `rate[i]` is the throughput at `nodes[i]`: samples/s, or any unit that
    is the same for all points. The curve starts at no nodes and no throughput; the point (0, 0) is added where missing.

    A curve need be neither concave nor monotone.

    Raises:
        InputError: the points do not form a curve.
    """

    nodes: tuple[int, ...]
    rate: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.nodes) != len(self.rate):
            raise InputError(
                f"curve: {len(self.nodes)} node counts but {len(self.rate)} rates.", next_step="Give one rate per size."
            )
        if not self.nodes:
            raise InputError("curve: no points.", next_step="Give at least one size with its rate.")
        for previous, n in zip(self.nodes, self.nodes[1:], strict=False):
            if n <= previous:
                raise InputError(
                    f"curve: node counts must increase, but {n} follows {previous}.",
                    next_step="Sort the points and drop duplicates.",
                )
        if self.nodes[0] < 0:
            raise InputError(f"curve: negative node count {self.nodes[0]}.", next_step="Sizes start at 1.")
        for n, rate in zip(self.nodes, self.rate, strict=True):
            if not math.isfinite(rate) or rate < 0:
                raise InputError(
                    f"curve: the rate at {n} nodes is {rate}.", next_step="Rates are finite and not negative."
                )
        if self.nodes[0] == 0:
            if self.rate[0] != 0:
                raise InputError(f"curve: the rate at 0 nodes is {self.rate[0]}.", next_step="It must be 0.")
        else:
            object.__setattr__(self, "nodes", (0, *self.nodes))
            object.__setattr__(self, "rate", (0.0, *self.rate))

    @property
    def max_nodes(self) -> int:
        """The largest size of the curve, in nodes."""
        return self.nodes[-1]

    def rate_at(self, size: int) -> float:
        """Return the throughput at `size` nodes, linearly interpolated between points.

        Args:
            size: number of nodes, from 0 to `max_nodes`.

        Raises:
            InputError: `size` lies beyond the last point; the curve is not extrapolated.
        """
        if not 0 <= size <= self.nodes[-1]:
            raise InputError(
                f"curve: the rate at {size} nodes is not known; the points go from 0 to {self.nodes[-1]}.",
                next_step="Extend the curve or limit the sizes.",
            )
        i = bisect_right(self.nodes, size) - 1
        if self.nodes[i] == size:
            return self.rate[i]
        share = (size - self.nodes[i]) / (self.nodes[i + 1] - self.nodes[i])
        return self.rate[i] + share * (self.rate[i + 1] - self.rate[i])

    def scaled(self, factor: float) -> ScalingCurve:
        """Return a curve of the same shape with every rate multiplied by `factor`."""
        return ScalingCurve(self.nodes, tuple(factor * rate for rate in self.rate))


@lru_cache(maxsize=1024)
def amdahl(max_nodes: int, parallel: float = 0.98) -> ScalingCurve:
    """Return the speed-up over one node by Amdahl's law, `n / (parallel + (1 - parallel) n)`.

    It is the default for a job whose curve is not known: of the defaults that need no measurement, it lost least
    against the true curves in simulation. The points are every size up to 8, then powers of two, then `max_nodes`.

    Args:
        max_nodes: the largest size of the curve, in nodes.
        parallel: the share of a step's work that more nodes speed up, from 0 to 1.
    """
    points = list(range(1, min(8, max_nodes) + 1))
    n = 16
    while n < max_nodes:
        points.append(n)
        n *= 2
    if max_nodes > 8:
        points.append(max_nodes)
    return ScalingCurve(tuple(points), tuple(n / (parallel + (1 - parallel) * n) for n in points))
