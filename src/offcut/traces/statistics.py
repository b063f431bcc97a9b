"""Statistics of a set of idle windows: idle share, lengths of windows, and changes of the idle count."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from offcut.errors import InputError
from offcut.traces.windows import Floats, Ints, Windows

LENGTH_LEVELS = (0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)
COUNT_LEVELS = (0.05, 0.25, 0.50, 0.75, 0.95)
#: Windows below this are called short.
SHORT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStatistics:
    """The windows of `nodes` nodes in `[start_s, end_s)`.

    `idle_share` = idle node-seconds / (nodes * duration). `length_s` and `idle_nodes` are quantiles (keys `p10`, ...),
    the latter of the idle count over time. `events_per_h` counts instants at which any node joins or leaves.
    `together` is the chance that a window ends at the same instant as another one that began at the same instant as
    it, averaged over windows that did not begin alone; None where all did.
    """

    nodes: int
    start_s: float
    end_s: float
    windows: int
    idle_node_hours: float
    idle_share: float
    events_per_h: float
    length_s: dict[str, float]
    short_windows: float
    short_node_time: float
    idle_nodes_mean: float
    idle_nodes: dict[str, float]
    together: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics as a JSON value."""
        return asdict(self)


def describe(
    windows: Windows, nodes: int | None = None, start_s: float | None = None, end_s: float | None = None
) -> WindowStatistics:
    """Compute the statistics of windows; windows that cross a border are cut.

    Args:
        windows: the windows.
        nodes: the number of nodes of the machine; None: the number of named nodes.
        start_s: the start of the interval, in seconds; None: 0, or the first start if that is earlier.
        end_s: its end, in seconds; None: the last end.

    Returns:
        The statistics.

    Raises:
        InputError: there are no windows, or more nodes are named than `nodes`.
    """
    first_s, last_s = windows.span_s
    start_s = min(0.0, first_s) if start_s is None else start_s
    end_s = last_s if end_s is None else end_s
    part = windows.between(start_s, end_s)
    if not len(part):
        raise InputError(f"windows: none from {start_s:g} to {end_s:g} s.", next_step="Choose another time.")
    machine = len(windows.names) if nodes is None else nodes
    if machine < len(windows.names):
        raise InputError(
            f"windows: {len(windows.names)} nodes are named, more than the {machine} of the machine.",
            next_step=f"Give {len(windows.names)} or more nodes.",
        )
    length = part.length_s
    times, count = part.idle_count(start_s)
    inside = times < end_s
    times, count = times[inside], count[inside]
    lasting = np.diff(times, append=end_s)
    idle_s = float(length.sum())
    short = length < SHORT_S
    return WindowStatistics(
        nodes=machine,
        start_s=start_s,
        end_s=end_s,
        windows=len(part),
        idle_node_hours=idle_s / 3600,
        idle_share=idle_s / (machine * (end_s - start_s)),
        events_per_h=len(times) / (end_s - start_s) * 3600,
        length_s=_named(LENGTH_LEVELS, np.quantile(length, LENGTH_LEVELS)),
        short_windows=float(short.mean()),
        short_node_time=float(length[short].sum()) / idle_s,
        idle_nodes_mean=idle_s / (end_s - start_s),
        idle_nodes=_named(COUNT_LEVELS, weighted_quantile(count.astype(np.float64), lasting, COUNT_LEVELS)),
        together=joint_endings(part),
    )


def joint_endings(windows: Windows) -> float | None:
    """Return `together` of `WindowStatistics`; None if no two windows begin at one instant."""
    if not len(windows):
        return None
    _, group, group_size = np.unique(windows.start_s, return_inverse=True, return_counts=True)
    order = np.lexsort((windows.end_s, windows.start_s))
    start, end = windows.start_s[order], windows.end_s[order]
    new = np.concatenate(([True], (start[1:] != start[:-1]) | (end[1:] != end[:-1])))
    bundle_size: Ints = np.bincount(np.cumsum(new) - 1)
    same = np.repeat(bundle_size, bundle_size)
    began = group_size[group][order]
    many = began > 1
    return float(((same[many] - 1) / (began[many] - 1)).mean()) if many.any() else None


def weighted_quantile(values: Floats, weights: Floats, levels: tuple[float, ...]) -> Floats:
    """Return, for each level, the smallest value that at least this share of the weight does not exceed."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    return values[order][np.minimum(np.searchsorted(share, levels), len(values) - 1)]


def _named(levels: tuple[float, ...], values: Floats) -> dict[str, float]:
    return {f"p{level * 100:g}": float(value) for level, value in zip(levels, values, strict=True)}
