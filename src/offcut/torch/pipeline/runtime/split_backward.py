"""Runs a backward in two halves, as zero-bubble schedules need it: input gradients first, weight gradients later."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight


def backward_input(
    module: nn.Module,
    inputs: Sequence[torch.Tensor],
    outputs: list[torch.Tensor],
    gradients: list[torch.Tensor] | None,
) -> Callable[[], None]:
    """Give the `inputs` that need one their `.grad`. Return the function that adds the parameters' gradients.

    PyTorch saves what both halves share if one tensor goes in and one comes out. If several cross the cuts (skip
    connections) it cannot, and the second half does the shared work again.
    """
    needed = [x for x in inputs if x.requires_grad]
    if not needed:
        return lambda: torch.autograd.backward(outputs, gradients)
    if len(needed) == len(outputs) == 1:
        _, kept = stage_backward_input(outputs, gradients, needed, module.parameters())

        def rest() -> None:
            stage_backward_weight(module.parameters(), kept)

        return rest
    for x, gradient in zip(
        needed, torch.autograd.grad(outputs, needed, gradients, retain_graph=True, allow_unused=True), strict=True
    ):
        x.grad = gradient
    parameters = [p for p in module.parameters() if p.requires_grad]

    def weights() -> None:
        found = torch.autograd.grad(outputs, parameters, gradients, allow_unused=True) if parameters else ()
        for p, gradient in zip(parameters, found, strict=True):
            if gradient is not None:
                p.grad = gradient if p.grad is None else p.grad + gradient

    return weights
