"""How the scenarios of the controller begin."""

from __future__ import annotations

from typing import Any

from world import World


def running(world: World, *nodes: str, sizes: str = "1:8", **fields: Any) -> World:
    """Job `a` trains on these nodes, in this order of ranks."""
    world.submit("a", sizes, **fields)
    world.offer(*nodes)
    world.until_members("a", list(nodes))
    return world
