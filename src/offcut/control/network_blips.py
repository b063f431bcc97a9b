"""Whether agents that are not heard any more are gone, or the network is. Pure."""

from __future__ import annotations

#: Fewer agents that fall silent together than this, and than this share of all, are taken for dead one by one.
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
