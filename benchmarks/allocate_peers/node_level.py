"""The published node-level model, as data that both peers build from.

One binary per job and node; a job's nodes are a subset or a superset of those that it holds (no migration); the rate
interpolates the curve's points; a resize charges cost * rate(current). The published big-M of N + 1 in the rows against
migration is too small by a factor of two and cuts off optima; here it is large enough: all solve the same problem.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcut.model import AllocationProblem


@dataclass(frozen=True, slots=True)
class JobData:
    """One job: curve points, size bounds, the nodes held (by number), and the costs of growing and shrinking."""

    points: tuple[int, ...]
    values: tuple[float, ...]
    smallest: int
    largest: int
    held: range
    grow: float
    shrink: float


def jobs(problem: AllocationProblem) -> list[JobData]:
    """The jobs' data; job after job holds the next `current` nodes."""
    out = []
    at = 0
    for job in problem.jobs:
        now = job.curve.rate_at(job.current)
        out.append(
            JobData(
                points=job.curve.nodes,
                values=tuple(problem.horizon_s * rate for rate in job.curve.rate),
                smallest=job.min_nodes,
                largest=min(job.max_nodes, job.curve.max_nodes),
                held=range(at, at + job.current),
                grow=job.grow_cost_s * now,
                shrink=job.shrink_cost_s * now,
            )
        )
        at += job.current
    return out
