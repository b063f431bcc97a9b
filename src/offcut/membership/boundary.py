"""What a member does at a boundary, the moment between two steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BoundaryActions:
    """What to do, in this order; nothing where all are False."""

    #: Give the current generation up: a member has died, so no step can be done in it any more.
    abandon: bool = False
    #: Begin a checkpoint.
    checkpoint: bool = False
    #: Enter the next generation, because this worker is in none.
    enter: bool = False
    #: Switch to the next generation together with all other members.
    switch: bool = False


def at_boundary(
    *, has_group: bool, aborted: bool, applied: bool, switch: bool, save: bool, leaving: bool
) -> BoundaryActions:
    """Return what a member does at a boundary.

    All members pass the same `switch`, `save` and `leaving`, which they learn in the reduce of the same step. So all
    switch at the same boundary, unless a member has died.

    Args:
        has_group: whether this worker is in a generation's process group.
        aborted: whether that generation has lost a member.
        applied: whether a step was applied since the last boundary; a step that failed decides nothing.
        switch: whether a member has seen a newer generation.
        save: whether the first member asks for a checkpoint.
        leaving: whether any member leaves at this boundary.
    """
    abandon = has_group and aborted
    stays = has_group and not abandon
    return BoundaryActions(
        abandon=abandon,
        # Members that leave hand the state on first; the generation after them begins the checkpoint.
        checkpoint=stays and applied and save and not leaving,
        enter=not stays,
        switch=stays and applied and (switch or leaving),
    )
