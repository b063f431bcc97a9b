"""Draw the transition that the sweep of perceptron.py finds: which share of the problems is solved at which load.

    offcut sweeps perceptron --json > perceptron.json
    python examples/sweep/perceptron_figure.py perceptron.json --out perceptron.png

Bars are 95 % Wilson intervals of the share, over the seeds.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

from matplotlib.figure import Figure

parser = argparse.ArgumentParser(description="Draw the share of solved problems against the load.")
parser.add_argument("results", type=Path, help="what `offcut sweeps perceptron --json` prints")
parser.add_argument("--out", default="perceptron.png")
arguments = parser.parse_args()

#: By size and load: how many patterns were wrong at the end, one number for each seed.
wrong: dict[tuple[int, float], list[int]] = defaultdict(list)
for trial in json.loads(arguments.results.read_text())["each"]:
    if trial["state"] == "completed":
        wrong[trial["parameters"]["n"], trial["parameters"]["alpha"]].append(trial["value"])


def wilson(solved: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return the 95 % interval of a share of which `solved` of `count` were seen."""
    middle = (solved + z * z / 2) / (count + z * z)
    half = z / (count + z * z) * (solved * (count - solved) / count + z * z / 4) ** 0.5
    return middle - half, middle + half


figure = Figure(figsize=(7, 4), layout="constrained")
axes = figure.add_subplot()
for place, size in enumerate(sorted({n for n, _ in wrong})):
    colour = ("#E69F00", "#0072B2", "#009E73", "#CC79A7")[place % 4]
    points = sorted((alpha, values) for (n, alpha), values in wrong.items() if n == size)
    loads = [alpha + 0.002 * place for alpha, _ in points]
    shares = [values.count(0) / len(values) for _, values in points]
    intervals = [wilson(values.count(0), len(values)) for _, values in points]
    axes.plot(loads, shares, "o-", color=colour, label=f"n = {size}")
    axes.vlines(loads, [low for low, _ in intervals], [high for _, high in intervals], color=colour, alpha=0.5)
    for alpha, values in points:
        share = values.count(0) / len(values)
        print(
            f"n = {size}, alpha = {alpha}: {share:.0%} of {len(values)} solved, {sum(values) / len(values):.1f} wrong"
        )
axes.axvline(0.83, color="#888888", linestyle="--", linewidth=1)
axes.annotate("capacity 0.83", (0.83, 0.5), xytext=(-4, 0), textcoords="offset points", rotation=90, ha="right")
axes.set(xlabel="patterns per weight", ylabel="share of problems solved", ylim=(-0.03, 1.03))
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False)
figure.savefig(arguments.out, dpi=130)
