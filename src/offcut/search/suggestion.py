"""Suggests the parameters of a trial without Optuna: at random, from a grid, or by changing another trial's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from offcut.errors import InputError
from offcut.model.search_space import (
    CategoricalParameter,
    FloatParameter,
    IntParameter,
    Parameter,
    ParameterValue,
    ParameterValues,
    SearchSpace,
    same_value,
)
from offcut.search.random_numbers import random_for

#: A grid with more points than this is refused.
MOST_POINTS = 100_000


def suggest_random(space: SearchSpace, seed: int, number: int) -> ParameterValues:
    """Return the parameters of trial `number`, drawn at random: the same for the same seed.

    Args:
        space: what is searched over.
        seed: the sweep's seed.
        number: the trial's number.
    """
    return complete({}, space, random_for(seed, "suggest", number))


def complete(values: ParameterValues, space: SearchSpace, random: Random) -> ParameterValues:
    """Return these values for the parameters that are active with them, and random ones for the active ones left.

    Args:
        values: values of some parameters; those of parameters that are not active are dropped.
        space: what is searched over.
        random: the generator to draw from.
    """
    found: ParameterValues = {}
    for parameter in space.parameters:
        if space.is_active(parameter, found):
            found[parameter.name] = values[parameter.name] if parameter.name in values else draw(parameter, random)
    return found


def draw(parameter: Parameter, random: Random) -> ParameterValue:
    """Return a random value of the parameter.

    Args:
        parameter: the parameter.
        random: the generator to draw from.
    """
    match parameter:
        case CategoricalParameter():
            return parameter.choices[random.randrange(len(parameter.choices))]
        case FloatParameter():
            return _from_unit(parameter.low, parameter.high, parameter.log, random.random())
        case IntParameter():
            if parameter.log:
                # Each integer has the interval of half a unit around it, as Optuna does.
                drawn = _from_unit(parameter.low - 0.5, parameter.high + 0.5, True, random.random())
                return min(max(round(drawn), parameter.low), parameter.high)
            count = (parameter.high - parameter.low) // parameter.step + 1
            return parameter.low + parameter.step * random.randrange(count)


def _from_unit(low: float, high: float, log: bool, unit: float) -> float:
    if log:
        return min(max(math.exp(math.log(low) + unit * (math.log(high) - math.log(low))), low), high)
    return min(max(low + unit * (high - low), low), high)


def grid(space: SearchSpace) -> Iterator[ParameterValues]:
    """Yield every combination of the parameters' values, the last parameter changing fastest.

    Raises:
        InputError: a parameter is a float, which has no grid.
    """
    yield from _grid(space, 0, {})


def _grid(space: SearchSpace, place: int, values: ParameterValues) -> Iterator[ParameterValues]:
    if place == len(space.parameters):
        yield values
        return
    parameter = space.parameters[place]
    if not space.is_active(parameter, values):
        yield from _grid(space, place + 1, values)
        return
    for value in _all_values(parameter):
        yield from _grid(space, place + 1, {**values, parameter.name: value})


def _all_values(parameter: Parameter) -> tuple[ParameterValue, ...] | range:
    match parameter:
        case CategoricalParameter():
            return parameter.choices
        case IntParameter():
            return range(parameter.low, parameter.high + 1, parameter.step)
        case FloatParameter():
            raise InputError(
                f"{parameter.name}: a grid needs choices or integers, and this is a float parameter.",
                next_step="List its values as choices, or choose the suggester 'random'.",
            )


def grid_points(space: SearchSpace) -> list[ParameterValues]:
    """Return the points of the grid, in order.

    Raises:
        InputError: a parameter is a float, or the grid has too many points.
    """
    points = []
    for point in grid(space):
        points.append(point)
        if len(points) > MOST_POINTS:
            raise InputError(f"space: its grid has more than {MOST_POINTS:,} points.", next_step="Use 'random'.")
    return points


def mutate(values: ParameterValues, space: SearchSpace, random: Random) -> ParameterValues:
    """Return the parameters with one of them changed. Parameters that become active are drawn at random.

    Args:
        values: a trial's parameters.
        space: what is searched over.
        random: the generator to draw from.
    """
    changeable = [
        parameter for parameter in space.parameters if parameter.name in values and _has_other_value(parameter)
    ]
    if not changeable:
        return dict(values)
    chosen = changeable[random.randrange(len(changeable))]
    old = new = values[chosen.name]
    while same_value(new, old):
        new = draw(chosen, random)
    return complete({**values, chosen.name: new}, space, random)


def _has_other_value(parameter: Parameter) -> bool:
    match parameter:
        case CategoricalParameter():
            return len(parameter.choices) > 1
        case IntParameter():
            return parameter.low + parameter.step <= parameter.high
        case FloatParameter():
            return parameter.low < parameter.high


def perturb(
    values: ParameterValues, space: SearchSpace, random: Random, *, factors: tuple[float, float], resample: float
) -> ParameterValues:
    """Return the parameters as population-based training explores them: numbers times one of two factors.

    A choice moves to its neighbour in the list; each parameter is drawn at random instead with a small probability. A
    parameter that decides which others are active stays, because the state that was copied has its architecture.

    Args:
        values: the parameters of the trial whose state was copied.
        space: what is searched over.
        random: the generator to draw from.
        factors: the two factors, for numbers.
        resample: the probability with which a parameter is drawn at random.
    """
    conditional = {parameter.when.parameter for parameter in space.parameters if parameter.when is not None}
    found = dict(values)
    for parameter in space.parameters:
        if parameter.name not in values or parameter.name in conditional:
            continue
        if random.random() < resample:
            found[parameter.name] = draw(parameter, random)
            continue
        upwards = random.random() < 0.5
        value = values[parameter.name]
        match parameter:
            case CategoricalParameter():
                place = next(i for i, choice in enumerate(parameter.choices) if same_value(choice, value))
                moved = place + (1 if upwards else -1)
                found[parameter.name] = parameter.choices[min(max(moved, 0), len(parameter.choices) - 1)]
            case FloatParameter():
                scaled = float(value) * factors[upwards]
                found[parameter.name] = min(max(scaled, parameter.low), parameter.high)
            case IntParameter():
                steps = round((float(value) * factors[upwards] - parameter.low) / parameter.step)
                last = (parameter.high - parameter.low) // parameter.step
                found[parameter.name] = parameter.low + parameter.step * min(max(steps, 0), last)
    return found
