"""Draws the statistics of idle windows: how many nodes are idle over time, and in windows of which lengths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from offcut.errors import InputError
from offcut.plaintext import in_figure
from offcut.traces.statistics import SHORT_S, WindowStatistics
from offcut.traces.windows import Windows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INK, _FILL, _SECOND = "#1f3a5f", "#9db8d9", "#c8553d"


def draw_windows(windows: Windows, statistics: WindowStatistics, path: Path, title: str) -> None:
    """Write the figure of `windows` to `path` (.png, .svg, .pdf)."""
    try:
        windows_figure(windows, statistics, title).savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}.", next_step="Name a .png, .svg or .pdf that can be written.") from None


def windows_figure(windows: Windows, statistics: WindowStatistics, title: str) -> Figure:
    """Draw the figure of `windows`.

    Above: idle nodes over time, the largest and the mean of each of 1,000 slices of the time. Below: the share of
    windows and of idle node-time in windows up to a length; the share of the time with at most a number of idle nodes.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.5), layout="constrained")
    grid = figure.subplot_mosaic([["time", "time"], ["length", "count"]], height_ratios=[1, 1.1])
    hours, count, weight = _counts(windows, statistics)

    axes = grid["time"]
    edges = np.linspace(hours[0], hours[-1], 1_001)
    slice_of = np.clip(np.searchsorted(edges, hours[:-1], "right") - 1, 0, 999)
    peak = np.zeros(1_000)
    np.maximum.at(peak, slice_of, count)
    mean = np.bincount(slice_of, count * weight, 1_000) / np.maximum(np.bincount(slice_of, weight, 1_000), 1e-12)
    empty = np.bincount(slice_of, minlength=1_000) == 0
    before = count[np.maximum(np.searchsorted(hours[:-1], edges[:-1], "right") - 1, 0)]
    peak, mean = np.where(empty, before, peak), np.where(empty, before, mean)
    axes.fill_between(edges[:-1], peak, step="post", color=_FILL, linewidth=0, label="most in the slice")
    axes.step(edges[:-1], mean, where="post", color=_INK, linewidth=0.8, label="mean of the slice")
    axes.axhline(statistics.idle_nodes_mean, color=_SECOND, linewidth=1, linestyle="--", label="mean")
    axes.set(xlabel="hours", ylabel="idle nodes", xlim=(edges[0], edges[-1]), ylim=(0, None))
    axes.legend(loc="upper right", fontsize=8, ncols=3)

    axes = grid["length"]
    length = np.sort(windows.length_s)
    share = np.arange(1, len(length) + 1) / len(length)
    axes.plot(length, share, color=_INK, label="windows")
    axes.plot(length, np.cumsum(length) / length.sum(), color=_SECOND, label="idle node-time")
    axes.axvline(SHORT_S, color="grey", linewidth=0.8, linestyle=":")
    axes.annotate(
        "10 min",
        (SHORT_S, 0.96),
        textcoords="offset points",
        xytext=(3, 0),
        fontsize=8,
        color="grey",
        horizontalalignment="left",
    )
    axes.set(xscale="log", xlabel="window length, s", ylabel="share up to this length", ylim=(0, 1.02))
    axes.legend(loc="center right", fontsize=8)

    axes = grid["count"]
    order = np.argsort(count, kind="stable")
    axes.step(count[order], np.cumsum(weight[order]) / weight.sum(), where="post", color=_INK)
    axes.set(xscale="symlog", xlabel="idle nodes", ylabel="share of the time with at most this many", ylim=(0, 1.02))
    for name, value in statistics.idle_nodes.items():
        axes.plot(value, float(name[1:]) / 100, "o", color=_SECOND, markersize=4)
        at = (value, float(name[1:]) / 100)
        axes.annotate(
            f"{name}: {value:,.0f}",
            at,
            textcoords="offset points",
            xytext=(-6, 3),
            fontsize=8,
            horizontalalignment="right",
        )
    axes.set_xlim(left=0)
    figure.suptitle(
        f"{in_figure(title)}: {statistics.idle_share:.1%} of {statistics.nodes:,} nodes idle, "
        f"{statistics.windows:,} windows"
    )
    return figure


def _counts(windows: Windows, statistics: WindowStatistics) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return borders in hours (one more than counts), the idle count between them, and the hours that each lasts."""
    times, count = windows.idle_count(statistics.start_s)
    inside = times < statistics.end_s
    hours = np.append(times[inside], statistics.end_s) / 3600
    return hours, count[inside].astype(np.float64), np.diff(hours)
