"""Figures of a sweep's parameters: parallel coordinates, and how much each parameter matters."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from offcut.model.search_space import CategoricalParameter, IntParameter, Parameter, ParameterValue, same_value
from offcut.plaintext import in_figure
from offcut.report.figures import COLOURS
from offcut.report.sweep_figures import ranked
from offcut.report.sweep_record import SweepRecord, TrialRecord
from offcut.search.trials import loss

#: At most this many axes stand beside each other, with this many names of choices on one.
_MOST_AXES, _MOST_CHOICES = 12, 10
#: The longest name that is shown on an axis.
_LONGEST = 16
#: Where a line crosses the axis of a parameter that the trial does not have.
_INACTIVE = -0.12
#: Importance is computed at the highest rung that this share of the trials has reached: those that are promoted
#: further are alike.
_REACHED = 0.5
#: Numbers are put into this many groups of about equal size.
_GROUPS = 4


@dataclass(frozen=True, slots=True)
class Importance:
    """How much of the variance of the results' ranks the parameters explain, each alone: 0 to 1.

    `rung`: the budget at which the results were compared; `trials`: how many there are.
    """

    rung: float
    trials: int
    by_name: dict[str, float]


def importance(record: SweepRecord) -> Importance | None:
    """Return how much each parameter matters, as the correlation ratio η² of ranks with a parameter's groups.

    Groups are a categorical parameter's choices, or quarters of a number's values; a parameter that a trial does not
    have is a group of its own. η² is corrected for the number of groups (ε²), so that noise gives about 0.

    Returns:
        None: fewer than 8 trials have a result at one rung, or all of their results are equal.
    """
    by_rung: dict[float, list[TrialRecord]] = defaultdict(list)
    for trial in record.trials.values():
        for result in trial.rungs:
            by_rung[result.budget].append(trial)
    most = max(map(len, by_rung.values()), default=0)
    rung = max((rung for rung, trials in by_rung.items() if len(trials) >= _REACHED * most), default=0.0)
    trials = by_rung.get(rung, [])
    if len(trials) < 8:
        return None
    direction = record.sweep.direction
    at_rung = [next(result.value for result in trial.rungs if result.budget == rung) for trial in trials]
    losses = [min(loss(value, direction), 1e300) for value in at_rung]
    ranks = _ranks(np.array(losses))
    if not ranks.var():
        return None
    found = {
        parameter.name: _explained(
            ranks, _groups([trial.parameters.get(parameter.name) for trial in trials], parameter)
        )
        for parameter in record.sweep.space.parameters
    }
    return Importance(rung, len(trials), dict(sorted(found.items(), key=lambda item: -item[1])))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the ranks of values; equal ones have their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: np.ndarray = (last - (counts - 1) / 2)[inverse]
    return mean


def _groups(values: list[ParameterValue | None], parameter: Parameter) -> list[int]:
    """Return the group of each trial; -1: the trial does not have the parameter."""
    if isinstance(parameter, CategoricalParameter):
        return [-1 if value is None else _choice(parameter, value) for value in values]
    numbers = sorted(float(value) for value in values if value is not None)
    borders = sorted({numbers[len(numbers) * place // _GROUPS] for place in range(1, _GROUPS)}) if numbers else []
    return [-1 if value is None else int(np.searchsorted(borders, float(value), "right")) for value in values]


def _explained(ranks: np.ndarray, groups: list[int]) -> float:
    count, kinds = len(ranks), sorted(set(groups))
    if len(kinds) < 2 or count <= len(kinds):
        return 0.0
    labels = np.array(groups)
    within = sum(float(((ranks[labels == kind] - ranks[labels == kind].mean()) ** 2).sum()) for kind in kinds)
    total = float(((ranks - ranks.mean()) ** 2).sum())
    return max(0.0, 1.0 - within / total * (count - 1) / (count - len(kinds)))


def importance_bars(found: Importance) -> Figure:
    """Draw a bar per parameter, the most important one first."""
    shown = list(found.by_name.items())[: 2 * _MOST_AXES]
    figure = Figure(figsize=(11, 0.9 + 0.32 * len(shown)), layout="constrained")
    axes = figure.add_subplot()
    bars = axes.barh(range(len(shown)), [value for _, value in shown], color=COLOURS[0], height=0.65)
    axes.bar_label(bars, [f"{value:.0%}" for _, value in shown], padding=4, fontsize=8)
    axes.set_yticks(range(len(shown)), [in_figure(_short(name)) for name, _ in shown])
    axes.invert_yaxis()
    axes.set(
        xlim=(0, max(0.1, *(1.15 * value for _, value in shown))), xlabel="variance of ranks that it explains alone"
    )
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def parallel_coordinates(record: SweepRecord, found: Importance | None) -> Figure:
    """Draw a line per trial through its parameters to its best value; the best twentieth of the trials is on top.

    Of many parameters the most important are shown.
    """
    parameters = list(record.sweep.space.parameters)
    if len(parameters) > _MOST_AXES:
        chosen = list(found.by_name)[:_MOST_AXES] if found is not None else []
        parameters = [each for each in parameters if each.name in chosen] or parameters[:_MOST_AXES]
    trials = ranked(record)
    values = [trial.best.value for trial in trials if trial.best is not None]
    scale = _ValueScale(values or [0.0])
    lines = [
        [
            *(
                (float(x), _height(each, trial.parameters.get(each.name), trial.number))
                for x, each in enumerate(parameters)
            ),
            (float(len(parameters)), scale.height(value)),
        ]
        for trial, value in zip(trials, values, strict=True)
    ]
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes = figure.add_subplot()
    shades = LinearSegmentedColormap.from_list("ranks", [COLOURS[0], "#a0a0a0"])(
        np.linspace(0.0, 1.0, max(1, len(lines)))
    )
    best = max(1, len(lines) // 20)
    order = range(len(lines) - 1, -1, -1)
    axes.add_collection(
        LineCollection(
            [lines[place] for place in order],
            colors=[COLOURS[5] if place < best else shades[place] for place in order],
            linewidths=[2.0 if place < best else 0.9 for place in order],
            alpha=[0.95 if place < best else max(0.3, min(0.8, 60 / len(lines))) for place in order],
        )
    )
    count = len(parameters)
    for place, parameter in enumerate(parameters):
        _axis(axes, place, *_ticks(parameter))
    _axis(axes, count, *scale.ticks())
    if any(height == _INACTIVE for line in lines for _, height in line):
        axes.annotate(
            "not there", (0, _INACTIVE), textcoords="offset points", xytext=(-6, 0), fontsize=7, ha="right", va="center"
        )
    axes.set_xticks(range(count + 1), [*(in_figure(_short(each.name)) for each in parameters), "best value"])
    axes.set_yticks([])
    axes.set(xlim=(-0.35, count + 0.45), ylim=(-0.2, 1.08))
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    axes.tick_params(axis="x", length=0, rotation=20 if count > 6 else 0)
    return figure


def _axis(axes: Axes, x: int, heights: list[float], labels: list[str]) -> None:
    axes.plot([x, x], [0, 1], color="#888888", linewidth=0.8, zorder=3)
    for height, label in zip(heights, labels, strict=True):
        axes.annotate(
            in_figure(_short(label)),
            (x, height),
            textcoords="offset points",
            xytext=(4, 0),
            fontsize=8,
            va="center",
            zorder=4,
            # `html.svg` replaces this colour by the page's.
            bbox={"facecolor": "#fefefe", "edgecolor": "none", "alpha": 0.8, "pad": 0.8},
        )


class _ValueScale:
    """The heights of objective values: the best one at 1; the worst twelfth of them, which may be far away, at 0.

    Args:
        values: the best values of the trials, the best one first.
    """

    def __init__(self, values: list[float]) -> None:
        self._best, self._worst = values[0], values[int(0.92 * (len(values) - 1))]
        self._clipped = values[-1] != self._worst
        low, high = sorted((self._worst, self._best))
        self._log = low > 0 and high / low > 30

    def height(self, value: float) -> float:
        """Return the height of a value, 0 to 1."""
        best, worst = self._best, self._worst
        if best == worst:
            return 1.0 if value == best else 0.0
        if self._log:
            # A maximised value may be 0 or less where most are far above.
            best, worst, value = (math.log(max(each, 1e-300)) for each in (best, worst, value))
        return max(0.0, min(1.0, (value - worst) / (best - worst)))

    def ticks(self) -> tuple[list[float], list[str]]:
        """Return heights and what stands there."""
        worse = ("≥ " if self._worst > self._best else "≤ ") if self._clipped else ""
        return [0.0, 1.0], [worse + _number(self._worst), _number(self._best)]


def _height(parameter: Parameter, value: ParameterValue | None, trial: int) -> float:
    """Return where the trial's line crosses the parameter's axis, 0 to 1."""
    if value is None:
        return _INACTIVE
    if isinstance(parameter, CategoricalParameter):
        # Lines of one choice are spread a little, so that they can be told apart.
        return _choice(parameter, value) / max(1, len(parameter.choices) - 1) + 0.006 * (trial % 7 - 3)
    low, high, number = float(parameter.low), float(parameter.high), float(value)
    if high == low:
        return 0.0 if isinstance(parameter, IntParameter) else 0.5
    if parameter.log:
        return (math.log(number) - math.log(low)) / (math.log(high) - math.log(low))
    return (number - low) / (high - low)


def _choice(parameter: CategoricalParameter, value: ParameterValue) -> int:
    return next((place for place, choice in enumerate(parameter.choices) if same_value(choice, value)), 0)


def _ticks(parameter: Parameter) -> tuple[list[float], list[str]]:
    if isinstance(parameter, CategoricalParameter):
        last = max(1, len(parameter.choices) - 1)
        step = max(1, math.ceil(len(parameter.choices) / _MOST_CHOICES))
        places = range(0, len(parameter.choices), step)
        return [place / last for place in places], [str(parameter.choices[place]) for place in places]
    low, high = float(parameter.low), float(parameter.high)
    if isinstance(parameter, IntParameter) and not parameter.log and (high - low) / parameter.step < _MOST_CHOICES:
        values = range(parameter.low, parameter.high + 1, parameter.step)
        return [(value - low) / ((high - low) or 1.0) for value in values], [str(value) for value in values]
    middle = math.sqrt(low * high) if parameter.log else (low + high) / 2
    return [0.0, 0.5, 1.0], [_number(value) for value in (low, middle, high)]


def _number(value: float) -> str:
    return f"{value:.3g}"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
