"""The demo's jobs, and the idle windows of its nodes."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from offcut.cluster.local.schedule import Schedule
from offcut.errors import InputError
from offcut.model import Window
from offcut.traces.generate import generate
from offcut.traces.windows import Windows, busiest_nodes, read_windows

#: The generated demo shows nodes of a machine of Summit's size, in the busiest of this many intervals.
GENERATED_MACHINE = 4608
GENERATED_INTERVALS = 10
#: Modules that the workers' template imports in addition to torch.
PRELOAD = ("sklearn.datasets",)


@dataclass(frozen=True, slots=True)
class DemoJob:
    name: str
    script: Path
    sizes: str


def jobs(nodes: int) -> list[DemoJob]:
    """Return the jobs: a convolutional network, a transformer and a regression."""
    spec = find_spec("offcut.torch.demo") if find_spec("torch") and find_spec("sklearn") else None
    if spec is None or not spec.submodule_search_locations:
        raise InputError("The demo needs torch and scikit-learn.", next_step="Run: pip install 'offcut[demo]'")
    scripts = Path(spec.submodule_search_locations[0])
    largest = min(4, nodes)
    return [
        DemoJob("digits", scripts / "digits.py", f"1:{largest}"),
        DemoJob("chars", scripts / "chars.py", f"1:{largest}"),
        DemoJob("diabetes", scripts / "diabetes.py", f"1:{min(2, nodes)}"),
    ]


def _busiest_interval(trace: Windows, nodes: int, start_s: float, span_s: float) -> float:
    """Return the start of the interval in which the busiest nodes have the most windows and much idle time."""

    def activity(begin_s: float) -> float:
        here = (trace.start_s < begin_s + span_s) & (trace.end_s > begin_s)
        if len(np.unique(trace.node[here])) < nodes:
            return 0.0
        chosen = busiest_nodes(trace, nodes, begin_s, begin_s + span_s)
        cut = Schedule.of_trace(trace.of_named_nodes(chosen), start_s=begin_s, time_scale=1.0, duration_s=span_s)
        return cut.idle_node_seconds(span_s) / span_s * min(len(cut.windows), 6 * nodes)

    return max((start_s + i * span_s for i in range(GENERATED_INTERVALS)), key=activity)


def schedule(
    windows: Path | None, *, nodes: int, start_s: float, time_scale: float, duration_s: float, seed: int
) -> Schedule:
    """Return windows of a file, or generated ones with Summit's statistics, of the `nodes` nodes with most windows."""
    span_s = duration_s * time_scale
    if windows is not None:
        trace = read_windows(windows)
    else:
        trace = generate(GENERATED_MACHINE, start_s + GENERATED_INTERVALS * span_s, seed)
        start_s = _busiest_interval(trace, nodes, start_s, span_s)
    chosen = busiest_nodes(trace, nodes, start_s, start_s + span_s)
    shown = {name: name if windows is not None else f"n{i:02d}" for i, name in enumerate(sorted(chosen), start=1)}
    picked = [Window(shown[w.node], w.start_s, w.end_s) for w in trace if w.node in shown]
    cut = Schedule.of_trace(picked, start_s=start_s, time_scale=time_scale, duration_s=duration_s)
    return Schedule(tuple(sorted(shown.values())), cut.windows)
