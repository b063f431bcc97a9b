"""Other curve models, for comparison."""

from __future__ import annotations

import math

from offcut.advisor.curve_models import Circumstances, Evidence, assumed, certain
from offcut.advisor.posterior import Point, Posterior
from offcut.model import ScalingCurve, Sizes


class _NoProbes:
    """Tries no size and needs no measurements unless a subclass says so."""

    learns = False

    def next_size(self, evidence: Evidence, circumstances: Circumstances) -> int | None:
        return None


class Oracle(_NoProbes):
    """Uses the curve that the job came with; without one, Amdahl's law."""

    def posterior(self, evidence: Evidence) -> Posterior:
        return certain(evidence.given or assumed(evidence.sizes))


class Linear(_NoProbes):
    """Assumes that twice the nodes give twice the throughput."""

    def posterior(self, evidence: Evidence) -> Posterior:
        return certain(ScalingCurve((evidence.sizes.largest,), (float(evidence.sizes.largest),)))


class Amdahl(_NoProbes):
    """Assumes Amdahl's law with 2 % serial work for every job."""

    def posterior(self, evidence: Evidence) -> Posterior:
        return certain(assumed(evidence.sizes))


class Passive(_NoProbes):
    """Uses a piecewise linear curve through the sizes that the job had; linear beyond them."""

    learns = True

    def posterior(self, evidence: Evidence) -> Posterior:
        return certain(_through(evidence.measured, evidence.sizes))


class Inverse(Passive):
    """Tries three sizes of every job, from the largest downwards (arXiv 2404.15668)."""

    def next_size(self, evidence: Evidence, circumstances: Circumstances) -> int | None:
        top = min(64, max(circumstances.size, circumstances.fair_size))
        wanted = [evidence.sizes.largest_within(n) for n in (top, math.isqrt(top), evidence.sizes.smallest)]
        seen = {point.size for point in evidence.measured}
        if circumstances.probes >= len(wanted):
            return None
        return next((n for n in wanted if n and n not in seen), None)


def _through(points: tuple[Point, ...], sizes: Sizes) -> ScalingCurve:
    rates = {point.size: point.size * math.exp(point.log_efficiency) for point in points}
    largest = max(rates, default=0)
    if largest < sizes.largest:
        rates[sizes.largest] = sizes.largest * (rates[largest] / largest if largest else 1.0)
    return ScalingCurve(tuple(sorted(rates)), tuple(rates[n] for n in sorted(rates)))
