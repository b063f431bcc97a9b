"""A mixed-integer linear model that is built row by row and solved by HiGHS."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from offcut.errors import AllocationError

#: A linear expression: coefficient by variable; the key -1 holds the constant.
Expression = dict[int, float]
CONSTANT = -1


def plus(*parts: Expression) -> Expression:
    """Return the sum of the expressions."""
    out: Expression = {}
    for part in parts:
        for var, coefficient in part.items():
            out[var] = out.get(var, 0.0) + coefficient
    return out


def times(factor: float, part: Expression) -> Expression:
    """Return an expression multiplied by a number.

    Args:
        factor: the number.
        part: the expression.
    """
    return {var: factor * coefficient for var, coefficient in part.items()}


@dataclass(frozen=True, slots=True)
class Solution:
    """The variables' values, the objective, HiGHS's bound on it, and True if the two agree."""

    values: list[float]
    objective: float
    bound: float
    proven: bool

    def evaluate(self, part: Expression) -> float:
        """Return the value of an expression.

        Args:
            part: an expression over the model's variables.
        """
        return sum(c * (1.0 if var == CONSTANT else self.values[var]) for var, c in part.items())


@dataclass(slots=True)
class Model:
    """Variables with bounds, rows `low <= expression <= high`; `maximise` solves."""

    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    rows: list[tuple[float, float, Expression]] = field(default_factory=list)

    def add_variable(self, lower: float, upper: float, *, integer: bool = True) -> int:
        """Add a variable.

        Args:
            lower: its lower bound.
            upper: its upper bound.
            integer: False: the variable is continuous.

        Returns:
            The variable's number.
        """
        self.lower.append(lower)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.lower) - 1

    def add_binary(self) -> int:
        """Add a variable that is 0 or 1. Returns its number."""
        return self.add_variable(0, 1)

    def add_row(self, low: float, part: Expression, high: float) -> None:
        """Add the constraint `low <= part <= high`.

        Args:
            low: the lower bound; may be -inf.
            part: the expression.
            high: the upper bound; may be inf.
        """
        shift = part.get(CONSTANT, 0.0)
        self.rows.append((low - shift, high - shift, {var: c for var, c in part.items() if var != CONSTANT and c}))

    def at_most(self, part: Expression, high: float) -> None:
        """Require an expression to be at most a number.

        Args:
            part: an expression over the model's variables.
            high: the number.
        """
        self.add_row(-math.inf, part, high)

    def at_least(self, part: Expression, low: float) -> None:
        """Require an expression to be at least a number.

        Args:
            part: an expression over the model's variables.
            low: the number.
        """
        self.add_row(low, part, math.inf)

    def equal(self, part: Expression, value: float) -> None:
        """Require an expression to equal a number.

        Args:
            part: an expression over the model's variables.
            value: the number.
        """
        self.add_row(value, part, value)

    def maximise(self, part: Expression, time_limit_s: float = math.inf) -> Solution:
        """Solve the model to a relative gap of 1e-9.

        Args:
            part: the expression to maximise.
            time_limit_s: seconds after which HiGHS stops with the best solution so far.

        Returns:
            The best solution found; `proven` is False if the time limit ended the search.

        Raises:
            AllocationError: no solution exists, or none was found in time.
        """
        import highspy  # late: loading it takes longer than most exact solutions

        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("mip_rel_gap", 1e-9)
        solver.setOptionValue("mip_abs_gap", 1e-9)
        solver.setOptionValue("mip_feasibility_tolerance", 1e-9)
        if math.isfinite(time_limit_s):
            solver.setOptionValue("time_limit", max(0.001, time_limit_s))
        solver.passModel(self._lp(part))
        solver.run()
        status = solver.getModelStatus()
        info = solver.getInfo()
        if info.primal_solution_status != 2:
            infeasible = status in (
                highspy.HighsModelStatus.kInfeasible,
                highspy.HighsModelStatus.kUnboundedOrInfeasible,
            )
            raise AllocationError(
                "no allocation meets all the constraints." if infeasible else "no allocation was found in time.",
                next_step="Relax a lock, a quota or a limit." if infeasible else "Raise --time-limit.",
            )
        values = [
            float(round(v)) if whole else v
            for v, whole in zip(solver.getSolution().col_value, self.integer, strict=True)
        ]
        proven = status == highspy.HighsModelStatus.kOptimal
        bound = float(info.mip_dual_bound) if any(self.integer) else float(info.objective_function_value)
        solution = Solution(values, 0.0, bound, proven)
        objective = solution.evaluate(part)
        return Solution(values, objective, objective if proven else max(objective, bound), proven)

    def _lp(self, part: Expression) -> Any:
        """Build HiGHS's form of the model, with the objective `part`."""
        import highspy

        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.lower), len(self.rows)
        cost = np.zeros(len(self.lower))
        for var, coefficient in part.items():
            if var != CONSTANT:
                cost[var] = coefficient
        lp.col_cost_, lp.offset_ = cost, part.get(CONSTANT, 0.0)
        lp.col_lower_, lp.col_upper_ = np.array(self.lower, float), np.array(self.upper, float)
        lp.row_lower_ = np.array([low for low, _, _ in self.rows], float)
        lp.row_upper_ = np.array([high for _, high, _ in self.rows], float)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum([len(p) for _, _, p in self.rows])]).astype(np.int32)
        lp.a_matrix_.index_ = np.array([var for _, _, p in self.rows for var in p], np.int32)
        lp.a_matrix_.value_ = np.array([c for _, _, p in self.rows for c in p.values()], float)
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kInteger if whole else kinds.kContinuous for whole in self.integer]
        lp.sense_ = highspy.ObjSense.kMaximize
        return lp


def total(parts: Iterable[Expression]) -> Expression:
    """Return the sum of any number of expressions.

    Args:
        parts: the expressions.
    """
    return plus(*parts)
