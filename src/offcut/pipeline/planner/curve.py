"""The scaling curve of a pipeline job: the throughput of the best plan at every size.

The throughput need not rise with the size, because more devices may make the best plan slower. A job may leave nodes
idle, so the curve is the running maximum, and each point has the plan that attains it, which may be for fewer devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from offcut.errors import InputError
from offcut.model import ScalingCurve
from offcut.pipeline.plan import Plan
from offcut.pipeline.planner.explore import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCurve:
    """Throughput (samples/s) by size, and the plan to run at each size of the curve (plans[n] for n nodes)."""

    curve: ScalingCurve
    plans: dict[int, Plan]


def planned_curve(findings: Iterable[Findings]) -> PlannedCurve:
    """Make the curve from what was found at each size.

    Sizes at which no plan fits have no point, up to the first size with one.

    Args:
        findings: one per size, in any order.

    Returns:
        The curve (samples/s by number of devices) and the plan of each of its points.

    Raises:
        InputError: no size has a plan. It names the reasons if no schedule can run, and otherwise the memory per device
            with which there would be a plan.
    """
    findings = list(findings)
    plans: dict[int, Plan] = {}
    best: Plan | None = None
    smallest = float("inf")
    for found in sorted(findings, key=lambda f: f.devices):
        smallest = min(smallest, found.smallest_memory_bytes)
        plan = found.best
        if plan is not None and (best is None or plan.samples_per_s > best.samples_per_s):
            best = plan
        if best is not None:
            plans[found.devices] = best
    rejected = [row for found in findings for row in found.rejected]
    if not plans and rejected and all(row.memory_bytes is None for row in rejected):
        reasons = dict.fromkeys(f"{row.schedule}: {row.reason}" for row in rejected)
        raise InputError(
            f"no schedule can run at any of the sizes ({'; '.join(reasons)}).",
            next_step="Allow other schedules, sizes, stages or micro-batches.",
        )
    if not plans:
        raise InputError(
            "no plan fits the devices' memory at any of the sizes.",
            next_step=f"The smallest memory per device that would do is {smallest / 1e9:.3g} GB.",
        )
    sizes = sorted(plans)
    return PlannedCurve(curve=ScalingCurve(tuple(sizes), tuple(plans[n].samples_per_s for n in sizes)), plans=plans)
