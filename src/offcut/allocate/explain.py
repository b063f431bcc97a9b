"""Explains why a job has its size, in numbers and in sentences.

The numbers are exact. They are the value of the next larger and smaller size to the job itself, and, from a second
solution with the job fixed at the larger size that it would gain most from, the loss of the other jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from offcut.allocate.objective import allowed_sizes, job_value, terms
from offcut.allocate.solve import solve as solve_problem
from offcut.errors import AllocationError, InputError
from offcut.model import Allocation, AllocationProblem, JobRequest

#: The reason why a job does not grow.
#: `bound`: it is at its largest size. `locked`: it may not change. `curve`: more nodes would not make it faster.
#: `resize`: the change would cost more than it gains within the horizon. `nodes`: there are no more nodes.
#: `quota`: its group has no more. `others`: the nodes are worth more to other jobs. `tie`: growing would not be better.
#: `constraint`: another constraint of the problem rules it out. `policy`: growing would be better; the policy was
#: wrong.
Cause = Literal["bound", "locked", "curve", "resize", "nodes", "quota", "others", "tie", "constraint", "policy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The size of one job and the reason for it.

    Values are in units of the objective over the horizon; they are None if the job has no such size.
    """

    job: str
    nodes: int
    current: int
    #: The value of the size to the job.
    worth: float
    #: The next larger and smaller size, and the job's gain or loss of value there.
    larger: int | None
    gain: float | None
    smaller: int | None
    loss: float | None
    #: The value of one more node to the whole machine.
    price: float
    cause: Cause
    #: The larger size with the largest gain at that price, and the job's gain there.
    target: int | None
    target_gain: float | None
    #: The loss of the other jobs if this job had that size, and their sizes before and after.
    others_lose: float | None
    others: dict[str, tuple[int, int]]
    words: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as a JSON value."""
        return asdict(self)


def explain(
    problem: AllocationProblem,
    job_id: str,
    allocation: Allocation | None = None,
    *,
    solve: Callable[[AllocationProblem], Allocation] | None = None,
) -> Explanation:
    """Explain why a job has its size.

    Args:
        problem: the allocation problem.
        job_id: the job's id.
        allocation: the answer to explain; None: the optimal one.
        solve: the solver for the second solution; None: `offcut.allocate.solve.solve`.

    Returns:
        The explanation.

    Raises:
        InputError: the problem has no such job.
    """
    job = next((job for job in problem.jobs if job.id == job_id), None)
    if job is None:
        raise InputError(f"unknown job '{job_id}'.", next_step=f"Jobs: {', '.join(j.id for j in problem.jobs)}.")
    solve = solve or solve_problem
    allocation = allocation or solve(problem)
    n = allocation.nodes[job_id]
    sizes = list(allowed_sizes(job, problem.nodes))
    worth = {s: job_value(problem, job, s) for s in {n, *sizes}}
    larger = min((s for s in sizes if s > n), default=None)
    smaller = max((s for s in sizes if s < n), default=None)
    target = max((s for s in sizes if s > n), key=lambda s: worth[s] - allocation.price * s, default=None)
    best_gain = max((worth[s] - worth[n] for s in sizes if s > n), default=0.0)
    cause, others_lose, others = _cause(problem, job, allocation, target, best_gain, solve=solve)
    draft = Explanation(
        job=job_id,
        nodes=n,
        current=job.current,
        worth=worth[n],
        larger=larger,
        gain=None if larger is None else worth[larger] - worth[n],
        smaller=smaller,
        loss=None if smaller is None else worth[n] - worth[smaller],
        price=allocation.price,
        cause=cause,
        target=target,
        target_gain=None if target is None else worth[target] - worth[n],
        others_lose=others_lose,
        others=others,
        words=(),
    )
    return replace(draft, words=_words(problem, job, draft))


def _cause(
    problem: AllocationProblem,
    job: JobRequest,
    allocation: Allocation,
    target: int | None,
    best_gain: float,
    *,
    solve: Callable[[AllocationProblem], Allocation],
) -> tuple[Cause, float | None, dict[str, tuple[int, int]]]:
    """Return why the job has fewer than `target` nodes, the loss of the others if it had them, and their changes."""
    n = allocation.nodes[job.id]
    if job.locked:
        return "locked", None, {}
    if target is None:
        beyond = next((s for s in allowed_sizes(job, job.curve.max_nodes) if s > n), None)
        return ("bound" if beyond is None else "nodes"), None, {}
    tiny = 1e-9 * max(1.0, abs(allocation.objective))
    if best_gain <= tiny:
        t = terms(problem.objective, job)
        here = t.counted(job.curve.rate_at(min(n, job.curve.max_nodes)))
        faster = any(t.counted(job.curve.rate_at(s)) > here for s in allowed_sizes(job, problem.nodes) if s > n)
        return ("resize" if faster and n == job.current else "curve"), None, {}
    held = replace(job, sizes=(target,), may_wait=False)
    try:
        other = solve(replace(problem, jobs=tuple(held if j.id == job.id else j for j in problem.jobs)))
    except AllocationError:
        group = next((g for g in problem.groups if g.id == job.group), None)
        quota = group is not None and group.max_nodes is not None
        return ("quota" if quota else "constraint"), None, {}
    changes = {
        j.id: (allocation.nodes[j.id], other.nodes[j.id])
        for j in problem.jobs
        if j.id != job.id and other.nodes[j.id] != allocation.nodes[j.id]
    }
    lost = math.fsum(
        job_value(problem, j, allocation.nodes[j.id]) - job_value(problem, j, other.nodes[j.id])
        for j in problem.jobs
        if j.id in changes
    )
    if problem.objective == "priority" and any(j.id in changes and j.priority > job.priority for j in problem.jobs):
        return "others", lost, changes
    if abs(other.objective - allocation.objective) <= tiny:
        return "tie", lost, changes
    if other.objective > allocation.objective:
        return "policy", lost, changes
    return "others", lost, changes


def _words(problem: AllocationProblem, job: JobRequest, found: Explanation) -> tuple[str, ...]:
    """Write the explanation in sentences."""
    change = found.nodes - found.current
    moved = "as before" if change == 0 else f"{abs(change)} {'more' if change > 0 else 'fewer'} than it holds now"
    lines = [f"{found.job} has {found.nodes} of {problem.nodes} nodes, {moved}."]
    if found.gain is not None and found.larger is not None:
        lines.append(_step(found.gain, found.larger, found.nodes))
    if found.loss is not None and found.smaller is not None:
        lines.append(_step(-found.loss, found.smaller, found.nodes))
    if found.price > 0:
        lines.append(f"A node is worth {found.price:.4g} at the margin.")
    lines.append(_why(problem, job, found))
    return tuple(lines)


def _step(change: float, to: int, size: int) -> str:
    """Say how the value would change at the size `to`."""
    does = "gain" if change >= 0 else "lose"
    nodes = "node" if to == 1 else "nodes"
    return f"With {to} {nodes} it would {does} {abs(change):.4g} ({abs(change) / abs(to - size):.4g} a node)."


def _why(problem: AllocationProblem, job: JobRequest, found: Explanation) -> str:
    """Say why the job does not grow."""
    who = ", ".join(f"{name} {a} → {b}" for name, (a, b) in list(found.others.items())[:4])
    who += f" and {len(found.others) - 4} more" if len(found.others) > 4 else ""
    no_change = "no other job would change"
    match found.cause:
        case "locked":
            return "It does not change because it is locked."
        case "policy":
            return f"Growing to {found.target} nodes would raise the objective: the policy did not do that."
        case "bound":
            why = f"{found.nodes} is its largest size"
        case "nodes":
            why = f"its next size does not fit on {problem.nodes} nodes"
        case "curve":
            why = "more nodes would not make it faster"
        case "resize":
            why = f"the resize costs {job.grow_cost_s:g} s, more than any size gains in {problem.horizon_s:g} s"
        case "quota":
            why = f"the quota of its group '{job.group}' is used up"
        case "constraint":
            why = f"{found.target} nodes for it leave no allocation that meets all constraints"
        case "tie":
            why = f"that would be no better ({who or no_change})"
        case "others" if problem.objective == "max_min":
            why = f"that would lower the smallest speed-up ({who or no_change})"
        case "others" if problem.objective == "priority":
            why = f"others come first ({who or no_change})"
        case _:
            why = (
                f"the nodes are worth more to others: at {found.target} it would gain {found.target_gain or 0.0:.4g}, "
                f"and they would lose {found.others_lose or 0.0:.4g} ({who or no_change})"
            )
    return f"It does not grow because {why}."
