"""The windows of virtual nodes, in wall-clock seconds from the start."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from offcut.model import Window


@dataclass(frozen=True, slots=True)
class Change:
    """A change: at `at_s` the nodes in `idle` become idle and those in `wanted` are wanted by the queue."""

    at_s: float
    idle: tuple[str, ...]
    wanted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Windows on a clock that starts when the daemon is told to begin. Node names in order; some may have no window."""

    nodes: tuple[str, ...]
    windows: tuple[Window, ...]

    @classmethod
    def always_idle(cls, nodes: Iterable[str]) -> Schedule:
        """Return the schedule in which all nodes are idle from the start until they are wanted by hand."""
        names = tuple(nodes)
        return cls(names, tuple(Window(name, 0.0, float("inf")) for name in names))

    @classmethod
    def of_trace(cls, windows: Iterable[Window], *, start_s: float, time_scale: float, duration_s: float) -> Schedule:
        """Return a part of a trace from `start_s` on, `time_scale` times as fast, cut off after `duration_s`."""
        cut = []
        for window in windows:
            begin = max(0.0, (window.start_s - start_s) / time_scale)
            end = (window.end_s - start_s) / time_scale
            if end > 0 and begin < duration_s and end > begin:
                cut.append(Window(window.node, begin, end))
        return cls(tuple(sorted({window.node for window in cut})), tuple(cut))

    def changes(self) -> Iterator[Change]:
        """Yield all changes in order of time. Changes of one instant are one."""
        at: dict[float, tuple[list[str], list[str]]] = {}
        for window in self.windows:
            at.setdefault(window.start_s, ([], []))[0].append(window.node)
            if window.end_s != float("inf"):
                at.setdefault(window.end_s, ([], []))[1].append(window.node)
        for at_s in sorted(at):
            idle, wanted = at[at_s]
            # A window that begins where the node's last one ends is one window.
            both = set(idle) & set(wanted)
            yield Change(at_s, tuple(n for n in idle if n not in both), tuple(n for n in wanted if n not in both))

    def idle_node_seconds(self, duration_s: float) -> float:
        """Return the idle time of all nodes from the start to `duration_s`."""
        return sum(max(0.0, min(w.end_s, duration_s) - w.start_s) for w in self.windows)

    def save(self, path: Path) -> None:
        rows = [[w.node, w.start_s, None if w.end_s == float("inf") else w.end_s] for w in self.windows]
        path.write_text(json.dumps({"nodes": self.nodes, "windows": rows}))

    @classmethod
    def load(cls, path: Path) -> Schedule:
        data = json.loads(path.read_text())
        windows = (Window(node, start, float("inf") if end is None else end) for node, start, end in data["windows"])
        return cls(tuple(data["nodes"]), tuple(windows))
