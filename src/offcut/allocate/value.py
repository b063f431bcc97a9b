"""What a size is worth to a job. The plain definition; the solvers must agree with it.

`published` (BFTrainer's objective): weight * (horizon * rate(n) - cost * rate(current)), where the cost is charged only
if n != current. `stall`: a job that changes is worth weight * rate(n) * max(0, horizon - cost).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from offcut.model import AllocationProblem, JobRequest, Objective, ScalingCurve

#: What a rate beyond the one that meets the deadline still counts.
BEYOND_DEADLINE = 1e-3


@dataclass(frozen=True, slots=True)
class Terms:
    """How the objective sees a job's rate r: `weight * r`, or `weight * (min(r, cap) + beyond * r)` with a cap."""

    weight: float
    cap: float | None = None

    def of(self, rate: float) -> float:
        """The rate as the objective counts it, the weight left out."""
        return rate if self.cap is None else min(rate, self.cap) + BEYOND_DEADLINE * rate


def one_node_rate(curve: ScalingCurve) -> float:
    """Throughput on one node; where the curve is flat zero there, the first positive rate per node; 1 if none is."""
    if curve.nodes[-1] >= 1 and (rate := curve.at(1)) > 0:
        return rate
    return next((rate / n for n, rate in zip(curve.nodes, curve.rate, strict=True) if rate > 0), 1.0)


def terms(objective: Objective, job: JobRequest) -> Terms:
    """The objective's view of one job. `max_min` is given by its parts, the speed-ups over the weights."""
    if objective in ("weighted", "priority"):
        return Terms(job.weight)
    if objective == "samples":
        return Terms(1.0)
    if objective == "speedup":
        return Terms(1.0 / one_node_rate(job.curve))
    if objective == "max_min":
        return Terms(1.0 / (job.weight * one_node_rate(job.curve)) if job.weight > 0 else 0.0)
    best = max(job.curve.rate) or 1.0
    if job.samples_left is None or job.deadline_s is None:
        return Terms(job.weight * BEYOND_DEADLINE / best)
    need = job.samples_left / job.deadline_s if job.deadline_s > 0 else best
    need = need if 0 < need < math.inf else best
    return Terms(job.weight / need, need)


def rate_now(job: JobRequest) -> float:
    """The rate at the nodes that the job still holds; beyond the curve's last point, the rate there."""
    return job.curve.at(min(job.current, job.curve.max_nodes))


def may_be_zero(job: JobRequest) -> bool:
    """Whether the job may be left without a node."""
    if job.locked:
        return job.current == 0
    return job.may_wait and not (job.current > 0 and job.ran_s < job.min_run_s)


def allowed(job: JobRequest, nodes: int, furthest: int | None = None) -> Iterator[int]:
    """The sizes that the job may have on a machine of `nodes` nodes, increasing, 0 among them where it may wait.

    `furthest` is the largest size that anything is known about; None: the last point of the job's curve.
    """
    if job.locked:
        if job.current <= nodes:
            yield job.current
        return
    if may_be_zero(job):
        yield 0
    top = min(job.curve.max_nodes if furthest is None else furthest, nodes)
    sizes = range(max(1, job.min_nodes), job.max_nodes + 1) if job.sizes is None else job.sizes
    for n in sizes:
        if n > top:
            break
        yield n


def value(problem: AllocationProblem, job: JobRequest, n: int) -> float:
    """What `n` nodes are worth to `job` over the horizon, in units of the objective; n must be allowed."""
    t = terms(problem.objective, job)
    rate = t.of(job.curve.at(min(n, job.curve.max_nodes)))
    cost_s = 0.0 if n == job.current else job.grow_cost_s if n > job.current else job.shrink_cost_s
    if problem.cost_model == "stall":
        return t.weight * rate * max(0.0, problem.horizon_s - cost_s)
    return t.weight * (problem.horizon_s * rate - cost_s * t.of(rate_now(job)))


def total(problem: AllocationProblem, nodes: dict[str, int]) -> float:
    """The value of a whole allocation: the sum over the jobs, or their smallest value per second for `max_min`."""
    values = [value(problem, job, nodes[job.id]) for job in problem.jobs]
    if problem.objective == "max_min":
        counted = [v for v, job in zip(values, problem.jobs, strict=True) if job.weight > 0]
        return min(counted, default=0.0) / problem.horizon_s
    return math.fsum(values)
