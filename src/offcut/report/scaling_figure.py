"""The figure of a scaling curve: measurements, the estimate, and the true curve if it is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from offcut.plaintext import in_figure
from offcut.report.figures import COLOURS

#: Two standard deviations: the estimate's 95 % interval.
_BAND = 2.0


def scaling_curve(description: Mapping[str, Any], title: str, truth: Mapping[str, Any] | None = None) -> Figure:
    """Draw a job's scaling curve.

    Args:
        description: the value of `offcut.service.curve_report.describe`.
        title: the figure's title.
        truth: the true curve (`nodes`, `rate`), if it is known.
    """
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    draw_curve(axes, description, truth)
    axes.set_title(in_figure(title))
    axes.legend(frameon=False)
    return figure


def draw_curve(axes: Axes, description: Mapping[str, Any], truth: Mapping[str, Any] | None = None) -> None:
    """Draw the curve without title and legend."""
    pairs = [(n, r) for n, r in zip(description["curve"]["nodes"], description["curve"]["rate"], strict=True) if n > 0]
    # Without a point of its own or its family's the unit is not samples/s: only the shape can be drawn.
    deviation = description["deviation"]
    if deviation is not None:
        spread = {int(n): value for n, value in deviation.items()}
        band = [(n, r, min(_BAND * spread[n], 3.0)) for n, r in pairs if n in spread]
        axes.fill_between(
            [n for n, _, _ in band],
            [r * math.exp(-s) for _, r, s in band],
            [r * math.exp(s) for _, r, s in band],
            color=COLOURS[0],
            alpha=0.15,
            linewidth=0,
            label="95 % interval of the estimate",
        )
    if truth is not None:
        shown = [(n, r) for n, r in zip(truth["nodes"], truth["rate"], strict=True) if n > 0]
        axes.plot(*zip(*shown, strict=True), color="black", linewidth=1, linestyle="--", label="the truth")
    axes.plot(*zip(*pairs, strict=True), color=COLOURS[0], label="curve that the allocator uses")
    if description["given"] is not None:
        shown = [
            (n, r) for n, r in zip(description["given"]["nodes"], description["given"]["rate"], strict=True) if n > 0
        ]
        axes.plot(*zip(*shown, strict=True), color=COLOURS[3], linestyle=":", label="the curve in its job file")
    for name, colour, marker, label in (
        ("family_points", COLOURS[1], "s", "measured, its family"),
        ("own", COLOURS[5], "o", "measured, itself"),
    ):
        points = description[name]
        if points:
            axes.errorbar(
                [p["size"] for p in points],
                [p["rate"] for p in points],
                yerr=[_BAND * p["deviation"] * p["rate"] for p in points],
                fmt=marker,
                color=colour,
                markersize=5 if name == "own" else 4,
                label=label,
            )
    axes.set_xlabel("nodes")
    axes.set_ylabel("samples/s")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
