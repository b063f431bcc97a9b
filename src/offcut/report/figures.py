"""The figures of a run: the timeline of nodes, the sizes of jobs, the latencies of resizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from offcut.plaintext import in_figure
from offcut.report.run_timeline import RunTimeline

#: One colour per job, from the palette of Okabe and Ito, which suits all kinds of colour vision.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_IDLE, _HELD = "#dddddd", "#888888"


def colour_of(jobs: Sequence[str]) -> dict[str, str]:
    return {job: COLOURS[i % len(COLOURS)] for i, job in enumerate(jobs)}


def node_timeline(run: RunTimeline) -> Figure:
    """Draw a row per node: grey if idle or held without work, pale while it boots for a job, full while it trains."""
    nodes = sorted({span.node for span in run.spans})
    colours = colour_of(list(run.sizes))
    figure = Figure(figsize=(11, 0.8 + 0.32 * max(1, len(nodes))))
    axes = figure.add_subplot()
    for span in run.spans:
        colour = {"idle": _IDLE, "held": _HELD}.get(span.condition) or colours.get(span.job or "", _HELD)
        axes.broken_barh(
            [(span.start_s - run.start_s, span.end_s - span.start_s)],
            (nodes.index(span.node) - 0.4, 0.8),
            facecolors=colour,
            alpha=0.35 if span.condition == "boots" else 1.0,
        )
    axes.set_yticks(range(len(nodes)), [in_figure(node) for node in nodes])
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.set_xlim(0, max(1e-3, run.end_s - run.start_s))
    keys = [Patch(facecolor=_IDLE, label="idle, unclaimed"), Patch(facecolor=_HELD, label="held, no work")]
    keys += [Patch(facecolor=colour, label=job) for job, colour in colours.items()]
    axes.legend(handles=keys, loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=min(5, len(keys)), frameon=False)
    return figure


def job_sizes(run: RunTimeline) -> Figure:
    """Draw the nodes of each job over time."""
    colours = colour_of(list(run.sizes))
    figure = Figure(figsize=(11, 2.6))
    axes = figure.add_subplot()
    for job, sizes in run.sizes.items():
        times = [time_s - run.start_s for time_s, _ in sizes] + [run.end_s - run.start_s]
        axes.step(times, [size for _, size in sizes] + [sizes[-1][1]], where="post", label=job, color=colours[job])
    axes.set_xlabel("seconds")
    axes.set_ylabel("nodes in the generation")
    axes.set_xlim(0, max(1e-3, run.end_s - run.start_s))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if run.sizes:
        axes.legend(frameon=False)
    return figure


def throughput(run: RunTimeline, samples: Mapping[str, Sequence[tuple[float, int]]]) -> Figure:
    """Draw the samples/s of each job between the moments at which its stable samples were noted."""
    colours = colour_of(list(run.sizes))
    figure = Figure(figsize=(11, 2.6))
    axes = figure.add_subplot()
    for job, seen in samples.items():
        pairs = [(a, b) for a, b in pairwise(seen) if b[0] > a[0]]
        times = [b[0] - run.start_s for _, b in pairs]
        axes.plot(times, [max(0, b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs], label=job, color=colours.get(job))
    axes.set_xlabel("seconds")
    axes.set_ylabel("samples/s")
    axes.set_xlim(0, max(1e-3, run.end_s - run.start_s))
    if samples:
        axes.legend(frameon=False)
    return figure


def resize_latencies(took_ms: Sequence[float]) -> Figure:
    """Draw how many resizes took how long."""
    figure = Figure(figsize=(11, 2.2))
    axes = figure.add_subplot()
    axes.hist(took_ms, bins=min(40, max(5, len(took_ms))), color=COLOURS[0])
    axes.set_xlabel("milliseconds from the controller's decision to the first step in the new generation")
    axes.set_ylabel("resizes")
    return figure
