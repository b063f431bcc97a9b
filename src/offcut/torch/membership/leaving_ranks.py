"""Finds out which members of a generation leave at its end."""

from __future__ import annotations

from collections.abc import Sequence

from offcut.membership.entering import is_fenced
from offcut.torch.membership.agent_link import AgentLink
from offcut.torch.membership.process_group import Group


def ranks_that_leave(group: Group, link: AgentLink, leaving: Sequence[int]) -> list[int]:
    """Return all ranks that leave: members that are not in the newest generation leave too.

    Args:
        group: the members of the generation that ends; all call this at once, and each tells the others whether it is.
        link: this member's connection to its agent.
        leaving: the ranks that are known to leave.

    Raises:
        Abandoned: the generation broke.
    """
    current, newest = group.membership, None
    if group.rank not in leaving:
        newest = link.newest() if leaving else link.await_newer(current.generation)
    out = link.leaving or (
        newest is not None and newest.generation > current.generation and is_fenced(link.worker, newest)
    )
    return [rank for rank, row in enumerate(group.gather([int(out)])) if row[0]]
