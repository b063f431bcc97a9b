"""The general form of the allocation, by HiGHS: what counts alone cannot express, and counts for comparison.

Without node classes the model is over counts, one binary per piece of each job's value. With them it is
`offcut.allocate.node_classes`. Objectives that are not one sum are solved in stages, each stage's value kept by the
next.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from offcut.allocate.exact.pieces import build
from offcut.allocate.milp_model import CONSTANT, Expression, Model, Solution, total
from offcut.model import Allocation, AllocationProblem


@dataclass(frozen=True, slots=True)
class JobPart:
    """One job in a model: its size, its value, whether it changes, and its nodes by class."""

    size: Expression
    value: Expression
    changed: Expression
    classes: dict[str, int] = field(default_factory=dict)


def solve(problem: AllocationProblem, *, time_limit_s: float | None = None) -> Allocation:
    """The best node count for every job, by class where the problem has classes; any of several equally good ones.

    With `time_limit_s` it stops about then with the best answer so far, its bound and `proven=False`. Raises
    AllocationError where no allocation meets the constraints, or none was found in time.
    """
    from offcut.allocate import node_classes  # imports JobPart from here

    if not problem.jobs:
        return Allocation()
    import highspy  # noqa: F401 - loaded before the clock starts

    until = math.inf if time_limit_s is None else time.perf_counter() + time_limit_s
    model = Model()
    parts = node_classes.add(model, problem) if problem.classes else _add_counts(model, problem)
    _add_groups(model, problem, parts)
    if problem.max_resizes is not None:
        model.at_most(total(part.changed for part in parts), problem.max_resizes)
    started = time.perf_counter()
    solution, objective, bound = _stages(model, problem, parts, until)
    return Allocation(
        nodes={job.id: round(solution.of(part.size)) for job, part in zip(problem.jobs, parts, strict=True)},
        objective=objective,
        bound=bound,
        proven=solution.proven,
        solve_ms=(time.perf_counter() - started) * 1e3,
        classes={
            job.id: {name: round(solution.values[var]) for name, var in part.classes.items() if solution.values[var]}
            for job, part in zip(problem.jobs, parts, strict=True)
            if problem.classes
        },
    )


def _add_counts(model: Model, problem: AllocationProblem) -> list[JobPart]:
    """One binary per piece, and one count per piece of more than one size."""
    pieces = build(problem)
    parts = []
    for j, job in enumerate(problem.jobs):
        size: Expression = {}
        value: Expression = {}
        chosen: Expression = {}
        stays: Expression = {}
        for k in range(int(pieces.start[j]), int(pieces.start[j + 1])):
            low, high = int(pieces.low[k]), int(pieces.high[k])
            slope, base = float(pieces.slope[k]), float(pieces.base[k])
            flag = model.flag()
            chosen[flag] = 1.0
            size[flag] = low
            value[flag] = base + slope * low
            if low == high == job.current:
                stays[flag] = 1.0
            if high > low:
                more = model.var(0, high - low)
                size[more] = 1.0
                value[more] = slope
                model.at_most({more: 1.0, flag: low - high}, 0)
        model.equal(chosen, 1)
        parts.append(JobPart(size, value, {CONSTANT: 1.0, **dict.fromkeys(stays, -1.0)}))
    model.at_most(total(part.size for part in parts), problem.nodes)
    return parts


def _add_groups(model: Model, problem: AllocationProblem, parts: list[JobPart]) -> None:
    """Quotas: a cap, and what a group's jobs would make of their share."""
    from offcut.allocate.exact import quotas

    if not problem.groups:
        return
    least = quotas.entitlements(problem)
    for group in problem.groups:
        used = total(part.size for job, part in zip(problem.jobs, parts, strict=True) if job.group == group.id)
        cap = math.inf if group.max_nodes is None else group.max_nodes
        model.row(least.get(group.id, 0), used, cap)


def _stages(
    model: Model, problem: AllocationProblem, parts: list[JobPart], until: float
) -> tuple[Solution, float, float]:
    """The solution under the problem's objective, its objective and bound."""

    def left() -> float:
        return until - time.perf_counter()

    everything = total(part.value for part in parts)
    if problem.objective == "max_min":
        counted = [part for job, part in zip(problem.jobs, parts, strict=True) if job.weight > 0]
        if counted:
            theta = model.var(-math.inf, math.inf, integer=False)
            for part in counted:
                model.at_least(total([part.value, {theta: -1.0}]), 0)
            first = model.maximise({theta: 1.0}, left())
            model.at_least({theta: 1.0}, first.objective - 1e-9 * max(1.0, abs(first.objective)))
            second = model.maximise(everything, left())
            smallest = min(second.of(part.value) for part in counted)
            best = max(smallest, first.bound)
            proven = first.proven and second.proven
            done = Solution(second.values, second.objective, second.bound, proven)
            return done, smallest / problem.horizon_s, best / problem.horizon_s
    if problem.objective == "priority":
        levels = sorted({job.priority for job in problem.jobs}, reverse=True)
        bound, proven = 0.0, True
        for level in levels:
            here = total(part.value for job, part in zip(problem.jobs, parts, strict=True) if job.priority == level)
            solution = model.maximise(here, left())
            model.at_least(here, solution.objective - 1e-9 * max(1.0, abs(solution.objective)))
            bound += solution.bound
            proven = proven and solution.proven
        objective = solution.of(everything)
        done = Solution(solution.values, objective, max(bound, objective), proven)
        return done, done.objective, done.bound
    solution = model.maximise(everything, left())
    return solution, solution.objective, solution.bound
