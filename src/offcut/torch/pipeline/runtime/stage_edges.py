"""Makes the gradients of a stage's inputs contiguous.

The gradient that autograd makes for a stage's input need not be contiguous (that of an expand or a transpose is not),
and the transports refuse such a tensor on one rank while the other ranks wait for it. An identity at the stage's input
makes it contiguous.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class _Contiguous(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.contiguous().view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.contiguous()


class ContiguousEdges(nn.Module):
    """Wraps `inner` between contiguous edges.

    Its parameters keep the names that they have in `inner`, under `inner.`.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        ready = [_Contiguous.apply(x) if x.is_floating_point() else x for x in inputs]
        out = self.inner(*ready)
        if isinstance(out, tuple):
            return tuple(x.contiguous() for x in out)
        return out.contiguous()
