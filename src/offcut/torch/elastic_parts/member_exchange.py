"""Exchanges among the members within a step. A generation that breaks in one costs the step, and the script goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from offcut.errors import InputError
from offcut.torch.elastic_parts.current_training import current
from offcut.torch.elastic_parts.elastic_training import ElasticTraining
from offcut.torch.membership.process_group import Abandoned, Group


def in_step(call: str, *, alone: bool = False) -> ElasticTraining:
    """Return the elastic training of a script that is in a step.

    Args:
        call: what the script called, for the error.
        alone: whether members may call it a different number of times.

    Raises:
        InputError: there is no training, or it is in no step, or members that call it may wait for one that does not.
    """
    training = current(call)
    if not alone:
        training.step.check_outside_shards(f"offcut.torch.{call}()")
    if not training.in_step:
        raise InputError(
            f"offcut.torch.{call}() outside of a step.",
            next_step="Call it inside the loop over the loader, before optimizer.step(). After the loop, "
            "offcut.torch.evaluate() gives a number that all members share.",
        )
    return training


def exchanged(training: ElasticTraining, exchange: Callable[[Group], Any], alone: Any) -> Any:
    """Return what all members have together. All of them call this at the same places of their scripts.

    Args:
        training: the elastic training.
        exchange: called with the group if there are other members. It raises Abandoned if the generation breaks.
        alone: returned if there are no other members, or if the generation broke; then the step will be skipped.
    """
    group = training.together
    if group is None:
        return alone
    try:
        if training.training.visit("exchange"):
            raise Abandoned("injected during an exchange")
        return exchange(group)
    except Abandoned as reason:
        training.abandon(reason)
        return alone


def summed(group: Group, own: torch.Tensor) -> torch.Tensor:
    """Return the sum of the members' tensors of one shape; `own` stays as it is. Raises Abandoned."""
    total = own.clone()
    group.wait(group.start_all_reduce(total))
    return total


def gathered(group: Group, own: torch.Tensor) -> list[torch.Tensor]:
    """Return every member's rows, by rank. Members may have different numbers of them. Raises Abandoned."""
    lengths = [length for (length,) in group.gather([len(own)])]
    table = torch.zeros(group.world, max(*lengths, 1), *own.shape[1:], dtype=own.dtype, device=own.device)
    table[group.rank, : len(own)] = own
    group.wait(group.start_all_reduce(table))
    return [table[rank, :length] for rank, length in enumerate(lengths)]
