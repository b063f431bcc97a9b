"""BatchNorm over the global batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from offcut.torch.elastic_parts import current_training
from offcut.torch.elastic_parts.elastic_training import ElasticTraining
from offcut.torch.elastic_parts.member_exchange import exchanged, in_step, summed
from offcut.torch.membership.process_group import Group


class SyncBatchNorm(_BatchNorm):
    """BatchNorm whose statistics in training are those of the global batch, at any size and on any device.

    It has the arguments and the state of `torch.nn.BatchNorm1d` to `3d`, and takes inputs of any number of dimensions,
    at least two. The members exchange two numbers per channel in each forward and each backward pass. Alone, in
    evaluation mode, and outside of a step it is torch's own.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        global _uncompiled  # noqa: PLW0603 - made with the first layer, because it imports torch's compiler
        if _uncompiled is SyncBatchNorm._forward_now:
            _uncompiled = torch.compiler.disable(SyncBatchNorm._forward_now)

    @classmethod
    def convert_sync_batchnorm(cls, module: nn.Module) -> nn.Module:
        """Replace all BatchNorm layers of a model. Their parameters and buffers are the same objects as before.

        Args:
            module: the model, or one of those layers.

        Returns:
            The model; another module if it was such a layer itself.
        """
        converted = module
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            converted = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats)
            converted.weight, converted.bias = module.weight, module.bias
            converted.running_mean, converted.running_var = module.running_mean, module.running_var
            converted.num_batches_tracked = module.num_batches_tracked
            converted.training = module.training
        for name, child in module.named_children():
            converted.add_module(name, cls.convert_sync_batchnorm(child))
        return converted

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the input, normalised by the statistics of the global batch in a step, and then scaled and shifted."""
        return _uncompiled(self, input)

    def _forward_now(self, input: torch.Tensor) -> torch.Tensor:
        """See `forward`, which does not let a compiler look at what depends on the members."""
        training = current_training.find()
        if not self.training or training is None or not training.in_step:
            return super().forward(input)
        in_step("SyncBatchNorm")
        if training.together is None and not training.step.failed:
            return super().forward(input)
        self._check_input_dim(input)
        output, mean, variance = _Normalise.apply(input, self.weight, self.bias, self.eps, training)
        if self.track_running_stats and self.running_mean is not None and self.running_var is not None:
            with torch.no_grad():
                momentum = self.momentum
                if self.num_batches_tracked is not None:
                    self.num_batches_tracked.add_(1)
                    if momentum is None:
                        momentum = 1.0 / float(self.num_batches_tracked)
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum or 0.0)
                self.running_var.lerp_(variance.to(self.running_var.dtype), momentum or 0.0)
        found: torch.Tensor = output
        return found


_uncompiled: Callable[[SyncBatchNorm, torch.Tensor], torch.Tensor] = SyncBatchNorm._forward_now


class _Normalise(torch.autograd.Function):
    """Returns the normalised input, and the mean and the unbiased variance of each channel over the global batch."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        training: ElasticTraining,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        others = [i for i in range(x.dim()) if i != 1]
        shape = [1, -1, *[1] * (x.dim() - 2)]
        values = x.detach().to(torch.promote_types(x.dtype, torch.float32))
        own_mean = values.mean(others)
        own_squares = (values - own_mean.view(shape)).square().sum(others)
        own = torch.cat([own_mean, own_squares, own_mean.new_tensor([x.numel() / x.shape[1]])])

        def exchange(group: Group) -> torch.Tensor:
            # Each member's numbers in a row of their own: adding the others' zeros changes no bit of them.
            table = own.new_zeros(group.world, len(own))
            if training.step.weight > 0.0:
                table[group.rank] = own
            group.wait(group.start_all_reduce(table))
            return table

        table: torch.Tensor = exchanged(training, exchange, own.unsqueeze(0))
        means, squares, counts = table.split([x.shape[1], x.shape[1], 1], dim=1)
        count = counts.sum()
        mean = (means * counts).sum(0) / count
        squares = (squares + counts * (means - mean).square()).sum(0)
        scale = (squares / count + eps).rsqrt()
        normal = ((values - mean.view(shape)) * scale.view(shape)).to(x.dtype)
        ctx.save_for_backward(normal, weight, scale)
        ctx.training, ctx.part, ctx.count, ctx.biased = training, training.step.weight, count, bias is not None
        output = normal if weight is None else normal * weight.view(shape)
        if bias is not None:
            output = output + bias.view(shape)
        variance = squares / (count - 1).clamp(min=1)
        ctx.mark_non_differentiable(mean, variance)
        return output.to(x.dtype), mean, variance

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        normal, weight, scale = ctx.saved_tensors
        others = [i for i in range(grad.dim()) if i != 1]
        shape = [1, -1, *[1] * (grad.dim() - 2)]
        products, gradients = (grad * normal).to(scale.dtype).sum(others), grad.to(scale.dtype).sum(others)
        # This member's parameters' gradients are multiplied by its part later, also what comes of others' losses.
        own = torch.cat([gradients, products])
        own = own * ctx.part if ctx.part > 0.0 else torch.zeros_like(own)

        total: torch.Tensor = exchanged(ctx.training, lambda group: summed(group, own), own)
        by_input = torch.zeros_like(grad)
        if ctx.part > 0.0:
            mean_gradient, mean_product = (total / ctx.count / ctx.part).chunk(2)
            inner = grad - mean_gradient.view(shape) - normal * mean_product.view(shape)
            by_input = (inner * (scale if weight is None else scale * weight).view(shape)).to(grad.dtype)
        by_weight = None if weight is None else products.to(weight.dtype)
        by_bias = gradients.to(weight.dtype if weight is not None else grad.dtype) if ctx.biased else None
        return by_input, by_weight, by_bias, None, None
