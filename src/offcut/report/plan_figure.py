"""The figure of a pipeline plan: the operations of each device over time, and its memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from offcut.pipeline.plan import Plan
from offcut.pipeline.program import KIND_NAMES
from offcut.pipeline.simulator import StepTimeline
from offcut.plaintext import in_figure

_COLOURS = {"F": "#4477aa", "B": "#ee8866", "I": "#ee8866", "W": "#ddcc77", "sync": "#aa3377"}
_NAMES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient", "sync": "gradient all-reduce"}
#: Micro-batches are numbered on bars longer than this part of the step, unless a row has more operations than this.
_LABELLED = 80


def plan_figure(plan: Plan, path: Path) -> None:
    """Write the Gantt figure of one step of `plan` with its memory per device to `path` (PNG, PDF or SVG)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    timeline = plan.timeline()
    program = timeline.program
    ranks = program.ranks
    figure, (gantt, memory) = plt.subplots(
        1, 2, figsize=(14, max(2.6, 1.2 + 0.42 * ranks)), width_ratios=(5, 1), layout="constrained", sharey=True
    )
    rank = np.repeat(program.rank_of_lane, np.diff(program.lane_start))
    scale, unit = (1e3, "ms") if timeline.step_s < 10 else (1.0, "s")
    kinds = [KIND_NAMES[k] for k in sorted(set(program.kind.tolist()))]
    for name in kinds:
        mine = program.kind == KIND_NAMES.index(name)
        start, length = timeline.start_s[mine], timeline.end_s[mine] - timeline.start_s[mine]
        # Alternate shades tell neighbouring micro-batches apart, darker ones are later chunks.
        shade = 0.72 + 0.28 * (program.micro_batch[mine] % 2)
        bars = gantt.barh(
            rank[mine], scale * length, left=scale * start, height=0.82, color=_COLOURS[name], edgecolor="white", lw=0.4
        )
        for bar, alpha in zip(bars, shade, strict=True):
            bar.set_alpha(float(alpha))
        if program.size / ranks <= _LABELLED:
            wide = mine & (timeline.end_s - timeline.start_s > timeline.step_s / _LABELLED)
            start, length = timeline.start_s[wide], timeline.end_s[wide] - timeline.start_s[wide]
            _number(gantt, rank[wide], scale * start, scale * length, program.micro_batch[wide])
    _draw_sync(gantt, plan, timeline, scale)
    synced = any(stage.sync_s > 0 for stage in plan.stages)
    for name in [*kinds, "sync"] if synced else kinds:
        gantt.barh([0], [0], color=_COLOURS[name], label=_NAMES[name])
    gantt.axvline(scale * timeline.step_s, color="black", lw=1)
    gantt.set_xlim(0, scale * timeline.step_s * 1.01)
    gantt.set_yticks(range(ranks), [_row_name(plan, timeline, r) for r in range(ranks)], fontsize=8)
    gantt.invert_yaxis()
    gantt.set_xlabel(f"time within one step ({unit})")
    gantt.set_title(
        f"{in_figure(plan.model)}: {plan.label}, {plan.micro_batches} micro-batches of {plan.micro_batch}: "
        f"{scale * plan.step_s:.4g} {unit} a step, bubble {100 * plan.bubble_of_step:.1f} %",
        fontsize=10,
        loc="left",
    )
    state = timeline.held @ np.array([stage.state_bytes for stage in plan.stages])
    memory.barh(range(ranks), state / 1e9, color="#bbbbbb", label="weights, gradients, optimizer")
    memory.barh(
        range(ranks), (np.array(plan.peak_bytes) - state) / 1e9, left=state / 1e9, color="#44aa99", label="activations"
    )
    memory.set_xlabel("memory at its peak (GB)")
    figure.legend(loc="outside lower center", ncols=6, fontsize=8, frameon=False)
    for axis in (gantt, memory):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _number(axis: Any, rank: Any, start: Any, length: Any, micro_batch: Any) -> None:
    for r, left, width, i in zip(rank, start, length, micro_batch, strict=True):
        axis.text(left + width / 2, r, str(i), ha="center", va="center", fontsize=6, color="white", clip_on=True)


def _draw_sync(axis: Any, plan: Plan, timeline: Any, scale: float) -> None:
    sync = timeline.held @ np.array([stage.sync_s for stage in plan.stages])
    last = np.zeros(len(sync))
    rank = np.repeat(timeline.program.rank_of_lane, np.diff(timeline.program.lane_start))
    np.maximum.at(last, rank, timeline.end_s)
    axis.barh(range(len(sync)), scale * sync, left=scale * last, height=0.82, color=_COLOURS["sync"], alpha=0.6)


def _row_name(plan: Plan, timeline: StepTimeline, rank: int) -> str:
    held = [s for s, holds in zip(plan.stages, timeline.held[rank], strict=True) if holds]
    return f"device {rank}: layers {', '.join(f'{s.first_layer}-{s.end_layer - 1}' for s in held)}"
