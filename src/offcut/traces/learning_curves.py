"""Learning curves: the objective of many configurations of one training, budget by budget (our own JSON format).

`{"direction": "minimize", "budgets": [1, 2, ...], "configurations": [{"parameters": {...}, "unit_s": 0.05, "values":
[...]}]}`: `values` has the objective at each of the budgets, `null` where it was not a number; `unit_s` is the time
that one unit of budget took on one node. Other keys say how the table was made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from offcut.errors import InputError
from offcut.model.search_space import (
    CategoricalParameter,
    Parameter,
    ParameterValue,
    ParameterValues,
    SearchSpace,
    same_value,
)
from offcut.traces.text_file import read_text, write_text


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningCurve:
    """What one configuration reported.

    `unit_s`: seconds that one unit of budget takes on one node. `values`: the objective at each budget of the table;
    NaN where it was not a number.
    """

    parameters: ParameterValues
    unit_s: float
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningCurves:
    """A table of learning curves. `budgets`: the cumulative budgets at which each of them reported."""

    direction: Literal["minimize", "maximize"]
    budgets: tuple[float, ...]
    curves: tuple[LearningCurve, ...]

    @property
    def unit_s(self) -> float:
        """The mean time of one unit of budget on one node, in seconds."""
        return sum(curve.unit_s for curve in self.curves) / len(self.curves)

    @property
    def best_value(self) -> float:
        """The best value in the table; NaN if it has no number."""
        values = [value for curve in self.curves for value in curve.values if not math.isnan(value)]
        return (min if self.direction == "minimize" else max)(values, default=math.nan)

    def scaled(self, unit_s: float) -> LearningCurves:
        """Return the table with times scaled so that a unit of budget takes `unit_s` seconds on the average."""
        factor = unit_s / self.unit_s
        return replace(self, curves=tuple(replace(curve, unit_s=curve.unit_s * factor) for curve in self.curves))

    def nearest(self, space: SearchSpace, parameters: ParameterValues) -> LearningCurve:
        """Return the curve of the configuration that is nearest to these parameters; of equal ones the first.

        The distance of two numbers is their difference as a share of the parameter's range (of its logarithm, where
        the parameter is logarithmic); of two choices it is 0 or 1, and it is 1 where only one has the parameter. The
        squares are added.

        Args:
            space: what is searched over.
            parameters: the parameters of a trial.
        """
        return min(self.curves, key=lambda curve: _distance(space, parameters, curve.parameters))

    def check(self, space: SearchSpace) -> None:
        """Raise InputError if no configuration has one of the space's parameters, or has one that the space lacks."""
        known = {name for curve in self.curves for name in curve.parameters}
        searched = {parameter.name for parameter in space.parameters}
        if known == searched:
            return
        name = min(known ^ searched)
        where = "the table, and the sweep does not search over it" if name in known else "the sweep, not in the table"
        raise InputError(
            f"curves: the parameter {name} is in {where}.",
            next_step="Record a table of this sweep: benchmarks/record_learning_curves.py.",
        )


def _distance(space: SearchSpace, one: ParameterValues, other: ParameterValues) -> float:
    total = 0.0
    for parameter in space.parameters:
        in_one, in_other = parameter.name in one, parameter.name in other
        if in_one and in_other:
            total += _difference(parameter, one[parameter.name], other[parameter.name]) ** 2
        else:
            total += in_one != in_other
    return total


def _difference(parameter: Parameter, one: ParameterValue, other: ParameterValue) -> float:
    if isinstance(parameter, CategoricalParameter):
        return 0.0 if same_value(one, other) else 1.0
    low, high, a, b = parameter.low, parameter.high, float(one), float(other)
    if low == high:
        return 0.0
    if parameter.log:
        low, high, a, b = math.log(low), math.log(high), math.log(max(a, 1e-300)), math.log(max(b, 1e-300))
    return abs(a - b) / (high - low)


class _Curve(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    parameters: dict[str, bool | int | float | str]
    unit_s: float = Field(gt=0)
    values: tuple[float | None, ...]


class _Table(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)
    direction: Literal["minimize", "maximize"]
    budgets: tuple[float, ...] = Field(min_length=1)
    configurations: list[_Curve] = Field(min_length=1)


def read_learning_curves(path: str | Path) -> LearningCurves:
    """Read a table, gzipped or not.

    Raises:
        InputError: the table is not valid; it names the file and the field.
    """
    try:
        content = _Table.model_validate(json.loads(read_text(path)))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}).", next_step="Correct it.") from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the document"
        raise InputError(
            f"{path}, field {field}: {first['msg']}.", next_step="See docs/replay.md for the format."
        ) from None
    budgets = content.budgets
    if not all(a < b for a, b in zip((0.0, *budgets), budgets, strict=False)):
        raise InputError(f"{path}, field budgets: they must be greater than 0 and increase.", next_step="Correct it.")
    for i, row in enumerate(content.configurations):
        if len(row.values) != len(budgets):
            raise InputError(
                f"{path}, field configurations.{i}.values: {len(row.values)} values for {len(budgets)} budgets.",
                next_step="Give one value for each budget.",
            )
    return LearningCurves(
        direction=content.direction,
        budgets=budgets,
        curves=tuple(
            LearningCurve(
                parameters=row.parameters,
                unit_s=row.unit_s,
                values=tuple(math.nan if value is None else value for value in row.values),
            )
            for row in content.configurations
        ),
    )


def write_learning_curves(
    path: str | Path,
    *,
    direction: str,
    budgets: Iterable[float],
    rows: Iterable[dict[str, Any]],
    made_with: dict[str, Any],
) -> None:
    """Write a table, gzipped if the name ends in `.gz`; one configuration per line.

    Args:
        path: the file.
        direction: `minimize` or `maximize`.
        budgets: the cumulative budgets of the reports.
        rows: the configurations, as the format has them.
        made_with: how the table was made.
    """
    lines = ",\n".join(json.dumps(row) for row in rows)
    head = json.dumps({"direction": direction, "made_with": made_with, "budgets": list(budgets)})
    write_text(path, f'{head[:-1]}, "configurations": [\n{lines}\n]}}\n')
