"""A scaling curve with its uncertainty: a Gaussian process on the logarithm of the efficiency.

With P(n) the throughput at n nodes and x = log2 n, e(n) = ln(P(n)/n) is modelled as

    e(n) = prior(n) + g(n),    cov(g(n), g(m)) =   10^2              the level, which is unknown
                                                 + .15^2 x(n) x(m)    a power law
                                                 + .10^2 RBF(x, 1.5)  a smooth bend
                                                 + .08^2 [neither n nor m is a power of two]
                                                 + .03^2 [n = m]      effects of a single size (a rack, a cliff)

Sizes other than powers of two may be worse because of that, but never better: if the mean of their common part is above
zero, it is set to zero.

The hyper-parameters were chosen by simulation over seven measured networks, Amdahl and all-reduce curves, plateaus and
curves with cliffs (Rasmussen and Williams 2006, chapter 2, for the formulae).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from offcut.model import ScalingCurve

Floats = npt.NDArray[np.float64]

_LEVEL = 10.0**2
_SLOPE = 0.15**2
_BEND = 0.10**2
_BEND_LENGTH = 1.5
_UNEVEN = 0.08**2
_OWN = 0.03**2


@dataclass(frozen=True, slots=True)
class Point:
    """A measured point: ln(samples/s per node) at `size` nodes, and its variance."""

    size: int
    log_efficiency: float
    variance: float


#: The expected e(n) - e(1) at n = 1, 2, 4, .. nodes; linear in log2 n between and, by its last step, beyond.
Shape = tuple[float, ...]

#: The shape that is expected before any job has been measured: 8 % less efficient with every doubling.
FIRST_SHAPE: Shape = tuple(-0.08 * i for i in range(12))


@dataclass(frozen=True, slots=True)
class Posterior:
    """Throughput (samples/s) by size and the standard deviation of its logarithm.

    Where no point is known the level is arbitrary: one sample/s on one node.
    """

    sizes: tuple[int, ...]
    rate: tuple[float, ...]
    deviation: tuple[float, ...]
    curve: ScalingCurve


def shape_at(shape: Shape, sizes: Floats) -> Floats:
    """Return the shape at other sizes.

    Args:
        shape: Values at 1, 2, 4, .. nodes; at least two.
        sizes: Numbers of nodes, float64, shape (n,).

    Returns:
        Differences of log-efficiency to one node, float64, shape (n,).
    """
    x = np.log2(sizes)
    i = np.minimum(x.astype(np.int64), len(shape) - 2)
    known = np.asarray(shape, np.float64)
    found: Floats = np.add(known[i], (x - i) * (known[i + 1] - known[i]))
    return found


@lru_cache(maxsize=4096)
def points_of(smallest: int, largest: int) -> tuple[int, ...]:
    """Return the sizes at which a curve has its points.

    There are two for each doubling: a point everywhere would follow the posterior's small waves, and the allocator
    would follow them with resizes that cost more than they gain. Both neighbours of each power of two are added,
    because otherwise what is learned about other sizes would count only in the middle between two powers. In
    simulation, where a resize takes 18 s, these took curves that prefer powers of two from 0.947 of the oracle to
    0.972, and did not change others.

    Args:
        smallest: The smallest number of nodes, at least 1.
        largest: The largest number of nodes.

    Returns:
        Increasing sizes, `smallest` and `largest` included.
    """
    sizes = {smallest, largest}
    n = 1
    while n <= largest:
        sizes |= {size for size in (n - 1, n, n + 1, 3 * n) if smallest <= size <= largest}
        n *= 2
    return tuple(sorted(sizes))


@lru_cache(maxsize=256)
def _prior_variance(sizes: tuple[int, ...], uneven: float) -> Floats:
    n = np.asarray(sizes, np.float64)
    variance: Floats = _LEVEL + _SLOPE * np.log2(n) ** 2 + _BEND + uneven * _uneven(n) + _OWN
    return variance


def _uneven(n: Floats) -> Floats:
    whole = n.astype(np.int64)
    uneven: Floats = ((whole & (whole - 1)) != 0).astype(np.float64)
    return uneven


def _covariance(n: Floats, m: Floats, uneven: float) -> Floats:
    x, y = np.log2(n)[:, None], np.log2(m)[None, :]
    covariance: Floats = (
        _LEVEL
        + _SLOPE * x * y
        + _BEND * np.exp(-((x - y) ** 2) / (2 * _BEND_LENGTH**2))
        + uneven * _uneven(n)[:, None] * _uneven(m)[None, :]
        + _OWN * (n[:, None] == m[None, :])
    )
    return covariance


@lru_cache(maxsize=1024)
def fit(points: tuple[Point, ...], sizes: tuple[int, ...], shape: Shape = FIRST_SHAPE) -> Posterior:
    """Fit a curve and its uncertainty to measured points.

    Args:
        points: Measurements, in any order; several may be at one size.
        sizes: Numbers of nodes at which the curve has its points: increasing, at least 1.
        shape: The shape that is expected without measurements.

    Returns:
        The posterior at `sizes`: rates in samples/s, or relative to one node if `points` is empty.
    """
    n = np.asarray(sizes, np.float64)
    mean = shape_at(shape, n)
    if points:
        seen = np.asarray([point.size for point in points], np.float64)
        noise = np.diag([point.variance for point in points])
        values = np.asarray([point.log_efficiency for point in points]) - shape_at(shape, seen)
        for uneven in (_UNEVEN, 0.0):
            factor = np.linalg.cholesky(_covariance(seen, seen, uneven) + noise)
            weights = np.linalg.solve(factor.T, np.linalg.solve(factor, values))
            # Above zero it is a bend, seen at few sizes.
            if uneven * (_uneven(seen) @ weights) <= 0.0:
                break
        across = _covariance(seen, n, uneven)
        mean = mean + across.T @ weights
        variance = np.maximum(
            0.0, _prior_variance(sizes, uneven) - np.sum(np.linalg.solve(factor, across) ** 2, axis=0)
        )
    else:
        variance = _prior_variance(sizes, _UNEVEN) - _LEVEL
    # exp of what is beyond any machine would overflow; a curve's rates are finite.
    rate = tuple((n * np.exp(np.clip(mean, -60.0, 60.0))).tolist())
    return Posterior(sizes, rate, tuple(np.sqrt(variance).tolist()), ScalingCurve(sizes, rate))


def merged(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return one point per size: the mean, weighted by precision.

    Args:
        points: Measurements, in any order.

    Returns:
        Points by increasing size.
    """
    sums: dict[int, list[float]] = {}
    for point in points:
        weight = 1 / point.variance
        total = sums.setdefault(point.size, [0.0, 0.0])
        total[0] += weight
        total[1] += weight * point.log_efficiency
    return tuple([Point(size, total / weight, 1 / weight) for size, (weight, total) in sorted(sums.items())])


def log_efficiency(size: int, rate: float) -> float:
    """Return the logarithm of the rate per node.

    Args:
        size: The number of nodes.
        rate: Samples/s of the whole job; greater than 0.

    Returns:
        ln(rate / size).
    """
    return math.log(rate / size)
