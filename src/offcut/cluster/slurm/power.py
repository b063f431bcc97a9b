"""Which nodes the site may power down: those that no job of its queue has used for a while. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from offcut.cluster.slurm.idle_nodes import Candidate
from offcut.cluster.slurm.records import ENDED, View, expand


@dataclass(slots=True)
class QueueUse:
    """When a job of the queue was last seen on each node. Pilots, of whatever controller, do not count."""

    _seen_s: dict[str, float] = field(default_factory=dict)

    def note(self, view: View) -> None:
        """Note what a look shows. A node that is seen for the first time counts as used then."""
        rows = (*view.own.values(), *view.others)
        pilots = {node for row in rows if row.state not in ENDED for node in expand(row.nodes)}
        seen_s = {}
        for name, row in view.nodes.items():
            busy = row.state in ("allocated", "mixed") and "COMPLETING" not in row.flags and name not in pilots
            seen_s[name] = view.clock_s if busy else self._seen_s.get(name, view.clock_s)
        self._seen_s = seen_s

    def unused(self, limit_s: float | None, now_s: float) -> frozenset[str]:
        """Return the nodes that no job of the queue has used for `limit_s`; none without a limit."""
        if limit_s is None:
            return frozenset()
        return frozenset(node for node, seen_s in self._seen_s.items() if now_s - seen_s >= limit_s)


def leave_unused(found: list[Candidate], unused: frozenset[str], limit_s: float | None) -> list[Candidate]:
    """Return the candidates, of which those among `unused` are not safe to claim."""
    why = unused_reason(limit_s)
    return [replace(one, safe=False, why=why) if one.safe and one.node in unused else one for one in found]


def unused_reason(limit_s: float | None) -> str:
    """Return why an unused node is left alone."""
    return f"no job of the queue has used it for {limit_s or 0:g} s: the site may power it down"
