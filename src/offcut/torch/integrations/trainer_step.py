"""The numbers that the members exchange in a step of a Trainer: by what each one's gradient counts, and totals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from offcut.torch.elastic_parts.elastic_training import ElasticTraining
from offcut.torch.elastic_parts.member_exchange import exchanged
from offcut.torch.membership.process_group import Group


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """This member's share of one of the global batches whose gradients a step adds up.

    Args:
        inputs: the data.
        weight: this member's part of the global batch's samples; 0: the data are another member's.
    """

    inputs: Any
    weight: float


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all members.

    Args:
        items: over how much the step's loss is the mean: tokens, say; 0 if it is the mean over samples.
        flos: floating-point operations of the step.
        input_tokens: tokens in the inputs.
    """

    items: float
    flos: float
    input_tokens: float


def add_up(training: ElasticTraining, own: Totals) -> Totals:
    """Return the sums of `own` over the members. If the generation breaks, the step is marked as failed.

    Args:
        training: the elastic training, in a step.
        own: this member's numbers.
    """

    def exchange(group: Group) -> Totals:
        numbers = torch.tensor([own.items, own.flos, own.input_tokens], dtype=torch.float64)
        group.wait(group.start_all_reduce(numbers))
        return Totals(*numbers.tolist())

    totals: Totals = exchanged(training, exchange, own)
    return totals
