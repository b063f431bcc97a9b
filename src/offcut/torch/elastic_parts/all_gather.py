"""All members' rows of a tensor, with gradients: for losses that compare samples of the whole global batch."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from offcut.errors import InputError
from offcut.torch.elastic_parts.elastic_training import ElasticTraining
from offcut.torch.elastic_parts.member_exchange import exchanged, in_step, summed
from offcut.torch.membership.process_group import Group


def all_gather(value: torch.Tensor) -> torch.Tensor:
    """Return the rows of `value` for all samples of the global batch, in the order of the batch.

    The gradient flows back to each member's rows. What a script computes of the result is the same on all members, and
    as if one member had the whole batch: `loss = contrastive(offcut.torch.all_gather(model(x)))` is the loss over the
    global batch. A loss of each member's own rows against all rows is right too, if it is the mean over its own.

    Args:
        value: this member's rows, one for each of its samples, in their order; or several blocks of such rows one
            after the other, as of two views of the samples (`torch.cat([a, b])`), whose results are blocks too.

    Returns:
        A tensor with a row for each sample of the global batch (and block), of the type and shape of `value` otherwise.
        Where the generation breaks, the other members' rows are copies of this member's, and the step will be skipped.

    Raises:
        InputError: it was called outside of a step, or `value` has not as many rows as this member has samples.
    """
    training = in_step("all_gather")
    step = training.step
    own = len(step.rows)
    if value.dim() == 0 or len(value) == 0 or len(value) % own:
        raise InputError(
            f"offcut.torch.all_gather() of a tensor of the shape {tuple(value.shape)}, where this member has {own} "
            "samples.",
            next_step="Give one row for each sample of this member's share.",
        )
    if training.together is None and not step.failed:
        return value
    found: torch.Tensor = _AllGather.apply(value, training)
    return found


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, training: ElasticTraining) -> torch.Tensor:
        step = training.step
        rows = torch.tensor(step.rows, device=value.device)
        blocks = value.detach().unflatten(0, (-1, len(rows)))
        ctx.training, ctx.rows, ctx.blocks, ctx.weight = training, rows, len(blocks), step.weight
        # gloo sums no truth values.
        sent = blocks.to(torch.uint8) if value.dtype == torch.bool else blocks

        def exchange(group: Group) -> torch.Tensor:
            table = sent.new_zeros(len(sent), step.batch_rows, *sent.shape[2:])
            if step.weight > 0.0:
                table[:, rows] = sent
            group.wait(group.start_all_reduce(table))
            return table

        copies = sent[:, torch.arange(step.batch_rows, device=value.device) % len(rows)]
        table: torch.Tensor = exchanged(training, exchange, copies)
        return table.flatten(0, 1).to(value.dtype)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        weight = ctx.weight
        # This member's parameters' gradients are multiplied by its weight later, also what comes of others' losses.
        own = (grad * weight if weight > 0.0 else torch.zeros_like(grad)).unflatten(0, (ctx.blocks, -1)).contiguous()

        total: torch.Tensor = exchanged(ctx.training, lambda group: summed(group, own), own)
        mine = total[:, ctx.rows].flatten(0, 1)
        return mine / weight if weight > 0.0 else torch.zeros_like(mine), None
