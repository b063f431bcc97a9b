"""Draw the figure of docs/scaling.md: the estimated scaling curves of three jobs, beside the true ones.

    python docs/figures/scaling.py

Three kinds of jobs that differ in how they scale run on a generated trace, four at a time; their curves are not given.
Shown is what is believed of the first of each kind when it has been measured at two sizes, and at the end.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from offcut.allocate import exact
from offcut.model import ScalingCurve
from offcut.report.scaling_figure import draw_curve
from offcut.service import curve_report
from offcut.simulate.event_loop import EventLoop
from offcut.simulate.job_arrivals import JobArrivals
from offcut.simulate.options import ReplayOptions, parse_cost
from offcut.traces.job_list import ListedJob

SIZES = range(1, 65)
NODES, AT_ONCE = 96, 4
KINDS = {
    "serial work of 2 %": [90.0 * n / (1 + 0.02 * (n - 1)) for n in SIZES],
    "limited by its input": [90.0 * n / (1 + (n / 12) ** 5) ** 0.2 for n in SIZES],
    "a rack of 18": [90.0 * n / (1 + 0.01 * (n - 1)) * (0.7 if n > 18 else 1.0) for n in SIZES],
}


def main() -> None:
    curves = {name: ScalingCurve(tuple(SIZES), tuple(rates)) for name, rates in KINDS.items()}
    jobs = [
        ListedJob(
            id=name,
            curve_name=name,
            curve=curve,
            submit_s=0.0,
            min_nodes=1,
            max_nodes=64,
            samples=1800 * curve.rate_at(8),
        )
        for name, curve in curves.items()
    ]
    options = ReplayOptions(concurrency=AT_ONCE, repeat=True, profiler="gp", cost=parse_cost("measured"))
    loop = EventLoop(JobArrivals(jobs, repeat=True), exact.solve, options, 0.0)
    loop.instant(0.0, [(f"n{i}", None) for i in range(NODES)])
    early: dict[str, dict] = {}
    late: dict[str, dict] = {}
    # Nodes come and go, eight at a time, so that the jobs are resized for other reasons than to learn.
    for minute in range(1, 61):
        while loop.next_s() < 60.0 * minute:
            loop.instant(loop.next_s())
            for name in curves:
                job = loop.state.jobs[name]
                if job.phase != "running":
                    continue
                late[name] = told = curve_report.describe(loop.state, job)
                if len(told["own"]) >= 2:
                    early.setdefault(name, told)
        block = [f"n{i}" for i in range(88 - 8 * (minute % 5), 96 - 8 * (minute % 5))]
        if minute % 2:
            loop.instant(60.0 * minute, wanted=tuple(block))
        else:
            back = [f"n{i}" for i in range(88 - 8 * ((minute - 1) % 5), 96 - 8 * ((minute - 1) % 5))]
            loop.instant(60.0 * minute, [(name, None) for name in back])
    figure = Figure(figsize=(11, 6.2), layout="constrained")
    axes = figure.subplots(2, 3, sharex=True, sharey="col")
    for column, (name, curve) in enumerate(curves.items()):
        truth = {"nodes": curve.nodes, "rate": curve.rate}
        for row, (told, when) in enumerate(((early[name], "two sizes measured"), (late[name], "at its end"))):
            draw_curve(axes[row][column], told, truth)
            axes[row][column].set_title(f"{name}: {when}", fontsize=9)
    axes[0][0].legend(frameon=False, fontsize=8)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main()
