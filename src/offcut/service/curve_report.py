"""Describes the estimate of a job's scaling, as plain data and as sentences."""

from __future__ import annotations

import math
from typing import Any

from offcut.control import job_curves
from offcut.control.state import JobState, State
from offcut.model import ScalingCurve


def describe(state: State, job: JobState) -> dict[str, Any]:
    """Return points (its own and its family's), the curve that the allocator uses with its band, costs, and probes.

    `deviation` is relative: the standard deviation of a rate's logarithm.
    """
    histories, job_id = state.histories, job.job.id
    history = histories.find_or_add(job_id)
    learns = job_curves.learns(state)
    evidence = histories.evidence(job_id, job.job.sizes, job.job.curve)
    posterior = history.posterior if learns else None
    grow_s, shrink_s = job_curves.costs_s(state, job)
    key = histories.family_key(job_id, history)
    return {
        "profiler": state.settings.profiler,
        "own": [_point(p.size, p.log_efficiency, p.variance) for p in evidence.measured],
        "family": None if key is None else key,
        "relatives": 0 if key is None else len([other for other in histories.families[key] if other != job_id]),
        "family_points": [_point(p.size, p.log_efficiency, p.variance) for p in evidence.family],
        "cast_out": history.cast_out,
        "curve": _curve(job_curves.curve_of(state, job)),
        "deviation": None if posterior is None else dict(zip(posterior.sizes, posterior.deviation, strict=True)),
        "given": None if job.job.curve is None else _curve(job.job.curve),
        "contradicted": history.contradicted,
        "tries": None if job.probe is None else job.probe.size,
        "probes": history.probes,
        "probe_node_s": history.spent_node_s,
        "grow_cost_s": grow_s,
        "shrink_cost_s": shrink_s,
        "worker_start_s": histories.cost_s(job_id, "start", math.nan) if history.costs.start_s else None,
    }


def _point(size: int, log_efficiency: float, variance: float) -> dict[str, float]:
    return {"size": size, "rate": size * math.exp(log_efficiency), "deviation": math.sqrt(variance)}


def _curve(curve: ScalingCurve) -> dict[str, list[float]]:
    return {"nodes": list(curve.nodes), "rate": list(curve.rate)}


def words(state: State, job: JobState) -> list[str]:
    """Return sentences that say where the job's curve comes from."""
    told = describe(state, job)
    if not job_curves.learns(state):
        return [] if job.job.curve else ["Its scaling is not known: Amdahl's law with 2 % serial work is assumed."]
    found = []
    if told["tries"] is not None:
        found.append(f"It tries {told['tries']} nodes for a moment, to measure its scaling.")
    sizes = [point["size"] for point in told["own"]]
    if not job_curves.measures(state):
        found.append(f"Its scaling is assumed to be {told['profiler']}.")
    elif not sizes and told["relatives"]:
        found.append(f"Its scaling is taken from {_jobs(told)} of its family; it has not been measured yet.")
    elif not sizes:
        stands_in = "the curve in its job file" if job.job.curve else "a typical curve"
        found.append(f"Its throughput has not been measured yet: {stands_in} stands in.")
    elif len(sizes) == 1 and not told["family_points"]:
        nodes = "node" if sizes[0] == 1 else "nodes"
        found.append(f"It has been measured at {sizes[0]} {nodes} only: at other sizes its curve is a guess.")
    else:
        others = f", and from {_jobs(told)} of its family" if told["relatives"] else ""
        found.append(f"Its scaling is learned from what was measured at {_list(sizes)} nodes{others}: offcut curve.")
    if told["contradicted"]:
        found.append("The curve in its job file differs from what was measured; the measurements count.")
    return found


def _jobs(told: dict[str, Any]) -> str:
    return "1 job" if told["relatives"] == 1 else f"{told['relatives']} jobs"


def _list(sizes: list[int]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"
