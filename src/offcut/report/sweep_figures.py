"""Figures of a sweep: the best value, learning curves, what became of the trials at each rung, and trials on nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullFormatter

from offcut.plaintext import in_figure
from offcut.report.figures import COLOURS
from offcut.report.sweep_record import SweepRecord, TrialRecord
from offcut.search.trials import TrialPhase, loss

#: What became of a trial at a rung.
RungOutcome = Literal["promoted", "completed", "running", "halted", "stopped", "failed"]
OUTCOMES: dict[RungOutcome, str] = {
    "promoted": COLOURS[2],
    "completed": COLOURS[0],
    "running": COLOURS[4],
    "halted": COLOURS[1],
    "stopped": "#888888",
    "failed": COLOURS[5],
}
#: More would make the page large and the figure no clearer.
MOST_CURVES, MOST_NODES, MOST_SPANS, MOST_POINTS = 300, 40, 3000, 5000
#: A span this wide, as a share of the timeline, has room for its trial's number.
_WIDTH_OF_NUMBER = 0.022
#: Colours on which white cannot be read.
_LIGHT = ("#E69F00", "#56B4E9", "#F0E442")
#: How high a span is drawn, in points.
_SPAN_PT = 11.0


def ranked(record: SweepRecord) -> list[TrialRecord]:
    """Return the trials that have reported a number, the best one first."""
    direction = record.sweep.direction
    reported = [trial for trial in record.trials.values() if trial.best is not None]
    return sorted(reported, key=lambda trial: (loss(trial.best.value if trial.best else None, direction), trial.number))


def rung_outcomes(record: SweepRecord) -> dict[float, Counter[RungOutcome]]:
    """Return, by rung, how many of the trials that have a result there were promoted, halted, stopped and so on."""
    found: dict[float, Counter[RungOutcome]] = {}
    for trial in record.trials.values():
        for place, result in enumerate(trial.rungs):
            last = place == len(trial.rungs) - 1
            outcome: RungOutcome = _outcome(trial.phase) if last else "promoted"
            found.setdefault(result.budget, Counter())[outcome] += 1
    return dict(sorted(found.items()))


def _outcome(phase: TrialPhase) -> RungOutcome:
    if phase in ("asked", "ready", "running"):
        return "running"
    return phase  # type: ignore[return-value]  # the others have the same names


def time_unit(longest_h: float) -> tuple[str, float]:
    """Return a unit that suits a time of this many hours, and how many of it are in an hour."""
    if longest_h < 0.1:
        return "seconds", 3600.0
    return ("minutes", 60.0) if longest_h < 3 else ("hours", 1.0)


def best_value(record: SweepRecord) -> Figure:
    """Draw the best value so far against the node time that the sweep has used."""
    unit, factor = time_unit(record.node_h)
    figure, axes = _figure(2.8)
    x = [factor * best.node_h for best in record.best] + [factor * record.node_h]
    y = [best.value for best in record.best]
    axes.step(x, [*y, *y[-1:]], where="post", color=COLOURS[0], linewidth=2)
    axes.plot(x[:-1], y, "o", color=COLOURS[0], markersize=4)
    # A label where another trial is best, the last one first, unless it would cover one that is there.
    free_until = float("inf")
    for place in range(len(y) - 1, -1, -1):
        best = record.best[place]
        changed = place == 0 or record.best[place - 1].trial != best.trial
        if changed and x[place] < free_until:
            axes.annotate(
                f"trial {best.trial}", (x[place], y[place]), textcoords="offset points", xytext=(4, 5), fontsize=8
            )
            free_until = x[place] - 0.07 * x[-1]
    axes.set(xlabel=f"node-{unit} of the sweep", ylabel="best value so far", xlim=(0, None))
    axes.margins(y=0.15)
    if y and min(y) > 0 and max(y) / min(y) > 30:
        axes.set_yscale("log")
    return figure


def learning_curves(record: SweepRecord) -> Figure:
    """Draw the value of each trial against its budget, the best trials on top; rungs are marked."""
    shown = [trial for trial in ranked(record)[:MOST_CURVES] if trial.reports]
    figure, axes = _figure(3.6)
    for trial in reversed(shown):
        reports = [report for report in trial.reports if np.isfinite(report.value)]
        axes.plot(
            [report.budget for report in reports],
            [report.value for report in reports],
            color=OUTCOMES[_outcome(trial.phase)],
            linewidth=1.1,
            alpha=max(0.45, min(0.95, 30 / len(shown))),
            marker="." if len(reports) < 3 else None,
        )
    rungs = list(rung_outcomes(record))
    for rung in rungs:
        axes.axvline(rung, color="#888888", linewidth=0.7, linestyle=":")
    if len(rungs) > 1 and rungs[-1] / rungs[0] > 8:
        axes.set_xscale("log")
        axes.set_xticks(rungs, [f"{rung:g}" for rung in rungs])
        axes.xaxis.set_minor_formatter(NullFormatter())
    _limit_values(axes, shown, record.sweep.direction)
    phases = dict.fromkeys(_outcome(trial.phase) for trial in shown)
    keys = [Line2D([], [], color=OUTCOMES[phase], label=phase) for phase in OUTCOMES if phase in phases]
    axes.legend(handles=keys, frameon=False, fontsize=8, ncols=6, loc="lower left", bbox_to_anchor=(0, 1))
    axes.set(xlabel="budget of the trial", ylabel="objective")
    return figure


def _limit_values(axes: Axes, shown: Sequence[TrialRecord], direction: str) -> None:
    """Limit the values that are drawn, so that a trial that diverged does not hide the others."""
    values = np.array([report.value for trial in shown for report in trial.reports if np.isfinite(report.value)])
    if not len(values):
        return
    low, high = np.percentile(values, [0, 92] if direction == "minimize" else [8, 100])
    if low > 0 and high / low > 30:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.2, high * 1.2)
    else:
        margin = 0.06 * (high - low) or 0.5
        axes.set_ylim(low - margin, high + margin)


def rung_bars(record: SweepRecord) -> Figure:
    """Draw a bar per rung: how many trials were promoted from it, halted or stopped there, and so on."""
    outcomes = rung_outcomes(record)
    figure, axes = _figure(1.0 + 0.38 * max(1, len(outcomes)))
    left = np.zeros(len(outcomes))
    for outcome, colour in OUTCOMES.items():
        counts = np.array([float(of_rung[outcome]) for of_rung in outcomes.values()])
        if not counts.any():
            continue
        bars = axes.barh(range(len(outcomes)), counts, left=left, color=colour, label=outcome, height=0.7)
        most = max(sum(of_rung.values()) for of_rung in outcomes.values())
        labels = [f"{count:.0f}" if count > 0.02 * most else "" for count in counts]
        axes.bar_label(bars, labels, label_type="center", color="white", fontsize=8)
        left += counts
    axes.set_yticks(range(len(outcomes)), [f"{rung:g}" for rung in outcomes])
    axes.invert_yaxis()
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="trials with a result at the rung", ylabel="rung (budget)")
    axes.legend(frameon=False, fontsize=8, ncols=6, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def trial_timeline(record: SweepRecord) -> Figure:
    """Draw a row per node with the trials that it trained; pale while they boot, a cross where the queue wanted it.

    Of many nodes those are shown that trained longest, and of many spans the longest.
    """
    spent: Counter[str] = Counter()
    for span in record.spans:
        spent[span.node] += int(1e6 * (span.end_s - span.start_s))
    nodes = sorted(node for node, _ in spent.most_common(MOST_NODES))
    spans = [span for span in record.spans if span.node in set(nodes)]
    spans = sorted(spans, key=lambda span: span.start_s - span.end_s)[:MOST_SPANS]
    total_s = max(1e-3, record.end_s - record.start_s)
    unit, factor = time_unit(total_s / 3600)
    scale = factor / 3600
    figure, axes = _figure(1.0 + 0.26 * max(1, len(nodes)))
    row = {node: place for place, node in enumerate(nodes)}
    lines = [
        (
            (scale * (span.start_s - record.start_s), row[span.node]),
            (scale * (span.end_s - record.start_s), row[span.node]),
        )
        for span in spans
    ]
    for trains in (False, True):
        chosen = [(line, span) for line, span in zip(lines, spans, strict=True) if span.trains == trains]
        axes.add_collection(
            LineCollection(
                [line for line, _ in chosen],
                colors=[COLOURS[span.trial % len(COLOURS)] for _, span in chosen],
                linewidths=_SPAN_PT,
                alpha=1.0 if trains else 0.35,
                capstyle="butt",
            )
        )
    for span in spans:
        if span.trains and span.end_s - span.start_s > _WIDTH_OF_NUMBER * total_s:
            middle_s = (span.start_s + span.end_s) / 2 - record.start_s
            ink = "#1a1a1a" if COLOURS[span.trial % len(COLOURS)] in _LIGHT else "white"
            axes.text(
                scale * middle_s, row[span.node], str(span.trial), color=ink, fontsize=7, ha="center", va="center"
            )
    wanted = [reclaim for reclaim in record.reclaims if reclaim.node in row][:MOST_POINTS]
    axes.plot(
        [scale * (reclaim.time_s - record.start_s) for reclaim in wanted],
        [row[reclaim.node] for reclaim in wanted],
        "x",
        color="#000000",
        markersize=6,
        markeredgewidth=1.6,
    )
    axes.set_yticks(range(len(nodes)), [in_figure(node) for node in nodes], fontsize=8)
    axes.set(xlabel=f"{unit} since the sweep was submitted", xlim=(0, scale * total_s), ylim=(len(nodes) - 0.5, -0.5))
    keys: list[Patch | Line2D] = [
        Patch(facecolor="#888888", label="trains"),
        Patch(facecolor="#888888", alpha=0.35, label="boots"),
    ]
    if wanted:
        keys.append(Line2D([], [], marker="x", linestyle="", color="#000000", label="the queue wants the node"))
    axes.legend(handles=keys, frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def _figure(height_in: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(11, height_in), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
