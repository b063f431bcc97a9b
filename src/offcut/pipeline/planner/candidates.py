"""Candidates for simulation: cuts, replicas and a schedule, each with its lower bound and least memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from offcut.pipeline.hardware import Link
from offcut.pipeline.layer_profile import Floats
from offcut.pipeline.planner.bound import plan_bound
from offcut.pipeline.planner.device_chain import DeviceChain
from offcut.pipeline.planner.partition import Cuts, StageSlots, balance, least_bound
from offcut.pipeline.planner.problem import PlanningProblem
from offcut.pipeline.schedules import SCHEDULES, Schedule, Shape
from offcut.pipeline.schedules.linear import safe_depths
from offcut.pipeline.stage_costs import StageCosts

Replicas = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePlan:
    """A plan that has not been simulated. Stage s has the layers `[cuts[s], cuts[s + 1])`.

    No step of it is shorter than `bound_s`, and its fullest device needs at least `least_bytes`.
    """

    device_chain: DeviceChain
    cuts: Cuts
    replicas: Replicas
    schedule: Schedule
    costs: StageCosts
    shape: Shape
    bound_s: float
    least_bytes: float


def make_candidate(
    problem: PlanningProblem, device_chain: DeviceChain, cuts: Cuts, replicas: Replicas, schedule: Schedule
) -> CandidatePlan | str:
    """Make a candidate plan. The depth of the schedule `1f1b-link` is lowered to what fits the memory.

    Args:
        problem: what is planned.
        device_chain: the layers on the devices, at the candidate's micro-batch size.
        cuts: S + 1 layer numbers, from 0 to the number of layers.
        replicas: how many devices hold each place; with chunks there are fewer places than stages.
        schedule: the schedule.

    Returns:
        The candidate, or a sentence that says why the schedule cannot run it.
    """
    m = problem.batch // device_chain.micro_batch
    costs = device_chain.costs(cuts, replicas, schedule)
    shape = Shape(
        ranks=len(replicas),
        micro_batches=m,
        replicas=replicas,
        chunks=(len(cuts) - 1) // len(replicas),
        stage_s=tuple(costs.stage_s.tolist()),
        hop_s=tuple(costs.hop_s.tolist()),
    )
    if refusal := schedule.refuses(shape):
        return refusal
    least = costs.state_bytes + costs.stored_bytes
    if schedule.depths and shape.chunks == 1:
        depths = safe_depths(shape, schedule.depths(shape))
        if schedule.name == "1f1b-link":
            shape, depths = _capped(device_chain, costs, shape, depths)
            if min(shape.caps, default=1) < 1:
                return "no micro-batch fits the memory"
        held = np.minimum(depths, [-(-m // r) for r in replicas])
        least = costs.state_bytes + held * costs.stored_bytes
    return CandidatePlan(
        device_chain=device_chain,
        cuts=cuts,
        replicas=replicas,
        schedule=schedule,
        costs=costs,
        shape=shape,
        bound_s=_bound_of(costs, shape, schedule),
        least_bytes=float(least.max()),
    )


def _capped(
    device_chain: DeviceChain, costs: StageCosts, shape: Shape, depths: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> tuple[Shape, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Lower the depths to what fits the memory of each device."""
    if not device_chain.bounded:
        return shape, depths
    firsts = np.append(0, np.cumsum(shape.replicas))
    room = [device_chain.memory_bytes(int(firsts[s]), r) for s, r in enumerate(shape.replicas)] - costs.state_bytes
    fits = np.minimum(shape.micro_batches, room / np.maximum(costs.stored_bytes, 1e-9))
    if (fits >= depths).all():
        return shape, depths
    capped = replace(shape, caps=tuple(int(c) for c in np.floor(fits)))
    assert SCHEDULES["1f1b-link"].depths is not None
    return capped, safe_depths(capped, SCHEDULES["1f1b-link"].depths(capped))


