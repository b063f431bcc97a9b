"""The page of `offcut estimate`, for the operators of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offcut.report.html import Section, page, paragraph, svg, table
from offcut.report.replay_page import shares_figure
from offcut.report.windows_figure import windows_figure
from offcut.simulate.estimate import BASE_JOBS, Estimate
from offcut.simulate.imagenet_networks import IMAGENET, NETWORKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INK, _SECOND = "#1f3a5f", "#c8553d"


def estimate_page(e: Estimate, price: float | None = None) -> str:
    """Return the page as HTML; `price` is the price of one node-hour, in any currency."""
    sections = [
        Section("In short", _lead(e, price)),
        Section("Idle node-time and its windows", _idle(e)),
        Section("What training on it would gain", _networks(e)),
        Section("How the gain depends on the cost of a resize and on the number of jobs", _dependence(e)),
        Section("Assumptions", "".join(paragraph(text) for text in assumptions(e))),
    ]
    return page(f"Training on the idle nodes of {e.source}", sections)


def _lead(e: Estimate, price: float | None) -> str:
    s, base = e.statistics, e.base
    text = paragraph(
        f"On average {s.idle_nodes_mean:,.1f} of {e.nodes:,} nodes ({s.idle_share:.1%}) had no batch job in these "
        f"{e.days:,.1f} days: {s.idle_node_hours:,.0f} node-hours. Training jobs on them would have done the work of "
        f"{base.work_node_h:,.0f} dedicated node-hours, {e.node_hours_a_day:,.0f} a day, "
        f"{base.work_share:.0%} of the idle node-time, while every node was released the moment the queue wanted it."
    )
    if price is not None:
        text += paragraph(
            f"At {price:,.2f} a node-hour that is worth {price * e.node_hours_a_day:,.0f} a day or "
            f"{365 * price * e.node_hours_a_day:,.0f} a year."
        )
    return text


def _idle(e: Estimate) -> str:
    s = e.statistics
    return (
        svg(windows_figure(e.windows, s, e.source))
        + table(["", *s.length_s], [("window length, s", *(f"{value:,.0f}" for value in s.length_s.values()))])
        + paragraph(
            f"{s.windows:,} windows; {s.short_windows:.0%} of them are under ten minutes and hold "
            f"{s.short_node_time:.0%} of the idle node-time; nodes join or leave at {s.events_per_h:,.1f} instants an "
            "hour."
        )
    )


def _networks(e: Estimate) -> str:
    node_s_a_day = e.base.work_node_h * 3600 / e.days
    return paragraph(
        f"If all of the work went to one network ({BASE_JOBS} jobs at a time of up to 64 nodes each) and a node were "
        "as quick as one of Summit's, with its six V100:"
    ) + table(
        ["network", "images/s on one Summit node", "images a day", "passes over ImageNet a day"],
        [
            (
                network.name,
                f"{network.one_node_rate:,.0f}",
                f"{network.one_node_rate * node_s_a_day:,.3g}",
                f"{network.one_node_rate * node_s_a_day / IMAGENET:,.1f}",
            )
            for network in NETWORKS
        ],
    )


def _dependence(e: Estimate) -> str:
    runs = {f"cost: {name}": m for name, m in e.by_cost.items()}
    runs |= {f"jobs at a time: {count}": m for count, m in e.by_concurrency.items()}
    header = ["", "work, node-hours a day", "share of the idle time", "limit", "resizes an hour"]
    return (
        svg(shares_figure(list(runs), list(runs.values())))
        + svg(_sensitivity(e))
        + table(
            header,
            [
                (
                    name,
                    f"{m.work_node_h / e.days:,.0f}",
                    f"{m.work_share:.1%}",
                    f"{m.work_share_limit:.1%}",
                    f"{m.resizes / e.days / 24:,.1f}",
                )
                for name, m in runs.items()
            ],
        )
    )


def assumptions(e: Estimate) -> list[str]:
    """Return the assumptions as sentences, those first that the figures depend on most."""
    return [
        f"Idle windows come from {e.rule}. Nodes that were down or reserved count as idle unless the log says so.",
        "There is always training to do; jobs run on 1 to 64 nodes, and each network comes in turn.",
        "Scaling curves are those of seven ImageNet networks measured on Summit (arXiv 2106.12091), each fitted with "
        "Amdahl's law. Other machines have other curves: give a job list of your own with --jobs.",
        "Work is in node-hours of each network's own rate on one node: a job on 32 nodes does less than 32 times that.",
        "A claimed node takes 1 s to answer and its worker 5 s to start, while the job trains on. A resize in "
        "process stops it for 0.3 s (growing) or 0.2 s (shrinking).",
        "A node that the queue wants is released at once; the last node of a job saves its state while it leaves.",
        "The batch queue behaves as it did: it never waits for a node that a training job holds.",
        *e.notes,
    ]


def _sensitivity(e: Estimate) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots()
    jobs = list(e.by_concurrency)
    axes.plot(jobs, [m.work_share_limit for m in e.by_concurrency.values()], "--", color=_SECOND, label="limit")
    axes.plot(jobs, [m.work_share for m in e.by_concurrency.values()], "o-", color=_INK, label="work")
    axes.set(xscale="log", xlabel="jobs at a time", ylabel="share of idle time", ylim=(0, 1.02))
    axes.set_xticks(jobs, [str(count) for count in jobs])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure
