"""The metrics of replays as rows of text, each figure with its limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offcut.simulate.metrics import ReplayMetrics
from offcut.simulate.options import ReplayOptions

LOSSES = {
    "grow_stall": "standing still to grow or start",
    "reclaim_stall": "standing still after a reclaim",
    "shrink_stall": "standing still to shrink",
    "boot": "booting",
    "redone": "work lost and done again",
    "misallocation": "nodes that were better elsewhere",
    "scaling": "curves that bend",
    "no_job": "no job for the node",
}


def name_of(options: ReplayOptions, among: Sequence[ReplayOptions]) -> str:
    """Return a name from the options that differ between the replays; the policy if none differ."""
    parts = {
        "policy": options.policy,
        "profiler": options.profiler,
        "horizon_s": f"{options.horizon_s:g} s",
        "cost": _cost(options),
        "concurrency": "any number of jobs"
        if options.concurrency is None
        else f"at most {options.concurrency} at once",
        "accounting": f"{options.accounting} accounting",
        "placement": f"placed {options.placement}",
    }
    differing = [text for field, text in parts.items() if len({getattr(other, field) for other in among}) > 1]
    return ", ".join(differing) or options.policy


def _cost(options: ReplayOptions) -> str:
    cost = options.cost
    if cost.grow_s is None or cost.shrink_s is None:
        return "listed costs"
    boot = f" + {cost.boot_s + cost.start_s:g} s boot" if cost.boot_s + cost.start_s else ""
    return f"{cost.grow_s:g}/{cost.shrink_s:g} s{boot}"


def rows(runs: Sequence[ReplayMetrics]) -> list[tuple[str, list[str]]]:
    """Return (title, one text per run) for every metric."""
    forms: list[tuple[str, Callable[[ReplayMetrics], str]]] = [
        ("idle node-hours", lambda m: f"{m.idle_node_h:,.0f}"),
        ("held by jobs", lambda m: f"{m.used_node_h:,.0f} ({_percent(m.used_node_h, m.idle_node_h)})"),
        ("work, node-hours at one-node rate", lambda m: f"{m.work_node_h:,.0f}"),
        ("its limit, the jobs' fluid optimum", lambda m: f"{m.fluid_node_h:,.0f}"),
        ("Uf, work over fluid optimum", lambda m: f"{m.uf:.4f}"),
        ("Us, against a static machine", lambda m: "–" if m.us is None else f"{m.us:.4f}"),
        ("work over idle node-time (limit)", lambda m: f"{m.work_share:.4f} ({m.work_share_limit:.4f})"),
        ("samples", lambda m: f"{m.samples:.4g}"),
        *((f"  lost: {text}", _loss(name)) for name, text in LOSSES.items()),
        ("jobs submitted / started / finished", _jobs),
        ("median wait to end of a finished job", lambda m: _seconds(m.turnaround_median_s)),
        ("resizes (per job)", lambda m: f"{m.resizes:,} ({m.resizes_per_job:.1f})"),
        ("reclaims (per job)", lambda m: f"{m.reclaims:,} ({m.reclaims_per_job:.1f})"),
        ("reclaims of a job's last node", lambda m: f"{m.last_node_reclaims:,}"),
        ("tried to measure it, of idle node-time", lambda m: f"{m.probing_share:.2%}"),
        ("instants of the trace per processor second", lambda m: f"{m.events_per_s:,.0f}"),
    ]
    return [(title, [form(metrics) for metrics in runs]) for title, form in forms]


def _loss(name: str) -> Callable[[ReplayMetrics], str]:
    return lambda m: f"{getattr(m.shares, name):.2%}"


def _jobs(m: ReplayMetrics) -> str:
    return f"{m.jobs_submitted:,} / {m.jobs_started:,} / {m.jobs_finished:,}"


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _seconds(value_s: float | None) -> str:
    return "–" if value_s is None else f"{value_s:,.0f} s"
