"""Beginnings that the scenarios of the controller share."""

from __future__ import annotations

from typing import Any

from world import World


def running(world: World, *nodes: str, sizes: str = "1:8", **fields: Any) -> World:
    """Let job `a` train on these nodes, in this order of ranks."""
    world.submit("a", sizes, **fields)
    world.offer(*nodes)
    world.until_members("a", list(nodes))
    return world
