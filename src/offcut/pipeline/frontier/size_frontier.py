"""The frontier of one size, pipelines included, and the scaling curve of the fastest points that fit.

A point is a strategy of every layer on all devices together, a pipeline plan, or a pipeline plan whose stages keep
only their inputs and do their forwards again. The first and the last kind are estimates: what jobs run are pipeline
plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offcut.errors import InputError
from offcut.model import ScalingCurve
from offcut.pipeline.frontier.layer_strategies import layers_frontier, strategy_counts
from offcut.pipeline.frontier.points import Frontier, unbeaten
from offcut.pipeline.layer_profile import LayerProfile
from offcut.pipeline.plan import Plan
from offcut.pipeline.planner.device_chain import DeviceChain
from offcut.pipeline.planner.explore import Explorer
from offcut.pipeline.planner.problem import PlanningProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """One strategy of a size: bytes of the fullest device, and seconds of a step.

    `kind` is `layers` (`label` counts the strategies of the layers), `pipeline`, or `pipeline, recompute`.
    """

    memory_bytes: float
    step_s: float
    kind: str
    label: str

    @property
    def runs(self) -> bool:
        """True if a job can run it."""
        return self.kind == "pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeFrontier:
    """The points of one size, none of which beats another, in increasing order of memory.

    `limit_bytes` is the memory of the smallest device. `gap`: how far the points of kind `layers` may be from exact.
    """

    devices: int
    batch: int
    limit_bytes: float
    points: tuple[FrontierPoint, ...]
    gap: float

    @property
    def fastest(self) -> FrontierPoint | None:
        """The fastest point that fits the memory; None if none does."""
        fits = [point for point in self.points if point.memory_bytes <= self.limit_bytes]
        return fits[-1] if fits else None

    def to_json(self) -> dict[str, Any]:
        """Return the frontier as a JSON object."""
        return {
            "devices": self.devices,
            "limit_bytes": self.limit_bytes if np.isfinite(self.limit_bytes) else None,
            "gap": self.gap,
            "points": [
                {
                    "memory_bytes": point.memory_bytes,
                    "step_s": point.step_s,
                    "samples_per_s": self.batch / point.step_s,
                    "kind": point.kind,
                    "label": point.label,
                    "runs": point.runs,
                }
                for point in self.points
            ],
        }


class FrontierExplorer:
    """Computes the frontiers of one problem, for any number of sizes."""

    def __init__(self, problem: PlanningProblem) -> None:
        self._problem = problem
        self._plain = Explorer(problem)
        self._recomputed = Explorer(
            replace(
                problem,
                profile=recomputed_profile(problem.profile),
                kinds={kind: recomputed_profile(profile) for kind, profile in problem.kinds.items()},
            )
        )
        self._device_chains = {
            size: DeviceChain(problem.profile, problem.hardware, size, problem.kinds)
            for size in problem.micro_batches
            if problem.batch % size == 0
        }

    def frontier(self, devices: int, plans: Iterable[Plan] | None = None) -> SizeFrontier:
        """Compute the frontier of one size.

        Args:
            devices: the number of devices that a strategy may use, from the first.
            plans: the plans that `Explorer.explore` found for this size; None: it is asked.

        Returns:
            The frontier.

        Raises:
            InputError: the cluster has fewer devices.
        """
        explored = self._plain.explore(devices).plans if plans is None else plans
        limit = min(device.memory_bytes for device in self._problem.hardware.devices[:devices])
        found: list[FrontierPoint] = [
            FrontierPoint(memory_bytes=plan.memory_bytes, step_s=plan.step_s, kind="pipeline", label=plan.label)
            for plan in explored
        ]
        found += self._recomputed_pipelines(devices)
        # The strategies of layers are named afterwards, because few of these points stay.
        origins: list[tuple[Frontier, int] | None] = [None] * len(found)
        gap = 0.0
        for size, device_chain in self._device_chains.items():
            layers = layers_frontier(
                device_chain.slowest(0, devices),
                devices=devices,
                micro_batches=self._problem.batch // size,
                hardware=self._problem.hardware,
            )
            gap = max(gap, layers.gap)
            found += [
                FrontierPoint(memory_bytes=memory_bytes, step_s=step_s, kind="layers", label="")
                for memory_bytes, step_s in layers.frontier.points()
            ]
            origins += [(layers.frontier, k) for k in range(len(layers.frontier))]
        kept = unbeaten(np.array([x.memory_bytes for x in found]), np.array([x.step_s for x in found]))
        points = []
        for k in kept.tolist():
            origin = origins[k]
            label = strategy_counts(origin[0].choices(origin[1])) if origin else found[k].label
            points.append(replace(found[k], label=label))
        return SizeFrontier(
            devices=devices,
            batch=self._problem.batch,
            limit_bytes=limit,
            points=tuple(points),
            gap=gap,
        )

    def _recomputed_pipelines(self, devices: int) -> Iterator[FrontierPoint]:
        """Yield pipeline plans whose stages keep their inputs only, and one micro-batch's activations meanwhile."""
        for plan in self._recomputed.explore(devices).plans:
            stored = self._device_chains[plan.micro_batch].chain.stored_bytes
            room = [0.0] * len(plan.replicas)
            for stage in plan.stages:
                own = float(stored[stage.first_layer : stage.end_layer].sum())
                room[stage.place] = max(room[stage.place], own)
            per_device = np.repeat(room, plan.replicas)
            yield FrontierPoint(
                memory_bytes=float((np.array(plan.peak_bytes) + per_device).max()),
                step_s=plan.step_s,
                kind="pipeline, recompute",
                label=f"{plan.label}, recompute",
            )


def recomputed_profile(profile: LayerProfile) -> LayerProfile:
    """Return the profile of a model whose stages keep their inputs only and do their forwards again.

    Args:
        profile: the profile of the model as it is.

    Returns:
        The forward is added to each backward; layers store nothing.
    """
    return replace(
        profile,
        layers=tuple(
            replace(
                layer,
                backward_s=tuple(b + f for f, b in zip(layer.forward_s, layer.backward_s, strict=True)),
                stored_bytes=0.0,
            )
            for layer in profile.layers
        ),
    )


def frontier_curve(frontiers: Iterable[SizeFrontier]) -> ScalingCurve:
    """Return the scaling curve of the fastest points that fit: their throughput by size, and its running maximum.

    Args:
        frontiers: one per size, in any order.

    Returns:
        Throughput (samples/s) by number of devices, from the first size with a point that fits.

    Raises:
        InputError: no point of any size fits its memory.
    """
    sizes: list[int] = []
    rates: list[float] = []
    for frontier in sorted(frontiers, key=lambda x: x.devices):
        point = frontier.fastest
        if point is not None or rates:
            rate = frontier.batch / point.step_s if point is not None else 0.0
            sizes.append(frontier.devices)
            rates.append(max(rate, rates[-1] if rates else 0.0))
    if not sizes:
        raise InputError(
            "no strategy fits the devices' memory at any of the sizes.",
            next_step="Plan for more devices, or larger ones.",
        )
    return ScalingCurve(tuple(sizes), tuple(rates))
