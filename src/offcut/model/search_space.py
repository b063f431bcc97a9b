"""The search space of a sweep: its parameters, and on which other parameters they depend."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from offcut.errors import InputError

#: A value of a parameter, as the script gets it.
ParameterValue = bool | int | float | str
#: The parameters of one trial: a value for each parameter that is active in it.
ParameterValues = dict[str, ParameterValue]

#: Integers of a parameter lie within these limits, which every program that reads JSON represents exactly.
_LARGEST_INT = 2**53


@dataclass(frozen=True, slots=True)
class Condition:
    """A parameter is active only in trials in which another parameter has one of these values."""

    parameter: str
    values: tuple[ParameterValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatParameter:
    """A real number from `low` to `high`, both included. `log`: uniform in its logarithm."""

    name: str
    low: float
    high: float
    log: bool = False
    when: Condition | None = None
    kind: Literal["float"] = "float"

    def __post_init__(self) -> None:
        _check_range(self.name, self.low, self.high, log=self.log)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntParameter:
    """An integer from `low` to `high`, both included, every `step`-th of them. `log`: uniform in its logarithm."""

    name: str
    low: int
    high: int
    log: bool = False
    step: int = 1
    when: Condition | None = None
    kind: Literal["int"] = "int"

    def __post_init__(self) -> None:
        _check_range(self.name, self.low, self.high, log=self.log)
        if max(abs(self.low), abs(self.high)) > _LARGEST_INT:
            raise InputError(f"{self.name}: integers must lie within 2^53.", next_step="Use a float parameter.")
        if self.step < 1:
            raise InputError(f"{self.name}: step must be at least 1, not {self.step}.")
        if self.log and self.step != 1:
            raise InputError(f"{self.name}: step and log exclude each other.", next_step="Leave one of them out.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoricalParameter:
    """One of several values, which have no order."""

    name: str
    choices: tuple[ParameterValue, ...]
    when: Condition | None = None
    kind: Literal["categorical"] = "categorical"

    def __post_init__(self) -> None:
        if not self.choices:
            raise InputError(f"{self.name}: it must have at least one choice.")
        for place, choice in enumerate(self.choices):
            if isinstance(choice, float) and not math.isfinite(choice):
                raise InputError(f"{self.name}: {choice} is not a choice.", next_step="Give finite numbers.")
            if any(same_value(choice, other) for other in self.choices[:place]):
                raise InputError(f"{self.name}: the choice {choice!r} is given twice.", next_step="Give it once.")


Parameter = FloatParameter | IntParameter | CategoricalParameter


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The parameters of a search, each after the one that it depends on."""

    parameters: tuple[Parameter, ...]

    def __post_init__(self) -> None:
        before: dict[str, Parameter] = {}
        for parameter in self.parameters:
            if parameter.name in before:
                raise InputError(f"{parameter.name}: the search space has two parameters of this name.")
            if parameter.when is not None:
                _check_condition(parameter.name, parameter.when, before)
            before[parameter.name] = parameter

    def is_active(self, parameter: Parameter, values: ParameterValues) -> bool:
        """Return whether the parameter has a value in a trial with these values of those before it."""
        when = parameter.when
        if when is None:
            return True
        return when.parameter in values and any(same_value(values[when.parameter], each) for each in when.values)

    def check(self, values: ParameterValues) -> None:
        """Raise InputError unless these are the parameters of a trial: one allowed value for each active parameter."""
        left = dict(values)
        for parameter in self.parameters:
            if not self.is_active(parameter, values):
                continue
            if parameter.name not in left:
                raise InputError(f"{parameter.name}: the trial has no value for it.")
            value = left.pop(parameter.name)
            if not allows(parameter, value):
                raise InputError(f"{parameter.name}: {value!r} lies outside the search space.")
        if left:
            raise InputError(f"{next(iter(left))}: it is not a parameter of this trial.")


def same_value(one: ParameterValue, other: ParameterValue) -> bool:
    """Return whether two values are the same: 1 and 1.0 are, 1 and True are not."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def allows(parameter: Parameter, value: ParameterValue) -> bool:
    """Return whether the value lies within the parameter's range, or among its choices."""
    match parameter:
        case CategoricalParameter():
            return any(same_value(value, choice) for choice in parameter.choices)
        case IntParameter():
            return (
                isinstance(value, int)
                and not isinstance(value, bool)
                and parameter.low <= value <= parameter.high
                and (value - parameter.low) % parameter.step == 0
            )
        case FloatParameter():
            return (
                isinstance(value, int | float)
                and not isinstance(value, bool)
                and parameter.low <= value <= parameter.high
            )


def _check_range(name: str, low: float, high: float, *, log: bool) -> None:
    for value in (low, high):
        if not math.isfinite(value):
            raise InputError(f"{name}: {value} is not a limit.", next_step="Give finite numbers.")
    if low > high:
        raise InputError(f"{name}: low {low:g} > high {high:g}.", next_step="Write the smaller one as low.")
    if log and low <= 0:
        raise InputError(f"{name}: low must be greater than 0 with log, not {low:g}.", next_step="Leave log out.")
    if math.isinf(high - low):
        raise InputError(f"{name}: the range is wider than a number can be.", next_step="Use log.")


def _check_condition(name: str, when: Condition, before: dict[str, Parameter]) -> None:
    other = before.get(when.parameter)
    if other is None:
        raise InputError(
            f"{name}: when: no parameter before it is called '{when.parameter}'.",
            next_step="Write the parameter that it depends on first.",
        )
    if isinstance(other, FloatParameter):
        raise InputError(
            f"{name}: when: '{when.parameter}' is a float parameter.",
            next_step="A condition is about choices or an integer.",
        )
    if not when.values:
        raise InputError(f"{name}: when: no value of '{when.parameter}' is given.")
    for value in when.values:
        if not allows(other, value):
            raise InputError(f"{name}: when: '{when.parameter}' is never {value!r}.", next_step="Correct the value.")
