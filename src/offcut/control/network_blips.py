"""Decides whether silent agents have died, or the network has failed. Pure."""

from __future__ import annotations

#: If fewer agents than this, and than this share of all, fall silent together, each of them counts as dead.
_LEAST_AGENTS = 16
_LEAST_SHARE = 0.1


def is_blip(unheard: int, agents: int) -> bool:
    """Return whether the network is the likelier cause when `unheard` of `agents` are not heard at the same time.

    Nodes die alone or in small groups, and a batch system says which nodes it has taken. When many healthy agents are
    counted as lost, their nodes are released and training starts again on others; waiting a few seconds costs less.

    Args:
        unheard: Agents that were cut off without a word or are silent, and whose nodes are still held.
        agents: All agents of held nodes.
    """
    return unheard >= _LEAST_AGENTS and unheard > _LEAST_SHARE * agents
