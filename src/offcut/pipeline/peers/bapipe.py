"""BaPipe's own exploration (arXiv 2012.12544), step by step: a baseline for ours.

The names of the steps are the paper's; their content is inferred from its description, as its text was not available:

1. inter-layer: contiguous stages, the slowest stage's F + B as small as can be, transfers not considered;
2. coarse-grained: where a cut's transfer takes longer than the slowest stage, only cheaper cuts remain, and the
   stages are balanced again over what is left;
3. memory-fit: layers at the edge of a stage that does not fit move to the neighbour with more room;
4. every schedule and micro-batch size is tried, data parallelism too, and the fastest that fits is chosen.

Its intra-layer step, which divides one layer between neighbours, is left out, because PyTorch cannot run the result.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from offcut.pipeline.plan import Plan
from offcut.pipeline.planner.candidates import make_candidate
from offcut.pipeline.planner.device_chain import DeviceChain
from offcut.pipeline.planner.explore import evaluate
from offcut.pipeline.planner.partition import Cuts
from offcut.pipeline.planner.problem import PlanningProblem
from offcut.pipeline.schedules import SCHEDULES


def bapipe_plan(problem: PlanningProblem, devices: int) -> Plan | None:
    """Return the plan that BaPipe's exploration chooses (arXiv 2012.12544).

    Args:
        problem: the planning problem.
        devices: the number of devices to use, the first of the hardware's.

    Returns:
        The plan; None if nothing that BaPipe tries fits the memory.
    """
    hardware = problem.hardware
    names = ("1f1b-so", "1f1b-sno") if hardware.overlap else ("1f1b-sno",)
    best: Plan | None = None
    for size in problem.micro_batches:
        if problem.batch % size:
            continue
        device_chain = DeviceChain(problem.profile, hardware, size, problem.kinds)
        tried: list[tuple[Cuts, tuple[int, ...], str]] = [((0, device_chain.chain.layers), (devices,), "1f1b")]
        if 1 < devices <= device_chain.chain.layers:
            cuts = _coarse_grained(device_chain, devices, _inter_layer(device_chain, devices))
            for name in names:
                tried.append((_memory_fit(device_chain, cuts, name, problem.batch // size), (1,) * devices, name))
        for cuts, replicas, name in tried:
            if max(replicas) > problem.batch // size:
                continue
            made = make_candidate(problem, device_chain, cuts, replicas, SCHEDULES[name])
            if isinstance(made, str):
                continue
            plan = evaluate(problem, made)
            limits = [device.memory_bytes for device in hardware.devices[:devices]]
            fits = all(peak <= limit for peak, limit in zip(plan.peak_bytes, limits, strict=True))
            if fits and (best is None or plan.step_s < best.step_s):
                best = plan
    return best


def _inter_layer(device_chain: DeviceChain, stages: int, allowed: list[int] | None = None) -> Cuts:
    """Balance F + B (min-max) by bisection: a stage takes layers until the next would be too many.

    Cuts only where allowed.
    """
    points = allowed if allowed is not None else list(range(1, device_chain.chain.layers))
    ends = [*points, device_chain.chain.layers]
    work = device_chain.work
    speeds = device_chain.speeds(stages)

    def fill(limit: float) -> list[int] | None:
        cuts, at = [0], 0
        for s in range(stages):
            left = stages - 1 - s
            room = [k for k in range(at, len(ends) - left) if work[ends[k]] - work[cuts[-1]] <= limit * speeds[s]]
            if not room:
                return None
            cuts.append(ends[room[-1]])
            at = room[-1] + 1
        return cuts if cuts[-1] == device_chain.chain.layers else None

    low, high = 0.0, float(work[-1]) / min(speeds)
    best = fill(high)
    for _ in range(60):
        middle = 0.5 * (low + high)
        found = fill(middle)
        if found is None:
            low = middle
        else:
            best, high = found, middle
    return tuple(best) if best else tuple(np.linspace(0, device_chain.chain.layers, stages + 1).astype(int).tolist())


def _coarse_grained(device_chain: DeviceChain, stages: int, cuts: Cuts) -> Cuts:
    """Forbid cuts as dear and balance again while a chosen cut's transfer takes longer than the slowest stage."""
    cut_s = np.array([device_chain.hardware.link.transfer_s(size) for size in device_chain.chain.cut_bytes])
    allowed = list(range(1, device_chain.chain.layers))
    while True:
        slowest = max(device_chain.work[b] - device_chain.work[a] for a, b in pairwise(cuts))
        dearest = max(cut_s[c] for c in cuts[1:-1])
        cheaper = [c for c in allowed if cut_s[c] < dearest]
        if dearest <= slowest or len(cheaper) < stages - 1:
            return cuts
        allowed = cheaper
        cuts = _inter_layer(device_chain, stages, allowed)


def _memory_fit(device_chain: DeviceChain, cuts: Cuts, schedule: str, micro_batches: int) -> Cuts:
    """Move single layers off the fullest stage that does not fit, towards its emptier neighbour, while that helps."""
    stages = len(cuts) - 1
    flights = np.array([SCHEDULES[schedule].in_flight(stages - s, stages, micro_batches) for s in range(stages)])
    limits = np.array([device_chain.memory_bytes(s, 1) for s in range(stages)])

    def over(trial: Cuts) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        costs = device_chain.costs(trial, (1,) * stages, SCHEDULES[schedule])
        return np.asarray(costs.state_bytes + flights * costs.stored_bytes - limits, dtype=np.float64)

    for _ in range(4 * device_chain.chain.layers):
        excess = over(cuts)
        worst = int(np.argmax(excess))
        if excess[worst] <= 0:
            break
        trials = []
        if worst > 0 and cuts[worst] + 1 < cuts[worst + 1]:
            trials.append((*cuts[:worst], cuts[worst] + 1, *cuts[worst + 1 :]))
        if worst < stages - 1 and cuts[worst + 1] - 1 > cuts[worst]:
            trials.append((*cuts[: worst + 1], cuts[worst + 1] - 1, *cuts[worst + 2 :]))
        better = [t for t in trials if over(t).max() < excess[worst]]
        if not better:
            break
        cuts = min(better, key=lambda t: float(over(t).max()))
    return cuts
