"""The figure of time against memory: throughput that each number of devices reaches with a given memory per device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from offcut.pipeline.frontier.size_frontier import SizeFrontier
from offcut.plaintext import in_figure

_MARKS = {"pipeline": ("D", "pipeline"), "pipeline, recompute": ("s", "pipeline, recomputed (estimate)")}
_LAYERS = ("o", "strategies of layers (estimate)")


def frontier_figure(model: str, frontiers: Sequence[SizeFrontier], path: Path) -> None:
    """Write the frontiers of all sizes to a file.

    Args:
        model: the model's name, for the title.
        frontiers: one per size, in increasing order.
        path: PNG, PDF or SVG.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(9, 5.5), layout="constrained")
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(frontiers)))
    most = max(one.points[-1].memory_bytes for one in frontiers) / 1e9
    least = min(one.points[0].memory_bytes for one in frontiers) / 1e9
    used: dict[str, str] = {}
    for one, colour in zip(frontiers, colours, strict=True):
        memory = [point.memory_bytes / 1e9 for point in one.points]
        rate = [one.batch / point.step_s for point in one.points]
        axis.step([*memory, most * 1.02], [*rate, rate[-1]], where="post", color=colour, lw=1.4)
        for marker, name in (_LAYERS, *_MARKS.values()):
            mine = [k for k, point in enumerate(one.points) if _MARKS.get(point.kind, _LAYERS)[1] == name]
            if mine:
                used[name] = marker
                size = 10 if marker == "o" else 34
                axis.scatter([memory[k] for k in mine], [rate[k] for k in mine], s=size, marker=marker, color=colour)
        devices = "1 device" if one.devices == 1 else f"{one.devices} devices"
        axis.annotate(
            devices, (most * 1.02, rate[-1]), xytext=(4, 0), textcoords="offset points", fontsize=8, va="center"
        )
    limits = sorted({one.limit_bytes / 1e9 for one in frontiers if least < one.limit_bytes / 1e9 < most * 1.2})
    for limit in limits:
        axis.axvline(limit, color="black", lw=1, ls="--", label=f"a device has {limit:.3g} GB")
    for name, marker in used.items():
        axis.scatter([], [], s=30, marker=marker, color="#666666", label=name)
    figure.legend(fontsize=8, frameon=False, loc="outside lower center", ncols=len(used) + len(limits))
    axis.set_xlim(left=max(0.0, least - 0.05 * (most - least)))
    axis.set_ylim(bottom=0)
    axis.set_xlabel("memory of the fullest device (GB)")
    axis.set_ylabel("samples per second")
    axis.set_title(f"{in_figure(model)}: throughput by memory per device, for every size", fontsize=10, loc="left")
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)
