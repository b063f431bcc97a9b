"""Checks that the members' scripts made the same model, optimizers and data, so that their states can be compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from offcut.torch.membership.differences import difference
from offcut.torch.membership.process_group import Group
from offcut.torch.membership.state_checksum import arithmetic, number
from offcut.torch.state.training_state import TrainingState

#: How many numbers `script_row` returns.
SCRIPT_NUMBERS = 2


def script_row(state: TrainingState) -> list[int]:
    """Return what members send each other before they compare anything: hashes of the script and of the processor."""
    device = next((p.device for p in state.model.parameters()), torch.device("cpu"))
    return [number(repr(sorted(state.description().items())), 63), arithmetic(device)]


def check_scripts(
    group: Group, state: TrainingState, rows: Sequence[Sequence[int]], note: Callable[[str], None]
) -> None:
    """Compare the `script_row` of every member, and set `group.exact`.

    Args:
        group: the members; all call this at once.
        state: this member's.
        rows: what `script_row` returned on each member, by rank.
        note: is told, on the first member, that the nodes' processors do not compute the same.

    Raises:
        OffcutError: on all members, naming what differs, if the scripts have not made the same.
        Abandoned: if the generation broke.
    """
    if len({description for description, _ in rows}) > 1:
        raise difference(
            group,
            "offcut.torch: the members' scripts do not make the same",
            state.description(),
            "Build model, data and session from what all members have: the same files, a fixed seed.",
        )
    group.exact = len({kind for _, kind in rows}) == 1
    if not group.exact and group.rank == 0:
        note("the nodes do not compute the same to the last bit: floating tensors are not compared")
