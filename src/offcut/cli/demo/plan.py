"""The demo's jobs, and when its nodes are idle."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from offcut.cluster.local.schedule import Schedule
from offcut.errors import InputError
from offcut.model import Window
from offcut.traces.generate import generate
from offcut.traces.windows import busiest, read_windows

#: The generated demo shows a machine of Summit's size, in the liveliest of so many stretches of its day.
GENERATED_MACHINE = 4608
GENERATED_STRETCHES = 10
#: What the workers' template imports beside torch.
PRELOAD = ("sklearn.datasets",)


@dataclass(frozen=True, slots=True)
class DemoJob:
    name: str
    script: Path
    sizes: str


def jobs(nodes: int) -> list[DemoJob]:
    """A convolutional network, a transformer and a regression."""
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


def schedule(
    windows: Path | None, *, nodes: int, start_s: float, time_scale: float, duration_s: float, seed: int
) -> Schedule:
    """Windows of a file, or generated ones with Summit's statistics: of the `nodes` nodes with most windows."""
    span_s = duration_s * time_scale
    if windows is not None:
        trace = read_windows(windows)
    else:
        trace = generate(GENERATED_MACHINE, start_s + GENERATED_STRETCHES * span_s, seed)
        starts = trace.start_s[trace.start_s >= start_s]
        stretches = ((starts - start_s) // span_s).astype(int)
        start_s += int(np.bincount(stretches, minlength=1).argmax()) * span_s
    chosen = busiest(trace, nodes, start_s, start_s + span_s)
    shown = {name: name if windows is not None else f"n{i:02d}" for i, name in enumerate(sorted(chosen), start=1)}
    picked = [Window(shown[w.node], w.start_s, w.end_s) for w in trace if w.node in shown]
    cut = Schedule.of_trace(picked, start_s=start_s, time_scale=time_scale, duration_s=duration_s)
    return Schedule(tuple(sorted(shown.values())), cut.windows)
