"""What the view of the nodes shows, as plain data for its template."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from offcut.service import views
from offcut.service.controller import Controller

#: At most this many names are listed of one group.
MOST_NAMES = 200


def nodes(controller: Controller) -> dict[str, Any]:
    """Return the nodes in groups by use, those that are set aside, and what the cluster says of itself."""
    groups: dict[tuple[int, str, str], list[str]] = defaultdict(list)
    for name, node in controller.state.nodes.items():
        if node.phase == "idle":
            groups[3, "idle", ""].append(name)
        elif node.job is None:
            groups[2, "held", ""].append(name)
        elif node.worker == "member":
            groups[0, "trains", node.job].append(name)
        else:
            groups[1, "boots", node.job].append(name)
    now_s = controller.clock.now()
    return {
        "groups": [
            {"use": use, "job": job, "count": len(names), "names": sorted(names)[:MOST_NAMES]}
            for (_, use, job), names in sorted(groups.items())
        ],
        "aside": [{**item, "left_s": max(0.0, item["until_s"] - now_s)} for item in views.aside(controller.state)],
        "cluster": controller.cluster.describe(),
        "claiming": controller.state.claiming,
    }
