"""Which members give their state to the others when a generation forms."""

from __future__ import annotations

from collections.abc import Sequence


def newest_step(steps: Sequence[int]) -> int:
    """Return the step that all members of a forming generation are brought to: that of the most advanced one.

    Args:
        steps: by rank, the member's last applied step; -1 for a member without a state.

    Returns:
        The largest of `steps`; -1 if no member has a state.
    """
    return max(steps)


def transfer_rounds(steps: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Return who sends its state to whom: rounds of (giver, receiver) ranks, each rank in one pair of a round at most.

    The most advanced members give first. A member that has received gives in the next round, so n receivers take log2
    of n rounds from one giver, and fewer from several.

    Args:
        steps: by rank, the member's last applied step; -1 for a member without a state.

    Returns:
        The rounds in order; none if no member has a state or all have the same.
    """
    top = newest_step(steps)
    if top < 0:
        return []
    givers = [rank for rank, step in enumerate(steps) if step == top]
    receivers = [rank for rank, step in enumerate(steps) if step < top]
    planned = []
    while receivers:
        pairs = list(zip(givers, receivers, strict=False))
        receivers = receivers[len(pairs) :]
        givers += [receiver for _, receiver in pairs]
        planned.append(pairs)
    return planned
