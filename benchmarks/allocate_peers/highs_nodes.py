"""HiGHS on the published node-level model. It has no special ordered sets: one binary per curve segment instead."""

from __future__ import annotations

import time
from itertools import pairwise

from allocate_peers import node_level
from offcut.allocate.milp_model import Expression, Model, total
from offcut.model import AllocationProblem


def solve(problem: AllocationProblem, limit_s: float) -> tuple[float, float, bool]:
    """Milliseconds, objective, proven."""
    first = Model()
    first.maximise({first.add_binary(): 1.0})  # load what a first call loads
    model = Model()
    nodes = problem.nodes
    uses: list[list[int]] = []
    values: list[Expression] = []
    for job in node_level.jobs(problem):
        x = [model.add_binary() for _ in range(nodes)]
        size: Expression = dict.fromkeys(x, 1.0)
        runs, grows, shrinks = model.add_binary(), model.add_binary(), model.add_binary()
        model.at_most(total([size, {runs: -float(job.largest)}]), 0)
        model.at_least(total([size, {runs: -float(job.smallest)}]), 0)
        model.at_most({grows: 1.0, shrinks: 1.0}, 1)
        held = set(job.held)
        model.at_most({**{x[n]: 1.0 for n in range(nodes) if n not in held}, grows: -float(nodes)}, 0)
        model.at_least({**{x[n]: 1.0 for n in held}, shrinks: float(nodes)}, len(held))
        # The curve: weights on the points, two neighbours at most.
        weights = [model.add_variable(0, 1, integer=False) for _ in job.points]
        segments = [model.add_binary() for _ in pairwise(job.points)]
        model.equal(dict.fromkeys(weights, 1.0), 1)
        model.equal(dict.fromkeys(segments, 1.0), 1)
        for k, weight in enumerate(weights):
            model.at_most({weight: 1.0, **dict.fromkeys(segments[max(0, k - 1) : k + 1], -1.0)}, 0)
        model.equal(total([size, {w: -float(p) for w, p in zip(weights, job.points, strict=True)}]), 0)
        rate = dict(zip(weights, job.values, strict=True))
        values.append({**rate, grows: -job.grow, shrinks: -job.shrink})
        uses.append(x)
    for n in range(nodes):
        model.at_most({x[n]: 1.0 for x in uses}, 1)
    started = time.perf_counter()
    solution = model.maximise(total(values), limit_s)
    return (time.perf_counter() - started) * 1e3, solution.objective, solution.proven