def _bound_of(costs: StageCosts, shape: Shape, schedule: Schedule) -> float:
    """Return the lower bound (s) of the schedule's step."""
    m, replicas = shape.micro_batches, shape.replicas
    if not schedule.synchronous or schedule.weight_copies > 1:
        return float(costs.stage_s.sum()) * m / sum(replicas)
    if shape.chunks == 1:
        return plan_bound(costs, m, replicas, splits_backward=schedule.splits_backward)
    work = np.zeros(len(replicas))
    np.add.at(work, [schedule.place_of(s, len(replicas)) for s in range(costs.stages)], costs.stage_s)
    return float((work * [-(-m // r) for r in replicas]).max())


class Splits:
    """Finds the splits to simulate; if memory is not limited, once for all schedules."""

    def __init__(self, problem: PlanningProblem) -> None:
        self._problem = problem
        self._bounded = any(math.isfinite(d.memory_bytes) for d in problem.hardware.devices)
        self._remembered = lru_cache(maxsize=8192)(self._find)

    def even(self, device_chain: DeviceChain, devices: int) -> Iterator[tuple[Cuts, Replicas, Schedule]]:
        """Yield the splits into every number of stages with equal replicas that use all devices.

        Args:
            device_chain: the layers on the devices.
            devices: the number of devices.

        Yields:
            Cuts, replicas and schedule; one stage is data parallelism.
        """
        layers = device_chain.chain.layers
        m = self._problem.batch // device_chain.micro_batch
        for replicas in range(1, min(devices, m) + 1):
            stages = devices // replicas
            if stages * replicas != devices or stages > layers or self._problem.stages not in (None, stages):
                continue
            if stages == 1:
                yield (0, layers), (replicas,), SCHEDULES["1f1b"]
                continue
            share = -(-m // replicas)
            for schedule in self._problem.tried_schedules:
                places = stages * schedule.chunks
                if places > layers:
                    continue
                flights = (1,) * places
                if self._bounded:
                    flights = tuple(schedule.in_flight(places - s, places, share) for s in range(places))
                spare = self._bounded and schedule.name == "1f1b-link"
                found = self._remembered(
                    device_chain, replicas, stages, schedule.place_of, flights, share, schedule.weight_copies, spare
                )
                yield from ((cuts, (replicas,) * stages, schedule) for cuts in found)

    def _find(
        self,
        device_chain: DeviceChain,
        replicas: int,
        stages: int,
        place_of: Callable[[int, int], int],
        flights: tuple[int, ...],
        share: int,
        weight_copies: int,
        spare: bool,
    ) -> tuple[Cuts, ...]:
        """Find the balanced split and the one of least bound.

        If neither fits and `spare`, find the split of least bound with one micro-batch in flight.
        """
        places = len(flights)
        slots = device_chain.slots(stages, replicas, flights, weight_copies)
        if places > stages:
            place = [place_of(s, stages) for s in range(places)]
            wide = replace(
                slots,
                chains=[slots.chains[q] for q in place],
                links=[self._link(slots, device_chain, *pair) for pair in pairwise(place)],
                memory_bytes=[slots.memory_bytes[q] * stages / places for q in place],
            )
            split = balance(wide)
            return (split.cuts,) if split else ()
        found = [split.cuts for split in (balance(slots), least_bound(slots, share, tolerance=1e-6)) if split]
        if not found and spare:
            split = least_bound(replace(slots, in_flight=(1,) * places), share, tolerance=1e-6)
            found = [split.cuts] if split else []
        return tuple(dict.fromkeys(found))

    @staticmethod
    def _link(slots: StageSlots, device_chain: DeviceChain, place: int, following: int) -> Link:
        """Return the link between the places of two consecutive stages; within one place it takes no time."""
        if place == following:
            return Link(bandwidth_bytes_s=math.inf)
        if abs(place - following) == 1:
            return slots.links[min(place, following)]
        return device_chain.hardware.link


def neighbours(cuts: Cuts, replicas: Replicas, devices: int, work: Floats) -> Iterator[tuple[Cuts, Replicas]]:
    """Yield the splits that are one step away from a given one.

    A step moves a cut by one layer, gives a device to another stage, uses a spare device, joins two stages, or divides
    a stage of several devices in two, with its devices divided in proportion to the work.

    Args:
        cuts: the layers of the S stages, shape (S + 1,).
        replicas: the devices of each stage, shape (S,).
        devices: the number of devices that there are.
        work: cumulative seconds by layer, shape (L + 1,).

    Yields:
        Cuts and replicas.
    """
    stages = len(replicas)
    for s in range(1, stages):
        for moved in (cuts[s] - 1, cuts[s] + 1):
            if cuts[s - 1] < moved < cuts[s + 1]:
                yield (*cuts[:s], moved, *cuts[s + 1 :]), replicas
        joined = (*replicas[: s - 1], replicas[s - 1] + replicas[s], *replicas[s + 1 :])
        yield (*cuts[:s], *cuts[s + 1 :]), joined
    spare = devices - sum(replicas)
    for to in range(stages):
        if spare > 0:
            yield cuts, tuple(r + (s == to) for s, r in enumerate(replicas))
        for giver in range(stages):
            if giver != to and replicas[giver] > 1:
                yield cuts, tuple(r + (s == to) - (s == giver) for s, r in enumerate(replicas))
        mine = replicas[to] + (spare > 0)
        if mine > 1:
            for cut in range(cuts[to] + 1, cuts[to + 1]):
                share = (work[cut] - work[cuts[to]]) / max(work[cuts[to + 1]] - work[cuts[to]], 1e-300)
                first = min(mine - 1, max(1, round(mine * share)))
                yield (
                    (*cuts[: to + 1], cut, *cuts[to + 1 :]),
                    (*replicas[:to], first, mine - first, *replicas[to + 1 :]),
                )


def least_memory(device_chain: DeviceChain, stages: int) -> float:
    """Return the least memory of the fullest stage, over all splits, found by bisection.

    A stage needs memory for its state and for one micro-batch.

    Args:
        device_chain: the layers on the devices.
        stages: the number of stages.

    Returns:
        Bytes.
    """
    chain = device_chain.chain
    ends = np.append(0.0, np.cumsum(device_chain.hardware.state_factor * chain.parameter_bytes + chain.stored_bytes))

    def count(limit: float) -> int:
        used, i = 0, 0
        while i < chain.layers:
            j = int(np.searchsorted(ends, ends[i] + limit - chain.cut_bytes[i], side="right")) - 1
            if j <= i:
                return chain.layers + 1
            used, i = used + 1, j
        return used

    low, high = 0.0, float(ends[-1])
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        if count(middle) <= stages:
            high = middle
        else:
            low = middle
    return high
