"""Nodes that are not claimed for a while. Those on which a person cancelled a pilot are remembered over restarts."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from offcut.process import clocks

_log = structlog.get_logger()

_CANCELLED = "somebody has cancelled its pilot"


class SetAside:
    """Until when each node is not claimed, by the monotonic clock."""

    def __init__(self, path: Path) -> None:
        """`path`: where the nodes whose pilots were cancelled are kept, with times since 1970."""
        self._path = path
        self._until_s: dict[str, float] = {}
        self._why: dict[str, str] = {}
        self._cancelled_until_s: dict[str, float] = {}

    def load(self, longest_s: float) -> None:
        """Read what an earlier controller kept. A file that cannot be read counts as empty.

        Args:
            longest_s: No node is set aside for longer than this, whatever became of the clock.
        """
        now_s, clock_s = clocks.wall_s(), clocks.steady_s()
        with suppress(OSError, ValueError, TypeError, AttributeError):
            for node, until_s in json.loads(self._path.read_text()).items():
                left_s = min(longest_s, float(until_s) - now_s)
                if left_s > 0:
                    self._cancelled_until_s[str(node)] = now_s + left_s
                    self.add(str(node), clock_s + left_s, _CANCELLED)

    def add(self, node: str, until_s: float, why: str) -> None:
        """Set the node aside until `until_s`, by the monotonic clock."""
        self._until_s[node], self._why[node] = until_s, why

    def add_cancelled(self, node: str, until_s: float) -> None:
        """Set the node aside, over restarts too."""
        self.add(node, until_s, _CANCELLED)
        now_s = clocks.wall_s()
        self._cancelled_until_s = {name: s for name, s in self._cancelled_until_s.items() if s > now_s}
        self._cancelled_until_s[node] = now_s + until_s - clocks.steady_s()
        self._write()

    def forgive(self, nodes: Collection[str]) -> None:
        """Let these nodes be claimed again; all of them if `nodes` is empty."""
        for node in nodes or list(self._until_s):
            self._until_s.pop(node, None)
        forgiven = set(nodes) or set(self._cancelled_until_s)
        if not forgiven.isdisjoint(self._cancelled_until_s):
            self._cancelled_until_s = {node: s for node, s in self._cancelled_until_s.items() if node not in forgiven}
            self._write()

    def _write(self) -> None:
        try:
            whole = self._path.with_suffix(".new")
            whole.write_text(json.dumps(self._cancelled_until_s))
            whole.replace(self._path)
        except OSError as error:
            _log.warning("set_aside_not_kept", reason=error.strerror)

    def nodes(self, now_s: float) -> set[str]:
        """Return the nodes that are not claimed at `now_s`."""
        return {node for node, until_s in self._until_s.items() if until_s > now_s}

    def describe(self, now_s: float) -> list[dict[str, Any]]:
        """Return the same nodes, each with the reason and how many seconds are left."""
        return [
            {"node": node, "reason": self._why[node], "left_s": round(self._until_s[node] - now_s, 1)}
            for node in sorted(self.nodes(now_s))
        ]
