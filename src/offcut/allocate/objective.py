"""The value of a size to a job: the definition that every solver is tested against.

`published` (BFTrainer's objective): weight * (horizon * rate(n) - cost * rate(current)), where the cost is charged only
if n != current. `stall`: a job that changes is worth weight * rate(n) * max(0, horizon - cost).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from offcut.model import AllocationProblem, JobRequest, Objective, ScalingCurve

#: The weight of the rate beyond the one that meets the deadline.
BEYOND_DEADLINE = 1e-3


@dataclass(frozen=True, slots=True)
class Terms:
    """The objective's value of a job's rate r: `weight * r`, or with a cap `weight * (min(r, cap) + beyond * r)`.

    `weight` is per unit of the rate (samples/s), `cap` is a rate (samples/s), `beyond` is `BEYOND_DEADLINE`.
    """

    weight: float
    cap: float | None = None

    def counted(self, rate: float) -> float:
        """Return the value of a rate without the weight.

        Args:
            rate: samples/s.
        """
        return rate if self.cap is None else min(rate, self.cap) + BEYOND_DEADLINE * rate


def one_node_rate(curve: ScalingCurve) -> float:
    """Return a job's throughput on one node, the unit of speed-ups.

    Args:
        curve: the job's scaling curve.

    Returns:
        Samples/s. If the curve has no positive rate at one node, the first positive rate divided by its nodes; 1 if no
        rate is positive.
    """
    if curve.nodes[-1] >= 1 and (rate := curve.rate_at(1)) > 0:
        return rate
    return next((rate / n for n, rate in zip(curve.nodes, curve.rate, strict=True) if rate > 0), 1.0)


def terms(objective: Objective, job: JobRequest) -> Terms:
    """Return how an objective values the rate of a job.

    Args:
        objective: the objective; for `max_min` the value is the job's speed-up divided by its weight.
        job: the job.

    Returns:
        The weight and the cap.
    """
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
    """Return the rate at the nodes that the job holds.

    Args:
        job: the job.

    Returns:
        Samples/s; if the job holds more nodes than its curve has, the rate at the curve's last point.
    """
    return job.curve.rate_at(min(job.current, job.curve.max_nodes))


def may_be_zero(job: JobRequest) -> bool:
    """Return True if the job may have no node.

    Args:
        job: the job; a locked job keeps what it has, and a running one must first reach its `min_run_s`.
    """
    if job.locked:
        return job.current == 0
    return job.may_wait and not (job.current > 0 and job.ran_s < job.min_run_s)


def allowed_sizes(job: JobRequest, nodes: int, furthest: int | None = None) -> Iterator[int]:
    """Yield the sizes that a job may have.

    Args:
        job: the job.
        nodes: the number of nodes of the machine.
        furthest: the largest size in nodes for which a rate is known; None: the last point of the job's curve.

    Yields:
        The sizes in nodes, increasing; the first is 0 if the job may wait.
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


def job_value(problem: AllocationProblem, job: JobRequest, n: int) -> float:
    """Return the value of a size to a job over the problem's horizon.

    Args:
        problem: gives the horizon (s), the cost model and the objective.
        job: the job.
        n: the size in nodes; it must be allowed.

    Returns:
        The value in units of the objective: for `weighted`, weight times samples.
    """
    t = terms(problem.objective, job)
    rate = t.counted(job.curve.rate_at(min(n, job.curve.max_nodes)))
    cost_s = 0.0 if n == job.current else job.grow_cost_s if n > job.current else job.shrink_cost_s
    if problem.cost_model == "stall":
        return t.weight * rate * max(0.0, problem.horizon_s - cost_s)
    return t.weight * (problem.horizon_s * rate - cost_s * t.counted(rate_now(job)))


def allocation_value(problem: AllocationProblem, nodes: dict[str, int]) -> float:
    """Return the value of a whole allocation, in units of the objective.

    Args:
        problem: the allocation problem.
        nodes: the size of every job, by its id.

    Returns:
        The sum over the jobs; for `max_min`, the smallest value per second of the horizon among the jobs whose weight
        is above 0.
    """
    values = [job_value(problem, job, nodes[job.id]) for job in problem.jobs]
    if problem.objective == "max_min":
        counted = [v for v, job in zip(values, problem.jobs, strict=True) if job.weight > 0]
        return min(counted, default=0.0) / problem.horizon_s
    return math.fsum(values)
