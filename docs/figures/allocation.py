"""Draws docs/figures/allocation.png: two jobs, one price. Run it from anywhere: `python docs/figures/allocation.py`."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from offcut.allocate import exact
from offcut.allocate.objective import allowed_sizes, job_value
from offcut.model import AllocationProblem, JobRequest, ScalingCurve

SIZES = (1, 2, 4, 8, 16, 32)
JOBS = (
    JobRequest(
        id="alexnet",
        min_nodes=1,
        max_nodes=32,
        curve=ScalingCurve(SIZES, (1.0, 1.84, 2.96, 5.69, 10.4, 18.4)),
        current=14,
        grow_cost_s=18.0,
        shrink_cost_s=11.0,
    ),
    JobRequest(id="vgg16", min_nodes=1, max_nodes=32, curve=ScalingCurve(SIZES, (1.0, 2.0, 3.93, 7.76, 15.4, 25.0))),
)
COLOURS = ("#0072b2", "#d55e00")


def main() -> None:
    """Solve the problem that the page talks about, and draw it."""
    problem = AllocationProblem(nodes=30, horizon_s=120.0, jobs=JOBS)
    answer = exact.solve(problem)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for axis, job, colour in zip(axes, JOBS, COLOURS, strict=True):
        n = answer.nodes[job.id]
        sizes = list(allowed_sizes(job, problem.nodes))
        worth = [job_value(problem, job, s) for s in sizes]
        here = job_value(problem, job, n)
        axis.plot(sizes, worth, ".", color=colour, ms=4, label="worth of each size")
        axis.plot(sizes, [here + answer.price * (s - n) for s in sizes], "--", color="0.5", lw=1)
        axis.plot([n], [here], "o", color=colour, ms=9, mfc="white", mew=2, label=f"chosen: {n} nodes")
        if job.current:
            axis.axvline(job.current, color="0.8", lw=1, zorder=0)
            axis.annotate(
                f"holds {job.current} now:\nany other size pays\nfor the resize",
                (job.current, 2500),
                (1, 2500),
                fontsize=9,
            )
        axis.set(title=job.id, xlabel="nodes")
        axis.set_ylim(-150, 3100)
        axis.legend(loc="lower right", frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(f"worth over {problem.horizon_s:g} s")
    axes[1].annotate(f"slope: {answer.price:.0f} a node,\nthe same price for both", (20, 2350), (1, 2500), fontsize=9)
    figure.tight_layout()
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=130)


if __name__ == "__main__":
    main()
