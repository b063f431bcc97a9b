"""The page of `offcut replay --report`: the metrics of some replays and where the idle node-time went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from offcut.plaintext import in_figure
from offcut.report.html import Section, page, paragraph, svg, table
from offcut.report.replay_rows import LOSSES, name_of, rows
from offcut.simulate.metrics import ReplayMetrics
from offcut.simulate.options import ReplayOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = ("#1f3a5f", "#c8553d", "#e08e45", "#f2c14e", "#7b9e89", "#5d737e", "#8d6a9f", "#c3c9d1", "#e4e7eb")


def replay_page(runs: Sequence[tuple[ReplayOptions, ReplayMetrics]], trace: str) -> str:
    """Return the page as HTML."""
    options, metrics = [one for one, _ in runs], [result for _, result in runs]
    names = [name_of(one, options) for one in options]
    hours = (metrics[0].end_s - metrics[0].start_s) / 3600
    said = paragraph(
        f"{hours:,.1f} hours with {metrics[0].idle_node_h:,.0f} idle node-hours, replayed through the controller that "
        "runs live. Work is counted in node-hours at each network's one-node rate."
    )
    figures = table(["", *names], [(title, *values) for title, values in rows(metrics)])
    sections = [
        Section("Where the idle node-time went", said + svg(shares_figure(names, metrics))),
        Section("Each figure with its limit", figures),
    ]
    return page(f"Replay of {trace}", sections)


def shares_figure(names: Sequence[str], metrics: Sequence[ReplayMetrics]) -> Figure:
    """Draw one bar per run: work, then each loss, as shares of the idle node-time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.5 + 0.5 * len(names)), layout="constrained")
    axes = figure.subplots()
    left = [0.0] * len(names)
    parts = {"work": "work", **LOSSES}
    for (field, title), colour in zip(parts.items(), _COLOURS, strict=True):
        values = [max(0.0, getattr(m.shares, field)) for m in metrics]
        bars = axes.barh(range(len(names)), values, left=left, color=colour, label=title, height=0.65)
        if field == "work":
            axes.bar_label(
                bars,
                [f"{value:.1%}" if value > 0.05 else "" for value in values],
                label_type="center",
                color="white",
                fontsize=9,
            )
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.set_yticks(range(len(names)), [in_figure(name) for name in names])
    axes.invert_yaxis()
    axes.set(xlim=(0, max(1.0, *left)), xlabel="share of the idle node-time")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure
