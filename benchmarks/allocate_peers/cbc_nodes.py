"""CBC on the published node-level model, by python-mip as published; versions after 1.15.0 crash on ordered sets."""

from __future__ import annotations

import time

from allocate_peers import node_level
from offcut.model import AllocationProblem


def solve(problem: AllocationProblem, limit_s: float) -> tuple[float, float, bool]:
    """Milliseconds, objective, proven. Raises ImportError where python-mip is not installed."""
    import mip

    model = mip.Model(sense=mip.MAXIMIZE, solver_name=mip.CBC)
    model.verbose = 0
    model.max_mip_gap = 1e-9
    nodes = problem.nodes
    uses, objective = [], []
    for job in node_level.jobs(problem):
        x = [model.add_var(var_type=mip.BINARY) for _ in range(nodes)]
        runs, grows, shrinks = (model.add_var(var_type=mip.BINARY) for _ in range(3))
        size = mip.xsum(x)
        model += size <= job.largest * runs
        model += size >= job.smallest * runs
        model += grows + shrinks <= 1
        held = set(job.held)
        model += mip.xsum(x[n] for n in range(nodes) if n not in held) <= nodes * grows
        model += mip.xsum(x[n] for n in held) >= len(held) - nodes * shrinks
        weights = [model.add_var(lb=0, ub=1) for _ in job.points]
        model += mip.xsum(weights) == 1
        model += size == mip.xsum(p * w for p, w in zip(job.points, weights, strict=True))
        model.add_sos(list(zip(weights, job.points, strict=True)), 2)
        objective.append(mip.xsum(v * w for v, w in zip(job.values, weights, strict=True)))
        objective.append(-job.grow * grows - job.shrink * shrinks)
        uses.append(x)
    for n in range(nodes):
        model += mip.xsum(x[n] for x in uses) <= 1
    model.objective = mip.maximize(mip.xsum(objective))
    started = time.perf_counter()
    status = model.optimize(max_seconds=limit_s)
    took_ms = (time.perf_counter() - started) * 1e3
    value = model.objective_value
    return took_ms, float("-inf") if value is None else float(value), status == mip.OptimizationStatus.OPTIMAL
