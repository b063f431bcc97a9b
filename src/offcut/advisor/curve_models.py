"""Curve models: which scaling curve to use for a job, and which size to try next.

A curve model answers these two questions for one job, from the evidence about it and its circumstances. `gp` is the
default; the others serve for comparison, or are a user's own function in a file.

Probes: the first size is the one that the allocator chose, so it costs nothing. From it, or from the job's fair share
where that is larger, the ladder goes down by thirds. A probe must fit into a budget: what all of a job's probes cost in
node-seconds is at most 5 % of what it and its waiting relatives are expected to use. The relatives count because they
will need no probe: a job whose family has been seen at two sizes tries nothing.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from offcut.advisor.posterior import FIRST_SHAPE, Point, Posterior, Shape, fit, merged, points_of
from offcut.errors import InputError
from offcut.model import ScalingCurve, Sizes, amdahl
from offcut.userfile import load_function

#: At most this share of a job's expected node-seconds is spent on its probes.
BUDGET = 0.05
#: Sizes that a job tries, the first included.
MOST_SIZES = 4
_LARGEST = 64
_STEP_DOWN = 3
#: Sizes nearer to each other than this tell the same.
_NEAR = math.log(1.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What has been measured about one job's scaling. Points are merged: one per size."""

    sizes: Sizes
    measured: tuple[Point, ...] = ()
    #: Measurements of its relatives alone.
    family: tuple[Point, ...] = ()
    #: The mean shape of jobs that have ended.
    shape: Shape = FIRST_SHAPE
    #: The curve that the user or the planner gave; its unit may be any.
    given: ScalingCurve | None = None

    @property
    def own(self) -> tuple[Point, ...]:
        """The name of `measured` in version 0.2, for users' curve models; it goes with version 0.4."""
        return self.measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a probe would cost, and what may be spent."""

    #: The job's size now, and its share if the nodes were shared out equally.
    size: int
    fair_size: int
    grow_cost_s: float
    shrink_cost_s: float
    #: From a generation's first step until its throughput was measured, last time.
    settle_s: float
    expected_run_s: float
    #: Live jobs that share a family with it, itself left out.
    relatives: int = 0
    #: One of them is trying sizes now.
    relative_probes: bool = False
    #: Probes so far and what they cost.
    probes: int = 0
    spent_node_s: float = 0.0


class CurveModel(Protocol):
    """A curve model. Pure: equal arguments must give equal results."""

    #: Whether the job's throughput has to be measured for it.
    learns: bool

    def posterior(self, evidence: Evidence) -> Posterior:
        """Return the estimated curve of the job.

        Args:
            evidence: What has been measured. If that is nothing, the unit of the rates is arbitrary.
        """

    def next_size(self, evidence: Evidence, circumstances: Circumstances) -> int | None:
        """Return a size to try for a moment, or None.

        Args:
            evidence: What has been measured.
            circumstances: What a probe would cost, and what may be spent.

        Returns:
            An allowed number of nodes, at which the job has not been measured yet; None to try nothing now.
        """


class GaussianProcess:
    """The default: a Gaussian process over the job's own and its family's points, probes by budget."""

    learns = True

    def posterior(self, evidence: Evidence) -> Posterior:
        shape = evidence.shape if evidence.given is None else shape_of(evidence.given)
        return fit(
            merged((*evidence.measured, *evidence.family)),
            points_of(evidence.sizes.smallest, evidence.sizes.largest),
            shape,
        )

    def next_size(self, evidence: Evidence, circumstances: Circumstances) -> int | None:
        c = circumstances
        if evidence.given is not None or c.relative_probes or len(evidence.family) >= 2 or not evidence.measured:
            return None
        seen = [point.size for point in (*evidence.measured, *evidence.family)]
        if len(seen) >= MOST_SIZES or c.probes >= MOST_SIZES:
            return None
        for size in ladder(evidence.sizes, max(c.size, c.fair_size)):
            if all(abs(math.log(size / n)) > _NEAR for n in seen):
                allowed = BUDGET * c.expected_run_s * c.fair_size * (1 + min(9, c.relatives))
                return size if c.spent_node_s + probe_node_s(size, c) <= allowed else None
        return None


def ladder(sizes: Sizes, top: int) -> list[int]:
    """Return the sizes to try: allowed sizes from `top` downwards by thirds.

    Args:
        sizes: The job's allowed numbers of nodes.
        top: The largest size to try, in nodes; at most 64 is tried.

    Returns:
        Decreasing sizes, at least one.
    """
    found: list[int] = []
    n = min(_LARGEST, max(top, sizes.smallest))
    while True:
        size = sizes.largest_within(n) or sizes.smallest
        if size not in found:
            found.append(size)
        if n <= sizes.smallest:
            return found
        n = max(sizes.smallest, n // _STEP_DOWN)


def probe_node_s(size: int, circumstances: Circumstances) -> float:
    """Return what trying `size` costs: growing, the time at that size, and shrinking.

    Args:
        size: The number of nodes to try.
        circumstances: The job's present size, and its costs in seconds.

    Returns:
        Node-seconds.
    """
    c = circumstances
    there_and_back_s = c.grow_cost_s + c.shrink_cost_s
    return max(size, c.size) * there_and_back_s + size * c.settle_s


@lru_cache(maxsize=1024)
def shape_of(curve: ScalingCurve) -> Shape:
    """Return the shape of a given curve at powers of two; beyond its end the last value goes on."""
    shape: list[float] = []
    n = 1
    first = curve.rate_at(min(n, curve.max_nodes)) or 1.0
    while n <= curve.max_nodes:
        rate = curve.rate_at(n)
        shape.append(math.log(rate / first / n) if rate > 0 else (shape[-1] if shape else 0.0))
        n *= 2
    return (*shape, shape[-1]) if len(shape) < 2 else tuple(shape)


#: The curve models that come with offcut: name to module and class. `oracle` believes the curves that jobs come with.
BUILT_IN = {
    "gp": ("offcut.advisor.curve_models", "GaussianProcess"),
    "inverse": ("offcut.advisor.baselines", "Inverse"),
    "passive": ("offcut.advisor.baselines", "Passive"),
    "linear": ("offcut.advisor.baselines", "Linear"),
    "amdahl": ("offcut.advisor.baselines", "Amdahl"),
    "oracle": ("offcut.advisor.baselines", "Oracle"),
}


@lru_cache(maxsize=64)
def load(name: str) -> CurveModel:
    """Return a curve model by its name, or by `FILE.py:FUNCTION`: a function from `Evidence` to a rate by size.

    Raises:
        InputError: There is no such model, or the file cannot be used.
    """
    if name in BUILT_IN:
        module, kind = BUILT_IN[name]
        built_in: CurveModel = getattr(importlib.import_module(module), kind)()
        return built_in
    example = "def curve(evidence): return {size: samples_per_s, ...}."
    return FromFile(load_function(name, what="profiler", default="curve", example=example, built_in=BUILT_IN), name)


class FromFile:
    """A user's own function of the evidence; it tries no sizes. Its answer is checked before it is used."""

    learns = True

    def __init__(self, function: object, name: str) -> None:
        self._function = function
        self._name = name

    def posterior(self, evidence: Evidence) -> Posterior:
        assert callable(self._function)
        try:
            given = self._function(evidence)
            if not isinstance(given, Mapping):
                raise TypeError(f"it returned {type(given).__name__}, not a rate by size")
            curve = ScalingCurve(tuple(sorted(given)), tuple(float(given[n]) for n in sorted(given)))
        except InputError as error:
            raise InputError(f"{self._name}: {error.what}", next_step=error.next_step) from None
        except Exception as error:
            raise InputError(
                f"{self._name}: {type(error).__name__}: {error}.", next_step="Return {size: samples_per_s, ...}."
            ) from error
        if curve.max_nodes < evidence.sizes.largest:
            raise InputError(
                f"{self._name}: the curve ends at {curve.max_nodes}, the job's sizes at {evidence.sizes.largest}.",
                next_step="Cover every size in evidence.sizes.",
            )
        for n, rate in zip(curve.nodes[1:], curve.rate[1:], strict=True):
            # A job that may not run at a size has sizes that leave it out; logarithms of rates are taken later.
            if not rate > 0:
                raise InputError(
                    f"{self._name}: the rate at {n} nodes is {rate:g}; it must be greater than 0.",
                    next_step="Return samples/s greater than 0 for every size.",
                )
        return certain(curve)

    def next_size(self, evidence: Evidence, circumstances: Circumstances) -> int | None:
        return None


def certain(curve: ScalingCurve) -> Posterior:
    """Return the curve as a posterior without uncertainty."""
    sizes, rate = curve.nodes[1:], curve.rate[1:]
    return Posterior(sizes, rate, (0.0,) * len(sizes), curve)


def assumed(sizes: Sizes) -> ScalingCurve:
    """Return the curve that is assumed without measurements: Amdahl's law with 2 % serial work."""
    return amdahl(sizes.largest)
