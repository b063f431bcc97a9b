"""The allocation as a mixed-integer linear program, solved by HiGHS.

It answers problems that node counts alone cannot express, and any other problem for comparison. Without node classes
the model is over counts, with one binary variable per piece of each job's value; with them it is the model of
`offcut.allocate.node_classes`. Objectives that are not one sum are solved in stages, and each stage keeps the value of
the stage before (lexicographic optimisation).
"""

from __future__ import annotations

import math
import time

from offcut.allocate.exact.pieces import build
from offcut.allocate.exact.quotas import entitlements
from offcut.allocate.milp_job import JobInModel
from offcut.allocate.milp_model import CONSTANT, Expression, Model, Solution, total
from offcut.allocate.node_classes import add_jobs
from offcut.model import Allocation, AllocationProblem


def solve(problem: AllocationProblem, *, time_limit_s: float | None = None) -> Allocation:
    """Find the best node count for every job, by class where the problem has classes.

    Args:
        problem: what to decide; anything that `AllocationProblem` can say.
        time_limit_s: seconds after which HiGHS stops with the best answer so far; None: no limit.

    Returns:
        Any of several equally good allocations. `proven` is False only where the time limit ended the search; `price`
        is 0, because the model has none.

    Raises:
        AllocationError: no allocation meets the constraints, or none was found in time.
    """
    if not problem.jobs:
        return Allocation()
    import highspy  # noqa: F401 - loaded before the clock starts

    until = math.inf if time_limit_s is None else time.perf_counter() + time_limit_s
    model = Model()
    jobs = add_jobs(model, problem) if problem.classes else _add_counts(model, problem)
    _add_groups(model, problem, jobs)
    if problem.max_resizes is not None:
        model.at_most(total(one.changed for one in jobs), problem.max_resizes)
    started = time.perf_counter()
    solution, objective, bound = _stages(model, problem, jobs, until)
    return Allocation(
        nodes={job.id: round(solution.evaluate(one.size)) for job, one in zip(problem.jobs, jobs, strict=True)},
        objective=objective,
        bound=bound,
        proven=solution.proven,
        solve_ms=(time.perf_counter() - started) * 1e3,
        classes={
            job.id: {name: round(solution.values[var]) for name, var in one.classes.items() if solution.values[var]}
            for job, one in zip(problem.jobs, jobs, strict=True)
            if problem.classes
        },
    )


def _add_counts(model: Model, problem: AllocationProblem) -> list[JobInModel]:
    """Add one binary per piece, and one integer per piece of more than one size."""
    pieces = build(problem)
    jobs = []
    for j, job in enumerate(problem.jobs):
        size: Expression = {}
        value: Expression = {}
        chosen: Expression = {}
        stays: Expression = {}
        for k in range(int(pieces.start[j]), int(pieces.start[j + 1])):
            low, high = int(pieces.low[k]), int(pieces.high[k])
            slope, base = float(pieces.slope[k]), float(pieces.base[k])
            flag = model.add_binary()
            chosen[flag] = 1.0
            size[flag] = low
            value[flag] = base + slope * low
            if low == high == job.current:
                stays[flag] = 1.0
            if high > low:
                more = model.add_variable(0, high - low)
                size[more] = 1.0
                value[more] = slope
                model.at_most({more: 1.0, flag: low - high}, 0)
        model.equal(chosen, 1)
        jobs.append(JobInModel(size, value, {CONSTANT: 1.0, **dict.fromkeys(stays, -1.0)}))
    model.at_most(total(one.size for one in jobs), problem.nodes)
    return jobs


def _add_groups(model: Model, problem: AllocationProblem, jobs: list[JobInModel]) -> None:
    """Add the quotas: an upper limit per group, and the nodes that a group is entitled to and can use."""
    if not problem.groups:
        return
    least = entitlements(problem)
    for group in problem.groups:
        used = total(one.size for job, one in zip(problem.jobs, jobs, strict=True) if job.group == group.id)
        cap = math.inf if group.max_nodes is None else group.max_nodes
        model.add_row(least.get(group.id, 0), used, cap)


def _stages(
    model: Model, problem: AllocationProblem, jobs: list[JobInModel], until: float
) -> tuple[Solution, float, float]:
    """Solve the stages of the problem's objective; returns the solution, its objective and the upper bound."""

    def left() -> float:
        return until - time.perf_counter()

    everything = total(one.value for one in jobs)
    if problem.objective == "max_min":
        counted = [one for job, one in zip(problem.jobs, jobs, strict=True) if job.weight > 0]
        if counted:
            theta = model.add_variable(-math.inf, math.inf, integer=False)
            for one in counted:
                model.at_least(total([one.value, {theta: -1.0}]), 0)
            first = model.maximise({theta: 1.0}, left())
            model.at_least({theta: 1.0}, first.objective - 1e-9 * max(1.0, abs(first.objective)))
            second = model.maximise(everything, left())
            smallest = min(second.evaluate(one.value) for one in counted)
            best = max(smallest, first.bound)
            proven = first.proven and second.proven
            done = Solution(second.values, second.objective, second.bound, proven)
            return done, smallest / problem.horizon_s, best / problem.horizon_s
    if problem.objective == "priority":
        levels = sorted({job.priority for job in problem.jobs}, reverse=True)
        bound, proven = 0.0, True
        for level in levels:
            here = total(one.value for job, one in zip(problem.jobs, jobs, strict=True) if job.priority == level)
            solution = model.maximise(here, left())
            model.at_least(here, solution.objective - 1e-9 * max(1.0, abs(solution.objective)))
            bound += solution.bound
            proven = proven and solution.proven
        objective = solution.evaluate(everything)
        done = Solution(solution.values, objective, max(bound, objective), proven)
        return done, done.objective, done.bound
    solution = model.maximise(everything, left())
    return solution, solution.objective, solution.bound
