"""Draws docs/figures/concepts.png: the words of offcut in one picture. Run it: `python docs/figures/concepts.py`."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

BLUE, ORANGE, QUEUE, BOOT = "#0072b2", "#d55e00", "0.78", "#cfe3f1"
#: Node, from, to, of whom. What is in no row is idle and not claimed.
HOLDS = (
    ("n01", 0, 6, "queue"),
    ("n01", 7, 8.5, "boot"),
    ("n01", 8.5, 43, "a"),
    ("n01", 43, 60, "queue"),
    ("n02", 0, 13, "queue"),
    ("n02", 14, 15.5, "boot"),
    ("n02", 15.5, 60, "a"),
    ("n03", 0, 13, "queue"),
    ("n03", 14, 15.5, "boot"),
    ("n03", 15.5, 30, "a"),
    ("n03", 30, 60, "queue"),
    ("n04", 0, 21, "queue"),
    ("n04", 22, 23.5, "boot"),
    ("n04", 23.5, 60, "b"),
)
GENERATIONS = ((8.5, 15.5, 1), (15.5, 30, 3), (30, 43, 2), (43, 60, 1))
NODES = ("n01", "n02", "n03", "n04")
COLOUR = {"queue": QUEUE, "boot": BOOT, "a": BLUE, "b": ORANGE}


def _note(axis: Axes, text: str, at: tuple[float, float], where: tuple[float, float]) -> None:
    axis.annotate(text, at, where, fontsize=9, ha="center", va="center", arrowprops={"arrowstyle": "-|>", "lw": 0.8})


def draw_nodes(axis: Axes) -> None:
    """Draw windows, claims and releases of four nodes."""
    for name, start, end, owner in HOLDS:
        row = NODES.index(name)
        axis.add_patch(Rectangle((start, row - 0.24), end - start, 0.48, fc=COLOUR[owner], ec="white", lw=0.6))
        if owner != "boot" and end - start > 5:
            words = {"queue": "the queue's jobs" if end - start > 12 else "queue", "a": "job A", "b": "job B"}[owner]
            ink = "0.25" if owner == "queue" else "white"
            axis.text((start + end) / 2, row, words, ha="center", va="center", fontsize=9, color=ink)
    axis.annotate("", (6, -0.62), (43, -0.62), arrowprops={"arrowstyle": "<->", "lw": 1})
    axis.text(24.5, -0.86, "a window of n01: the queue leaves it idle", ha="center", fontsize=9)
    _note(axis, "claimed: an agent boots, then a worker", (7.8, 0.26), (26, 0.5))
    _note(axis, "wanted: back within a second", (30, 2.26), (45, 2.5))
    axis.set(xlim=(0, 60), ylim=(3.55, -1.15), yticks=range(4), yticklabels=NODES)
    axis.tick_params(length=0, labelbottom=False)
    axis.spines[:].set_visible(False)


def draw_size(axis: Axes) -> None:
    """The size of job A, one generation after the other."""
    for number, (start, end, size) in enumerate(GENERATIONS, start=1):
        axis.add_patch(Rectangle((start, 0), end - start, size, fc=BLUE, alpha=0.25, lw=0))
        axis.plot([start, end], [size, size], color=BLUE, lw=2)
        axis.text((start + end) / 2, 0.5, f"generation {number}", ha="center", va="center", fontsize=9)
        axis.axvline(start, color="0.6", lw=0.8, ls=":")
    axis.set(xlim=(0, 60), ylim=(0, 3.6), yticks=(0, 1, 2, 3), ylabel="size of A", xlabel="time")
    axis.tick_params(labelbottom=False, bottom=False)
    axis.spines[["top", "right"]].set_visible(False)


def draw_steps(axis: Axes) -> None:
    """Training steps across one membership change: n03 leaves at a step boundary."""
    for row, name in enumerate(("n01", "n02", "n03")):
        for i, step in enumerate(range(41, 46)):
            if name == "n03" and step > 43:
                continue
            stable = step < 45
            axis.add_patch(
                Rectangle(
                    (i, row - 0.3),
                    0.94,
                    0.6,
                    fc=BLUE if stable else "white",
                    ec=BLUE,
                    lw=1.2,
                    ls="-" if stable else "--",
                )
            )
            ink = "white" if stable else BLUE
            axis.text(i + 0.47, row, str(step), ha="center", va="center", fontsize=9, color=ink)
    axis.plot([2.97, 2.97], [-0.7, 2.5], color="0.3", lw=1.2, ls=":")
    axis.text(1.45, -0.55, "generation 2", ha="center", fontsize=9)
    axis.text(4.0, -0.55, "generation 3", ha="center", fontsize=9)
    _note(axis, "n03 leaves at\nthe boundary", (3.0, 2.0), (4.15, 2.0))
    axis.text(0, 2.95, "filled: stable, no failure undoes it", fontsize=9, va="center")
    axis.text(0, 3.3, "dashed: applied; stable with the next reduce", fontsize=9, va="center")
    axis.set(xlim=(-0.1, 5.1), ylim=(3.55, -0.9), yticks=range(3), yticklabels=("n01", "n02", "n03"))
    axis.set_title("job A's steps, around its third generation", fontsize=10)
    axis.tick_params(length=0, labelbottom=False)
    axis.spines[:].set_visible(False)


def main() -> None:
    figure = plt.figure(figsize=(11, 4.9))
    grid = figure.add_gridspec(2, 2, width_ratios=(2.1, 1), height_ratios=(2.3, 1), hspace=0.06, wspace=0.12)
    draw_nodes(figure.add_subplot(grid[0, 0]))
    draw_size(figure.add_subplot(grid[1, 0]))
    draw_steps(figure.add_subplot(grid[:, 1]))
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=130, bbox_inches="tight")


if __name__ == "__main__":
    main()
